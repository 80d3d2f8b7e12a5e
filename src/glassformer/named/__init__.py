"""Named models with the settings of their papers.

Each preset is a function from a few choices (vocab, dim, blocks, heads, hidden, context) to a spec; a choice that is
not made keeps the paper's value. Where the paper has something that this core does not express, the docstring says so.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping

from ..errors import InputError, SettingError, nearest
from ..model import AnySpec
from ..spec import from_data, to_data
from .conv import tcn
from .dense import mlp, mlp_mixer
from .images import lenet, mlp_image, vit
from .linear import deltanet, gla, linear_attention, retention
from .memory import longformer, memory_caching, rmt, transformer_xl
from .recurrent import bahdanau, gru, lstm, rnn
from .ssm import mamba, mamba2
from .transformers import bert, gpt2, llama, t5, transformer_base

PRESETS: Mapping[str, Callable[..., AnySpec]] = {
    "transformer-base": transformer_base,
    "bert": bert,
    "gpt2": gpt2,
    "llama": llama,
    "t5": t5,
    "tcn": tcn,
    "mlp": mlp,
    "mlp-mixer": mlp_mixer,
    "rnn": rnn,
    "gru": gru,
    "lstm": lstm,
    "bahdanau": bahdanau,
    "linear-attention": linear_attention,
    "retention": retention,
    "gla": gla,
    "deltanet": deltanet,
    "longformer": longformer,
    "transformer-xl": transformer_xl,
    "memory-caching": memory_caching,
    "rmt": rmt,
    "mamba": mamba,
    "mamba2": mamba2,
    "lenet": lenet,
    "mlp-image": mlp_image,
    "vit": vit,
}


def presets() -> tuple[str, ...]:
    """The names of all presets."""
    return tuple(PRESETS)


def spec_of(given: str | AnySpec, **choices: object) -> AnySpec:
    """The spec of a model that is given as one or by a preset's name, with other values for some of its settings.

    Raises InputError for what is neither, SettingError as `preset` does."""
    if isinstance(given, str):
        return preset(given, **choices)
    if not isinstance(given, AnySpec):
        raise InputError(f"{given!r} is no model; give the name of a preset, or a spec")
    return given.changed(**choices) if choices else given


def choices_of(name: str) -> tuple[str, ...]:
    """What can be chosen of a preset."""
    return tuple(inspect.signature(PRESETS[name]).parameters)


def preset(name: str, **choices: object) -> AnySpec:
    """The spec of a named model, with other values for some of its choices: `preset("gpt2", vocab=65, blocks=6)`.

    Raises SettingError for a name or a choice that does not exist, and for a value that is not allowed.
    """
    if not isinstance(name, str):
        raise SettingError(f"preset: {name!r} is no name; {nearest('', PRESETS, shown=len(PRESETS))}")
    if name not in PRESETS:
        raise SettingError(f"preset: there is none named {name!r}; {nearest(name, PRESETS, shown=len(PRESETS))}")
    make = PRESETS[name]
    known = inspect.signature(make).parameters
    for choice, value in choices.items():
        if choice not in known:
            raise SettingError(f"{choice}: preset {name} has no such choice; {nearest(choice, known)}")
        if isinstance(known[choice].default, bool):
            if not isinstance(value, bool):
                raise SettingError(f"{choice}: {value!r} is not allowed; use true or false")
            continue
        # The fields that a choice ends up in are checked below; counts are used before that.
        if choice == "dropout":
            if type(value) not in (int, float) or not 0 <= value < 1:
                raise SettingError(f"dropout: {value!r} is not allowed; use 0 to below 1")
        elif value is not None and (type(value) is not int or value < 1):
            raise SettingError(f"{choice}: {value!r} is not allowed; use a whole number from 1")
    return from_data(to_data(make(**choices)), AnySpec)

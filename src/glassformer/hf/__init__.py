"""Published models: one file of two-way rules a family. FAMILIES is the table that a new one is entered in."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from ..checkpoint import filled, unique_tensors
from ..data.ids import is_pair
from ..errors import InputError, UnsupportedError, nearest
from ..machine import check_room
from ..model import AnySpec, without_memory
from ..nn.pool import PooledSpec
from ..spec import from_data, to_data
from ..weights import Weights
from . import labels
from .bart import BART, MARIAN, MBART
from .bert import BERT, ROBERTA, XLM_ROBERTA
from .distilbert import DISTILBERT
from .gemma import GEMMA2, GEMMA3
from .generation import check_ids
from .gpt2 import GPT2
from .gpt_neox import GPT_NEOX
from .llama import LLAMA
from .mamba import MAMBA, MAMBA2
from .mistral import MISTRAL
from .modernbert import MODERNBERT
from .olmo2 import OLMO2
from .qwen import QWEN2, QWEN3
from .refused import refuse
from .rope import in_halves
from .rules import Config, Family, put
from .sentences import network_of
from .t5 import MT5, T5
from .tensors import are_apart, check_counts, is_stored, read_tensors, shapes_of, write_tensors
from .vit import DEIT, VIT
from .whisper import WHISPER

__all__ = ["FAMILIES", "Config", "Family", "check_beginning", "export", "family_of", "read_model"]

_KNOWN = (
    *(LLAMA, MISTRAL, QWEN2, QWEN3, OLMO2, GEMMA2, GEMMA3, GPT_NEOX, GPT2),
    *(T5, MT5, BART, MBART, MARIAN),
    *(MAMBA, MAMBA2),
    *(BERT, ROBERTA, XLM_ROBERTA, DISTILBERT, MODERNBERT),
    *(VIT, DEIT),
    WHISPER,
)
FAMILIES: dict[str, Family] = {family.name: family for family in _KNOWN}


def family_of(config: Config) -> Family:
    """The family of a configuration by its `model_type`; raises UnsupportedError for one that is not known."""
    name = config.get("model_type")
    if not isinstance(name, str) or name not in FAMILIES:
        raise UnsupportedError(f"model_type: {name!r} is not known here; {nearest(str(name), FAMILIES)}")
    return FAMILIES[name]


def check_beginning(config: Config, said: Config) -> None:
    """Raise UnsupportedError for a family that is not known, and SettingError for an id with which a target would begin
    that the vocabulary does not hold (generation.check_ids). said: generation_config.json."""
    family = family_of(config)
    if is_pair(config) and family is not WHISPER:  # which is told what to do with tokens of its own
        check_ids(config, said, family.spec(config).decoder.vocab)


def read_model(
    config: Config,
    weights: Mapping[str, Tensor],
    place: Path | str,
    device: str | torch.device = "cpu",
    dtype: torch.dtype | None = torch.float32,
    head: PooledSpec | None = None,
) -> nn.Module:
    """The model of a configuration and its tensors by their published names, in evaluation mode; dtype None keeps the
    stored one. place: where they lie, for messages. head: one without weights, in the place of the published one.

    Raises UnsupportedError for what the family's rules do not cover, SettingError for a configuration that no model can
    have, CheckpointError for tensors that do not fit it, InputError for more than the machine has.
    """
    family = family_of(config)
    check_counts(family, config, weights, place)
    spec, lacking = family.spec(config), family.without(config)
    if lacking is not None and not is_stored(family, lacking[0], weights, place):
        spec = lacking[1]
    if are_apart(family, weights, place):
        data = to_data(spec)
        put(data, family.apart[2], False)
        spec = from_data(data, AnySpec)
    if head is not None:
        spec, weights = spec.changed(head=head), _without_head(family, weights)
    shapes = shapes_of(unique_tensors(without_memory(spec)))
    if isinstance(weights, Weights):
        weights = weights.cast(dtype, device)
        check_room(weights.need_bytes, place, device)
    tensors = read_tensors(family, spec, shapes, weights, place)
    for name, value in tensors.items():  # one after the other, so that what is converted is not held twice
        tensors[name] = value.to(device, dtype).contiguous()
    return filled(spec, tensors, Path(place), device)


def _without_head(family: Family, weights: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """The tensors but for those of the published head; all, where the names have no prefix that tells them apart."""
    body = [name for name in weights if name.startswith(family.prefix)]
    if not body:
        return weights
    if isinstance(weights, Weights):
        return Weights({name: weights.stored[name] for name in body})
    return {name: weights[name] for name in body}


def export(model: nn.Module, family: Family | str | None = None) -> tuple[Config, dict[str, Tensor]]:
    """The configuration and the tensors of a model as a published family has them; family None: the first one that can
    say this model, whose RoPE may turn neighbours (rope.in_halves). Of a model of sentence vectors those of its
    network, without what pools them (sentences.pooling_of).

    Raises UnsupportedError where none can, with the place of the spec that has no published form, or that differs.
    """
    spec, tensors = in_halves(model)
    spec = network_of(spec)
    chosen, config = _able(spec, family)
    bare = config["architectures"][0].endswith("Model") and config["architectures"][0] not in chosen.headed
    return labels.complete(config), write_tensors(chosen, spec, tensors, bare)


def _able(spec: AnySpec, family: Family | str | None) -> tuple[Family, Config]:
    """The family to write a spec in, and the spec as its configuration."""
    if isinstance(family, Family):
        return family, family.config(spec)
    if family is not None and family not in FAMILIES:
        raise InputError(f"family: {family!r} is no published family; {nearest(family, FAMILIES)}")
    for one in FAMILIES.values() if family is None else (FAMILIES[family],):
        config, found = one.nearest(spec)
        if not found:
            return one, config
    refuse(spec, family, FAMILIES)

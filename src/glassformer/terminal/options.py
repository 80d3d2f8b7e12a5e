"""The options that several verbs share, and the language that the arguments ask for."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import CoercionError, Group, Parameter

from ..errors import GlassformerError, InputError, SettingError
from ..files import given_path


def _whole(kind: Any, tokens: Sequence[Any]) -> int:
    """A whole number; cyclopts itself would round 1.5."""
    try:
        return int(tokens[0].value)
    except ValueError:
        raise CoercionError(token=tokens[0], target_type=int) from None


def _place(kind: Any, tokens: Sequence[Any]) -> Path:
    """A path, which an empty text is not."""
    try:
        return given_path(tokens[0].value)
    except InputError as error:  # cyclopts has words of its own for a ValueError
        raise GlassformerError(str(error)) from None


Whole = Annotated[int, Parameter(converter=_whole)]
Place = Annotated[Path, Parameter(converter=_place)]
GROUP = Group("Common options", sort_key=90)


@Parameter(name="*")
@dataclass(frozen=True)
class Common:
    """What every verb understands."""

    json: Annotated[
        bool,
        Parameter(group=GROUP, negative="", show_default=False, help="Print JSON with all digits, not a view."),
    ] = False
    lang: Annotated[
        Literal["auto", "en", "ko"],
        Parameter(group=GROUP, help="Language; auto: Korean where an argument or the locale is Korean."),
    ] = "auto"
    device: Annotated[str, Parameter(group=GROUP, help="Where to compute: cpu, cuda, cuda:1, mps.")] = "cpu"
    dtype: Annotated[str, Parameter(group=GROUP, help="Number format: float32, bfloat16, float64.")] = "float32"
    seed: Annotated[Whole, Parameter(group=GROUP, help="Seed of what is drawn at random.")] = 0


@Parameter(name="*")
@dataclass(frozen=True)
class OfTraining(Common):
    """The same for training, where a recipe may say it."""

    dtype: Annotated[
        str | None, Parameter(group=GROUP, help="Number format: auto, float32, bfloat16; left out: the recipe's.")
    ] = None
    seed: Annotated[
        Whole | None, Parameter(group=GROUP, help="Seed of what is drawn at random; left out: the recipe's.")
    ] = None


COMMON, OF_TRAINING = Common(), OfTraining()
ModelName = Annotated[
    str | None,
    Parameter(
        name=["--model", "-m"],
        help="A model's name, folder or hub id; left out: the shipped model.",
    ),
]
ModelNames = Annotated[
    tuple[str, ...],
    Parameter(
        name=["--model", "-m"],
        negative="",
        show_default=False,
        help="A model's name, folder or hub id; may be given again; left out: the shipped model.",
    ),
]

Edits = Annotated[
    tuple[str, ...],
    Parameter(
        negative="",
        show_default=False,
        help="Change a value of the run: 'zero blocks.3.mixer.z h=0' switches a head off; also mean and resample, and "
        "scale, add, replace and noise with a number ('scale blocks.0.mixer.out 0.5'), at places by axis letter; 'zero "
        "positions' takes the position signal away; 'cut blocks.0.mixer t=5 s=2' keeps token 2 from token 5; 'patch "
        'blocks.2.resid_out t=3 run="another text"\' puts in what another run has; may be given again.',
    ),
]
EditFile = Annotated[
    Path | None,
    Parameter(converter=_place, show_default=False, help="Changes of the run in a JSON file; before those of --edit."),
]
RowsBy = Annotated[
    Literal["word", "character", "token"] | None,
    Parameter(help="What one row of the table is; left out: a word, of a pair a token."),
]

Fitting = Annotated[
    Literal["auto", "ink", "whole", "resize", "none"],  # of data.fit, which would load torch
    Parameter(
        help="How an image of another size is read: ink as the digits of MNIST were made, whole scaled, resize as the "
        "model's own settings say, none not at all; auto: resize where it has any, else ink for a model of gray "
        "images, else whole."
    ),
]


@Parameter(name="*")
@dataclass(frozen=True)
class Measure:
    """What influence is measured by, and how; the names are those of TextTrace.moved."""

    what: Annotated[
        Literal["influence", "weights"],
        Parameter(
            help="weights: those of one layer's sum instead: attention's pattern, or the effective weights of linear "
            "attention and state-space models."
        ),
    ] = "influence"
    layer: Annotated[
        Whole | None, Parameter(help="With weights: the layer, from 0; left out: the first that has them.")
    ] = None
    head: Annotated[Whole | None, Parameter(help="With weights: the head, from 0; left out: the mean.")] = None
    method: Annotated[
        Literal["auto", "exact", "estimate"],
        Parameter(help="exact, or an estimate with its error; auto: exact while that takes seconds."),
    ] = "auto"
    directions: Annotated[Whole, Parameter(help="Random directions of an estimate, from 8.")] = 32
    memory: Annotated[Whole, Parameter(help="Memory limit, in MiB.")] = 1024

    def settings(self, seed: int) -> dict[str, Any]:
        """What TextTrace.moved and grid are called with."""
        if self.what == "weights":
            return {"what": self.what, "layer": self.layer, "head": self.head}
        for name in ("layer", "head"):
            if getattr(self, name) is not None:
                raise InputError(
                    f"--{name}: influence goes through all layers and heads; leave it out, or give --what weights"
                )
        own = {"method": self.method, "directions": self.directions}
        return own | {"seed": seed, "limit_bytes": self.memory << 20}


MEASURE = Measure()


@Parameter(name="*")
@dataclass(frozen=True)
class Choice:
    """How a generation chooses its tokens; the names are those of GenerateSpec."""

    max_new_tokens: Annotated[
        Whole | None,
        Parameter(
            name=["--max-new-tokens", "-n"],
            help="At most so many new tokens. [default: 64, or what the model's context has room for]",
        ),
    ] = None
    temperature: Annotated[
        float | None, Parameter(help="0: always the most probable token, as an encoder-decoder. [default: 0.8]")
    ] = None
    top_k: Annotated[Whole | None, Parameter(help="Draw from the k most probable tokens only.")] = None
    top_p: Annotated[
        float | None, Parameter(help="Draw from the most probable tokens of this total only. [default: 0.95]")
    ] = None
    min_p: Annotated[float | None, Parameter(help="Drop tokens below this share of the most probable one.")] = None
    repetition_penalty: Annotated[
        float | None, Parameter(help="Above 1: make tokens that occurred less probable. [default: 1.1]")
    ] = None
    stop: Annotated[
        tuple[str, ...], Parameter(negative="", show_default=False, help="Stop before this text; may be given again.")
    ] = ()
    forced: Annotated[
        tuple[str, ...] | None,
        Parameter(
            negative="",
            show_default=False,
            help="The first new token, such as the code of the language to write; may be given again.",
        ),
    ] = None
    beams: Annotated[Whole, Parameter(help="Above 1: beam search of this width instead of drawing.")] = 1
    length_penalty: Annotated[
        float | None,
        Parameter(help="Beam search: score = log p / length to this power. [default: 1, or what the model says]"),
    ] = None
    start: Annotated[bool, Parameter(help="Begin behind the start-of-document token.")] = True

    def settings(self, drawn: bool = True) -> dict[str, Any]:
        """The fields of GenerateSpec; what was not given is chosen for drawing, or left alone for beam search and for a
        text that is not drawn, such as a translation."""
        drawing = {"temperature": 0.8, "top_p": 0.95, "repetition_penalty": 1.1} if drawn and self.beams == 1 else {}
        given = {name: value for name, value in asdict(self).items() if value is not None}
        return drawing | given


CHOICE = Choice()
OPTIONS = {name: "--" + name.replace("_", "-") for name in (*Choice.__dataclass_fields__, "seed")}
OPTIONS["max_new_tokens"] = "-n"


def asked_language(arguments: Sequence[str]) -> str:
    """What --lang says, else Korean where an argument has Hangul or the locale is Korean, else English."""
    asked = re.search(r"(?:^|\0)--lang[=\0](en|ko)(?:\0|$)", "\0".join(arguments).split("\0--\0")[0])
    if asked:
        return asked[1]
    if any(re.search("[\u1100-\u11ff\u3130-\u318f\uac00-\ud7a3]", one) for one in arguments):
        return "ko"
    locale = next((value for name in ("LC_ALL", "LC_MESSAGES", "LANG") if (value := os.environ.get(name))), "")
    return "ko" if locale.startswith("ko") else "en"


def language_last(arguments: Sequence[str]) -> list[str]:
    """The arguments with a --lang that stands before the verb behind it, where it is an option of the verb; without
    it where there is no verb, as before --help."""
    before, rest = list[str](), list(arguments)
    while rest and (rest[0].startswith("--lang=") or (rest[0] == "--lang" and len(rest) > 1)):
        count = 1 if "=" in rest[0] else 2
        before, rest = [*before, *rest[:count]], rest[count:]
    verb = bool(rest) and not rest[0].startswith("-")
    return [rest[0], *before, *rest[1:]] if verb else rest


def settings_of(pairs: tuple[str, ...]) -> dict[str, str]:
    """What --set says, path to value; raises SettingError for a pair without =."""
    for pair in pairs:
        if "=" not in pair:
            raise SettingError(f"--set {pair}: write it as path=value, for example --set steps=500")
    return dict(pair.split("=", 1) for pair in pairs)


def check_text(text: str, counts: dict[str, int]) -> None:
    """Raise InputError before a model is loaded for nothing."""
    if not text.strip():
        raise InputError('the text is empty; give a sentence, for example "고양이가 생선을 먹었다"')
    for name, value in counts.items():
        if value < 1:
            raise InputError(f"--{name}: {value} is not allowed; use 1 or more")

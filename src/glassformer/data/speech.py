"""The tokens by which a speech model is told what to do (Radford et al. 2022, section 2.3)."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..errors import UnsupportedError
from ..spec import Spec, check_least, check_positive
from .tokenizer import Tokenizer

FIRST_TIME_S = 1.0  # the first word of a window is looked for in so many seconds


class SpeechSpec(Spec, frozen=True, tag="speech"):
    """The tokens that tell a speech model what to do, and those that it must not write.

    start, end               of a transcript
    untimed                  asks for a text without times; the ids behind it are the times 0, `tick`, 2·`tick` … s
    silence                  no speech is heard; None: the model does not say so
    transcribe, translate    asks for the words as they are spoken, or for English ones
    languages                code -> id; none: the model knows English alone, and is told neither language nor task
    suppressed               never chosen; suppressed_first: not as the first token of a text
    """

    start: int
    end: int
    untimed: int
    silence: int | None = None
    transcribe: int | None = None
    translate: int | None = None
    languages: dict[str, int] = {}
    suppressed: tuple[int, ...] = ()
    suppressed_first: tuple[int, ...] = ()
    tick: float = 0.02

    def __post_init__(self) -> None:
        check_least(self, 0, "start", "end", "untimed", "silence", "transcribe", "translate")
        check_positive(self, "tick")


def speech_of(tokenizer: Tokenizer, suppressed: Sequence[int], suppressed_first: Sequence[int]) -> SpeechSpec:
    """The speech tokens of a tokenizer, by their names. Raises UnsupportedError where it has none."""
    known = tokenizer.library.get_vocab(with_added_tokens=True)
    try:
        start, end, untimed = (known[f"<|{one}|>"] for one in ("startoftranscript", "endoftext", "notimestamps"))
    except KeyError as missing:
        raise UnsupportedError(
            f"the tokenizer has no {missing}; a speech model needs the tokenizer of Whisper"
        ) from None
    found = {name[2:-2]: id for name, id in known.items() if re.fullmatch(r"<\|[a-z]{2,3}\|>", name)}
    languages = {code: id for code, id in sorted(found.items(), key=lambda one: one[1]) if start < id < untimed}
    return SpeechSpec(
        start=start,
        end=end,
        untimed=untimed,
        silence=known.get("<|nospeech|>", known.get("<|nocaptions|>")),
        transcribe=known.get("<|transcribe|>"),
        translate=known.get("<|translate|>"),
        languages=languages,
        suppressed=tuple(suppressed),
        suppressed_first=tuple(suppressed_first),
    )

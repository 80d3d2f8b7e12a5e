"""The command line in Korean: the messages of mistakes and the sentences of the help, by their English text.

The code says what is wrong in English, once, where it is found; in korean.txt that text is the key, with {names} for
what varies. What a name stands for may itself be a text of the table. What is not in the table stays English.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

from cyclopts.help import DefaultFormatter


def table() -> dict[str, str]:
    """korean.txt: an English line, its Korean line below, a blank line; lines with # are comments."""
    text = (Path(__file__).parent / "korean.txt").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line and not line.startswith("# ")]
    return dict(zip(lines[::2], lines[1::2], strict=True))


# What stands for something that was given stays as it was given, also where it is a word of the table.
AS_GIVEN = {
    *("command", "data", "device", "dtype", "folder", "given", "held", "id", "method", "name", "names", "normalizer"),
    *("option", "pair", "path", "preset", "source", "text", "value", "variable", "word"),
}


def translated(message: str) -> str:
    """A text of one line in Korean, also behind the place that it names (`out/my: …`, `model.blocks.0.mixer: …`); as it
    is where the table has no such text."""
    for pattern, korean in _patterns():
        found = pattern.fullmatch(message)
        if found:
            parts = found.groupdict().items()
            return korean.format(**{name: one if name in AS_GIVEN else translated(one) for name, one in parts})
    place, colon, rest = message.partition(": ")
    return f"{place}: {translated(rest)}" if colon else message


@functools.cache
def _patterns() -> list[tuple[re.Pattern[str], str]]:
    """The table as patterns, those with the most text of their own first."""
    made = []
    for english, korean in table().items():
        pieces = re.split(r"\{(\w+)\}", english)
        pattern = "".join(f"(?P<{piece}>.*?)" if i % 2 else re.escape(piece) for i, piece in enumerate(pieces))
        made.append((sum(map(len, pieces[::2])), re.compile(pattern, re.S), korean))
    return [(pattern, korean) for _, pattern, korean in sorted(made, key=lambda one: -one[0])]


class Help(DefaultFormatter):
    """The help of cyclopts, its paragraphs folded where the terminal ends."""

    def render_description(self, console: Any, options: Any, description: Any) -> None:
        """Print what a command does."""
        if description:
            console.print(self.said(_text(description)) + "\n", markup=False, highlight=False)

    def said(self, text: str) -> str:
        """The paragraphs of a text, each in one line."""
        return "\n\n".join(paragraphs(text))


class KoreanHelp(Help):
    """The same with its sentences in Korean."""

    def __call__(self, console: Any, options: Any, panel: Any) -> None:
        """Print one panel of options or commands."""
        from attrs import evolve

        entries = [_entry(entry, evolve) for entry in panel.entries]
        super().__call__(console, options, panel.copy(title=helped(_text(panel.title)), entries=entries))

    def render_usage(self, console: Any, options: Any, usage: Any) -> None:
        """Print the line of usage."""
        if usage:
            console.print(f"사용법: {_text(usage)}".replace("Usage: ", ""), markup=False, highlight=False)

    def said(self, text: str) -> str:
        """The paragraphs of a text in Korean."""
        return helped(text)


def paragraphs(text: str) -> list[str]:
    """The paragraphs of a text, each in one line; an example stays as it is typed."""
    found = re.split(r"\n\s*\n", text.strip())
    return [one if one.startswith("Example:") else " ".join(one.split()) for one in found]


def helped(text: str) -> str:
    """A text of the help in Korean, paragraph by paragraph."""
    return "\n\n".join(
        one.replace("Example:", "예:") if one.startswith("Example:") else translated(one) for one in paragraphs(text)
    )


def _text(shown: Any) -> str:
    return getattr(getattr(shown, "primary_renderable", shown), "plain", str(shown))


def _entry(entry: Any, evolve: Any) -> Any:
    """An option with its sentence, its choices and its default in Korean."""
    text = [] if entry.description is None else [helped(_text(entry.description))]
    more = [f"[선택: {', '.join(entry.choices)}]"] if entry.choices else []
    more += [f"[기본값: {entry.default}]"] if entry.default is not None else []
    more += ["[필수]"] if entry.required else []
    return evolve(entry, description=" ".join(text + more).strip(), choices=(), default=None, required=False)

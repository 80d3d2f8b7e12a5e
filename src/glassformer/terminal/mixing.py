"""The sheet of a mixer of any family in the terminal: it draws what explain.mixing computed, and computes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.text import Text

from ..data.display import fit, width
from ..explain.mixing import MixerSheet, Source
from .sheet import (
    HEADING,
    INDENT,
    LEAST,
    MOST,
    WIDE,
    bar,
    beyond_lines,
    flow,
    named,
    next_lines,
    number,
    opening,
    printed,
    quantity_lines,
    rest_lines,
)
from .words import say


def show_mixer(sheets: Sequence[MixerSheet], console: Console, lang: str, model: str, closed: bool = False) -> None:
    """Print the sheet of one head, or of several one below the other. closed: words of several tokens stay one row."""
    for sheet in sheets:
        printed(lines(sheet, lang, model, closed, console.width), console)


def lines(sheet: MixerSheet, lang: str, model: str = "", closed: bool = False, columns: int = 80) -> Iterator[Text]:
    """The lines of the sheet, top to bottom, none wider than `columns`."""
    columns = max(LEAST, min(columns, MOST))
    yield from _head(sheet, lang, model, columns)
    yield Text()
    yield from flow([(say("read", lang), HEADING)], columns, hang=3)
    yield from quantity_lines(sheet.read, "x", lang, columns)
    yield Text()
    yield from flow([(say(f"mixing_{sheet.of}", lang, mixer=sheet.called[lang == "ko"]), HEADING)], columns, hang=3)
    yield from _table(sheet, lang, closed, columns)
    yield from _taps(sheet, lang, columns)
    yield from rest_lines(sheet, lang, columns)
    yield from next_lines(sheet, lang, columns)
    yield Text()
    if sheet.difference:
        yield from flow([(say("difference", lang, difference=sheet.difference, dtype=sheet.dtype), "dim")], columns)
    yield from flow([(say("mixing_caution" if sheet.of == "text" else "caution", lang), "dim")], columns)


def _head(sheet: MixerSheet, lang: str, model: str, columns: int) -> Iterator[Text]:
    yield from opening(sheet, lang, model, len(sheet.rows) if sheet.of == "text" else sheet.length, columns)
    name = sheet.called[lang == "ko"]
    values = {"mixer": name[0].upper() + name[1:], "move": sheet.moves[sheet.layer]}
    yield from flow([(say("gives", lang, **values), "")], columns)
    yield from beyond_lines(sheet, lang, columns)


# ---------------------------------------------------------------- 2: what is read, and the values inside


def _table(sheet: MixerSheet, lang: str, closed: bool, columns: int) -> Iterator[Text]:
    scored = any(row.score is not None for row in sheet.rows)
    titles = ([say("plain_score", lang)] if scored else []) + ([say("own_weight", lang)] if sheet.weights else [])
    titles += [say(f"reads_{sheet.of}", lang)]
    each = 10 if columns >= WIDE else 9
    names = [width(named(row.label, row.special, row.tokens[0], lang)) for row in sheet.rows]
    names += [INDENT + width(part.label) for row in sheet.rows for part in row.parts if not closed]
    cells = max(0, min(24, columns - 2 - 12 - each * len(titles) - 10))
    labels = max(4, min(max(names), columns - 2 - each * len(titles) - cells - 10))
    for card in filter(None, (sheet.scores, sheet.weights)):
        pieces = [(f"{card.symbol} = {card.formula}" if card.symbol != card.formula else card.formula, "")]
        yield from flow([*pieces, (card.ko if lang == "ko" else card.en, "dim")], columns, "  ")
    yield Text(f"  {fit(say('token', lang), labels)}" + "".join(fit(one, each, "right") for one in titles), "dim")

    def line(row: Source, indent: int) -> Text:
        asks = sheet.of == "text" and row.tokens[-1] == sheet.position and not indent
        text = Text("▶ " if asks else "  ", "yellow")
        label = fit(" " * indent + named(row.label, row.special, row.tokens[0], lang), labels)
        if row.reason:
            return text.append(fit(f"{label}  {say(row.reason, lang)}", columns - 2).rstrip(), "dim")
        style = "bold" if asks else "dim" if indent else ""
        text.append(label, style)
        shown = ([row.score] if scored else []) + ([row.weight] if sheet.weights else []) + [row.norm]
        text.append("".join(number(value, each) for value in shown), style)
        return text.append("  ").append(bar(row.share, cells), "green").append(f"{row.share:8.1%}", style)

    for row in sheet.rows:
        yield line(row, 0)
        for part in () if closed or row.reason else row.parts:
            yield line(part, INDENT)
    yield from flow([(say(f"reads_{sheet.of}_words", lang), "dim")], columns, "  ")


def _taps(sheet: MixerSheet, lang: str, columns: int) -> Iterator[Text]:
    if sheet.taps:
        yield Text()
        yield from flow([(say("inside", lang, mixer=sheet.called[lang == "ko"]), "")], columns, "  ")
    for tap, change in zip(sheet.taps, sheet.changes, strict=True):
        yield from quantity_lines(tap, " ", lang, columns)
        if change is not None:
            yield from flow([(say("change", lang, change=change), "dim")], columns, "     ")

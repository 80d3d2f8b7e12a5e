"""The sheet in the terminal. It draws what explain.sheet computed and computes nothing itself."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.text import Text

from ..data.display import fit, visible, width
from ..explain.mixing import MixerSheet
from ..explain.quantity import Quantity
from ..explain.sheet import Row, Sheet
from ..tap import AXES
from .words import say

EIGHTHS = " ▏▎▍▌▋▊▉█"
INDENT = 2
LEAST, MOST = 40, 140  # columns that a line may fill; a narrower terminal folds the lines itself
NAMES = 110  # from so many columns on, every value's address is printed beside it
WIDE = 72  # from so many on, numbers have their full digits, and the sum its |z|
HEADING = "bold cyan"
AFTER = " = |z|"  # behind the sum

# Not beside = and ×, not before · nor between a word and its number, not behind a single letter (an axis, an article).
BREAK = re.compile(r"(?<![=×])(?<!\b[a-z]) (?![=×·])(?!(?<=[^·,] )\d)")

Piece = tuple[str, str]  # a text and its style


def show_sheet(sheet: Sheet, console: Console, lang: str, model: str = "", closed: bool = False) -> None:
    """Print the sheet. closed: words of several tokens stay one row."""
    printed(lines(sheet, lang, model, closed, console.width), console)


def lines(sheet: Sheet, lang: str, model: str = "", closed: bool = False, columns: int = 80) -> Iterator[Text]:
    """The lines of the sheet, top to bottom, none wider than `columns`."""
    columns = max(LEAST, min(columns, MOST))
    yield from _head(sheet, lang, model, columns)
    yield from _vectors(sheet, lang, columns)
    yield from _table(sheet, lang, closed, columns)
    yield from rest_lines(sheet, lang, columns)
    yield from next_lines(sheet, lang, columns)
    yield Text()
    yield from flow([(say("difference", lang, difference=sheet.difference, dtype=sheet.dtype), "dim")], columns)
    yield from flow([(say("caution", lang), "dim")], columns)


def printed(made: Iterator[Text], console: Console) -> None:
    """Print lines that are already folded."""
    for line in made:
        line.rstrip()
        console.print(line, soft_wrap=True)


# ---------------------------------------------------------------- pieces of a line


def flow(pieces: Sequence[Piece], columns: int, start: str = "", hang: int | None = None) -> Iterator[Text]:
    """Pieces of text three spaces apart, folded at the spaces that BREAK allows; `hang`: the columns before what goes
    on in the next line."""
    hang = width(start) if hang is None else hang
    line, used, fresh = Text(start), width(start), True
    for piece, style in pieces:
        for place, word in enumerate(BREAK.split(piece)):
            gap = "" if fresh else " " if place else "   "
            if not fresh and used + len(gap) + width(word) > columns:
                yield line
                line, used, gap = Text(" " * hang), hang, ""
            word = fit(word, columns - used) if used + width(word) > columns else visible(word)
            line.append(gap).append(word, style)
            used, fresh = used + len(gap) + width(word), False
    yield line


def _addressed(pieces: list[Piece], name: str, columns: int, start: str) -> list[Piece]:
    """The pieces of a line, followed by the name of its value on a wide terminal with room for it."""
    used = width(start) + sum(width(text) + 3 for text, _ in pieces) + width(name)
    return [*pieces, (name, "dim")] if columns >= NAMES and used <= columns else pieces


def bar(share: float, cells: int) -> str:
    """A bar of exactly `cells` columns for a share from 0 to 1, in eighths of a column."""
    eighths = round(max(0.0, min(1.0, share)) * cells * 8)
    full, part = divmod(eighths, 8)
    return ("█" * full + (EIGHTHS[part] if part else "")).ljust(cells)


def number(value: float | None, columns: int = 10) -> str:
    """A number right-aligned in exactly so many columns, at least one of them free; a dot where there is none."""
    if value is None:
        return "·".rjust(columns)
    digits = (4,) if columns > 8 else (3, 2, 1)
    written = [f"{value:z.{count}f}" for count in digits]
    text = next((one for one in written if len(one) < columns), f"{value:.2e}" if columns > 9 else f"{value:.0e}")
    return text.replace("-", "−").rjust(columns)


def named(text: str, special: bool, place: int, lang: str) -> str:
    """What a token is called in the view; the token before or between texts gets a word of the language."""
    return say("end" if place else "start", lang) if special else text.strip() or text


def token_name(sheet: Sheet | MixerSheet, lang: str) -> str:
    """What the chosen token is called in a sentence."""
    name = visible(named(sheet.token, sheet.special, sheet.position, lang))
    return fit(name, 24).rstrip() if width(name) > 24 else name


# ---------------------------------------------------------------- the head, and 1: the vectors


def opening(sheet: Sheet | MixerSheet, lang: str, model: str, rows: int, columns: int) -> Iterator[Text]:
    """The text, the title, and which layer, head, row and token of how many are shown."""
    yield Text(fit(sheet.text, columns), "italic")
    yield from flow([(say("title", lang, token=token_name(sheet, lang)), "bold")], columns)
    where = say(
        "where",
        lang,
        model=visible(model),
        layer=sheet.layer,
        last=sheet.layers - 1,
        head=sheet.head,
        last_head=sheet.heads - 1,
        row=sheet.row,
        last_row=rows - 1,
        position=sheet.position,
        end=sheet.length - 1,
    )
    yield from flow([(f"{where} · {sheet.path}", "dim")], columns)


def _head(sheet: Sheet, lang: str, model: str, columns: int) -> Iterator[Text]:
    yield from opening(sheet, lang, model, len(sheet.rows), columns)
    move = sheet.moves[sheet.layer][sheet.head]
    seen = [part for row in sheet.rows for part in row.parts or (row,) if not part.reason]
    word = "alone" if len(seen) == 1 else "by_" + ("_".join(sheet.chosen) or "none")
    yield from flow([(say(word, lang, move=move, head=sheet.head), "")], columns)
    yield from beyond_lines(sheet, lang, columns)


def beyond_lines(sheet: Sheet | MixerSheet, lang: str, columns: int) -> Iterator[Text]:
    """That the text is longer than the model's context, where it is."""
    if sheet.length > sheet.context:
        yield from flow([(say("beyond", lang, length=sheet.length, context=sheet.context), "bold yellow")], columns)


def _vectors(sheet: Sheet, lang: str, columns: int) -> Iterator[Text]:
    yield Text()
    yield from flow([(say("vectors", lang), HEADING)], columns, hang=3)
    formulas = max(width(quantity.formula) for quantity in sheet.quantities)
    shapes = max(width(_shape(quantity)) for quantity in sheet.quantities)
    for letter, quantity in zip("XQKV", sheet.quantities, strict=True):
        yield from quantity_lines(quantity, letter, lang, columns, formulas, shapes)
    letters = [letter for quantity in sheet.quantities for letter in quantity.axes.split() if letter != "b"]
    legend = " · ".join(f"{letter} {AXES[letter][lang == 'ko']}" for letter in dict.fromkeys(letters))
    yield from flow([(legend, "dim")], columns, "     ")


def _shape(quantity: Quantity) -> str:
    pairs = zip(quantity.axes.split(), quantity.shape, strict=True)
    return " × ".join(f"{letter} {size}" for letter, size in pairs if letter != "b")


def quantity_lines(
    quantity: Quantity, letter: str, lang: str, columns: int, formulas: int = 0, shapes: int = 0
) -> Iterator[Text]:
    """A vector's formula, shape and length, its first numbers, and its card's sentence."""
    shape = _shape(quantity)
    formula = fit(quantity.formula, max(formulas, width(quantity.formula)))
    start = f"  {letter}  {formula}  {fit(shape, max(shapes, width(shape)))}  "
    length = f"|{quantity.symbol}| = {quantity.norm:.3f}"
    if width(start) + width(length) <= columns:
        yield from flow(_addressed([(length, "")], quantity.name, columns, start), columns, start, 5)
    else:
        yield from flow([(quantity.formula, ""), (shape, ""), (length, "")], columns, f"  {letter}  ", 5)
    room = max(3, (min(columns, 110) - 9) // 8)
    shown = " ".join(f"{value:z7.2f}".replace("-", "−") for value in quantity.values[:room])
    yield Text(f"     [{shown}{' …' if len(quantity.values) > room else ''}]", "dim")
    yield from flow([(quantity.ko if lang == "ko" else quantity.en, "dim")], columns, "     ")


# ---------------------------------------------------------------- 2: the four steps


@dataclass(frozen=True)
class Layout:
    """Columns of the table: the labels, each of the numbers before the bar, and the bar (0: there is none).

    shown: which fields of a row these numbers are; where not all fit, their last is the one that softmax reads.
    """

    labels: int
    numbers: int
    shown: tuple[str, ...]
    bar: int

    @classmethod
    def of(cls, sheet: Sheet, lang: str, closed: bool, columns: int) -> Layout:
        """What fits into so many columns: the labels have the first claim, then the bar."""
        names = [width(named(row.label, row.special, row.tokens[0], lang)) for row in sheet.rows]
        parts = [INDENT + width(part.label) for row in sheet.rows for part in row.parts if not closed]
        numbers = 10 if columns >= WIDE else 9 if columns >= 50 else 8
        shown = ("dot", "scaled")
        if sheet.shifted:
            all_four = ("dot", "scaled", "shift", "score")
            shown = all_four if columns >= 80 else ("dot", "scaled", "score") if columns >= 56 else ("dot", "score")
        room = columns - 2 - numbers * (len(shown) + 1) - 8 - (len(AFTER) if columns >= WIDE else 0)
        wanted = max(names + parts)
        labels = max(6, min(wanted, room - 2 - (12 if columns >= WIDE else 4)))
        bar = min(24, room - 2 - labels)
        return cls(labels, numbers, shown, bar) if bar >= 4 else cls(min(wanted, room), numbers, shown, 0)

    def line(self, label: str, cells: Sequence[Piece], weight: float, share: str, style: str = "") -> Text:
        """One line: a label, the numbers, a bar for the weight, the weight, and the length of its share."""
        text = Text(fit(label, self.labels), style)
        for cell, style_ in cells:
            text.append(fit(cell, self.numbers, "right"), style_ or style)
        if self.bar:
            text.append("  ").append(bar(weight, self.bar), style if "dim" in style else "green")
        return text.append(f"{weight:8.4f}", style).append(share, style)


def _table(sheet: Sheet, lang: str, closed: bool, columns: int) -> Iterator[Text]:
    layout = Layout.of(sheet, lang, closed, columns)
    blank = [("", "")] * len(layout.shown)
    yield Text()
    yield from flow([(say("steps", lang), HEADING)], columns, hang=3)
    yield _header(sheet, layout, lang)
    for row in sheet.rows:
        yield _row(row, sheet, lang, layout, 0)
        if not (closed or row.reason):
            for part in row.parts:
                yield _row(part, sheet, lang, layout, INDENT)
    if sheet.sink_score is not None:
        score = [*blank[1:], (number(sheet.sink_score, layout.numbers), "")]
        yield Text("  ").append(layout.line(say("sink", lang), score, sheet.sink_weight, number(0.0, layout.numbers)))
    total = Text(f"  {fit(say('sum', lang), layout.labels)}", "bold").append(" " * layout.numbers * len(layout.shown))
    total.append(" " * (layout.bar and 2 + layout.bar)).append(f"{sheet.weight_sum:8.4f}")
    yield total.append(number(sheet.z.norm, layout.numbers) + AFTER if columns >= WIDE else "")
    if any(row.parts for row in sheet.rows):
        yield from flow([(say("word_rule", lang), "dim")], columns, "  ")
    yield from quantity_lines(sheet.z, "z", lang, columns)
    moved = "z_own" if sheet.away < 0.0005 else "z" if sheet.sink_score is None else "z_sink"
    yield from flow([(say(moved, lang, away=sheet.away), "")], columns, "     ")


def _header(sheet: Sheet, layout: Layout, lang: str) -> Text:
    root = f"÷ √{sheet.head_dim}" if abs(sheet.scale - sheet.head_dim**-0.5) < 1e-9 else f"× {sheet.scale:.4g}"
    titles = {"dot": "q·k", "scaled": root, "shift": say("shift", lang), "score": say("score", lang)}
    heads = "".join(fit(titles[one], layout.numbers, "right") for one in layout.shown)
    weight = f"  {fit(say('weight', lang), layout.bar + 8)}" if layout.bar else fit("α", 8, "right")
    line = f"  {fit(say('token', lang), layout.labels)}{heads}{weight}"
    return Text(line + fit(say("share", lang), layout.numbers, "right"), "dim")


def _row(row: Row, sheet: Sheet, lang: str, layout: Layout, indent: int) -> Text:
    asks = row.tokens[-1] == sheet.position
    label = " " * indent + named(row.label, row.special, row.tokens[0], lang)
    text = Text("▶ " if asks and not indent else "  ", "yellow")
    if row.reason:
        return text.append(f"{fit(label, layout.labels)}  {say(row.reason, lang)}", "dim")
    if row.parts:
        between = [("", "")] * (len(layout.shown) - 2)
        count = say("word", lang, n=len(row.parts))
        count = count if width(count) < layout.numbers else ""
        cells = [(count, "dim"), *between, (number(row.score, layout.numbers), "")]
    else:
        cells = [(number(getattr(row, one), layout.numbers), "") for one in layout.shown]
    share = number(row.share_norm, layout.numbers)
    return text.append(layout.line(label, cells, row.weight, share, "bold" if asks else "dim" if indent else ""))


# ---------------------------------------------------------------- 3 and 4: the rest of the block, the next token


def rest_lines(sheet: Sheet | MixerSheet, lang: str, columns: int) -> Iterator[Text]:
    """What else the block does with the token."""
    yield Text()
    yield from flow([(say("rest", lang), HEADING)], columns, hang=3)
    names = max(width(step.symbol) for step in sheet.steps)
    yield Text(f"  {fit(say('vector', lang), names)}{fit(say('length', lang), 11, 'right')}", "dim")
    for step in sheet.steps:
        start = f"  {fit(step.symbol, names)}{number(step.norm, 11)}   "
        pieces = [(step.ko if lang == "ko" else step.en, "")]
        beside = columns - width(start) >= 24  # else the sentence gets lines of its own
        if not beside:
            yield Text(start.rstrip())
        yield from flow(_addressed(pieces, step.name, columns, start), columns, start if beside else " " * 5)
        if step.name.endswith((".channel.hidden", ".channel.out")):
            yield from _ffn(sheet, step, lang, columns, width(start) if beside else 5)
    values = " · ".join(f"{value:.2f}" for value in sheet.journey)
    if values:
        yield from flow([(say("journey", lang, values=values), "")], columns, "  ")


def _ffn(sheet: Sheet | MixerSheet, step: Quantity, lang: str, columns: int, hang: int) -> Iterator[Text]:
    """The widths of the FFN below its hidden units, or below its output which experts it came from."""
    widths = " → ".join(map(str, sheet.widths))
    if sheet.active is not None and step.name.endswith("hidden"):
        yield from flow([(say("ffn", lang, widths=widths, active=sheet.active), "")], columns, " " * hang)
    elif sheet.experts and step.name.endswith("out"):
        chosen = ", ".join(f"{i} ({weight:.0%})" for i, weight in enumerate(sheet.experts) if weight > 0)
        yield from flow([(say("experts", lang, widths=widths, chosen=chosen), "")], columns, " " * hang)


def next_lines(sheet: Sheet | MixerSheet, lang: str, columns: int) -> Iterator[Text]:
    """The distribution that follows, one line a candidate."""
    if not sheet.next:
        return
    yield Text()
    title = [(say("next" if sheet.causal else "own", lang, token=token_name(sheet, lang)), HEADING)]
    title += [] if sheet.temperature == 1 else [(say("heated", lang, temperature=sheet.temperature), "dim")]
    yield from flow(title, columns, hang=3)
    shown = [named(one.label, one.special, 1, lang) for one in sheet.next]
    cells = 20 if columns >= WIDE else 10 if columns >= 50 else 4
    labels = min(max(map(width, shown)), columns - cells - 27)
    logits = max(len(f"{one.logit:.3f}") for one in sheet.next)
    for one, name in zip(sheet.next, shown, strict=True):
        line = Text("  ").append(fit(name, labels)).append("  ").append(bar(one.probability, cells), "green")
        logit = f"{one.logit:{logits}.3f}".replace("-", "−")
        yield line.append(f"{one.probability:9.2%}").append(f"   logit {logit}", "dim")


# ---------------------------------------------------------------- all heads at a glance


def show_heads(sheets: list[Sheet], console: Console, lang: str) -> None:
    """All heads at a glance: how far each moves the token, and what each head of the sheet's layer reads most."""
    printed(head_lines(sheets, lang, console.width), console)


def head_lines(sheets: list[Sheet], lang: str, columns: int = 80) -> Iterator[Text]:
    """The lines of that view, none wider than `columns`."""
    columns = max(LEAST, min(columns, MOST))
    first = sheets[0]
    yield Text(fit(first.text, columns), "italic")
    yield from flow([(say("heads", lang, token=token_name(first, lang)), HEADING)], columns)
    yield from beyond_lines(first, lang, columns)
    yield from _grid(first, lang, columns)
    yield Text()
    yield from flow([(say("looks", lang, layer=first.layer), HEADING)], columns)
    for sheet in sheets:
        best = sorted((row for row in sheet.rows if not row.reason), key=lambda row: -row.weight)[:3]
        names = [named(row.label, row.special, row.tokens[0], lang) for row in best]
        start = f"  {say('head', lang)} {sheet.head:<3}{sheet.moves[sheet.layer][sheet.head]:8.3f}   "
        most = min(24, columns - width(start) - len(" 0.000"))
        reads = [
            (f"{fit(name, min(width(name), most))} {row.weight:.3f}", "") for name, row in zip(names, best, strict=True)
        ]
        yield from flow(reads, columns, start)


def _grid(sheet: Sheet, lang: str, columns: int) -> Iterator[Text]:
    """moves, one line a layer, in as many blocks of heads as the columns ask for."""
    heads = max(map(len, sheet.moves))
    at_once = -(-heads // -(-heads // ((columns - 10) // 8)))  # blocks of about equal width
    furthest = max(max(row, default=0.0) for row in sheet.moves)
    for start in range(0, heads, at_once):
        block = range(start, min(start + at_once, heads))
        yield Text(f"  {fit(say('head', lang), 8)}" + "".join(f"{h:>8}" for h in block), "dim")
        for i, row in enumerate(sheet.moves):
            if not row:
                continue  # a block that mixes by something else
            line = Text(f"  {fit(say('layer', lang) + f' {i}', 8)}")
            for value in row[block.start : block.stop]:
                style = "bold green" if value == furthest else "green" if value > furthest / 2 else ""
                line.append(f"{value:8.3f}", style)
            yield line

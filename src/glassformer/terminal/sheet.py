"""The sheet in the terminal. It draws what explain.sheet computed and computes nothing itself."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from ..data.display import fit, width
from ..data.vocabulary import END
from ..explain.sheet import Quantity, Row, Sheet
from .words import say

EIGHTHS = " ▏▎▍▌▋▊▉█"
NUMBER, BAR, INDENT = 10, 20, 2


def show_sheet(sheet: Sheet, console: Console, lang: str, model: str = "", closed: bool = False) -> None:
    """Print the sheet. closed: words of several tokens stay one row."""
    for line in lines(sheet, lang, model, closed, console.width):
        console.print(line, no_wrap=True, overflow="ignore", crop=False, soft_wrap=True)


def lines(sheet: Sheet, lang: str, model: str, closed: bool, columns: int) -> Iterator[Text]:
    """The lines of the sheet, top to bottom."""
    yield from _head(sheet, lang, model)
    yield from _vectors(sheet, lang, columns)
    yield from _table(sheet, lang, closed, columns)
    yield from _rest(sheet, lang)
    yield from _next(sheet, lang)
    yield Text()
    yield Text(say("difference", lang, difference=sheet.difference, dtype=sheet.dtype), "dim")
    yield Text(say("caution", lang), "dim")


def bar(share: float, cells: int) -> str:
    """A bar of exactly `cells` columns for a share from 0 to 1, in eighths of a column."""
    eighths = round(max(0.0, min(1.0, share)) * cells * 8)
    full, part = divmod(eighths, 8)
    return ("█" * full + (EIGHTHS[part] if part else "")).ljust(cells)


def number(value: float | None, columns: int = NUMBER) -> str:
    """A number right-aligned in exactly so many columns; a dot where there is none."""
    if value is None:
        return "·".rjust(columns)
    text = f"{value:.4f}"
    if len(text) > columns - 1:
        text = f"{value:.2e}"
    return text.replace("-", "−").rjust(columns)


def _head(sheet: Sheet, lang: str, model: str) -> Iterator[Text]:
    yield Text(sheet.text.replace("\n", "⏎"), "italic")
    yield Text(say("title", lang, token=_label(sheet.token, lang)), "bold")
    where = say(
        "where",
        lang,
        model=model,
        layer=sheet.layer,
        last=sheet.layers - 1,
        head=sheet.head,
        last_head=sheet.heads - 1,
        position=sheet.position,
    )
    yield Text(f"{where} · {sheet.path}", "dim")
    move = sheet.moves[sheet.layer][sheet.head]
    yield Text(say("chosen" if sheet.chosen else "furthest", lang, move=move))


def _vectors(sheet: Sheet, lang: str, columns: int) -> Iterator[Text]:
    yield Text()
    yield Text(say("vectors", lang), "bold cyan")
    for letter, quantity in zip("XQKV", sheet.quantities, strict=True):
        yield from _quantity(quantity, letter, lang, columns)


def _quantity(quantity: Quantity, letter: str, lang: str, columns: int) -> Iterator[Text]:
    shape = " × ".join(f"{letter} {n}" for letter, n in zip(quantity.axes.split(), quantity.shape, strict=True))
    start = f"  {letter}  {fit(quantity.formula, 15)}  {fit(shape, 25)}  |{quantity.symbol}| = {quantity.norm:.3f}"
    yield Text(start).append(f"   {quantity.name}", "dim")
    room = max(3, (min(columns, 110) - 8) // 8)
    shown = " ".join(f"{value:7.2f}".replace("-", "−") for value in quantity.values[:room])
    yield Text(f"     [{shown}{' …' if len(quantity.values) > room else ''}]", "dim")
    yield Text(f"     {quantity.ko if lang == 'ko' else quantity.en}", "dim")


def _table(sheet: Sheet, lang: str, closed: bool, columns: int) -> Iterator[Text]:
    yield Text()
    yield Text(say("steps", lang), "bold cyan")
    labels = max(width(_label(text, lang)) + (INDENT if deep else 0) for text, deep in _labels(sheet.rows, closed))
    labels = min(max(labels, width(say("sum", lang)), width(say("sink", lang)), 6), max(12, columns - 70))
    shifted = any(abs(row.shift or 0) > 1e-6 for row in _flat(sheet.rows))
    root = f"÷ √{sheet.head_dim}" if abs(sheet.scale - sheet.head_dim**-0.5) < 1e-9 else f"× {sheet.scale:.4g}"
    heads = ["q·k", root, *([say("shift", lang)] if shifted else [])]
    line = "  " + fit(say("token", lang), labels) + "".join(fit(head, NUMBER, "right") for head in heads)
    yield Text(line + "  " + fit(say("weight", lang), BAR + 8) + fit(say("share", lang), NUMBER, "right"), "dim")
    for row in sheet.rows:
        yield _row(row, sheet, lang, labels, shifted, 0)
        if not closed:
            for part in row.parts:
                yield _row(part, sheet, lang, labels, shifted, INDENT)
    blank = " " * (NUMBER * (3 if shifted else 2))
    if sheet.sink_weight:
        yield Text(f"  {fit(say('sink', lang), labels)}{blank}  {bar(sheet.sink_weight, BAR)}{sheet.sink_weight:8.4f}")
    total = f"  {fit(say('sum', lang), labels)}{blank}  {' ' * BAR}{sheet.weight_sum:8.4f}"
    yield Text(total + number(sheet.z.norm) + "  = |z|", "bold")
    if any(row.parts for row in sheet.rows):
        yield Text(f"  {say('word_rule', lang)}", "dim")
    yield from _quantity(sheet.z, "z", lang, columns)
    yield Text(f"     {say('z', lang, away=sheet.away, token=_label(sheet.token, lang))}")


def _row(row: Row, sheet: Sheet, lang: str, labels: int, shifted: bool, indent: int) -> Text:
    mine = row.tokens[-1] == sheet.position
    name = " " * indent + _label(row.label, lang)
    text = Text("▶ " if mine and not indent else "  ", "yellow").append(fit(name, labels), "bold" if mine else "")
    if row.reason:
        return text.append(f"  {say(row.reason, lang)}", "dim")
    if row.parts:
        count = say("word", lang, n=len(row.parts))
        text.append(fit(count, NUMBER, "right"), "dim")
        text.append(" " * NUMBER + (number(row.score) if shifted else "") if shifted else number(row.score))
    else:
        text.append(number(row.dot)).append(number(row.scaled)).append(number(row.shift) if shifted else "")
    style = "dim" if indent else "green"
    text.append("  ").append(bar(row.weight, BAR), style).append(f"{row.weight:8.4f}")
    return text.append(number(row.share_norm))


def _rest(sheet: Sheet, lang: str) -> Iterator[Text]:
    yield Text()
    yield Text(say("rest", lang), "bold cyan")
    names = max(width(step.symbol) for step in sheet.steps)
    for step in sheet.steps:
        line = Text("  ").append(fit(step.symbol, names)).append(f"  {say('length', lang)} {number(step.norm)}   ")
        yield line.append(step.ko if lang == "ko" else step.en).append(f"   {step.name}", "dim")
        if sheet.active is not None and step.name.endswith("channel.hidden"):
            widths = " → ".join(map(str, sheet.widths))
            yield Text(f"  {' ' * names}  {say('ffn', lang, widths=widths, active=sheet.active)}")
    values = "  ".join(f"{value:.2f}" for value in sheet.journey)
    yield Text(f"  {say('journey', lang, values=values)}")


def _next(sheet: Sheet, lang: str) -> Iterator[Text]:
    if not sheet.next:
        return
    yield Text()
    yield Text(say("next", lang, token=_label(sheet.token, lang)), "bold cyan")
    labels = max(width(one.label) for one in sheet.next)
    for one in sheet.next:
        line = Text("  ").append(fit(one.label, labels)).append("  ").append(bar(one.probability, BAR), "green")
        yield line.append(f"{one.probability:9.2%}").append(f"   logit {one.logit:.3f}", "dim")


def show_heads(sheets: list[Sheet], console: Console, lang: str) -> None:
    """All heads at a glance: how far each moves the token, and what each head of the sheet's layer reads most."""
    first = sheets[0]
    console.print(Text(say("heads", lang), "bold cyan"))
    top = max(max(row) for row in first.moves)
    heads = "".join(f"{h:>8}" for h in range(max(map(len, first.moves))))
    console.print(Text(f"  {fit(say('head', lang), 8)}{heads}", "dim"), soft_wrap=True)
    for i, row in enumerate(first.moves):
        line = Text(f"  {fit(say('layer', lang) + f' {i}', 8)}")
        for value in row:
            line.append(f"{value:8.3f}", "bold green" if value == top else "green" if value > top / 2 else "")
        console.print(line, soft_wrap=True)
    console.print(Text())
    console.print(Text(say("looks", lang, layer=first.layer), "bold cyan"))
    for sheet in sheets:
        best = sorted(sheet.rows, key=lambda row: -row.weight)[:3]
        reads = "   ".join(f"{_label(row.label, lang)} {row.weight:.3f}" for row in best)
        move = sheet.moves[sheet.layer][sheet.head]
        console.print(Text(f"  {say('head', lang)} {sheet.head}  {move:.3f}  {reads}"), soft_wrap=True)


def _label(text: str, lang: str) -> str:
    return say("start", lang) if text == END else text.strip() or text


def _flat(rows: tuple[Row, ...]) -> Iterator[Row]:
    for row in rows:
        yield row
        yield from row.parts


def _labels(rows: tuple[Row, ...], closed: bool) -> Iterator[tuple[str, bool]]:
    for row in rows:
        yield row.label, False
        for part in () if closed else row.parts:
            yield part.label, True

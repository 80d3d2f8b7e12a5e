"""Who moves whom: one panel a model, one row an output, one column an input, dark where the influence is strong."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ..data.display import visible
from ..data.tokenizer import START
from ..explain.grid import Grid
from ..files import replacing
from . import font
from .colour import STEPS, shade
from .words import WORDS, say

if TYPE_CHECKING:
    from ..text_trace import TextTrace

LEAST, MOST = 260, 520  # sides of a panel's square, in pixels
CELL = 13  # of a token that is named
LETTERS, SMALL = 11, 10
EDGE, GAP, HEAD = 24, 34, 54  # around the figure, between panels, above a panel's square
ROOM = 110  # of the longest label
TICKS = (0.0, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0)
INK, FAINT, PAPER, NOTHING, HATCH = "#1c2430", "#5b6675", "#ffffff", "#f1f3f5", "#c9ced6"
DARK = {INK: "#e8ebf0", FAINT: "#a3adba", PAPER: "#14171c", NOTHING: "#20242b", HATCH: "#3d444f"}


def draw(path: Path, runs: Sequence[TextTrace], lang: str, **how: Any) -> None:
    """Write the figure of several models' runs over one text; how as in TextTrace.grid."""
    picture = svg([run.grid(**how) for run in runs], lang)
    with replacing(path) as temporary:
        temporary.write_text(picture, encoding="utf-8")


def svg(grids: Sequence[Grid], lang: str = "en") -> str:
    """The panels in rows of two or three as an SVG picture that carries its letters and needs no network."""
    grids = [msgspec.structs.replace(grid, labels=_named(grid, lang)) for grid in grids]
    side = min(MOST, max(LEAST, *(CELL * len(grid.labels) for grid in grids)))
    label = max(_label_width(grid) for grid in grids)
    across = min(len(grids), 2 if len(grids) == 4 else 3)
    wide, high = label + 26 + side, HEAD + side + label + 26
    whole = max(across * wide + (across - 1) * GAP, 460) + 2 * EDGE
    body, top = _heading(grids, lang, whole)
    for i, grid in enumerate(grids):
        left, upper = EDGE + i % across * (wide + GAP), top + i // across * (high + GAP / 2)
        body += _panel(grid, left + label + 26, upper + HEAD, side, lang)
    top += -(-len(grids) // across) * (high + GAP / 2)
    foot, top = _legend(grids, lang, top, whole)
    return _document([*body, *foot], whole, top + EDGE / 2, grids, lang)


# ---------------------------------------------------------------- the page


def _document(body: list[str], wide: float, high: float, grids: Sequence[Grid], lang: str) -> str:
    inside, ours = "\n".join(body), _mark(body, lang)
    used = "".join(_texts(body))
    night = "".join(f'[fill="{shade(i / (STEPS - 1))}"]{{fill:{shade(i / (STEPS - 1), True)}}}' for i in range(STEPS))
    night += "".join(f'[fill="{day}"]{{fill:{dark}}}[stroke="{day}"]{{stroke:{dark}}}' for day, dark in DARK.items())
    night += "".join(f'[stop-color="{shade(i / 16)}"]{{stop-color:{shade(i / 16, True)}}}' for i in range(17))
    stops = "".join(f'<stop offset="{i / 16}" stop-color="{shade(i / 16)}"/>' for i in range(17))
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide:.0f} {high:.0f}" width="{wide:.0f}" \
height="{high:.0f}" lang="{lang}" font-family="{escape(font.FAMILY)}" font-size="{LETTERS}" fill="{INK}" role="img" \
aria-labelledby="{ours}title {ours}desc">
<title id="{ours}title">{_said(_title(grids, lang))}</title>
<desc id="{ours}desc">{_said(_description(grids, lang))}</desc>
<style>{font.face(used)}
@media (prefers-color-scheme: dark){{{night}}}</style>
<defs><pattern id="{ours}unseen" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">\
<rect width="5" height="5" fill="{NOTHING}"/><rect width="1" height="5" fill="{HATCH}"/></pattern>
<linearGradient id="{ours}scale">{stops}</linearGradient></defs>
<rect width="{wide:.0f}" height="{high:.0f}" fill="{PAPER}"/>
{inside.replace('"url(#', f'"url(#{ours}')}
</svg>
"""


def _mark(body: list[str], lang: str) -> str:
    """What the ids begin with, so that figures in one page do not take each other's."""
    return f"f{hashlib.sha256(repr((body, lang)).encode()).hexdigest()[:12]}-"


def _texts(body: Sequence[str]) -> list[str]:
    """What the elements of a figure show in letters; tooltips are shown by the system in its own."""
    from xml.etree import ElementTree

    root = ElementTree.fromstring(f"<g>{''.join(body)}</g>")
    return ["".join(element.itertext()) for element in root.iter("text")]


def _said(text: str) -> str:
    """A text with every control made visible, as XML."""
    return escape(visible(text))


def _text(x: float, y: float, text: str, **more: Any) -> str:
    given = "".join(f' {name.replace("_", "-")}="{value}"' for name, value in more.items())
    return f'<text x="{x:.1f}" y="{y:.1f}"{given}>{_said(text)}</text>'


def _title(grids: Sequence[Grid], lang: str) -> str:
    return say(grids[0].what, lang)


def _description(grids: Sequence[Grid], lang: str) -> str:
    models = "; ".join(f"{grid.model}, {_how(grid, lang)}" for grid in grids)
    return f"{grids[0].text} — {models}. {say('caption_' + grids[0].what, lang)}"


def _heading(grids: Sequence[Grid], lang: str, wide: float) -> tuple[list[str], float]:
    room = wide - 2 * EDGE
    title, text = _title(grids, lang), visible(" ".join(grids[0].text.split(" ")))
    return [
        _text(EDGE, 34, font.fitted(title, 17, room), font_size=17),
        _text(EDGE, 54, font.fitted(text, 13, room), font_size=13, fill=FAINT),
    ], 66


def _legend(grids: Sequence[Grid], lang: str, top: float, wide: float) -> tuple[list[str], float]:
    """The scale with its numbers, what hatching means, and what was computed."""
    long = min(300.0, wide - 2 * EDGE - 130)
    made = [
        _text(EDGE, top + 10, say("scale_" + grids[0].what, lang)),
        f'<rect x="{EDGE}" y="{top + 18:.1f}" width="{long}" height="12" fill="url(#scale)" stroke="{HATCH}"/>',
    ]
    for tick in TICKS:
        x = EDGE + long * tick**0.5
        made.append(f'<path d="M{x:.1f} {top + 30:.1f}v4" stroke="{FAINT}"/>')
        made.append(_text(x, top + 44, f"{tick:.0%}", text_anchor="middle", fill=FAINT, font_size=SMALL))
    x = EDGE + long + 28
    made.append(f'<rect x="{x:.1f}" y="{top + 18:.1f}" width="12" height="12" fill="url(#unseen)" stroke="{HATCH}"/>')
    made.append(_text(x + 18, top + 28, say("unseen", lang)))
    top += 64
    for line in _folded(say("caption_" + grids[0].what, lang), SMALL, wide - 2 * EDGE):
        made.append(_text(EDGE, top, line, fill=FAINT, font_size=SMALL))
        top += 14
    return made, top


def _folded(text: str, size: float, room: float) -> list[str]:
    lines = [""]
    for word in text.split(" "):
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and font.width(longer, size) > room:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines


# ---------------------------------------------------------------- a panel


def _panel(grid: Grid, left: float, top: float, side: float, lang: str) -> list[str]:
    mixers = " + ".join(f"{(ko if lang == 'ko' else en).removeprefix('the ')} × {n}" for en, ko, n in grid.mixers)
    room, middle = side + 20, top + side / 2
    below = top + side + _label_width(grid) + 22
    return [
        _text(left, top - 37, font.fitted(visible(grid.model), 13, room), font_size=13),
        _text(left, top - 22, font.fitted(mixers, SMALL, room), font_size=SMALL, fill=FAINT),
        _text(left, top - 8, font.fitted(_how(grid, lang), SMALL, room), font_size=SMALL, fill=FAINT),
        f'<rect x="{left:.1f}" y="{top:.1f}" width="{side}" height="{side}" fill="url(#unseen)" stroke="{HATCH}"/>',
        *_cells(grid, left, top, side),
        *_labels(grid, left, top, side),
        _text(left + side / 2, below, say("column", lang), text_anchor="middle", fill=FAINT, font_size=SMALL),
        f'<text transform="translate({left - _label_width(grid) - 14:.1f} {middle:.1f}) rotate(-90)" '
        f'text-anchor="middle" fill="{FAINT}" font-size="{SMALL}">{_said(say("row", lang))}</text>',
    ]


def _how(grid: Grid, lang: str) -> str:
    """How exact a panel's numbers are, or which weights they are."""
    if grid.what == "weights":
        return say("mean" if grid.head is None else "head", lang, name=grid.name, head=grid.head)
    if grid.errors is None:
        return say("exact", lang)
    return say("estimate", lang, error=grid.error, directions=grid.directions)


def _cells(grid: Grid, left: float, top: float, side: float) -> list[str]:
    """A square for every pair with a way between them, in units of a token; where nothing came, the lightest colour."""
    unit = side / len(grid.labels)
    made = [f'<g transform="translate({left:.1f} {top:.1f}) scale({unit:.5f})" shape-rendering="crispEdges">']
    for t, (shares, seen) in enumerate(zip(grid.shares, grid.seen, strict=True)):
        for s, share in enumerate(shares):
            if seen[s]:
                made.append(
                    f'<rect x="{s}" y="{t}" width="1" height="1" fill="{shade(share**0.5)}">'
                    f"<title>{_said(_tip(grid, t, s))}</title></rect>"
                )
    return [*made, "</g>"]


def _tip(grid: Grid, t: int, s: int) -> str:
    error = "" if grid.errors is None else f" ± {grid.errors[t][s]:.3g}"
    return f"{grid.labels[s]} → {grid.labels[t]}: {grid.shares[t][s]:.2%} ({grid.values[t][s]:.3g}{error})"


def _labels(grid: Grid, left: float, top: float, side: float) -> list[str]:
    unit = side / len(grid.labels)
    size = min(LETTERS, max(8.0, unit))
    made = []
    for i in range(0, len(grid.labels), max(1, -(-round(size) // max(1, round(unit))))):
        label, middle = _short(grid.labels[i]), (i + 0.5) * unit
        made.append(_text(left - 5, top + middle + 0.36 * size, label, text_anchor="end", font_size=f"{size:.3g}"))
        made.append(
            f'<text transform="translate({left + middle + 0.36 * size:.1f} {top + side + 6:.1f}) rotate(-90)" '
            f'text-anchor="end" font-size="{size:.3g}">{_said(label)}</text>'
        )
    return made


def _named(grid: Grid, lang: str) -> tuple[str, ...]:
    """The labels, the token before the text in the reader's language."""
    return tuple(WORDS[one][lang] if one == START and i == 0 else one for i, one in enumerate(grid.labels))


def _short(label: str) -> str:
    return font.fitted(visible(label.strip() or label), LETTERS, ROOM)


def _label_width(grid: Grid) -> float:
    return max(font.width(_short(label), LETTERS) for label in grid.labels)

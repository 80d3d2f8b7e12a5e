"""Who moves whom: one panel a model, one row an output, one column an input, dark where the influence is strong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..data.display import visible, width
from ..files import replacing

if TYPE_CHECKING:
    from ..api import TextTrace

SIDE, GAP, TOP, BOTTOM = 300, 36, 58, 40  # of a panel's square, between panels, above and below it, in pixels
LETTER = 6.6  # about so many pixels a column of text takes at 11 pixels
MOST_LABELS = 32  # beyond, every second, third … token is named
WORDS = {
    "en": ("Influence ‖∂y/∂x‖, each row as shares of its sum", "moves (input token)", "is moved (output token)"),
    "ko": ("영향 ‖∂y/∂x‖ (행마다 합에 대한 비율)", "움직이는 쪽(입력 토큰)", "움직이는 대상(출력 토큰)"),
}
EXACT = {"en": "exact", "ko": "정확한 값"}
ESTIMATE = {"en": "estimated, ±{error:.1%}", "ko": "추정값, ±{error:.1%}"}


@dataclass(frozen=True)
class Panel:
    """One model: its name, a line about its numbers, the tokens, and the shares, row by row."""

    title: str
    note: str
    labels: Sequence[str]
    shares: Sequence[Sequence[float]]


def draw(path: Path, runs: Sequence[TextTrace], lang: str, **how: Any) -> None:
    """Write the figure of several models' runs over one text; how as in explain.influence."""
    panels = []
    for run in runs:
        found = run.influence(**how)
        note = EXACT[lang] if found.errors is None else ESTIMATE[lang].format(error=found.error)
        panels.append(Panel(run.loaded.name, note, run.labels("t"), found.shares.tolist()))
    with replacing(path) as temporary:
        temporary.write_text(svg(panels, lang), encoding="utf-8")


def svg(panels: Sequence[Panel], lang: str = "en") -> str:
    """The panels side by side as an SVG picture."""
    title, across, down = WORDS[lang]
    margins = [30 + LETTER * min(14, max(width(visible(label)) for label in panel.labels)) for panel in panels]
    below = BOTTOM + max(margins)
    whole = sum(margins) + len(panels) * (SIDE + GAP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {whole:.0f} {TOP + SIDE + below:.0f}" '
        f'font-family="sans-serif" font-size="11" fill="#1f2937" role="img" aria-label="{escape(title)}">',
        f'<rect width="{whole:.0f}" height="{TOP + SIDE + below:.0f}" fill="white"/>',
        f'<text x="{GAP / 2}" y="20" font-size="14">{escape(title)}</text>',
    ]
    left = 0.0
    for panel, margin in zip(panels, margins, strict=True):
        left += margin
        parts += [
            f'<text x="{left:.1f}" y="{TOP - 10}" font-size="13" font-weight="bold">{escape(visible(panel.title))}'
            f'<tspan font-weight="normal" fill="#6b7280" font-size="11">  {escape(panel.note)}</tspan></text>',
            *_cells(panel, left),
            *_labels(panel, left),
            f'<text x="{left + SIDE / 2:.1f}" y="{TOP + SIDE + below - 12:.1f}" text-anchor="middle">{across}</text>',
        ]
        left += SIDE + GAP
    middle = TOP + SIDE / 2
    parts.append(f'<text transform="translate(12 {middle}) rotate(-90)" text-anchor="middle">{down}</text>')
    return "\n".join([*parts, "</svg>\n"])


def _cells(panel: Panel, left: float) -> list[str]:
    side = SIDE / len(panel.labels)
    most = max(map(max, panel.shares)) or 1.0
    made = [f'<rect x="{left:.1f}" y="{TOP}" width="{SIDE}" height="{SIDE}" fill="#f8fafc" stroke="#cbd5e1"/>']
    for t, row in enumerate(panel.shares):
        for s, share in enumerate(row):
            if share == 0:
                continue
            said = escape(visible(f"{panel.labels[s]} → {panel.labels[t]}: {share:.2%}"))
            made.append(
                f'<rect x="{left + s * side:.2f}" y="{TOP + t * side:.2f}" width="{side:.2f}" height="{side:.2f}" '
                f'fill="#1d4ed8" fill-opacity="{(share / most) ** 0.5:.3f}"><title>{said}</title></rect>'
            )
    return made


def _labels(panel: Panel, left: float) -> list[str]:
    side, every = SIDE / len(panel.labels), -(-len(panel.labels) // MOST_LABELS)
    made = []
    for i in range(0, len(panel.labels), every):
        label, middle = escape(_short(panel.labels[i])), (i + 0.5) * side
        made.append(f'<text x="{left - 5:.1f}" y="{TOP + middle + 4:.1f}" text-anchor="end">{label}</text>')
        place = f"translate({left + middle + 4:.1f} {TOP + SIDE + 6}) rotate(-90)"
        made.append(f'<text transform="{place}" text-anchor="end">{label}</text>')
    return made


def _short(label: str) -> str:
    text = visible(label.strip() or label)
    while width(text) > 14:
        text = text[:-2] + "…"
    return text

"""The record of a run's losses: one JSON line now and then, and a figure drawn from them.

The figure is an SVG written here, since a loss curve needs nothing that matplotlib would have to be imported for.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from ..errors import CheckpointError
from ..files import replacing

VALUES = ("validation", "bits_per_byte", "error", "watched")  # that only some lines have
LINES = 1000  # about so many lines for a whole run; the training loss in each is the mean since the one before


class Records:
    """`reports.jsonl` and `loss.svg` in a run's `train` folder."""

    def __init__(self, folder: Path, step: int, steps: int, losses: list[float], unit: str = "token") -> None:
        """Go on after `step`: lines of later steps, which a crash left behind, are dropped. losses: of the updates
        since the last line. unit: of what the losses are means."""
        self.unit, self.folder, self.every = unit, folder, max(1, steps // LINES)
        self.path = folder / "reports.jsonl"
        self.lines = [line for line in self._read() if line["step"] <= step] if step else []
        self.losses = list(losses)

    def _read(self) -> list[dict[str, Any]]:
        if not self.path.is_file():
            return []
        try:
            lines = [json.loads(line) for line in self.path.read_text(encoding="utf-8").splitlines()]
            for line in lines:
                if not all(isinstance(line.get(key, 0.0), int | float) for key in VALUES):
                    raise ValueError("a loss that is no number")
                float(line["loss"]), int(line["step"])
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            what = " ".join(str(error).split())
            raise CheckpointError(f"{self.path} is broken ({what}); delete it, the run goes on without it") from None
        return lines

    def add(self, report: dict[str, Any], windows: int | None = None) -> None:
        """Note a report, whose loss is in `losses` by now; a line is kept of every so many, and of each that has a
        validation loss, `watched` over so many windows (None: the whole split). The line of a step that has one already
        (an interrupt came before the end of what was due after it) is replaced, but for its loss."""
        if report["validation"] is None and report["step"] % self.every:
            return
        line = {key: report[key] for key in ("step", "rate", "gradient_norm", "tokens", "tokens_per_s", "seconds")}
        earlier = [one for one in self.lines[-1:] if one["step"] == report["step"]]
        if earlier:
            line["loss"] = earlier[0]["loss"]
        else:
            line["loss"] = sum(self.losses) / len(self.losses) if self.losses else report["loss"]
        line |= {key: report[key] for key in VALUES if report.get(key) is not None}
        line = {k: round(v, 6) if isinstance(v, float) else v for k, v in line.items()}
        if "watched" in line:  # with all digits: `lowest` must find after a stop what it would have found before
            line |= {"watched": report["watched"], "windows": windows}
        self.lines = [*self.lines[: len(self.lines) - len(earlier)], line]
        self.losses.clear()

    def lowest(self, windows: int | None) -> tuple[int, float]:
        """Step and value of the lowest loss that was `watched` over so many windows; (0, ∞) where there is none."""
        found = [line for line in self.lines if "watched" in line and line.get("windows", 0) == windows]
        return min(((line["step"], line["watched"]) for line in found), key=lambda one: one[1], default=(0, math.inf))

    def save(self) -> None:
        """Write both files anew, each atomically."""
        with replacing(self.path) as temporary:
            temporary.write_text("".join(json.dumps(line) + "\n" for line in self.lines), encoding="utf-8")
        with replacing(self.folder / "loss.svg") as temporary:
            temporary.write_text(loss_svg(self.lines, self.unit), encoding="utf-8")


# ---------------------------------------------------------------- the figure

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 420, 70, 20, 44, 56  # in pixels
TRAINING, VALIDATION = "#8a8f98", "#c2410c"


def loss_svg(lines: list[dict[str, Any]], unit: str = "token") -> str:
    """Training and validation loss over the updates, as an SVG picture; of the latter what was `watched`, since the
    whole split, which is seen at the end, would be another curve."""
    training = smooth([(line["step"], line["loss"]) for line in lines])
    validation = [(line["step"], line.get("watched", line["validation"])) for line in lines if "validation" in line]
    values = [y for _, y in (*training, *validation)] or [0.0, 1.0]
    last = max([line["step"] for line in lines], default=1)
    across, up = ticks(0, last), ticks(min(values), max(values))
    low, high = min(up[0], *values), max(up[-1], *values)

    def at(x: float, y: float) -> str:
        px = LEFT + (WIDTH - LEFT - RIGHT) * x / max(last, 1)
        py = TOP + (HEIGHT - TOP - BOTTOM) * (high - y) / (high - low or 1)
        return f"{px:.1f},{py:.1f}"

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        'font-size="13" role="img" aria-label="Loss while training">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        _text(WIDTH / 2, 24, "Loss while training", "middle", 'font-size="16"'),
        _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, "updates", "middle"),
        _text(18, HEIGHT / 2, f"loss (nats per {unit})", "middle", f'transform="rotate(-90 18 {HEIGHT / 2:.0f})"'),
    ]
    for y in up:
        (x0, py), x1 = at(0, y).split(","), WIDTH - RIGHT
        parts.append(f'<path d="M{x0},{py}H{x1}" stroke="#e5e7eb"/>' + _text(LEFT - 8, float(py) + 4, f"{y:g}", "end"))
    for x in across:
        px = float(at(x, low).split(",")[0])
        parts.append(_text(px, HEIGHT - BOTTOM + 20, f"{x:,.0f}", "middle"))
    for points, colour in ((training, TRAINING), (validation, VALIDATION)):
        line = " ".join(at(x, y) for x, y in points)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
    parts += [
        f'<circle cx="{x}" cy="{y}" r="3" fill="{VALIDATION}"/>' for x, y in (at(*p).split(",") for p in validation)
    ]
    parts += _legend(training, validation)
    return "\n".join([*parts, "</svg>\n"])


def _legend(training: list[tuple[float, float]], validation: list[tuple[float, float]]) -> list[str]:
    shown = [(TRAINING, "training", training), (VALIDATION, "validation", validation)]
    shown = [(colour, f"{name} {points[-1][1]:.3f}") for colour, name, points in shown if points]
    x, parts = WIDTH - RIGHT - 150, []
    for i, (colour, label) in enumerate(shown):
        y = TOP + 16 + 20 * i
        parts.append(f'<path d="M{x},{y - 4}h24" stroke="{colour}" stroke-width="3"/>' + _text(x + 32, y, label))
    return parts


def _text(x: float, y: float, text: str, anchor: str = "start", more: str = "") -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}" fill="#1f2937" {more}>{text}</text>'


def smooth(points: list[tuple[float, float]], share: float = 0.02) -> list[tuple[float, float]]:
    """Each value as the mean of those around it, over `share` of the run: single batches hide the curve."""
    reach = int(len(points) * share / 2)
    values = [y for _, y in points]
    means = (values[max(0, i - reach) : i + reach + 1] for i in range(len(points)))
    return [(x, sum(near) / len(near)) for (x, _), near in zip(points, means, strict=True)]


def ticks(low: float, high: float, about: int = 6) -> list[float]:
    """Round numbers from low to high, about so many."""
    span = (high - low) or 1.0
    power = 10 ** math.floor(math.log10(span / about))
    width = next(power * m for m in (1, 2, 5, 10) if span / (power * m) <= about)
    return [round(i * width, 10) for i in range(math.ceil(low / width), math.floor(high / width) + 1)] or [low]

"""What a certificate says: one line a check, with the number that was measured and the bound it has to keep."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

FORMAT = 1  # of the JSON form
Status = Literal["passed", "failed", "not applicable"]
Unit = Literal["relative", "ratio", "count"]


@dataclass(frozen=True)
class Line:
    """One check.

    name    which check (`checks.CHECKS`)
    value   what was measured: "relative" the largest difference as a share of the largest number that was to be met,
            "ratio" an error as a multiple of the one it is held against, "count" how many were wrong of detail["of"];
            None where nothing was measured, or where what came out is not a number
    bound   the largest value that passes
    reason  why the check does not apply, or what went wrong; else what to know of the number; "" where it says all
    detail  further numbers of the same measurement, by name
    """

    name: str
    status: Status
    value: float | None = None
    bound: float | None = None
    unit: Unit = "relative"
    reason: str = ""
    detail: Mapping[str, Any] = field(default_factory=dict)


def judged(name: str, value: float, bound: float, unit: Unit = "relative", reason: str = "", **detail: Any) -> Line:
    """The line of a number: passed where it is at most the bound; one that is NaN or infinite fails."""
    finite = math.isfinite(value)
    status = "passed" if finite and value <= bound else "failed"
    if not finite:
        reason = "what came out is not finite: NaN or infinity"
    return Line(name, status, value if finite else None, bound, unit, reason, _plain(detail))


def _plain(value: Any) -> Any:
    """Numbers that JSON can hold: None for NaN and infinity."""
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def without(name: str, reason: str) -> Line:
    """The line of a check that says nothing about this model."""
    return Line(name, "not applicable", reason=reason)


def failed(name: str, reason: str) -> Line:
    """The line of a check that could not be carried to its end."""
    return Line(name, "failed", reason=reason)


@dataclass(frozen=True)
class Certificate:
    """The checks of one model.

    model     its name; source: the folder or file it was read from, "" where it is not known
    digest    a hash of weights, spec, tokenizers, source, number format and versions: what the lines hold for
    quick     whether the slow half was left out
    versions  of glassformer and of what it computed with
    kept      the files that hold this certificate
    again     whether it was read from one of these, and not measured now
    """

    model: str
    source: str
    digest: str
    dtype: str
    device: str
    quick: bool
    lines: tuple[Line, ...]
    versions: Mapping[str, str]
    wall_s: float
    kept: tuple[str, ...] = ()
    again: bool = False

    @property
    def passed(self) -> bool:
        """Whether no line failed."""
        return not self.failed

    @property
    def failed(self) -> tuple[Line, ...]:
        """The lines that failed."""
        return tuple(line for line in self.lines if line.status == "failed")

    def line(self, name: str) -> Line:
        """The line of a check by its name."""
        return next(line for line in self.lines if line.name == name)

    def data(self) -> dict[str, Any]:
        """The JSON form: `format`, `passed`, and the fields above."""
        return {"format": FORMAT, "passed": self.passed} | asdict(self)

    @classmethod
    def of(cls, data: Mapping[str, Any], **changes: Any) -> Certificate:
        """The certificate of a JSON form; raises ValueError, TypeError or KeyError for anything else."""
        if data["format"] != FORMAT:
            raise ValueError(data["format"])
        fields = {name: data[name] for name in cls.__dataclass_fields__} | changes
        return cls(**fields | {"lines": tuple(Line(**line) for line in data["lines"]), "kept": tuple(fields["kept"])})

    def __repr__(self) -> str:
        names = max(len(line.name) for line in self.lines)
        head = f"<certificate of {self.model}: {'passed' if self.passed else 'FAILED'}, {self.dtype} on {self.device}>"
        return "\n".join([head, *(f"  {line.status:14}  {line.name:{names}}  {said(line)}" for line in self.lines)])

    def _repr_html_(self) -> str:
        colours = {"passed": "#1a7f37", "failed": "#cf222e", "not applicable": "#6e7781"}
        rows = "".join(
            f'<tr><td style="color:{colours[line.status]}">{line.status}</td><td style="text-align:left">{line.name}'
            f'</td><td style="text-align:left">{html.escape(said(line))}</td></tr>'
            for line in self.lines
        )
        return f"<table><caption>{html.escape(self.model)}, {self.dtype} on {self.device}</caption>{rows}</table>"


def said(line: Line) -> str:
    """The number of a line beside its bound, and its reason."""
    measured, bound = numbers(line)
    return " ".join(filter(None, (measured, bound and f"(at most {bound})", line.reason)))


def numbers(line: Line) -> tuple[str, str]:
    """What was measured and its bound, as a reader sees them: ("2.1e-07", "1e-05"); both empty where there are none."""
    if line.value is None or line.bound is None:
        return "", ""
    if line.unit == "count":
        return f"{line.value:,.0f} / {line.detail['of']:,}", f"{line.bound:,.0f}"
    if line.unit == "ratio":
        return f"{line.value:.2f}×", f"{line.bound:g}×"
    return f"{line.value:.1e}" if line.value else "0", f"{line.bound:.0e}" if line.bound else "0"

"""Checks of a model against itself: every way to run it gives the same numbers, and every name leads somewhere.

In fp32 two ways may differ by a hundred-thousandth of the largest number that was to be met, in each output and behind
each block apart. It is a share, since rounding is: every sum errs in proportion to the numbers that it adds, and those
of models differ by orders of magnitude. 1e-5 is 84 times the rounding of one number (2⁻²³), as long sums one after
another make of it. Where ways differ by more, since a model is so sharp that rounding grows in it, and always in bf16,
the error of each way against the same weights in the next wider format may be at most twice that of the plain run; so a
difference near the bound is no narrow escape, for beyond it that is what decides.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn

from ..block import Block
from ..tap import Probe
from .line import Line, failed, judged, without
from .subject import Subject

BOUNDS = {torch.float32: 1e-5, torch.float64: 1e-12}  # of the largest number
TWICE = 2.0
CHUNKINGS = 3
AWAY = "what comes out is not what the same weights give in the next wider number format, up to rounding"
CHOOSES = "this model chooses among experts or keys, and in so few digits rounding may choose otherwise"


def names(subject: Subject) -> Line:
    """How many tapped values have a name that is no module path, or no card in both languages."""
    probe = Probe()
    subject.everything(probe)
    modules, wrong = dict(subject.model.named_modules()), []
    for full in probe.values:
        layer, _, short = full.rpartition(".")
        card = getattr(modules.get(layer), "cards", {}).get(short)
        if card is None or not (card.en and card.ko):
            wrong.append(full)
    reason = f"the first is {wrong[0]}" if wrong else ""
    return judged("names", len(wrong), 0, "count", reason, of=len(probe.values))


def cache(subject: Subject) -> Line:
    """One token at a time, each with what was kept of those before, against the whole text in one call."""
    return _stepped("cache", subject, lambda length: [list(range(1, length))])


def chunks(subject: Subject) -> Line:
    """The text read in chunks of any lengths, against the whole text in one call."""
    draw = random.Random(0)

    def cuts(length: int) -> list[list[int]]:
        return [sorted(draw.sample(range(1, length), draw.randint(1, min(5, length - 1)))) for _ in range(CHUNKINGS)]

    return _stepped("chunks", subject, cuts)


def _stepped(name: str, subject: Subject, cuts: Callable[[int], list[list[int]]]) -> Line:
    if subject.waits:
        return without(name, subject.waits)
    some = [0, len(subject.rows) - 1]  # the longest, and another
    pairs = [(i, subject.in_chunks(subject.rows[i], one)) for i in some for one in cuts(len(subject.fast[i]))]
    return held(name, subject, [out for _, out in pairs], [i for i, _ in pairs])


def future(subject: Subject) -> Line:
    """What another last token changes in the outputs before it: nothing."""
    if subject.waits:
        return without("future", subject.waits)
    row, out = subject.rows[0], subject.fast[0]
    *before, last = subject.ids(row)
    changed = subject.alone(subject.changed(row, [*before, 0 if last else 1]))
    return judged(
        "future", *apart([changed[:-1]], [out[:-1]])[:1], BOUNDS.get(subject.dtype, torch.finfo(subject.dtype).eps)
    )


def padding(subject: Subject) -> Line:
    """A batch padded on the left against the same batch padded on the right."""
    if len(subject.sides) < 2:
        return without("padding", "images are of one size, so none is padded")
    left, right = (subject.together(side) for side in subject.sides)
    return near("padding", subject, left, right) or max(
        (held("padding", subject, side) for side in (left, right)),
        key=lambda line: math.inf if line.value is None else line.value,
    )


def batch(subject: Subject) -> Line:
    """Every row of a batch against the same row by itself."""
    return held("batch", subject, subject.together(subject.sides[0]))


def glass(subject: Subject) -> Line:
    """The run in which every value is looked at, its mathematics written out, against the fused one: what leaves each
    block, and the output."""
    kept: list[dict[str, list[Tensor]]] = []
    for look in (False, True):
        kept.append({})
        for row in subject.rows:
            watch = _Blocks(subject.model, look)
            for name, value in [("output", subject.alone(row, watch)), *watch.values.items()]:
                kept[-1].setdefault(name, []).append(value)
    fused, written = kept
    blocks = {name: apart(written[name], some)[0] for name, some in fused.items()}
    worst = max(blocks, key=lambda name: math.inf if math.isnan(blocks[name]) else blocks[name])
    bound = BOUNDS.get(subject.dtype, 0.0)
    if blocks[worst] <= bound or subject.wide is None:
        return judged("glass", blocks[worst], bound, blocks=blocks)
    if subject.may_choose_otherwise:
        return without("glass", CHOOSES)
    errors = [max(rms(one["output"], subject.wide), 1e-30) for one in kept]
    if not min(errors) <= rounding(subject):
        return failed("glass", AWAY)
    ratio = max(errors) / min(errors)  # either may be the more exact one
    most = 2 * TWICE if subject.dtype in BOUNDS else TWICE  # in fp32 both are few digits, and differ more by chance
    if ratio > most and bound:  # no rounding: then the difference itself says more
        return judged("glass", blocks[worst], bound, reason=f"most in {worst}", blocks=blocks)
    return judged("glass", ratio, most, "ratio", "" if ratio <= most else f"most in {worst}", blocks=blocks)


class _Blocks(Probe):
    """Keeps what leaves each block. look: every value is asked for, so that every part writes its mathematics out."""

    def __init__(self, model: nn.Module, look: bool) -> None:
        blocks = [one for one in model.modules() if isinstance(one, Block)]
        self.look, self.names = look, {f"{one.path}.resid_out" for one in blocks}
        super().__init__(self.names.__contains__)

    def wants(self, name: str) -> bool:
        """Whether a value is asked for, and so must be worked out."""
        return self.look or super().wants(name)


# ---------------------------------------------------------------- differences


def held(
    name: str,
    subject: Subject,
    found: Sequence[Tensor],
    rows: Iterable[int] | None = None,
    bounds: Mapping[torch.dtype, float] | None = None,
) -> Line:
    """The line of outputs that should be those of the fast path, of these rows (None: of all)."""
    bounds = BOUNDS if bounds is None else bounds
    chosen = list(range(len(subject.rows)) if rows is None else rows)
    plain = [subject.fast[i] for i in chosen]
    line = near(name, subject, found, plain, bounds)
    if line is not None:
        return line
    if subject.may_choose_otherwise:
        return without(name, CHOOSES)
    wanted = [subject.wide[i] for i in chosen]
    error, own = rms(found, wanted), rms(plain, wanted)
    if not own <= rounding(subject):
        return failed(name, AWAY)
    if error > TWICE * own and subject.dtype in bounds:  # no rounding: then the difference itself says more
        return judged(name, apart(found, plain)[0], bounds[subject.dtype])
    return judged(name, error / max(own, 1e-30), TWICE, "ratio", error=error, plain=own)


def near(
    name: str,
    subject: Subject,
    found: Sequence[Tensor],
    wanted: Sequence[Tensor],
    bounds: Mapping[torch.dtype, float] | None = None,
) -> Line | None:
    """The line of two outputs of one number format; None where they are too far apart for it, or always are, and the
    wider format has to decide."""
    largest, mean = apart(found, wanted)
    bound = (BOUNDS if bounds is None else bounds).get(subject.dtype, 0.0)
    return judged(name, largest, bound, mean=mean) if largest <= bound or subject.wide is None else None


def rounding(subject: Subject) -> float:
    """What the plain run may be away from the wider format at most, as a share: beyond it is no rounding any more."""
    return min(256 * torch.finfo(subject.dtype).eps, 0.5)


def apart(found: Sequence[Tensor], wanted: Sequence[Tensor]) -> tuple[float, float]:
    """The largest difference, and the mean one, as shares of the largest number wanted."""
    largest = max(max(one.double().abs().max().item() for one in wanted), 1e-30)
    differences = [(a.double() - b.double()).abs() for a, b in zip(found, wanted, strict=True)]
    worst = torch.stack([one.max() for one in differences]).max().item()  # keeps a NaN
    mean = sum(one.sum().item() for one in differences) / sum(one.numel() for one in differences)
    return worst / largest, mean / largest


def rms(found: Sequence[Tensor], wanted: Sequence[Tensor]) -> float:
    """The root of the mean square of the differences, as a share of that of the numbers wanted."""
    differences = sum((a.double() - b.double()).square().sum().item() for a, b in zip(found, wanted, strict=True))
    return math.sqrt(differences / max(sum(one.double().square().sum().item() for one in wanted), 1e-60))

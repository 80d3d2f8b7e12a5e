"""heads: what every head of every layer looks at in this text, in a few numbers each."""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import Tensor

from ...rerun import Stack
from ...trace import Trace
from ..explainer import Explainer, Report, Settings, block_of, length_of, line, number, quiet, stack_of
from ..explanation import Explanation, Said, Table
from ..quantity import exact
from ..sight import through
from .weights import head_letter, weights_name

AT_ONCE = 1 << 22  # weights
MOSTLY = 0.5  # a head is called by what takes so much of its weight


class HeadsSpec(Settings, frozen=True, tag="heads"):
    """layer: one alone, None for all; stack: -1 the last."""

    layer: int | None = None
    stack: int = -1


def made(trace: Trace, settings: HeadsSpec, report: Report) -> Explanation:
    """The figure "heads": a row for each head of each layer that weighs what it sees."""
    stack = stack_of(trace, settings.stack)
    layers = range(len(stack.model.blocks)) if settings.layer is None else [settings.layer]
    rows: list[list[str | float | int | None]] = []
    for k, i in enumerate(layers):
        part = partial(_part_of, report, k, len(layers))
        part(0, 1)
        name = headed(trace, stack, i)
        ways = through(block_of(stack, i).mixer, length_of(stack)) if name else None
        for head, found in enumerate(measured(trace, stack, name, ways, part)) if name else ():
            rows.append([i, head, *(None if one is None else number(one) for one in found), kind(found)])
    return Explanation("heads", TITLE, CLAIM, (Table("heads", TITLE, COLUMNS, rows),), (), line("heads", settings))


def _part_of(report: Report, k: int, layers: int, done: int, of: int) -> None:
    """Tell how far a layer is as a share of all layers, in hundredths of one."""
    report(100 * k + 100 * done // max(1, of), 100 * layers)


def headed(trace: Trace, stack: Stack, layer: int) -> str:
    """The name of a layer's weights where each head has its own; "" where not."""
    name = weights_name(trace, stack, layer)
    return name if name and head_letter(trace, name) == "h" else ""


def measured(trace: Trace, stack: Stack, name: str, ways: Tensor, report: Report = quiet) -> list[list[float | None]]:
    """For each head: entropy in bits, mean distance, shares on the previous token, the first, itself, equal tokens, and
    those that stand behind an equal one; means over the positions that see such a token (ways, bool `t s`). Weights
    with a sign count by their magnitude, and each row is brought to a sum of 1. The first position, which in a causal
    layer has no choice, is left out."""
    ids = stack.tokens[0] if stack.tokens.ndim == 2 else None
    heads, n = dict(trace.sizes(name))["h"], dict(trace.sizes(name))["t"]
    rows = list(range(min(1, n - 1), n))
    at_once, sums = rows_at_once(trace, name), torch.zeros(heads, 7, dtype=torch.float64)
    counts = torch.zeros(7, dtype=torch.float64)
    for start in range(0, len(rows), at_once):
        some = torch.tensor(rows[start : start + at_once])
        report(start, len(rows))
        shares = exact(trace.part(name, b=0, t=some.tolist())).abs()  # h t s
        shares /= shares.sum(-1, keepdim=True).clamp(min=1e-30)
        away = (some[:, None] - torch.arange(n)).abs()
        picks = [pick & ways[some] for pick in _picks(some, n, ids)]
        flat = shares.flatten(1)
        found = [flat.mv(one.flatten().double()) for one in (away, *picks)]
        there = [torch.ones(len(some)), torch.ones(len(some)), *(pick.any(-1) for pick in picks)]
        sums += torch.stack([torch.special.entr(flat).sum(1) / math.log(2), *found], 1)
        counts += torch.stack([one.double().sum() for one in there])
    means = sums / counts.clamp(min=1)
    return [
        [value if count else None for value, count in zip(row, counts.tolist(), strict=True)] for row in means.tolist()
    ]


def rows_at_once(trace: Trace, name: str) -> int:
    """How many rows of all heads are worked out at once: as many as there is room for, but few enough that the same
    memory serves again."""
    sizes = dict(trace.sizes(name))
    return max(1, min(trace.rows_at_once(name), AT_ONCE // (sizes["h"] * sizes["s"])))


def _picks(some: Tensor, n: int, ids: Tensor | None) -> list[Tensor]:
    """bool `t s`: the previous token, the first, itself, equal ones, those behind an equal one."""
    places, rows = torch.arange(n), some[:, None]
    previous, first, itself = places == rows - 1, (places == 0).expand(len(some), -1), places == rows
    if ids is None:
        none = torch.zeros_like(itself)
        return [previous, first, itself, none, none]
    ids = ids.cpu()
    equal = (ids[some][:, None] == ids) & ~itself
    before = torch.cat((ids[:1] * 0 - 1, ids[:-1]))
    behind = (ids[some][:, None] == before) & ~itself
    return [previous, first, itself, equal, behind]


def kind(found: list[float | None]) -> str:
    """What takes most of a head's weight: "previous", "first", "self", "equal", "behind"; "spread" where nothing takes
    half of it."""
    shares = dict(zip(("previous", "first", "self", "equal", "behind"), found[2:], strict=True))
    best = max(shares, key=lambda one: shares[one] or 0.0)
    return best if (shares[best] or 0.0) >= MOSTLY else "spread"


TITLE = Said("What each head does in this text", "헤드마다 이 텍스트에서 하는 일")
COLUMNS = (
    Said("layer", "층"),
    Said("head", "헤드"),
    Said("entropy (bits)", "엔트로피(비트)"),
    Said("mean distance", "평균 거리"),
    Said("on the previous token", "바로 앞 토큰"),
    Said("on the first token", "첫 토큰"),
    Said("on itself", "자기 자신"),
    Said("on equal tokens", "같은 토큰"),
    Said("behind an equal token", "같은 토큰의 다음"),
    Said("kind", "종류"),
)
CLAIM = Said(
    "For each head the entropy −Σ α log₂ α of its weights, the mean distance Σ α |t − s|, and how much of its "
    "weight lies on the previous token, the first, itself, equal tokens, and the token behind an equal one: means "
    "over the positions of this text but the first, where one can be seen. A head is named by what takes at least "
    "half of its weight. One text says what a head did here, not what it is for.",
    "헤드마다 가중치의 엔트로피 −Σ α log₂ α, 평균 거리 Σ α |t − s|, 그리고 바로 앞 토큰, 첫 토큰, 자기 자신, 같은 "
    "토큰, 같은 토큰의 바로 다음 토큰에 둔 가중치를 나타냅니다. 첫 위치를 빼고, 그런 토큰이 있는 위치에서 구한 "
    "평균입니다. 가중치의 절반 이상을 차지하는 것으로 헤드의 종류를 부릅니다. 텍스트 하나는 헤드가 여기서 한 일을 "
    "보여 줄 뿐, 헤드의 역할을 말해 주지는 않습니다.",
)


def _applies(trace: Trace) -> bool:
    if len(trace.stacks[-1].tokens) != 1:
        return False
    stacks = [stack for stack in trace.stacks if all(hasattr(block, "mixer") for block in stack.model.blocks)]
    return any(headed(trace, stack, i) for stack in stacks[-1:] for i in range(len(stack.model.blocks)))


HEADS = Explainer("heads", TITLE, HeadsSpec, made, _applies)

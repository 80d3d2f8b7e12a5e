"""heads: what every head of every layer looks at in this text, in a few numbers each."""

from __future__ import annotations

from functools import partial

from ...trace import Trace
from ..explainer import Explainer, Report, Settings, block_of, length_of, line, number, stack_of
from ..explanation import Check, Explanation, Said, Table
from ..looking import PICKS, headed, measured
from ..sight import seen_of

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
        sees = seen_of(block_of(stack, i).mixer, length_of(stack))
        for head, found in enumerate(measured(trace, stack, name, sees, part)) if name else ():
            rows.append([i, head, *(None if one is None else number(one) for one in found), kind(found)])
    return Explanation(
        "heads", TITLE, CLAIM, (Table("heads", TITLE, COLUMNS, rows),), (DELETION,), line("heads", settings)
    )


def _part_of(report: Report, k: int, layers: int, done: int, of: int) -> None:
    """Tell how far a layer is as a share of all layers, in hundredths of one."""
    report(100 * k + 100 * done // max(1, of), 100 * layers)


def kind(found: list[float | None]) -> str:
    """What takes most of a head's weight: "previous", "first", "self", "equal", "behind"; "spread" where nothing takes
    half of it."""
    shares = dict(zip(PICKS, found[2:], strict=True))
    best = max(shares, key=lambda one: shares[one] or 0.0)
    return best if (shares[best] or 0.0) >= MOSTLY else "spread"


DELETION = Check(
    "deletion",
    Said(
        "Rank correlation of a layer's weights with what cutting their edges does; `edges` measures it",
        "한 층의 가중치와 그 연결을 실제로 끊었을 때의 변화 사이의 순위 상관(`edges`로 측정)",
    ),
)
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


HEADS = Explainer("heads", TITLE, HeadsSpec, made, _applies, ("deletion",))

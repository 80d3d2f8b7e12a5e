"""roles: which part each head plays, by its scores on random tokens that repeat themselves; and where it looks here."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from ...trace import Trace
from ..explainer import (
    Explainer,
    Limit,
    Report,
    Settings,
    block_of,
    has_tokens,
    length_of,
    line,
    number,
    numbers,
    of_text,
)
from ..explanation import Check, Explanation, HeatMap, Line, Number, Said, Series, Table
from ..looking import at_distances, headed
from ..rest import surprises
from ..roles import FARTHEST, Role, Runs, roles, runs
from ..sight import seen_of
from .next import BITS, writes

MOSTLY = 0.5  # a head is called by a score from here on


class RolesSpec(Settings, frozen=True, tag="roles"):
    """length: random tokens of a run, None for 25 or as many as the model has room for; times: how often the run comes;
    sequences: how many such texts, each of other tokens; seed: of what is drawn."""

    length: int | None = None
    times: int = 4
    sequences: int = 4
    seed: int = 0

    LIMITS: ClassVar[dict[str, Limit]] = {
        "length": Limit(2),
        "times": Limit(2, 16),
        "sequences": Limit(1, 64),
        "seed": Limit(most=2**31),
    }


def made(trace: Trace, settings: RolesSpec, report: Report) -> Explanation:
    """Figures "roles", the scores of each head; "chance", those of one that weighs all alike; "distances", where each
    head looks in this text; and of a model that writes "surprise", what repeating the tokens is worth to it."""
    drawn, anew = (_drawn(trace, settings, again) for again in (True, False))
    tests = [_run(trace, ids) for ids in drawn.ids]
    found = roles(tests, report)
    figures = [Table("roles", TITLE, COLUMNS, [_row(one) for one in found]), _chance(found), _distances(trace)]
    gains: list[Number] = [None, None]  # of what writes no text
    if writes(trace):
        controls = [_run(trace, ids) for ids in anew.ids]
        lines = [torch.stack([surprises(one)[0] for one in some]).mean(0) for some in (tests, controls)]
        figures.append(_surprise(lines))
        gains = [_gain(one, drawn, settings.times) for one in lines]
    checks = tuple(map(Check, ("gain", "gain_control"), (GAIN, GAIN_CONTROL), gains))
    return Explanation("roles", TITLE, CLAIM, tuple(figures), checks, line("roles", settings))


def _drawn(trace: Trace, how: RolesSpec, again: bool) -> Runs:
    return runs(trace.loaded, how.length, how.times, how.sequences, how.seed, again)


def _run(trace: Trace, ids: list[int]) -> Trace:
    """The run of random tokens by the same model, changed alike."""
    return trace.loaded.trace(ids, limit_bytes=trace.limit_bytes, edits=trace.edits)


def kind(one: Role) -> str:
    """The name of a head's largest score, "none" where that is less than half of its weight."""
    return one.best if (one.scores[one.best] or 0.0) >= MOSTLY else "none"


def _number(value: float | None) -> float | None:
    return None if value is None else number(value)


def _row(one: Role) -> list[str | float | int | None]:
    *shares, there = map(_number, one.scores.values())
    return [one.layer, one.head, *shares, one.offset, there, _number(one.chance["offset"]), kind(one)]


def _chance(found: list[Role]) -> Table:
    """What a head of each layer gets that weighs all it sees alike."""
    layers = {one.layer: [_number(share) for name, share in one.chance.items() if name != "offset"] for one in found}
    return Table("chance", CHANCE, (COLUMNS[0], *COLUMNS[2:6]), [[i, *shares] for i, shares in layers.items()])


def _distances(trace: Trace) -> HeatMap:
    """Where each head looks in the text of the run itself, by distance; of each layer also a head that looks evenly."""
    stack, names, values = trace.stacks[-1], list[str](), list[Tensor]()
    for i in range(len(stack.model.blocks)):
        if name := headed(trace, stack, i):
            sees = seen_of(block_of(stack, i).mixer, length_of(stack))
            heads, alike = (at_distances(trace, name, sees, FARTHEST, even) for even in (False, True))
            names += [*(f"{i}.{h}" for h in range(len(heads))), f"{i} {EVEN}"]
            values += [*heads, *alike]
    table = torch.stack(values)
    seen = [k for k in range(2 * FARTHEST + 1) if not table[:, k].isnan().all()]  # none is ahead in a causal layer
    places = tuple(f"{k - FARTHEST:+}" if k != FARTHEST else "0" for k in seen)
    shown = [[None if x != x else x for x in row] for row in numbers(table[:, seen])]
    return HeatMap("distances", DISTANCES, tuple(names), places, shown, HEAD, DISTANCE, SHARE, "plain")


def _surprise(lines: list[Tensor]) -> Series:
    places = tuple(str(i + 1) for i in range(len(lines[0])))
    drawn = tuple(Line(said, numbers(one)) for said, one in zip((AGAIN, ANEW), lines, strict=True))
    return Series("surprise", SURPRISE, places, PLACE, BITS, drawn)


def _gain(bits: Tensor, drawn: Runs, times: int) -> float:
    """Bits by which a token of the first run is more surprising than one of those after it: without the first token of
    a run, which nobody can know when it comes again for the first time."""
    place = torch.arange(1, len(bits) + 1) - drawn.start  # within the runs
    inner = (place >= 0) & (place < drawn.length * times) & (place % drawn.length > 0)
    first = place < drawn.length
    return number((bits[inner & first].mean() - bits[inner & ~first].mean()).item())


TITLE = Said("Which part each head plays", "헤드마다 맡은 역할")
COLUMNS = (
    Said("layer", "층"),
    Said("head", "헤드"),
    Said("previous token", "바로 앞 토큰"),
    Said("induction", "귀납"),
    Said("equal token", "같은 토큰"),
    Said("first token", "첫 토큰"),
    Said("distance", "거리"),
    Said("at this distance", "이 거리에서"),
    Said("there by chance", "거기서 우연이면"),
    Said("part", "역할"),
)
CHANCE = Said("By chance: a head that weighs all it sees alike", "우연이면: 보이는 것을 모두 똑같이 보는 헤드")
DISTANCES = Said("Where each head looks in this text, by distance", "헤드마다 이 텍스트에서 보는 곳(거리별)")
EVEN = "="
HEAD = Said("layer.head (=: by chance)", "층.헤드(=: 우연이면)")
DISTANCE = Said("tokens away", "떨어진 토큰 수")
SHARE = Said("share of its weight", "가중치 비율")
SURPRISE = Said("Random tokens that repeat themselves: how surprising each is", "되풀이되는 무작위 토큰의 놀람도")
PLACE = Said("place", "위치")
AGAIN = Said("the same run again", "같은 토큰열의 되풀이")
ANEW = Said("other tokens each time (control)", "매번 다른 토큰(대조)")
GAIN = Said(
    "Bits by which a token of the first run surprises more than one of its repetitions",
    "첫 토큰열의 토큰이 되풀이된 토큰보다 더 놀라운 정도(비트)",
)
GAIN_CONTROL = Said(
    "The same where every run has tokens of its own (control)", "토큰열마다 토큰이 다를 때의 같은 값(대조)"
)
CLAIM = Said(
    "Shares of a head's weight over runs of random tokens, which come several times: on the token before (previous "
    "token); on tokens behind an equal one (induction, the prefix-matching score of Olsson et al. 2022); on equal "
    "tokens (duplicate token); on the first token (sink); and on the token at the distance that it prefers, other than "
    "the one before and itself. Means over the positions that see such a token. A head is named by what takes at least "
    "half of its weight. Beside each stands what a head gets by chance that weighs all it sees alike.",
    "무작위 토큰열이 여러 번 되풀이될 때 헤드가 두는 가중치의 비율입니다. 바로 앞 토큰, 같은 토큰의 바로 다음(귀납, "
    "Olsson 등(2022)의 접두사 일치 점수), 같은 토큰(중복 토큰), 첫 토큰(싱크), 그리고 바로 앞과 자신을 뺀 거리 가운데 "
    "헤드가 가장 많이 보는 거리의 토큰에 둔 비율을, 그런 토큰이 보이는 위치에서 평균했습니다. 가중치의 절반 이상을 "
    "차지하는 것으로 헤드의 역할을 부릅니다. 보이는 것을 모두 똑같이 보는 헤드가 우연히 얻는 값을 함께 나타냅니다.",
)


def scored(trace: Trace) -> bool:
    """Whether heads of a run can be tested on random tokens: of one stack that reads tokens, with weights by head."""
    if not (of_text(trace) and len(trace.stacks) == 1 and has_tokens(trace)):
        return False
    stack = trace.stacks[0]
    return any(headed(trace, stack, i) for i in range(len(stack.model.blocks)))


ROLES = Explainer("roles", TITLE, RolesSpec, made, scored, ("gain", "gain_control"))

"""What a position can see by construction: whatever lies outside moves it by nothing, for any weights and any text."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ..mask import Mask, reason
from ..mixers.base import Cost, TokenMixer
from ..model import Model
from .explanation import Said

AT_ONCE = 1 << 20  # pairs of places
EARLIER = Said("itself and everything before it", "자신과 그 앞의 모든 위치를 봅니다")
BOTH = Said("every position, before it and behind it", "앞뒤의 모든 위치를 봅니다")
ITSELF = Said("itself alone", "자신만 봅니다")
SOURCE = Said("all of the source", "원문 전체를 봅니다")


def seen(one: Cost, rows: Tensor, places: Tensor, causal: bool = True) -> Tensor:
    """bool `t s`: which of `places` the positions `rows` can see through one mixer of this cost."""
    if one.sees is not None:
        return one.sees(rows, places)
    back = rows[:, None] - places
    ways = torch.ones_like(back, dtype=torch.bool) if not causal else back >= 0
    if one.reach is not None:
        ways &= back.abs() <= one.reach
    if one.stride > 1:
        ways &= back % one.stride == 0
    return ways


def through(mixer: TokenMixer, n: int, sources: int | None = None, rows: Sequence[int] | None = None) -> Tensor:
    """bool `t s`: which of n positions see which through one mixer, of a text about so many sources. rows: those that
    see, None for all."""
    places = torch.arange(n)
    more = [sources or n] if mixer.reads_memory else []
    looking = places if rows is None else torch.tensor(rows, dtype=torch.long)
    return seen(mixer.cost(n, 4, *more), looking, places, mixer.causal)


def seen_of(mixer: TokenMixer, n: int) -> Callable[[list[int]], Tensor]:
    """What is seen through one mixer of a text of n tokens, of the positions that one asks for: bool `t s`."""
    return lambda rows: through(mixer, n, rows=rows)


def sight(model: Model, n: int, sources: int | None = None, rows: Sequence[int] | None = None) -> Tensor:
    """bool `t s`: from which of n tokens there is a way to which position, over the embedding and all blocks. rows:
    those that see, None for all."""
    places = torch.arange(n)
    ways = (places if rows is None else torch.tensor(rows))[:, None] == places
    for block in reversed(model.blocks):  # a residual adds none: all see themselves
        ways = _before(block.mixer, ways, sources)
    return _embedded(model, ways)


def fields(model: Model, n: int, row: int, sources: int | None = None) -> Tensor:
    """bool `l s`: which of n tokens there is a way from to the position `row`, over the embedding and the first l
    blocks, for l from 0 to all of them."""
    itself = torch.arange(n)[None] == row
    ways = itself
    for block in reversed(model.blocks):  # those with fewer blocks begin at an earlier one
        ways = torch.cat((itself, _before(block.mixer, ways, sources)))
    return _embedded(model, ways)


def seen_together(mixer: TokenMixer, n: int, rows: Sequence[int], every: bool) -> Tensor:
    """bool `s`: which of n places some of `rows` can see through one mixer; every: which all of them can."""
    some = torch.tensor(rows, dtype=torch.long).split(max(1, AT_ONCE // n))
    over = torch.all if every else torch.any
    return over(torch.stack([over(through(mixer, n, rows=one.tolist()), 0) for one in some]), 0)


def _before(mixer: TokenMixer, ways: Tensor, sources: int | None) -> Tensor:
    """bool `r s`: what those that see `ways` behind a mixer see in front of it. As many of its rows at once as there is
    room for: a map of all places by all has the square of a long text."""
    n, made = ways.shape[1], torch.zeros_like(ways)
    for some in ways.any(0).nonzero()[:, 0].split(max(1, AT_ONCE // n)):
        made |= ways[:, some].float() @ through(mixer, n, sources, some.tolist()).float() > 0
    return made


def _embedded(model: Model, ways: Tensor) -> Tensor:
    """bool `t s`: what is seen of the tokens by those that see `ways` of the vectors in front of all blocks."""
    if getattr(model.embed, "previous", None) is None:
        return ways
    return ways | torch.nn.functional.pad(ways, (0, 1))[:, 1:]  # a token's row in that table enters one place later


def looks_back(mixer: TokenMixer) -> bool:
    """Whether a later position is dark because it is later: in no mixer that looks both ways."""
    mask = getattr(mixer, "mask", None)
    return mixer.causal if mask is None else mask.causal


def reasons(mixer: TokenMixer, pos: list[int], rows: list[int], groups: Sequence[Sequence[int]]) -> list[list[str]]:
    """For each of `rows` and each group of places why the row sees none of it (mask.Reason), "" where it sees some.
    pos: the position of each place, -1 where no token is."""
    mask, there = getattr(mixer, "mask", None), torch.tensor(pos) >= 0
    causal = looks_back(mixer)
    ways = through(mixer, len(pos), rows=rows) & there & there[rows, None]
    lit = torch.stack([ways[:, list(group)].any(1) for group in groups], 1).tolist()

    def why(t: int, s: int) -> str:
        if pos[t] < 0 or pos[s] < 0:
            return "padding"
        if s > t and causal:
            return "future"
        return (reason(mask, pos[t], pos[s]) if mask is not None else "") or "outside the window"

    firsts = [group[0] for group in groups]
    return [
        ["" if sees else why(t, s) for sees, s in zip(row, firsts, strict=True)]
        for t, row in zip(rows, lit, strict=True)
    ]


def said(mixer: TokenMixer) -> Said:
    """What a position may see by construction, in a sentence."""
    mask = getattr(mixer, "mask", None)
    if mask is not None:
        return _joined(_of_mask(mask, getattr(mixer.spec, "top_k", None)))
    if mixer.reads_memory:
        return _joined([ITSELF if getattr(mixer, "cell", None) is None else EARLIER, SOURCE])
    one = mixer.cost(64)
    if one.reach is None:
        return EARLIER if mixer.causal else BOTH
    near = _near(one.reach, mixer.causal)
    if one.stride == 1:
        return near
    return _joined([near, Said(f"of these one in {one.stride}", f"그중 {one.stride}칸마다 하나씩입니다")])


def _near(reach: int, causal: bool) -> Said:
    if reach == 0:
        return ITSELF
    if causal:
        return Said(f"itself and the {reach} positions before it", f"자신과 바로 앞의 {reach}칸을 봅니다")
    return Said(f"itself and {reach} positions to either side", f"자신과 앞뒤로 {reach}칸씩 봅니다")


def _of_mask(mask: Mask, top_k: int | None) -> list[Said]:
    found, n = [], mask.pinned
    if mask.segment is not None:
        own = f"자신이 속한 {mask.segment}칸 세그먼트를 자신까지 봅니다"
        found.append(Said(f"its own segment of {mask.segment} positions as far as itself", own))
        if mask.memory:
            found.append(Said(f"the {mask.memory} before that segment", f"그 세그먼트 앞의 {mask.memory}칸도 봅니다"))
    elif mask.window is not None:
        found.append(_near(mask.window - 1, mask.causal))
    elif mask.stride is None:
        found.append(EARLIER if mask.causal else BOTH)
    if mask.stride is not None:
        side = ("before it ", "앞쪽으로 ") if mask.causal else ("", "")
        every = f"every position {side[0]}at a multiple of {mask.stride} steps"
        found.append(Said(every, f"{side[1]}거리가 {mask.stride}의 배수인 위치를 봅니다"))
    if n and mask.globals < n:
        found.append(Said(f"the first {n} positions, however far", f"맨 앞의 {n}칸은 거리에 관계없이 봅니다"))
    if mask.globals:
        every = f"the first {mask.globals} positions see all and are seen by all"
        found.append(Said(every, f"맨 앞의 {mask.globals}칸은 모두를 보고 모두에게 보입니다"))
    if mask.random:
        drawn = f"{mask.random} drawn blocks of {mask.block} positions"
        found.append(Said(drawn, f"무작위로 뽑은 {mask.block}칸 블록 {mask.random}개도 봅니다"))
    if mask.prefix:
        both = f"the first {mask.prefix} positions see one another in both directions"
        found.append(Said(both, f"맨 앞의 {mask.prefix}칸은 서로 앞뒤로 봅니다"))
    if top_k is not None:
        best = f"of these the {top_k} with the largest scores"
        found.append(Said(best, f"그중 점수가 가장 큰 {top_k}개만 셉니다"))
    return found


def _joined(parts: Sequence[Said]) -> Said:
    return Said("; ".join(one.en for one in parts), ". ".join(one.ko for one in parts))

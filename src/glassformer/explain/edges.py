"""What each single edge of an attention does: the weight from one token to another, taken out.

Without source s the other weights of the row grow so that they sum to what they did with it, and the head gives

    o'_t − o_t = a/(1 − a) · (o_t − u_s) = a · (o'_t − u_s)        with a = α_ts and u_s = v_s

exactly, in place of o_t (Serrano and Smith 2019 remove weights so). It does not exist where s is the only token that t
may see. The larger of a row's weights is treated in the second form, where nothing cancels as a nears 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..errors import UnsupportedError
from ..mixers.multihead import SoftmaxAttention
from ..mixers.softmax import weights as softmax
from ..trace import Trace
from .answer import Answer
from .explainer import Report, quiet
from .faithfulness import spearman
from .quantity import exact

BEHIND = ("pattern", "z", "head_out", "out")  # what is edited up to the scores is taken along
STRATA = 16  # of the weights, from which edges are drawn alike


@dataclass(frozen=True)
class Edges:
    """The edges into some rows, of all heads, in fp64; NaN where an edge does not exist.

    weights   `h t s`, α_ts
    effects   `h t s`, ‖(o'_t − o_t) W_O‖, how far what this attention gives moves without the edge
    directed  `h t s`, ⟨∂f/∂out_t, (o'_t − o_t) W_O⟩, to first order what f gains without it; None: of no answer
    """

    rows: tuple[int, ...]
    weights: Tensor
    effects: Tensor
    directed: Tensor | None


@dataclass(frozen=True)
class Sampled:
    """Edges that were cut, and what that did.

    edges    `k 3`, head, row (of Edges.rows) and source
    formula  the largest difference between a/(1 − a)·(o − u) and how far the head, worked out without the source,
             moves; relative to that
    changes  `k`, f without the edge, less f, by running the rest of the model
    directed, weights   `k`, what Edges has of them
    """

    edges: Tensor
    formula: float
    changes: Tensor
    directed: Tensor
    weights: Tensor

    @property
    def agreement(self) -> float | None:
        """Rank correlation of the directed effects with what cutting does."""
        return spearman(self.directed.numpy(), self.changes.numpy())

    @property
    def agreement_of_weights(self) -> float | None:
        """The same of the weights alone with how much cutting does."""
        return spearman(self.weights.numpy(), self.changes.abs().numpy())


def edges(trace: Trace, path: str, rows: list[int], answer: Answer | None = None, report: Report = quiet) -> Edges:
    """All edges into the positions `rows` of the attention at `path`, and what they mean for an answer.

    Raises UnsupportedError for an attention over the largest scores alone, where another token enters for one that is
    taken out.
    """
    part, values = _part(trace, path), _values(trace, path)
    gradient = None if answer is None else answer.gradient(f"{path}.out")
    maps = exact(part.out.weight).unflatten(1, (part.heads, part.width))  # d h e
    gram = torch.einsum("dhe,dhf->hef", maps, maps)
    found, at_once = [], max(1, trace.rows_at_once(f"{path}.scores") // 4)
    for start in range(0, len(rows), at_once):
        report(start, len(rows))
        some = rows[start : start + at_once]
        row = _Rows(exact(trace.part(f"{path}.scores", b=0, t=some)), values, part.sink)
        directed = torch.full_like(row.weights, torch.nan)
        if gradient is not None:
            directed = row.changed_along(torch.einsum("td,dhe->hte", gradient[some], maps))
        found.append((row.weights, row.lengths(gram), directed))
    weights, effects, directed = (torch.cat(each, 1) for each in zip(*found, strict=True))
    return Edges(tuple(rows), weights, effects, None if gradient is None else directed)


def sampled(
    answer: Answer, path: str, found: Edges, heads: list[int], count: int = 256, seed: int = 0, report: Report = quiet
) -> Sampled | None:
    """Up to `count` edges of these heads, drawn alike from STRATA parts of their weights, cut one by one: the softmax
    without the source, and the rest of the model behind it. Of edges that do not lead to the answer none; None where
    all are such."""
    trace, at = answer.trace, _drawn(found, heads, count, seed)
    if not len(at):
        return None
    part, places = _part(trace, path), [found.rows[row] for row in at[:, 1].tolist()]
    scores = exact(trace.part(f"{path}.scores", b=0, t=(asked := sorted(set(places)))))  # h t s
    own = at.clone()
    own[:, 1] = torch.tensor([asked.index(place) for place in places])
    moved = _without(scores, _values(trace, path), part.sink, own)
    formula = _Rows(scores, _values(trace, path), part.sink).change(own)
    maps = exact(part.out.weight).unflatten(1, (part.heads, part.width))
    changes = torch.einsum("ke,dke->kd", moved, maps[:, at[:, 0]])
    block = answer.last.block_of(path)
    x = trace[answer.last.entry(block)][:1]
    whole, after = answer.after(block, x).item(), []
    for some in torch.arange(len(at)).split(answer.at_once()):
        report(int(some[0]), len(at))
        where = torch.arange(len(some)), torch.tensor(places)[some]

        def cut(value: Tensor, where: Any = where, some: Tensor = some) -> Tensor:
            return value.index_put(where, changes[some].to(value), accumulate=True)

        probe = answer.changing({f"{path}.out": cut})
        after.append(answer.after(block, x.expand(len(some), -1, -1), probe).cpu().double() - whole)
    apart = (formula - moved).norm(dim=-1) / moved.norm(dim=-1).clamp(min=1e-300)
    picked = at.unbind(1)
    return Sampled(at, apart.max().item(), torch.cat(after), found.directed[picked], found.weights[picked])


# ---------------------------------------------------------------- some rows of all heads


class _Rows:
    """The softmax of scores `h t s` over values `h s e`, and what it gives without each of its sources."""

    def __init__(self, scores: Tensor, values: Tensor, sink: Tensor | None) -> None:
        self.values = values
        top = scores.amax(-1, keepdim=True)
        if sink is not None:
            sink = exact(sink)[:, None, None].expand_as(top)
            top = torch.maximum(top, sink)
        top = top.masked_fill(top.isneginf(), 0.0)
        parts = (scores - top).exp()
        none = 0.0 if sink is None else (sink - top).exp()
        self.weights = parts / (parts.sum(-1, keepdim=True) + none).clamp(min=1e-300)
        self.largest = parts.argmax(-1, keepdim=True)
        others = parts.scatter(-1, self.largest, 0.0)
        left = others.sum(-1, keepdim=True) + none  # of the largest; of all others nothing cancels
        rest = (parts.sum(-1, keepdim=True) + none - parts).scatter(-1, self.largest, left)
        self.odds = parts / rest  # a/(1 - a); x/0 where nothing is left, 0/x where there is no edge
        self.odds = self.odds.masked_fill((parts == 0) | (rest == 0), torch.nan)
        self.given = self.weights @ values
        own = values.gather(1, self.largest.expand(-1, -1, values.shape[-1]))
        weight = self.weights.gather(-1, self.largest)
        self.moved = weight * (others @ values / left.clamp(min=1e-300) - own)  # of the largest, `h t e`

    def _joined(self, all: Tensor, largest: Tensor) -> Tensor:
        """Numbers `h t s` with that of the largest weight in its place, NaN where there is no edge."""
        return all.scatter(-1, self.largest, largest[..., None]).masked_fill(self.odds.isnan(), torch.nan)

    def change(self, at: Tensor) -> Tensor:
        """The change `k e` without each of these edges: head, row and source `k 3`."""
        heads, rows, sources = at.unbind(1)
        apart = self.odds[heads, rows, sources, None] * (self.given[heads, rows] - self.values[heads, sources])
        largest = (self.largest[heads, rows, 0] == sources)[:, None]
        return torch.where(largest, self.moved[heads, rows], apart)

    def lengths(self, gram: Tensor) -> Tensor:
        """The length of each change through a map with this Gram matrix `h e e`."""
        mapped = self.given @ gram
        squares = (mapped * self.given).sum(-1, keepdim=True) - 2 * mapped @ self.values.mT
        squares = squares + ((self.values @ gram) * self.values).sum(-1)[:, None]
        own = ((self.moved @ gram) * self.moved).sum(-1)
        return self._joined(self.odds * squares.clamp(min=0).sqrt(), own.clamp(min=0).sqrt())

    def changed_along(self, asked: Tensor) -> Tensor:
        """⟨asked, each change⟩ with asked `h t e`."""
        apart = (self.given * asked).sum(-1, keepdim=True) - asked @ self.values.mT
        return self._joined(self.odds * apart, (self.moved * asked).sum(-1))


# ---------------------------------------------------------------- cut one by one


def _drawn(found: Edges, heads: list[int], count: int, seed: int) -> Tensor:
    """Head, row and source `k 3` of edges that lead to the answer, by STRATA of their weights."""
    there = ~found.effects.isnan() & (found.directed != 0)
    there &= torch.zeros(len(there), 1, 1, dtype=torch.bool).index_fill(0, torch.tensor(heads), True)
    places = there.nonzero()
    order = places[found.weights[tuple(places.T)].argsort()]
    drawn = torch.Generator().manual_seed(seed)
    some = [one[torch.randperm(len(one), generator=drawn)] for one in order.tensor_split(STRATA)]
    longest = max(map(len, some))
    turns = [one[i] for i in range(longest) for one in some if i < len(one)]
    return torch.stack(turns[:count]) if turns else places


def _without(scores: Tensor, values: Tensor, sink: Tensor | None, at: Tensor) -> Tensor:
    """How far a head's output moves without each of these edges `k 3` of scores `h t s`, `k e`, by the softmax over
    what is left."""
    heads, rows, sources = at.unbind(1)
    own = scores[heads, rows][:, None, None]  # each edge's row as one query of one head, k 1 1 s
    cut = own.clone()
    cut[torch.arange(len(at)), 0, 0, sources] = -torch.inf
    learned = None if sink is None else exact(sink)[heads]

    def given(scores: Tensor) -> Tensor:
        both = [
            softmax(one[None], None if learned is None else learned[i : i + 1]) for i, one in enumerate(scores[:, 0])
        ]
        return torch.stack([one[0, 0] @ values[head] for one, head in zip(both, heads.tolist(), strict=True)])

    return given(cut) - given(own)


def _part(trace: Trace, path: str) -> SoftmaxAttention:
    part = trace.model.get_submodule(path)
    if not isinstance(part, SoftmaxAttention):
        raise UnsupportedError(f"{path} has no heads with weights from token to token; choose a layer with attention")
    if part.spec.top_k is not None:
        raise UnsupportedError(
            f"{path} looks at the {part.spec.top_k} largest scores alone, so another token enters where one is taken "
            "out; choose another layer"
        )
    fixed = [one.name for one in trace.acting if one.name in {f"{path}.{short}" for short in BEHIND}]
    if fixed:
        raise UnsupportedError(
            f"{fixed[0]} is edited, so that an edge of this attention does not do what its weight says; choose another "
            "layer, or trace the text without this edit"
        )
    return part


def _values(trace: Trace, path: str) -> Tensor:
    """v_s of each head, `h s e`."""
    part = trace.model.get_submodule(path)
    return exact(trace.part(f"{path}.v", b=0)).repeat_interleave(part.heads // part.groups, 1).transpose(0, 1)

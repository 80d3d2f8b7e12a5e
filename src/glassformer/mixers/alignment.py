"""Attention inside a recurrent decoder: at every step it looks at the encoder's output again (Bahdanau, Cho & Bengio
2015), instead of living on one vector that the encoder handed over.

e_ij = a(s_{i−1}, h_j),  α_ij = softmax_j(e_ij),  c_i = Σ_j α_ij h_j,  s_i = cell(s_{i−1}, [x_i; c_i])   (section 3.1)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..call import Call
from ..errors import InputError, SettingError
from ..mask import rows
from ..nn.init import Linear
from ..nn.norm import Norm, NormSpec
from ..spec import Spec, check_least
from ..state import State
from ..tap import Card, as_built
from .base import Cost, TokenMixer
from .cells import CELLS, Cell, GruSpec, LstmSpec, Parts, Start, StartSpec
from .softmax import weights
from .stepwise import StepTap, TapOf, over_positions
from .window import edges


class LocationSpec(Spec, frozen=True, tag="location"):
    """Location-sensitive scores (Chorowski et al. 2015, equations 8 and 9): `filters` convolutions of `width` places
    over the alignment of the step before. Without the paper's bias b."""

    filters: int = 10
    width: int = 11

    def __post_init__(self) -> None:
        check_least(self, 1, "filters", "width")
        if self.width % 2 == 0:
            raise SettingError(f"width: {self.width} has no middle place; use an odd width")


class AlignmentSpec(Spec, frozen=True, tag="alignment"):
    """A recurrent decoder cell that reads a context vector of the encoder's output h at every step.

    cell          "gru" or "lstm", whose state before the step asks; null: the token's own vector asks, and nothing is
                  kept but the alignment where the next one depends on it
    hidden        numbers in a state (None: the model's width)
    reset         a GRU's, as in its own spec
    score         additive: vᵀ tanh(W_q s + W_k h) (Bahdanau et al. 2015); dot: s·h; bilinear: sᵀ W_k h (Luong et al.
                  2015, section 3.1)
    width         hidden units of the additive score (None: as many as the state has numbers)
    location      what the score sees of the alignment before; None: nothing
    drift         what a score loses for each place away from where the alignment before stood on average
    start         the first state is made of the encoder's last one; None: zeros
    context_norm  normalises the context vector before it is joined with the state
    activation    of the output W_o [s_i; c_i] + b_o: "tanh" gives the attentional vector of Luong et al. 2015, eq. 5
    memory_dim    width of the encoder's output (None: the model's)
    """

    cell: Literal["gru", "lstm"] | None = "gru"
    hidden: int | None = None
    reset: Literal["after", "before"] = "after"
    score: Literal["additive", "dot", "bilinear"] = "additive"
    width: int | None = None
    location: LocationSpec | None = None
    drift: float = 0.0
    start: StartSpec | None = None
    context_norm: NormSpec | None = None
    activation: Literal["tanh"] | None = None
    memory_dim: int | None = None

    def __post_init__(self) -> None:
        check_least(self, 1, "hidden", "width", "memory_dim")
        check_least(self, 0, "drift")
        if self.location is not None and self.score != "additive":
            raise SettingError(f"location: only an additive score takes it; set score=additive, not {self.score}")
        if self.cell is None and (self.start is not None or self.hidden is not None):
            name = "start" if self.start is not None else "hidden"
            raise SettingError(f"{name}: without a cell there is no state; set it to null, or give a cell")

    @property
    def reads_memory(self) -> bool:
        """It is what this mixer is for."""
        return True

    @property
    def chained(self) -> bool:
        """Whether an alignment depends on the one before."""
        return self.location is not None or self.drift > 0


@dataclass(eq=False)
class AlignmentState(State):
    """What is looked at: the encoder's output `b s e`, its keys `b s f` (None: itself) and its positions `b s`; what
    was looked at last: the alignment `b s` (None where it does not matter); and the cell's state, `b n` each."""

    memory: Tensor
    keys: Tensor | None
    pos: Tensor
    before: Tensor | None
    parts: Parts


class Score(nn.Module):
    """e_ij and what follows from it. Its `s` are the places of the encoder's output."""

    path = ""
    cards = {
        "k": Card(
            "W_k h_j",
            "W_k h_j",
            "What the score knows of each source token, worked out once.",
            "점수를 매길 때 원문 토큰마다 쓰는 값으로, 한 번만 계산합니다.",
            ("S10",),
        ),
        "scores": Card(
            "e_ij",
            "v · tanh(W_q s_{i−1} + W_k h_j)",
            "How well the decoder's state fits each source token; -∞ where there is none.",
            "디코더의 상태가 각 원문 토큰과 얼마나 맞는지 나타내는 점수이며, 토큰이 없는 곳은 -∞입니다.",
            ("S9", "S32"),
        ),
        "pattern": Card(
            "α_ij",
            "softmax_j(e_ij)",
            "The alignment: how much of each source token is read while this token is written.",
            "정렬: 이 토큰을 쓰면서 각 원문 토큰을 얼마나 읽는지 나타내는 가중치입니다.",
            ("S9", "S20", "S32"),
        ),
        "context": Card(
            "c_i",
            "Σ_j α_ij h_j",
            "The context vector: the weighted sum of the source tokens.",
            "문맥 벡터: 원문 토큰들의 가중합입니다.",
            ("S8", "S9", "S32"),
        ),
    }
    axes = {"scores": "b h t s", "pattern": "b h t s", "context": "b t e"}

    def __init__(self, spec: AlignmentSpec, state: int, memory: int) -> None:
        super().__init__()
        self.spec = spec
        if spec.score == "dot" and state != memory:
            raise SettingError(
                f"score: a dot needs a state as wide as the encoder's output, not {state} beside {memory}; use bilinear"
            )
        width = spec.width or state
        self.query = Linear(state, width, bias=False) if spec.score == "additive" else None
        keyed = {"additive": width, "bilinear": state}
        self.key = Linear(memory, keyed[spec.score], bias=False) if spec.score in keyed else None
        self.energy = Linear(width, 1, bias=False) if spec.score == "additive" else None
        self.filters = self.place = None
        if spec.location is not None:
            self.filters = Linear(spec.location.width, spec.location.filters, bias=False)
            self.place = Linear(spec.location.filters, width, bias=False)
        self.cards = _score_cards(spec)

    def forward(self, s: Tensor, past: AlignmentState, near: Near, tap: StepTap, at: int) -> tuple[Tensor, Tensor]:
        """One step: (context `b e`, alignment `b s`) for the asking state s `b n`."""
        scores = self._scores(s, past, near)
        scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
        if self.spec.drift:
            where = past.pos.clamp(min=0).to(scores.dtype)
            stood = (past.before.to(scores.dtype) * where).sum(1, keepdim=True)
            scores = scores - self.spec.drift * (where - stood).abs()
        scores = tap("scores", scores.masked_fill(past.pos < 0, -torch.inf)[:, None], at)
        pattern = tap("pattern", weights(scores).to(s.dtype), at)
        return tap("context", (pattern @ past.memory)[:, 0], at), pattern[:, 0]

    def _scores(self, s: Tensor, past: AlignmentState, near: Near) -> Tensor:
        """a(s, h_j) of every source place, `b s`."""
        if self.energy is None:
            keys = past.memory if past.keys is None else past.keys
            return (keys @ s[..., None])[..., 0]
        seen = self.query(s)[:, None] + past.keys
        if self.place is not None:
            seen = seen + self.place(self.filters(near.around(past.before)))
        return (torch.tanh(seen) * self.energy.weight[0]).sum(-1)

    def flops(self, n: int, sources: int) -> int:
        """Matrix products of n steps over so many source tokens, beside the context vectors."""
        if self.energy is None:
            width = self.key.out_features if self.key is not None else None
            each = 0 if width is None else 2 * n * sources * width
        else:
            each = self.query.flops(n)
        for part in (self.filters, self.place):
            each += 0 if part is None else part.flops(n * sources)
        return each + (0 if self.key is None else self.key.flops(sources))


class Near:
    """The neighbours of each source place among those that hold a token: `width` of them, itself in the middle."""

    def __init__(self, pos: Tensor, width: int) -> None:
        there = pos >= 0
        order = (~there).long().sort(dim=1, stable=True).indices  # the places that hold a token first
        rank = there.long().cumsum(1) - 1
        wanted = rank[..., None] + torch.arange(width, device=pos.device) - width // 2  # b s k
        self.exists = (wanted >= 0) & (wanted < there.sum(1)[:, None, None])
        flat = wanted.clamp(0, pos.shape[1] - 1).flatten(1)
        self.place = order.gather(1, flat)

    def around(self, alignment: Tensor) -> Tensor:
        """`b s` to `b s k`, zeros beyond the first and the last token."""
        return alignment.gather(1, self.place).view(self.exists.shape) * self.exists.to(alignment.dtype)


class Alignment(TokenMixer):
    """The mixer of AlignmentSpec: `cell` the recurrence, `cross` what it looks at."""

    symbol, called = "Align", ("the aligned decoder", "정렬 디코더")
    reads_memory = widens = True
    writes_residual = ("out",)
    cards = {
        "out": Card(
            "[s_i; c_i] W_o",
            "[s_i; c_i] W_o + b_o",
            "What the decoder's state and the context vector add to this token's vector.",
            "디코더의 상태와 문맥 벡터가 이 토큰 벡터에 더하는 값입니다.",
            ("S20", "S32"),
        )
    }

    def __init__(self, spec: AlignmentSpec, dim: int, out: int | None = None) -> None:
        super().__init__()
        self.spec, self.memory_dim = spec, spec.memory_dim or dim
        self.cell: Cell | None = None
        if spec.cell is not None:
            one = GruSpec(reset=spec.reset) if spec.cell == "gru" else LstmSpec()
            self.cell = CELLS[type(one)](one, dim + self.memory_dim, spec.hidden or dim)
        state = dim if self.cell is None else self.cell.width
        self.cross = Score(spec, state, self.memory_dim)
        self.start = Start(spec.start, dim, self.cell) if spec.start else None
        self.context_norm = Norm(spec.context_norm, self.memory_dim) if spec.context_norm else None
        self.out = Linear(state + self.memory_dim, out or dim)
        self.cards = _cards(spec)

    # ------------------------------------------------------------ the contract

    def empty(self, batch: int, room: int, call: Call) -> AlignmentState:
        """The encoder's output with its keys, looked at evenly so far, and the first state."""
        memory = call.memory
        if memory is None:
            raise InputError("this model reads an encoder's output at every step; give it one (memory=…)")
        keys = None
        if self.cross.key is not None:
            keys = call.tap(self.cross, source=True)("k", self.cross.key(memory), "b s f")
        pos = torch.arange(memory.shape[1], device=memory.device)[None] if call.memory_pos is None else call.memory_pos
        pos, before = rows(pos, batch), None
        if self.spec.chained:
            there = (pos >= 0).to(memory.dtype)
            before = there / there.sum(1, keepdim=True).clamp(min=1)
        return AlignmentState(memory, keys, pos, before, self._first(batch, call))

    def step(self, x: Tensor, state: AlignmentState, call: Call) -> tuple[Tensor, AlignmentState]:
        """`b t d`, one token after the other."""
        past = replace(state.take())
        valid, _, _ = edges(call, torch.zeros(x.shape[0], dtype=torch.long, device=x.device))
        near = Near(past.pos, self.spec.location.width) if self.spec.location else None
        axes = {self.cross: Score.axes} | ({} if self.cell is None else {self.cell: self.cell.axes})
        s, c, past = over_positions(call, axes, lambda tap_of: self._loop(x, past, valid, near, tap_of))
        c = c if self.context_norm is None else self.context_norm(c, call)
        out = self.out(torch.cat((s, c), -1))
        return call.tap(self)("out", torch.tanh(out) if self.spec.activation == "tanh" else out, "b t d"), past

    def cost(self, n: int, number_bytes: int = 4, sources: int | None = None) -> Cost:
        """n steps over so many source tokens (None: as many); the encoder's output and its keys are kept."""
        sources = n if sources is None else sources
        flops = self.cross.flops(n, sources) + 2 * n * sources * self.memory_dim + self.out.flops(n)
        if self.cross.energy is None and self.cross.key is None:
            flops += 2 * n * sources * self.memory_dim  # s·h
        flops += 0 if self.cell is None else self.cell.flops(n)
        flops += 0 if self.start is None else self.start.bridge.flops(1)
        each = self.memory_dim + int(self.spec.chained) + (0 if self.cross.key is None else self.cross.key.out_features)
        kept = sources * (each * number_bytes + 8)
        kept += 0 if self.cell is None else self.cell.states * self.cell.width * number_bytes
        follows = self.cell is not None or self.spec.chained
        return Cost(
            flops,
            0 if self.cross.energy is None else self.cross.energy.flops(n * sources),  # no matrix: one row
            state_bytes=kept,
            steps=n if follows else 1,
            reach=None if follows else 0,
            relay=int(follows),
        )

    # ------------------------------------------------------------ parts

    def _first(self, batch: int, call: Call) -> Parts:
        if self.cell is None:
            return ()
        if self.start is not None:
            return self.start(call)
        return tuple(self.cell.recurrent.new_zeros(batch, self.cell.width) for _ in range(self.cell.states))

    def _loop(
        self, x: Tensor, past: AlignmentState, valid: Tensor | None, near: Near | None, tap_of: TapOf
    ) -> tuple[Tensor, Tensor, AlignmentState]:
        """States `b t n` and contexts `b t e` of all tokens, and the state after them."""
        look, turn = tap_of(self.cross), None if self.cell is None else tap_of(self.cell)
        read = None
        if self.cell is not None:  # W [x; c] + b in two parts, of which that of x need not wait
            of_x, of_c = self.cell.weight.split((x.shape[-1], self.memory_dim), 1)
            read = F.linear(x, of_x, self.cell.bias).unbind(1)
        states, contexts, line = [], [], x.unbind(1)
        for at in range(x.shape[1]):
            c, alignment = self.cross(line[at] if self.cell is None else past.parts[0], past, near, look, at)
            parts = past.parts
            if self.cell is not None:
                parts = self.cell.next(read[at] + F.linear(c, of_c), parts, turn, at)
            states.append(line[at] if self.cell is None else parts[0])
            contexts.append(c)
            kept = None if past.before is None else alignment
            if valid is not None:
                there = valid[:, at, None]
                parts = tuple(torch.where(there, new, old) for new, old in zip(parts, past.parts, strict=True))
                kept = None if kept is None else torch.where(there, kept, past.before)
            past = replace(past, parts=parts, before=kept)
        return torch.stack(states, 1), torch.stack(contexts, 1), past


def _score_cards(spec: AlignmentSpec) -> dict[str, Card]:
    s = "x_i" if spec.cell is None else "s_{i−1}"
    place = " + U f_ij" if spec.location else ""
    score = {
        "additive": f"v · tanh(W_q {s} + W_k h_j{place})",
        "dot": f"{s} · h_j",
        "bilinear": f"{s} · W_k h_j",
    }[spec.score]
    score = f"{score} − {spec.drift:g} |j − Σ_k α_{{i−1,k}} k|" if spec.drift else score
    return as_built(Score.cards, k=None if spec.score == "dot" else {}, scores={"formula": score})


def _cards(spec: AlignmentSpec) -> dict[str, Card]:
    state = "x_i" if spec.cell is None else "s_i"
    context = "c_i" if spec.context_norm is None else "norm(c_i)"
    formula = f"[{state}; {context}] W_o + b_o"
    formula = f"tanh({formula})" if spec.activation == "tanh" else formula
    return as_built(Alignment.cards, out={"symbol": formula, "formula": formula})

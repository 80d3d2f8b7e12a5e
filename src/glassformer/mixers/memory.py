"""Memory Caching (Behrouz et al. 2026): a recurrent memory whose states are kept, segment by segment, and read again.

Each segment of the text writes into a linear memory of its own, S = Σ k_j v_jᵀ. A token reads the memory of its own
segment, as far as it is written, and those that the segments before have left:

residual  y_i = Σ_s S_sᵀ q_i                       with a linear memory the same as one memory that never begins anew
gated     y_i = Σ_s γ_is S_sᵀ q_i                  γ_i = softmax over s of u_i · (the mean key of segment s)
soup      y_i = (Σ_s γ_is S_s)ᵀ q_i                the memories are averaged and read once
sparse    as gated, with the own segment and the `top_k` earlier ones whose u_i · (mean key) are largest

`normalise` divides what is read from a memory by the sum of its weights, as linear attention does; without it, soup is
gated. With N segments of a text of n tokens, time is in proportion to n·N: one segment is linear attention, one for
each token a look at every token.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from ..call import Call
from ..errors import InputError, SettingError
from ..nn.init import Linear
from ..spec import check_least
from ..state import State
from ..tap import Card, Tap, as_built, off
from .base import Cost
from .chunk import CHUNK
from .matrix import MatrixMixer, MatrixSpec
from .softmax import largest, weights
from .window import edges


class MemoryCachingSpec(MatrixSpec, frozen=True, tag="memory-caching"):
    """A linear memory for each segment of so many tokens of a document, combined as `form` says.

    top_k      how many earlier memories the sparse form reads
    feature    φ of q and k: elu(·) + 1, or none
    normalise  divides what is read from a memory by the sum of the weights
    """

    form: Literal["residual", "gated", "soup", "sparse"] = "gated"
    segment: int = 64
    top_k: int = 2
    feature: Literal["elu", "none"] = "elu"
    normalise: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_least(self, 1, "segment", "top_k")
        if self.normalise and self.feature == "none":
            raise SettingError("normalise: weights that may be negative can sum to 0; use feature=elu")


@dataclass(eq=False)
class Memories(State):
    """The memory of each segment of the document, `b m h e f`, and the sum of its keys `b m h e`, in fp32 at least; how
    many tokens the document has, `b`, and its number in the packed text, `b` (-1: no token yet). length: how many
    places were given, of `room`."""

    memory: Tensor
    keys: Tensor | None
    count: Tensor
    document: Tensor
    length: int = 0
    room: int = 0


@dataclass(frozen=True, eq=False)
class Tokens:
    """What some tokens bring, in fp32 at least: q, k, u `b h t e`, v `b h t f`; and, but in a plain call, where a token
    is and where one begins a document, `b t`. rows: of which q and u are; None: of all."""

    q: Tensor
    k: Tensor
    v: Tensor
    u: Tensor | None
    valid: Tensor | None
    first: Tensor | None
    rows: Tensor | None = None

    def part(self, some: slice) -> Tokens:
        """Some of them."""
        heads = (x if x is None else x[:, :, some] for x in (self.q, self.k, self.v, self.u))
        return Tokens(*heads, *(x if x is None else x[:, some] for x in (self.valid, self.first)))


class MemoryCaching(MatrixMixer):
    """The layer of MemoryCachingSpec, `b t d` to `b t d`."""

    in_parts = (*MatrixMixer.in_parts, "shares")
    symbol, called = "MemoryCaching", ("the cached memories", "캐시된 메모리")
    cards = MatrixMixer.cards | {
        "u": Card(
            "u_i",
            "x_i W_u",
            "What kind of segment this token wants to read.",
            "이 토큰이 어떤 세그먼트의 메모리를 읽으려 하는지 나타냅니다.",
            ("S8", "S24"),
        ),
        "shares": Card(
            "γ_ij",
            "softmax_s(u_i · mean of k in segment s), s the segment of j",
            "The share that the memory of an earlier token's segment has in what this token reads.",
            "앞선 토큰이 속한 세그먼트의 메모리가 이 토큰이 읽는 값에서 차지하는 비중입니다.",
            ("S8", "S24"),
        ),
    }

    def __init__(self, spec: MemoryCachingSpec, dim: int) -> None:
        super().__init__(spec, dim)
        self.columns = int(spec.normalise)  # the sum of the weights is read as the value 1 of every token would be
        self.u = None if spec.form == "residual" else Linear(dim, self.heads * self.key, bias=spec.bias)
        self.cards = _cards(spec)

    # ------------------------------------------------------------ the contract

    def empty(self, batch: int, room: int, call: Call) -> Memories:
        """An empty memory for each segment that `room` tokens may fill."""
        like, segments = self.q.weight, -(-max(room, 1) // self.spec.segment)
        wide = torch.promote_types(like.dtype, torch.float32)
        memory = like.new_zeros(batch, segments, self.heads, self.key, self.value + self.columns, dtype=wide)
        keys = None if self.u is None else memory.new_zeros(memory.shape[:4])
        count = torch.zeros(batch, dtype=torch.long, device=like.device)
        return Memories(memory, keys, count, count - 1, 0, room)

    def step(self, x: Tensor, state: Memories, call: Call) -> tuple[Tensor, Memories]:
        """`b t d` after the past."""
        past, t = state.take(), x.shape[1]
        if past.length + t > past.room:
            raise InputError(
                f"the memories have room for {past.room} tokens and {past.length + t} were given; ask for more room"
            )
        valid, first, document = edges(call, past.document)
        tokens, after = self._tokens(x, call, valid, first), replace(past)
        if call.wants(self, "weights", "shares"):
            z, after = self._read(*self._asked(tokens, after, call), call.tap(self))
        else:
            parts = []
            for start in range(0, t, self._size):
                part, after = self._read(tokens.part(slice(start, start + self._size)), after, off)
                parts.append(part)
            z = call.of_rows(torch.cat(parts, 2), 2)
        after = replace(after, document=document, length=past.length + t)
        return self.finish(x, z.transpose(1, 2), call), after

    # ------------------------------------------------------------ parts

    @property
    def _size(self) -> int:
        """How many tokens are worked out at once."""
        return min(self.spec.segment, CHUNK)

    def _tokens(self, x: Tensor, call: Call, valid: Tensor | None, first: Tensor | None) -> Tokens:
        """Queries, keys, values and u of x `b t d`; a place without a token writes nothing."""
        tap, wide = call.tap(self), torch.promote_types(x.dtype, torch.float32)
        q, k = (self._featured(f(x)) for f in (self.q, self.k))
        q = tap("q", q if self.spec.normalise else q * self.key**-0.5, "b t h e")
        k, v = tap("k", k, "b s h e"), tap("v", self.split(self.v(x), self.value), "b s h f")
        u = None if self.u is None else tap("u", self.split(self.u(x), self.key), "b t h e")
        if valid is not None:
            k = torch.where(valid[..., None, None], k, 0.0)
        each = (None if one is None else one.to(wide).transpose(1, 2) for one in (q, k, v, u))
        return Tokens(*each, valid, first)

    def _asked(self, tokens: Tokens, past: Memories, call: Call) -> tuple[Tokens, Memories]:
        """The rows and heads that somebody looks at."""
        q, k, v, u = (call.of_heads(one, 1) for one in (tokens.q, tokens.k, tokens.v, tokens.u))
        q, u = call.of_rows(q, 2), None if u is None else call.of_rows(u, 2)
        past = replace(past, memory=call.of_heads(past.memory), keys=call.of_heads(past.keys))
        return Tokens(q, k, v, u, tokens.valid, tokens.first, call.rows), past

    def _featured(self, x: Tensor) -> Tensor:
        """φ of each head's vector, `b t (h e)` to `b t h e`."""
        x = self.split(x, self.key)
        return F.elu(x) + 1 if self.spec.feature == "elu" else x

    def _read(self, tokens: Tokens, past: Memories, tap: Tap) -> tuple[Tensor, Memories]:
        """What each asked token reads, `b h t f`, and the memories after them; as they were where only some read."""
        with torch.autocast(tokens.q.device.type, enabled=False):
            alive, there, number = _order(tokens, past.count)
            place = torch.arange(past.memory.shape[1], device=number.device)
            asked = number if tokens.rows is None else number[:, tokens.rows]
            filled = (asked[..., None] + 1 - place * self.spec.segment).clamp(0, self.spec.segment)[:, None]  # b 1 t m
            at = (number[..., None] // self.spec.segment == place).to(tokens.q.dtype)  # b s m: whose segment is which
            pairs = torch.where(there, tokens.q @ tokens.k.mT, 0.0)
            kept = past.memory.permute(0, 2, 3, 1, 4)  # b h e m f
            old = (tokens.q @ kept.flatten(3)).unflatten(3, kept.shape[3:]) * alive[..., None]  # b h t m f
            gates = self._gates(tokens, past, at, filled, alive, there)
            if gates is None:
                own = there.to(pairs.dtype).expand_as(pairs)
            else:
                own = tap("shares", (gates @ at.mT[:, None]).where(there, 0.0), "b h t s")
            gates = torch.ones_like(old[..., 0]) if gates is None else gates
            gates, own = self._normalised(gates, own, pairs, old, at) if self.columns else (gates, own)
            found = tap("weights", pairs * own, "b h t s")
            z = found @ tokens.v + (gates[..., None] * old[..., : self.value]).sum(3)
            if tokens.rows is None:
                past = self._written(tokens, past, at, alive[:, 0, -1, 0], there[:, 0, -1], number)
            return z, past

    def _gates(
        self, tokens: Tokens, past: Memories, at: Tensor, filled: Tensor, alive: Tensor, there: Tensor
    ) -> Tensor | None:
        """γ `b h t m`: the share of each segment's memory; None: all are read whole."""
        if tokens.u is None:
            return None
        mean = (tokens.u @ past.keys.permute(0, 2, 3, 1)) * alive
        mean = mean + torch.where(there, tokens.u @ tokens.k.mT, 0.0) @ at[:, None]
        score = (mean / filled.clamp(min=1) * self.key**-0.5).masked_fill(filled == 0, -torch.inf)
        if self.spec.form == "sparse":
            own = (at if tokens.rows is None else at[:, tokens.rows])[:, None] > 0
            best = largest(score.masked_fill(own, -torch.inf), min(self.spec.top_k, score.shape[-1]))
            score = torch.where(own, score, best)
        return weights(score)

    def _normalised(self, gates: Tensor, own: Tensor, pairs: Tensor, old: Tensor, at: Tensor) -> tuple[Tensor, Tensor]:
        """The shares divided by the sums of the weights: of each memory, or in a soup of their average."""
        before = old[..., -1]  # b h t m
        if self.spec.form == "soup":
            total = (gates * before).sum(-1, keepdim=True) + (pairs * own).sum(-1, keepdim=True)
            total = total.masked_fill(total == 0, 1.0)
            return gates / total, own / total
        total = before + pairs @ at[:, None]
        total = 1 / total.masked_fill(total == 0, 1.0)
        return gates * total, own * (total @ at.mT[:, None])

    def _written(
        self, tokens: Tokens, past: Memories, at: Tensor, alive: Tensor, last: Tensor, number: Tensor
    ) -> Memories:
        """The memories `b m h e f` after the tokens; alive `b`, last `b s`: whether the past, and which tokens, belong
        to the document of the newest one."""
        v = tokens.v
        if self.columns:
            v = torch.cat((v, v.new_ones(*v.shape[:-1], 1)), -1)
        mine = at * last[..., None]  # b s m
        placed = (tokens.k[..., None, :] * mine[:, None, :, :, None]).flatten(3)  # b h s (m e)
        added = (placed.mT @ v).unflatten(2, (-1, self.key)).transpose(1, 2)
        memory = past.memory * alive[:, None, None, None, None] + added
        keys = past.keys
        if keys is not None:
            keys = keys * alive[:, None, None, None] + placed.sum(2).unflatten(2, (-1, self.key)).transpose(1, 2)
        return replace(past, memory=memory, keys=keys, count=number[:, -1] + 1)

    # ------------------------------------------------------------ cost

    def project_flops(self, n: int) -> int:
        """FLOPs of everything that works on each token by itself."""
        return super().project_flops(n) + (0 if self.u is None else self.u.flops(n))

    def cost(self, n: int, number_bytes: int = 4) -> Cost:
        """In pieces of at most a segment: each looks at itself and at every memory, and writes."""
        m, size, wide = -(-n // self.spec.segment), self._size, self.value + self.columns
        e, f = self.key, self.value
        flops = 0
        for t in [size] * (n // size) + ([n % size] if n % size else []):
            flops += t * t * (e + f) + 2 * t * m * e * wide  # q·k, weights · v; read, write
            if self.u is not None:
                flops += t * t * (e + 2 * m) + t * m * e  # u·k, to segments and back; u · the keys' sums
            if self.columns and self.spec.form != "soup":
                flops += 2 * t * t * m
        numbers = m * self.heads * self.key * (wide + int(self.u is not None))
        return Cost(
            self.project_flops(n) + 2 * self.heads * flops,
            state_bytes=numbers * max(4, number_bytes) + 16,
            steps=-(-n // size),
        )


def _order(tokens: Tokens, count: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(`b 1 t 1` 1.0 where the past belongs to an asked token's document, `b 1 t s` which tokens it sees, `b s` the
    number of each token in its document, where no token is that of the one before)."""
    batch, place = len(count), torch.arange(tokens.k.shape[2], device=count.device)
    row = place if tokens.rows is None else tokens.rows
    there = row[:, None] >= place
    if tokens.valid is None:
        alive = torch.ones_like(count, dtype=tokens.q.dtype)[:, None, None, None].expand(-1, 1, len(row), 1)
        return alive, there.expand(batch, 1, *there.shape), count[:, None] + place
    begun, total = tokens.first.cumsum(1), tokens.valid.cumsum(1)  # documents and tokens so far
    before = torch.where(tokens.first, total - 1, 0).cummax(1).values
    number = total - before - 1 + torch.where(begun == 0, count[:, None], 0)
    there = there & (begun[:, row, None] == begun[:, None]) & tokens.valid[:, None]
    return (begun[:, row] == 0).to(tokens.q.dtype)[:, None, :, None], there[:, None], number


def _cards(spec: MemoryCachingSpec) -> dict[str, Card]:
    """What this layer computes: its feature map, form, normaliser, norm and gate."""
    plus, gated = " + b" if spec.bias else "", spec.form != "residual"

    def projected(short: str, place: str, scale: str = "") -> str:
        formula = f"x_{place} W_{short.upper()}{plus}"
        formula = f"elu({formula}) + 1" if spec.feature == "elu" else formula
        return f"({formula}){scale}" if scale else formula

    share, memory = "γ_ij " if gated else "", "γ_is " if gated else ""
    below = "Σ_j γ_ij q_i·k_j" if spec.form == "soup" else "Σ_j in s q_i·k_j"
    below = f" / {below}" if spec.normalise else ""
    read = f"Σ_s {memory}(S_sᵀ q_i{below})"
    if spec.form == "soup":
        read = f"(Σ_s γ_is S_s)ᵀ q_i{below}"
    said = f"{'g ⊙ ' if spec.gate else ''}{'norm(z)' if spec.norm else 'z'}"
    chosen = f", the own segment and the {spec.top_k} best before" if spec.form == "sparse" else ""
    return as_built(
        MemoryCaching.cards,
        q={"formula": projected("q", "i", "" if spec.normalise else " / √d_k")},
        k={"formula": projected("k", "j")},
        v={"formula": f"x_j W_V{plus}"},
        u={"formula": f"x_i W_u{plus}"} if gated else None,
        shares={"formula": f"softmax_s(u_i · mean k in s / √d_k), s the segment of j{chosen}"} if gated else None,
        log_decay=None,
        weights={
            "formula": f"{share}q_i·k_j{below}",
            "en": "The exact weight with which an earlier token's value comes to this one through the memories.",
            "ko": "앞선 토큰의 값이 메모리들을 거쳐 이 토큰에 더해질 때의 정확한 가중치입니다.",
        },
        z={
            "formula": read,
            "en": "What this head reads out of the memories of all segments for this token.",
            "ko": "이 헤드가 이 토큰을 위해 모든 세그먼트의 메모리에서 읽어 낸 값입니다.",
        },
        gate={"formula": f"swish(x_i W_G{plus})"} if spec.gate else None,
        out={"symbol": MemoryCaching.symbol, "formula": f"Concat({said}) W_O{' + b_O' if spec.out_bias else ''}"},
    )

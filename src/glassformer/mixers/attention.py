"""Softmax attention: each token computes how much to consult every other, and takes the weighted sum of their
values. Self-attention and cross-attention; what they share is in `multihead`."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from ..call import Call
from ..errors import InputError, SettingError
from ..mask import Mask, allowed, rows
from ..nn.init import InitSpec
from ..nn.position import (
    AlibiSpec,
    RelativeBias,
    RelativeBiasSpec,
    RelativeSinusoid,
    RelativeSinusoidSpec,
    RopeSpec,
    ScoreSpec,
    alibi_bias,
    alibi_slopes,
    rope_angles,
    rope_width,
    rotate,
)
from ..spec import check_least, to_json
from ..state import Last, before
from .base import Cost
from .cache import Asked, Keys, appended, rolled
from .multihead import SoftmaxAttention, SoftmaxSpec


class AttentionSpec(SoftmaxSpec, frozen=True, tag="attention"):
    """Self-attention: what `mask` lets a token see, with a `position` signal in the scores (None: none).

    smear mixes each key with the one before by a learned share per head (Olsson et al. 2022)
    detach stops gradients, in training, at the keys and values before a token's own segment, as Transformer-XL does;
    the paper stops them one projection earlier, so that there W_K and W_V learn from the memory as well
    """

    mask: Mask = Mask()
    position: ScoreSpec | None = None
    smear: bool = False
    detach: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.detach and self.mask.segment is None:
            raise SettingError("detach: only has a meaning with segments; set mask.segment as well, or detach=false")
        if isinstance(self.position, RelativeSinusoidSpec) and (self.mask.near is None or self.mask.pinned):
            raise SettingError(
                "position: relative-sinusoidal needs a limited way back; set mask.segment or mask.window and leave out "
                "sinks, globals, stride and random, or use another position"
            )


class CrossSpec(SoftmaxSpec, frozen=True, tag="cross-attention"):
    """Attention over the encoder's output, of width `memory_dim` (None: the model's own)."""

    memory_dim: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_least(self, 1, "memory_dim")


class Attention(SoftmaxAttention):
    """Self-attention of AttentionSpec; its past is every key and value, or the window's."""

    def __init__(self, spec: AttentionSpec, dim: int) -> None:
        super().__init__(spec, dim)
        self.mask, self.causal = spec.mask, spec.mask.streams
        position = spec.position
        for name, value in self.buffer_values().items():
            self.register_buffer(name, value, persistent=False)
        self.relative = None
        if isinstance(position, RelativeBiasSpec):
            self.relative = RelativeBias(position, self.heads, spec.mask.streams)
        elif isinstance(position, RelativeSinusoidSpec):
            near = spec.mask.near
            self.relative = RelativeSinusoid(position, dim, self.heads, self.width, near, spec.mask.streams)
        # sigmoid(smear) is the share of the key's own; 2.2 starts at 0.9, nearly an ordinary head.
        self.smear = nn.Parameter(torch.full((self.groups,), 2.2)) if spec.smear else None
        if isinstance(position, RopeSpec):
            rope_width(position, self.width)  # refuse an odd width now, not at the first call
            # A string, since torch.compile cannot hash a Spec.
            self.angles_key = f"rope {self.width} {to_json(position, None)}"

    # ------------------------------------------------------------ the contract

    def parallel(self, x: Tensor, call: Call) -> Tensor:
        """`b t d` to `b t d`, the whole sequence."""
        if call.rows is None:
            keys = self.project(x, call, None)
        else:  # a trace asks for one piece of rows after the other
            keys = call.once(f"{self.path} keys", lambda whole=x: self.project(whole, call, None))
            x = x[:, call.rows]
        pos = call.pos if call.rows is None else call.pos[:, call.rows]
        signal = call.signal if call.rows is None else call.signal[:, call.rows]
        q = call.tap(self)("q", self.turned(self.query(x), signal, call), "b t h e")
        triangle = self.mask.causal if self._plain(call) and call.rows is None else None
        return self.attend(q, keys, call, pos, triangle)

    def apart(self, q: Tensor, k: Tensor, v: Tensor, call: Call) -> Tensor:
        """The same where each head's query reads vectors of its own, `b h t d`, and each group's keys and values,
        `b g t d`: every projection is made of all of them, and each head takes its own."""

        def own(heads: Tensor, of: Tensor) -> Tensor:
            return heads.unflatten(0, of.shape[:2]).diagonal(dim1=1, dim2=3).movedim(-1, 2)

        asked = own(self.turned(self.query(q.flatten(0, 1)), call.signal, call), q)
        keys, values = (self.project(x.flatten(0, 1), call, None) for x in (k, v))
        keys = replace(keys, k=own(keys.k, k), v=own(values.v, v))
        return self.attend(asked, keys, call, call.pos, self.mask.causal if self._plain(call) else None)

    def empty(self, batch: int, room: int, call: Call) -> Keys:
        """A static cache with `room` places, or with as many as the mask keeps near or pins."""
        mask = self.mask
        ring = mask.near is not None and call.segments is None and mask.near + mask.pinned <= room
        room = mask.near + mask.pinned if ring else room
        like = self.q.weight
        k, v = (like.new_zeros(batch, room, self.groups, self.width) for _ in range(2))
        pos = torch.full((batch, room), -1, dtype=torch.long, device=like.device)
        segments = None if call.segments is None else torch.zeros_like(pos)
        last = None if self.smear is None else Last.none(like.new_zeros(batch, self.groups, self.width))
        return Keys(k, v, pos, segments, 0, last, ring)

    def step(self, x: Tensor, state: Keys, call: Call) -> tuple[Tensor, Keys]:
        """`b t d` after the past."""
        past = state.take()
        new = self.project(x, call, past.last)
        q = call.tap(self)("q", self.turned(self.query(x), call.pos, call), "b t h e")
        keys, state = (rolled if past.ring else appended)(past, new, self.mask)
        # A single new token sees its whole unpadded past; a first chunk is an ordinary triangle.
        triangle = None
        if self._plain(call) and not past.ring:
            triangle = False if x.shape[1] == 1 else True if past.length == 0 else None
        return self.attend(q, keys, call, call.pos, triangle), state

    # ------------------------------------------------------------ parts

    def buffer_values(self) -> dict[str, Tensor]:
        """The constants of this layer, which no checkpoint holds."""
        return {"slopes": alibi_slopes(self.heads)} if isinstance(self.spec.position, AlibiSpec) else {}

    def project(self, x: Tensor, call: Call, last: Last | None) -> Keys:
        """Keys and values of the tokens in x, positions in them."""
        tap = call.tap(self)
        k, v = self.key_value(x)
        if self.smear is not None:
            k, last = self._smeared(k, Last.none(k[:, 0]) if last is None else last, call)
        k = tap("k", self.turned(k, call.signal, call), "b s g e")
        v = tap("v", v, "b s g e")
        return Keys(k, v, call.pos, call.segments, k.shape[1], last, places=call.places)

    def _smeared(self, k: Tensor, last: Last, call: Call) -> tuple[Tensor, Last]:
        """k_j ← σ(a) k_j + (1 - σ(a)) k_{j-1}, for the first token of a document k_j alone."""
        one_before, exists, last = before(k, last, call.pos, call.segments)
        own = torch.sigmoid(self.smear)[:, None]
        return torch.where(exists[..., None, None], own * k + (1 - own) * one_before, k), last

    def turned(self, x: Tensor, pos: Tensor, call: Call) -> Tensor:
        """q or k after RoPE, unchanged where the spec has none. pos: of the position signal."""
        rope = self.spec.position
        if not isinstance(rope, RopeSpec):
            return x
        if pos is call.signal:
            angles = call.once(self.angles_key, lambda: rope_angles(rope, self.width, pos, x.dtype))
        else:
            angles = rope_angles(rope, self.width, pos, x.dtype)
        return rotate(x, angles, rope.pairing)

    def bias(self, asked: Asked, keys: Keys, part: slice) -> Tensor:
        """The mask of the base class and, with ALiBi or a relative bias, -∞ or the bias as one float `b h t s`."""
        ok = super().bias(asked, keys, part)
        if isinstance(self.spec.position, AlibiSpec):
            slopes = self.slopes if asked.heads is None else self.slopes[asked.heads]
            shift = alibi_bias(slopes, asked.signal, keys.signal[:, part])
        elif isinstance(self.relative, RelativeSinusoid):
            shift = self.relative(asked.q, asked.signal, keys.signal[:, part], asked.heads) * self.scale
        elif self.relative is not None:
            shift = self.relative(asked.signal, keys.signal[:, part], asked.heads)
        else:
            return ok
        return shift.masked_fill(~ok, -torch.inf)

    @property
    def biased(self) -> bool:
        """Whether a number of its own is added to every score."""
        return isinstance(self.spec.position, AlibiSpec | RelativeBiasSpec | RelativeSinusoidSpec)

    def added(self, q: Tensor, heads: Tensor | None) -> Tensor:
        """q_i + u in Transformer-XL's scores."""
        if not isinstance(self.relative, RelativeSinusoid):
            return q
        u = self.relative.u if heads is None else self.relative.u[heads]
        return q + u[:, None].to(q.dtype)

    def flows(self, asked: Asked, keys: Keys, part: slice) -> Tensor | None:
        """With `detach`, in training: the pairs within one segment."""
        if not (self.spec.detach and self.training):
            return None
        q, k = asked.pos[:, :, None], keys.pos[:, None, part]
        return (q // self.mask.segment == k // self.mask.segment)[:, None]

    @property
    def distance_bytes(self) -> int:
        """As for the mask, and what distances and their buckets take."""
        return 40 if self.relative is not None else 12 if self.biased else super().distance_bytes

    def _plain(self, call: Call) -> bool:
        """Whether the mask is a bare triangle or nothing, so that the kernel needs none."""
        return call.plain and self.mask.bare and not self.biased

    def draw(self, init: InitSpec) -> None:
        """The relative table starts like an embedding."""
        if isinstance(self.relative, RelativeBias):
            nn.init.normal_(self.relative.table, std=init.embedding_std)

    def cost(self, n: int, number_bytes: int = 4) -> Cost:
        """A look-up of everything before, or of what the mask lets through."""
        mask, smeared = self.mask, int(self.smear is not None)  # a smeared key holds some of the one before
        flops = self.looking(n, n) + self.k.flops(n) + self.v.flops(n)
        flops += self.relative.flops(n) if isinstance(self.relative, RelativeSinusoid) else 0
        reach = None if mask.near is None or mask.pinned else mask.near - 1 + smeared

        def sees(q: Tensor, k: Tensor) -> Tensor:
            q, k = q[None], k[None]
            ok = allowed(mask, q, k)
            return (ok | allowed(mask, q, k + 1) if smeared else ok)[0]

        opened = mask.stride is not None or mask.random or mask.pinned or mask.prefix
        holes = sees if opened or mask.segment is not None else None
        if not self.causal:
            return Cost(flops, reach=reach, sees=holes)
        places = n if mask.near is None else min(n, mask.near + mask.pinned)
        last = 0 if self.smear is None else self.groups * self.width * number_bytes + 8
        return Cost(flops, state_bytes=self.keeping(places, number_bytes) + last, reach=reach, sees=holes)


class CrossAttention(SoftmaxAttention):
    """Attention of the decoder's tokens over the encoder's output; the memory is projected once, in `empty`."""

    mask = Mask(causal=False)

    def __init__(self, spec: CrossSpec, dim: int) -> None:
        super().__init__(spec, dim, spec.memory_dim)

    def empty(self, batch: int, room: int, call: Call) -> Keys:
        """Keys and values of the memory `b s d`."""
        if call.memory is None:
            raise InputError("this model reads an encoder's output by cross-attention; give it one (memory=…)")
        tap = call.tap(self, source=True)
        k, v = self.key_value(call.memory)
        k, v = tap("k", k, "b s g e"), tap("v", v, "b s g e")
        pos = call.memory_pos
        pos = torch.arange(k.shape[1], device=k.device)[None] if pos is None else pos
        return Keys(k, v, rows(pos, batch), None, k.shape[1], full=call.memory_pos is None)

    def parallel(self, x: Tensor, call: Call) -> Tensor:
        """`b t d` to `b t d`, looking at the memory."""
        if call.rows is None:
            return self.look(x, self.empty(x.shape[0], 0, call), call)
        return self.look(x, call.once(f"{self.path} keys", lambda: self.empty(x.shape[0], 0, call)), call)

    def step(self, x: Tensor, state: Keys, call: Call) -> tuple[Tensor, Keys]:
        """`b t d` to `b t d`; the past is the memory's and does not change."""
        past = state.take()
        keys = replace(past)
        return self.look(x, keys, call), keys

    def look(self, x: Tensor, keys: Keys, call: Call) -> Tensor:
        """Every token of x may look at every token of the memory."""
        x = x if call.rows is None else x[:, call.rows]
        q = call.tap(self)("q", self.query(x), "b t h e")
        # A decoder's padding may look as well: its output is never read, and no row of the softmax stays empty.
        pos = torch.zeros(1, x.shape[1], dtype=torch.long, device=x.device)
        return self.attend(q, keys, call, pos, False if keys.full else None)

    def cost(self, n: int, number_bytes: int = 4, sources: int | None = None) -> Cost:
        """n tokens that look at a memory of so many (None: as many as they are)."""
        sources = n if sources is None else sources
        projected = self.k.flops(sources) + self.v.flops(sources)
        return Cost(self.looking(n, sources) + projected, state_bytes=self.keeping(sources, number_bytes))

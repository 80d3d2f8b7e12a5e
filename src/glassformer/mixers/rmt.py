"""The Recurrent Memory Transformer (Bulatov et al. 2022): memory tokens that pass from segment to segment.

    [·, H̄, M'] = Transformer([M, H, M])        per segment H of the text; M' is the M of the next one

A segment stands between two copies of the memory M, so that its tokens can read the first and the second, which comes
last, can look at all of them. What the layers make of the second is the memory that the next segment reads. The whole
depth lies between two segments, so that the layers are inside one mixer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..call import Call
from ..errors import SettingError, under
from ..mask import Mask
from ..nn.channel import CHANNELS, ChannelSpec, MlpSpec
from ..nn.init import InitSpec
from ..nn.norm import LayerNormSpec, Norm, NormSpec
from ..spec import Spec, check_least, check_share
from ..state import State
from ..tap import Card
from .attention import Attention, AttentionSpec
from .base import Cost, TokenMixer
from .cache import Keys
from .pieces import PieceProbe, inside
from .window import edges


class RmtSpec(Spec, frozen=True, tag="memory-tokens"):
    """So many `layers` of pre-norm blocks that read a text in segments.

    segment     how many tokens of a document are read at once
    memory      how many memory tokens pass from one segment to the next
    attention   that of each layer, causal; its mask is left out, since the segments are the mask
    channel     the channel mixer of each layer
    norm        before both, and behind the last layer, of the memory as well
    dropout     of what is added to a token's vector
    """

    layers: int = 2
    segment: int = 64
    memory: int = 4
    attention: AttentionSpec = AttentionSpec()
    channel: ChannelSpec = MlpSpec()
    norm: NormSpec = LayerNormSpec()
    dropout: float = 0.0

    def __post_init__(self) -> None:
        check_least(self, 1, "layers", "segment", "memory")
        check_share(self, "dropout")
        if self.attention.mask != Mask() or self.attention.smear:
            raise SettingError(
                "attention: here the segments are the mask, and what comes before a key may be memory; leave out mask "
                "and smear"
            )


@dataclass(eq=False)
class RmtState(State):
    """The memory `b m d` that the present segment reads, each layer's keys of it and of the segment so far, how many
    tokens the segment has, `b`, and the packed document `b` of the newest token, -1 where there was none."""

    memory: Tensor
    layers: tuple[Keys, ...]
    filled: Tensor
    document: Tensor


def _resid(symbol: str, after: tuple[str, str]) -> Card:
    en, ko = f"The token's vector after {after[0]}.", f"{after[1]} 결과가 더해진 토큰 벡터입니다."
    return Card(symbol, "x + change", en, ko, ("S19", "S22"))


class Layer(nn.Module):
    """x ← x + attention(norm(x)), x ← x + channel(norm(x)), `b t d`."""

    path = ""
    cards = {
        "resid_mid": _resid("x + MultiHead", ("this layer's attention", "이 층 어텐션의")),
        "resid_out": _resid("x + FFN", ("this layer", "이 층의")),
    }

    def __init__(self, spec: RmtSpec, dim: int) -> None:
        super().__init__()
        self.spec = spec
        self.near = near = 2 * spec.memory + spec.segment
        self.attention_norm, self.channel_norm = Norm(spec.norm, dim), Norm(spec.norm, dim)
        with under("attention"):
            self.attention = Attention(spec.attention.changed(mask=Mask(window=near)), dim)
        self.attention.inside = True
        self.channel = CHANNELS[type(spec.channel)](spec.channel, dim)

    def forward(self, x: Tensor, call: Call, state: Keys | None = None) -> tuple[Tensor, Keys | None]:
        """A whole piece, or with a state what follows it."""
        tap, read = call.tap(self), self.attention_norm(x, call)
        if state is None:
            change = self.attention.parallel(read, call)
        else:
            change, state = self.attention.step(read, state, call)
        x = tap("resid_mid", x + self._dropped(change), "b t d")
        x = x + self._dropped(self.channel(self.channel_norm(x, call), call))
        return tap("resid_out", x, "b t d"), state

    def _dropped(self, change: Tensor) -> Tensor:
        return F.dropout(change, self.spec.dropout, self.training) if self.spec.dropout else change


class Rmt(TokenMixer):
    """The layers of RmtSpec over `b t d`; its past is the memory and the keys of the present segment."""

    symbol, called = "RMT", ("the memory Transformer", "메모리 트랜스포머")
    cards = {
        "written": Card(
            "M'",
            "Transformer([M, H, M]), the last m vectors",
            "The memory that a segment leaves behind, beside its last token; 0 beside all others.",
            "세그먼트가 남기는 메모리입니다. 그 세그먼트의 마지막 토큰 자리에 표시하며, 나머지 자리는 0입니다.",
            ("S8", "S24", "S30"),
        ),
        "out": Card(
            "RMT",
            "Transformer([M, H, M]), without the memory",
            "What the layers make of this token, its segment and the memory.",
            "층들이 이 토큰과 세그먼트, 그리고 메모리로부터 만들어 낸 값입니다.",
            ("S24", "S30"),
        ),
    }

    def __init__(self, spec: RmtSpec, dim: int) -> None:
        super().__init__()
        self.spec, self.depth = spec, spec.layers
        self.memory = nn.Parameter(torch.zeros(spec.memory, dim))
        self.layers = nn.ModuleList(Layer(spec, dim) for _ in range(spec.layers))
        self.norm = Norm(spec.norm, dim)

    # ------------------------------------------------------------ the contract

    def parallel(self, x: Tensor, call: Call) -> Tensor:
        """`b t d` to `b t d`, the whole sequence: each segment at once, one after the other."""
        probe, begin = inside(call.probe, x.shape[1]), self._begin(x)
        valid, first, _ = edges(call, torch.full_like(call.pos[:, 0].expand(len(x)), -1))
        pieces = list(self._plain(x, 0) if valid is None else self._ragged(valid, first, torch.zeros_like(valid[:, 0])))
        memory, read = begin, []
        for i, piece in enumerate(pieces):
            memory = memory if piece.begins is None else begin.where(piece.begins[:, None, None], memory)
            out, memory = self._segment(memory, piece, x, call, probe, last=i + 1 == len(pieces))
            read.append(out)
        return self._finish(read, pieces, x, call, probe)

    def empty(self, batch: int, room: int, call: Call) -> RmtState:
        """The learned memory, read before the first segment."""
        memory = self.memory.expand(batch, -1, -1)
        filled = torch.zeros(batch, dtype=torch.long, device=memory.device)
        return self._anew(RmtState(memory, (), filled, filled - 1), call)

    def step(self, x: Tensor, state: RmtState, call: Call) -> tuple[Tensor, RmtState]:
        """`b t d` after the past. A full segment writes its memory at once, and the next one reads it."""
        past, size = state.take(), self.spec.segment
        if call.end is None:  # where the rows stand is not known without looking
            call = replace(call, plain=False)
        valid, first, document = edges(call, past.document)
        if valid is None:
            pieces = self._plain(x, (call.end - x.shape[1]) % size)
        else:
            pieces = self._ragged(valid, first, past.filled)
        probe, read, gone, now = inside(call.probe, x.shape[1]), [], [], replace(past)
        for piece in pieces:
            if piece.begins is not None and bool(piece.begins.any()):
                memory = self._begin(x).where(piece.begins[:, None, None], now.memory)
                now = self._anew(replace(now, memory=memory), call, piece.begins)
            line, pos = piece.of(x), piece.positions(self.spec.memory)
            if probe is not None:
                probe.place = piece.place.expand(len(x), -1)
            out, layers = self._run(line, pos, call, now.layers, probe)
            read.append(out)
            gone.append(piece)
            now = self._ended(replace(now, layers=layers, filled=piece.after(now.filled)), piece, call, probe)
        return self._finish(read, gone, x, call, probe), replace(now, document=document)

    # ------------------------------------------------------------ parts

    def _begin(self, x: Tensor) -> Tensor:
        """The learned memory of each row, `b m d`."""
        return self.memory.to(x.dtype).expand(len(x), -1, -1)

    def _run(
        self, x: Tensor, pos: Tensor, call: Call, states: tuple[Keys, ...] | None, probe: PieceProbe | None
    ) -> tuple[Tensor, tuple[Keys, ...]]:
        """Vectors at positions of the segment `b t` through all layers, and each layer's keys after them."""
        plain = pos.shape[0] == 1  # positions of their own are those of rows that differ
        places = None if call.places is None else torch.zeros_like(pos)  # an edit can only make all of them the same
        how = {"losses": call.losses, "room_bytes": call.room_bytes, "places": places}
        call, after = Call(pos, plain, probe=probe, **how), []
        for i, layer in enumerate(self.layers):
            x, state = layer(x, call, states and states[i])
            after.append(state)
        return self.norm(x, call), tuple(after)

    def _segment(
        self, memory: Tensor, piece: Piece, x: Tensor, call: Call, probe: PieceProbe | None, last: bool
    ) -> tuple[Tensor, Tensor]:
        """(what the layers make of a whole piece `b n d`, the memory after it)."""
        m, n, wanted = self.spec.memory, piece.place.shape[1], call.wants(self, "written")
        writes = wanted or not last
        line = torch.cat((memory, piece.of(x), *([memory] if writes else [])), 1)
        pos = torch.cat((piece.reading(m), piece.positions(m), *([piece.writing(m)] if writes else [])), 1)
        if probe is not None:
            around = piece.place.new_full((len(x), m), -1)
            place = (around, piece.place.expand(len(x), -1), *([around] if writes else []))
            probe.place = torch.cat(place, 1)
        line, _ = self._run(line, pos, call, None, probe)
        written = line[:, m + n :] if writes else memory
        if probe is not None:
            probe.place = piece.place.expand(len(x), -1)
            written = self._tapped(written, piece, probe) if wanted else written
        return line[:, m : m + n], written

    def _tapped(self, written: Tensor, piece: Piece, probe: PieceProbe) -> Tensor:
        """The memory that a full segment leaves, `b m d`, tapped beside its last token."""
        last = (torch.arange(piece.place.shape[1], device=written.device) == piece.last)[..., None]  # b n 1
        beside = torch.where(last, written.flatten(1)[:, None], 0.0)
        beside = probe.at(self.path)("written", beside, "b t f")
        return torch.where(last, beside, 0.0).sum(1).view_as(written)

    def _ended(self, state: RmtState, piece: Piece, call: Call, probe: PieceProbe | None) -> RmtState:
        """The state in which full segments have written, and been followed by an empty one."""
        ended = piece.ended
        some = ended if isinstance(ended, bool) else bool(ended.any())
        layers = state.layers
        if not some:
            written = torch.zeros_like(state.memory)
        else:
            pos = piece.writing(self.spec.memory)
            pos = pos if isinstance(ended, bool) else pos.where(ended[:, None], -1)
            written, layers = self._run(state.memory, pos, call, layers, None)
        if call.wants(self, "written"):
            written = self._tapped(written, piece, probe)
        if not some:
            return state
        if isinstance(ended, bool):
            return self._anew(replace(state, memory=written, layers=()), call)
        memory = written.where(ended[:, None, None], state.memory)
        return self._anew(replace(state, memory=memory, layers=layers), call, ended)

    def _anew(self, state: RmtState, call: Call, rows: Tensor | None = None) -> RmtState:
        """The state with an empty segment in these rows (None: all) that has read its memory."""
        m, batch = self.spec.memory, len(state.memory)
        pos = torch.arange(m, device=state.memory.device)[None]
        if rows is None:
            bare = Call(pos, True)
            layers = tuple(layer.attention.empty(batch, layer.near, bare) for layer in self.layers)
            filled = torch.zeros_like(state.filled)
        else:
            layers = tuple(replace(keys, pos=keys.pos.masked_fill(rows[:, None], -1)) for keys in state.layers)
            pos, filled = pos.where(rows[:, None], -1), state.filled.masked_fill(rows, 0)
        _, layers = self._run(state.memory, pos, call, layers, None)
        return replace(state, layers=layers, filled=filled)

    def _finish(
        self, read: list[Tensor], pieces: list[Piece], x: Tensor, call: Call, probe: PieceProbe | None
    ) -> Tensor:
        """What the layers made of all pieces, at the places of their tokens."""
        if probe is not None:
            probe.finish()
        if pieces and pieces[0].begins is not None:
            out = torch.zeros_like(x[:, :1]).expand(-1, x.shape[1] + 1, -1)
            for one, piece in zip(read, pieces, strict=True):
                at = piece.place % (x.shape[1] + 1)  # -1 into a place that is cut off
                out = out.scatter(1, at[..., None].expand_as(one), one)
            return call.tap(self)("out", out[:, :-1], "b t d")
        out = torch.cat(read, 1) if read else torch.zeros_like(x)
        return call.tap(self)("out", out, "b t d")

    def _plain(self, x: Tensor, filled: int) -> Iterator[Piece]:
        """The pieces of rows that are alike, the first behind so many tokens of its segment."""
        start, size = 0, self.spec.segment
        while start < x.shape[1]:
            n = min(x.shape[1] - start, size - filled)
            place = torch.arange(start, start + n, device=x.device)[None]
            yield Piece(place, None, filled, n, filled + n == size)
            start, filled = start + n, 0

    def _ragged(self, valid: Tensor, first: Tensor, filled: Tensor) -> Iterator[Piece]:
        """The pieces of rows that differ, `b t`; each ends with its segment or its document."""
        size, t = self.spec.segment, valid.shape[1]
        order = (~valid).long().sort(dim=1, stable=True).indices
        first, count, done = first.gather(1, order), valid.sum(1, keepdim=True), torch.zeros_like(order[:, :1])
        rank, filled = torch.arange(size, device=valid.device), filled.long()
        while bool((done < count).any()):
            at = (done + rank).clamp(max=t - 1)
            there = done + rank < count
            start = first.gather(1, at) & there
            begins = start[:, 0]
            filled = filled.masked_fill(begins, 0)
            there = there & ((start & (rank > 0)).cumsum(1) == 0) & (rank < size - filled[:, None])
            take = there.sum(1)
            place = order.gather(1, at).where(there, -1)[:, : int(take.max())]
            ended = (take > 0) & (filled + take == size)
            yield Piece(place, begins, filled, take, ended)
            filled, done = (filled + take).masked_fill(ended, 0), done + take[:, None]

    # ------------------------------------------------------------ the rest

    def draw(self, init: InitSpec) -> None:
        """The first memory starts like an embedding."""
        nn.init.normal_(self.memory, std=init.embedding_std)

    def cost(self, n: int, number_bytes: int = 4) -> Cost:
        """Segment after segment, each with the memory before and, but for the last, behind it."""
        size, m, flops = self.spec.segment, self.spec.memory, 0
        segments = -(-n // size)
        for i in range(segments):
            here = min(size, n - i * size) + m * (1 if i + 1 == segments else 2)
            flops += sum(layer.attention.cost(here).flops + layer.channel.flops(here) for layer in self.layers)
        kept = sum(layer.attention.cost(layer.near, number_bytes).state_bytes for layer in self.layers)
        return Cost(
            flops,
            state_bytes=kept + self.memory.numel() * number_bytes + 16,
            steps=segments * len(self.layers),
            relay=size,
        )


@dataclass(frozen=True, eq=False)
class Piece:
    """Tokens of one segment in each row.

    place   `b n` where in the text they stand, -1 for none (`1 n` where all rows are alike)
    begins  `b` where a document begins with them; None where all rows are alike
    filled  how many tokens of the segment come before them, take how many they are, ended whether they fill it: `b`, or
            one for all rows
    """

    place: Tensor
    begins: Tensor | None
    filled: Tensor | int
    take: Tensor | int
    ended: Tensor | bool

    def of(self, x: Tensor) -> Tensor:
        """The tokens' vectors, of `b t d`."""
        if self.begins is None:
            return x[:, self.place[0]]
        return x.gather(1, self.place.clamp(min=0)[..., None].expand(-1, -1, x.shape[2]))

    def positions(self, m: int) -> Tensor:
        """The tokens' positions in the segment behind m memory tokens, `b n`."""
        rank = torch.arange(self.place.shape[1], device=self.place.device)[None]
        if self.begins is None:
            return m + self.filled + rank
        return (m + self.filled[:, None] + rank).where(self.place >= 0, -1)

    def reading(self, m: int) -> Tensor:
        """The positions of the memory that is read, `b m`."""
        return torch.arange(m, device=self.place.device).expand(len(self.place), -1)

    def writing(self, m: int) -> Tensor:
        """The positions of the memory that is written, `b m`."""
        end = self.filled + self.take
        return self.reading(m) + m + (end if self.begins is None else end[:, None])

    @property
    def last(self) -> Tensor | int:
        """The place of a full segment's last token among these, `b 1`; -1 where it is not full."""
        if self.begins is None:
            return self.take - 1 if self.ended else -1
        return (self.take - 1).where(self.ended, -1)[:, None]

    def after(self, filled: Tensor) -> Tensor:
        """How many tokens each row's segment has after them, `b`; filled: before."""
        if self.begins is None:
            return torch.full_like(filled, self.filled + self.take)
        return self.filled + self.take

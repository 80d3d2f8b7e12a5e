"""From token ids to the vectors that enter the first block."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..call import Call
from ..errors import InputError
from ..spec import Spec, check_finite, check_least
from ..state import Last, Nothing, State, before
from ..tap import Card, as_built
from .init import Embedding
from .norm import Norm, NormSpec
from .position import LearnedSpec, PositionSpec, SinusoidalSpec, formula_of, sinusoid


class EmbedSpec(Spec, frozen=True, tag="embed"):
    """x = norm(scale · E[token] + E'[token before] + S[type] + p(position)), each part only where it is asked for.

    previous adds a second table, looked up with the token before: a bigram's knowledge for the price of a look-up.
    types adds one of so many vectors that tell the parts of a text apart (BERT: 2, for sentence A and B); 0: none.
    """

    scale: float = 1.0
    position: PositionSpec | None = None
    previous: bool = False
    norm: NormSpec | None = None
    types: int = 0

    def __post_init__(self) -> None:
        check_finite(self, "scale")
        check_least(self, 0, "types")


class Embed(nn.Module):
    """Token ids `b t` to vectors `b t d`."""

    path = ""
    cards = {
        "token": Card(
            "E[x_t]",
            "E[x_t]",
            "The token's fixed vector from the table: the same in every sentence.",
            "임베딩 표에서 가져온 고정된 토큰 벡터로, 어느 문장에서나 같습니다.",
            ("S2", "S22"),
        ),
        "previous": Card(
            "E'[x_{t−1}]",
            "E'[x_{t−1}]",
            "A fixed vector looked up with the token before.",
            "바로 앞 토큰에 해당하는 고정 벡터입니다.",
            ("S22",),
        ),
        "types": Card(
            "s_t",
            "S[type_t]",
            "The vector of the part of the text that the token stands in: of sentence A or B.",
            "토큰이 속한 부분(첫째 문장인지 둘째 문장인지)을 나타내는 벡터입니다.",
            ("S22",),
        ),
        "position": Card(
            "p_t",
            "sin(t/base^{2i/d}), cos(…), or a learned row",
            "The position's vector, added so that order can be used.",
            "순서를 이용할 수 있도록 더하는 위치 벡터입니다.",
            ("S15", "S16", "S29"),
        ),
        "out": Card(
            "x_0",
            "E[x_t] + p_t",
            "What enters the first block.",
            "첫 블록에 들어가는 벡터입니다.",
            ("S22",),
        ),
    }

    def __init__(self, spec: EmbedSpec, vocab: int, dim: int, context: int) -> None:
        super().__init__()
        self.spec, self.dim, self.context = spec, dim, context
        self.token = Embedding(vocab, dim)
        self.previous = Embedding(vocab, dim) if spec.previous else None
        self.types = Embedding(spec.types, dim) if spec.types else None
        learned = isinstance(spec.position, LearnedSpec)
        self.position = Embedding(context + spec.position.offset, dim) if learned else None
        self.norm = Norm(spec.norm, dim) if spec.norm else None
        self.cards = _cards(spec)

    def empty(self, batch: int) -> State:
        """The past of nothing."""
        if self.previous is None:
            return Nothing()
        return Last.none(torch.zeros(batch, dtype=torch.long, device=self.token.weight.device))

    def forward(self, tokens: Tensor, call: Call, state: State | None = None) -> tuple[Tensor, State]:
        """Vectors `b t d`, and the state after these tokens."""
        tap = call.tap(self)
        state = self.empty(tokens.shape[0]) if state is None else state.take()
        x = self.token(tokens)
        x = tap("token", x if self.spec.scale == 1.0 else x * self.spec.scale, "b t d")
        if self.previous is not None:
            one_before, exists, state = before(tokens, state, call.pos, call.segments)
            x = x + tap("previous", self.previous(one_before) * exists[..., None].to(x.dtype), "b t d")
        else:
            state = Nothing()
        if self.types is not None:
            x = x + tap("types", self._parts(tokens, call).expand_as(x), "b t d")
        if self.spec.position is not None:
            x = x + tap("position", self._positions(call, x.dtype).expand_as(x), "b t d")
        if self.norm is not None:
            x = self.norm(x, call)
        return tap("out", x, "b t d"), state

    def _parts(self, tokens: Tensor, call: Call) -> Tensor:
        """The vectors of the parts that the tokens stand in, `b t d`; of the first part where none are given."""
        if call.types is None:
            return self.types.weight[0].expand(1, 1, -1)
        if call.types.device.type == "cpu" and not torch.compiler.is_compiling():
            low, high = int(call.types.min()), int(call.types.max())
            if low < 0 or high >= self.spec.types:
                wrong, most = low if low < 0 else high, self.spec.types - 1
                raise InputError(f"types: {wrong} is outside the {self.spec.types} of this model (0 to {most})")
        return self.types(call.types)

    def _positions(self, call: Call, dtype: torch.dtype) -> Tensor:
        pos, end = call.signal, call.end if call.places is None else None
        if isinstance(self.spec.position, SinusoidalSpec):
            return sinusoid(pos, self.dim, self.spec.position, dtype)
        # Given positions are looked at on a processor only: an accelerator would have to be waited for.
        if end is None and pos.device.type == "cpu" and pos.numel() and not torch.compiler.is_compiling():
            end = int(pos.max()) + 1
        if end is not None and end > self.context:
            raise InputError(
                f"position {end - 1} is beyond this model's {self.context} learned positions; "
                f"give at most {self.context} tokens"
            )
        return self.position(pos.clamp(min=0) + self.spec.position.offset)


def _cards(spec: EmbedSpec) -> dict[str, Card]:
    token = "E[x_t]" if spec.scale == 1.0 else f"{spec.scale:.4g} · E[x_t]"
    parts = [token, *(["E'[x_{t−1}]"] if spec.previous else [])]
    parts += [*(["s_t"] if spec.types else []), *(["p_t"] if spec.position else [])]
    total = " + ".join(parts)
    return as_built(
        Embed.cards,
        token={"symbol": token, "formula": token},
        previous={} if spec.previous else None,
        types={} if spec.types else None,
        position={"formula": formula_of(spec.position)} if spec.position else None,
        out={"formula": f"norm({total})" if spec.norm else total},
    )

"""One block: a token mixer, perhaps cross-attention, perhaps a channel mixer, wired around the residual."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from .call import Call
from .errors import SettingError, under
from .mixers import MIXERS, MixerSpec
from .mixers.attention import CrossAttention, CrossSpec
from .mixers.base import TokenMixer
from .mixers.cuts import mixed
from .nn.channel import CHANNELS, ChannelSpec, MlpSpec
from .nn.init import Linear
from .nn.norm import LayerNormSpec, Norm, NormSpec
from .nn.position import RelativeBias
from .spec import Spec, check_least, check_share
from .state import Nothing, State
from .tap import Card, as_built


class BlockSpec(Spec, frozen=True, tag="block"):
    """One block: a token mixer, perhaps `cross` attention, perhaps a `channel` mixer, and their wiring.

    pre       x ← x + f(norm(x))
    post      x ← norm(x + f(x)), the original Transformer
    parallel  x ← x + mixer(norm(x)) + channel(norm'(x)), both reading the same x
    after     x ← x + norm(f(x)), what is added is normed and nothing else (OLMo 2)
    sandwich  x ← x + norm'(f(norm(x))), four norms a block (Gemma 2)
    first_norm=False leaves out the norm of what the mixer reads (ModernBERT's first block, whose input is normed).
    residual=False and norm=None exist to show what is lost without them. dropout acts on what is added to x.
    width  of the vectors that this block gives (None: of those it gets); what then goes past the mixer is projected, as
           in He et al. 2016, equation 2. Recurrent and aligning mixers can change it.
    """

    mixer: MixerSpec
    cross: CrossSpec | None = None
    channel: ChannelSpec | None = MlpSpec()
    norm: NormSpec | None = LayerNormSpec()
    first_norm: bool = True
    wiring: Literal["pre", "post", "parallel", "after", "sandwich"] = "pre"
    residual: bool = True
    dropout: float = 0.0
    width: int | None = None

    def __post_init__(self) -> None:
        check_least(self, 1, "width")
        if self.wiring == "parallel" and (self.cross is not None or self.channel is None):
            raise SettingError("wiring: parallel runs a mixer beside a channel mixer; use another wiring here")
        check_share(self, "dropout")
        if not self.first_norm and self.wiring == "post":
            raise SettingError("first_norm: in post-norm no norm comes first; set it to true, or use another wiring")

    @property
    def norms_out(self) -> bool:
        """Whether norms of their own, `mixer_out_norm` …, act on what is added."""
        return self.norm is not None and self.wiring in ("after", "sandwich")

    @property
    def reads_memory(self) -> bool:
        """Whether this block looks at an encoder."""
        return self.cross is not None or getattr(self.mixer, "reads_memory", False)


@dataclass(eq=False)
class BlockState(State):
    """The pasts of a block's token mixer and cross-attention."""

    mixer: State
    cross: State


def _resid(symbol: str, en: str, ko: str) -> Card:
    return Card(symbol, "x_l = x_0 + Σ changes", en, ko, ("S19", "S22"))


Sublayer = Callable[[Tensor], Tensor]  # what one part of a block reads, `b t d`, to what it gives

_MAKES = ("What the MLP makes of this token, looking at it alone.", "MLP가 이 토큰 하나만 보고 변환한 값입니다.")


class Block(nn.Module):
    """One block of BlockSpec, `b t d` to `b t d`."""

    path = ""
    cards = {
        "resid_in": _resid("x", "The token's vector before this block.", "이 블록에 들어오기 전의 토큰 벡터입니다."),
        "resid_mid": _resid(
            "x + Mix", "The token's vector after the token mixer.", "토큰 믹서의 결과가 더해진 토큰 벡터입니다."
        ),
        "resid_cross": _resid(
            "x + Cross", "The token's vector after cross-attention.", "교차 어텐션의 결과가 더해진 토큰 벡터입니다."
        ),
        "resid_out": _resid("x + FFN", "The token's vector after this block.", "이 블록에서 나온 토큰 벡터입니다."),
    }

    def __init__(self, spec: BlockSpec, dim: int) -> None:
        super().__init__()
        self.spec, self.dim = spec, dim
        self.width = width = spec.width or dim

        read = width if spec.wiring == "post" else dim
        self.mixer_norm, self.mixer_out_norm = _norms(spec, spec.mixer, read, width)
        self.cross_norm, self.cross_out_norm = _norms(spec, spec.cross, width, width)
        self.channel_norm, self.channel_out_norm = _norms(spec, spec.channel, width, width)
        self.mixer_norm = self.mixer_norm if spec.first_norm else None
        kind = MIXERS[type(spec.mixer)]
        if width != dim and not (kind.widens and spec.wiring != "parallel"):
            raise SettingError(f"width: these vectors stay {dim} wide; set it to null, or use a recurrent mixer")
        with under("mixer"):
            self.mixer = kind(spec.mixer, dim) if width == dim else kind(spec.mixer, dim, width)
        self.shortcut = Linear(dim, width, bias=False) if width != dim and spec.residual else None
        with under("cross"):
            self.cross = CrossAttention(spec.cross, width) if spec.cross else None
        self.channel = CHANNELS[type(spec.channel)](spec.channel, width) if spec.channel else None
        self.cards = _cards(spec, self.mixer, self.shortcut is not None)
        _card_of_output(spec, self.mixer, self.mixer_out_norm, self.mixer.symbol)
        _card_of_output(spec, self.cross, self.cross_out_norm, "Cross")
        _card_of_output(spec, self.channel, self.channel_out_norm, "FFN")

    def empty(self, batch: int, room: int, call: Call) -> BlockState:
        """The past of nothing; cross-attention projects the memory here, once."""
        cross = self.cross.empty(batch, room, call) if self.cross is not None else Nothing()
        return BlockState(self.mixer.empty(batch, room, call), cross)

    def forward(self, x: Tensor, call: Call, state: BlockState | None = None) -> tuple[Tensor, BlockState | None]:
        """x `b t d`; with a state only the new tokens, and the state after them."""
        past = None if state is None else state.take()
        after = [None, None]

        def mix(x: Tensor) -> Tensor:
            y, after[0] = mixed(self.mixer, x, call, past and past.mixer)
            return y

        def look(x: Tensor) -> Tensor:
            y, after[1] = mixed(self.cross, x, call, past and past.cross)
            return y

        def rework(x: Tensor) -> Tensor:
            return self.channel(x, call)

        x = self.wired(x, mix, look, rework, call)
        return x, None if past is None else BlockState(after[0], after[1] or Nothing())

    def wired(self, x: Tensor, mix: Sublayer, look: Sublayer, rework: Sublayer, call: Call) -> Tensor:
        """x `b t d` and the block's parts (its token mixer, cross-attention and channel mixer, each from what it reads
        to what it gives) put together: the wiring, which acts on each token by itself, with its norms."""
        tap = call.tap(self)
        x = tap("resid_in", x, "b t d")
        if self.spec.wiring == "parallel":
            change = mix(self.reads(x, call)) + rework(self._normed(self.channel_norm, x, call))
            x = self._add(x, change)  # once, since without a residual a second addition would drop the first
        else:
            x = tap("resid_mid", self._sublayer(x, mix, self.mixer_norm, self.mixer_out_norm, call), "b t d")
            if self.cross is not None:
                x = self._sublayer(x, look, self.cross_norm, self.cross_out_norm, call)
                x = tap("resid_cross", x, "b t d")
            if self.channel is not None:
                x = self._sublayer(x, rework, self.channel_norm, self.channel_out_norm, call)
        return tap("resid_out", x, "b t d")

    def reads(self, x: Tensor, call: Call) -> Tensor:
        """What the token mixer reads of what enters the block."""
        return x if self.spec.wiring == "post" else self._normed(self.mixer_norm, x, call)

    def _sublayer(self, x: Tensor, f, norm: Norm | None, out_norm: Norm | None, call: Call) -> Tensor:
        """x + out_norm(f(norm(x))), where only a sandwich has both norms, or post-norm norm(x + f(x))."""
        if self.spec.wiring == "post":
            return self._normed(norm, self._add(x, f(x)), call)
        return self._add(x, self._normed(out_norm, f(self._normed(norm, x, call)), call))

    def _add(self, x: Tensor, change: Tensor) -> Tensor:
        change = F.dropout(change, self.spec.dropout, self.training) if self.spec.dropout else change
        if not self.spec.residual:
            return change
        return (x if x.shape[-1] == self.width else self.shortcut(x)) + change

    def flops(self, n: int) -> int:
        """Of what it does to each of n tokens by itself."""
        parts = [part for part in (self.shortcut, self.channel) if part is not None]
        return sum(part.flops(n) for part in parts)

    def _normed(self, norm: Norm | None, x: Tensor, call: Call) -> Tensor:
        return x if norm is None else norm(x, call)


def _norms(spec: BlockSpec, part: object, read: int, added: int) -> tuple[Norm | None, Norm | None]:
    """The norm of what a part reads (in post-norm of the sum) and that of what it gives, as wide as those are."""
    if part is None or spec.norm is None:
        return None, None
    reads, gives = spec.wiring != "after", spec.norms_out
    return Norm(spec.norm, read) if reads else None, Norm(spec.norm, added) if gives else None


def _card_of_output(spec: BlockSpec, part: nn.Module | None, out_norm: Norm | None, symbol: str) -> None:
    """The words for what a part gives, where that is not simply added, and for its norm."""
    if part is None or (spec.residual and out_norm is None):
        return
    en, ko = ("the MLP", "MLP") if symbol == "FFN" else part.called
    if out_norm is None:
        made = (f"What {en} puts in the place of this token's vector.", f"이 토큰 벡터를 대신하는, {ko}의 출력입니다.")
        made = _MAKES if symbol == "FFN" else made
        part.cards = as_built(part.cards, out={"en": made[0], "ko": made[1]})
        return
    does = ("is added to", "에 더해집니다") if spec.residual else ("takes the place of", "를 대신합니다")
    part.cards = as_built(
        part.cards,
        out={
            "en": f"The output of {en}; normed, it {does[0]} this token's vector.",
            "ko": f"{ko}의 출력이며, 정규화된 뒤 이 토큰 벡터{does[1]}.",
        },
        head_out={
            "en": "What one head gives to the output before it is normed; all heads together give that output.",
            "ko": "헤드 하나가 정규화 전의 출력에 보태는 값이며, 모든 헤드를 합하면 그 출력이 됩니다.",
        },
    )
    out_norm.cards = as_built(
        out_norm.cards,
        scale={
            "en": f"The factor by which the output of {en} is brought to unit size.",
            "ko": f"{ko}의 출력을 일정한 크기로 맞추는 배율입니다.",
        },
        out={
            "symbol": f"norm({symbol})",
            "en": f"The output of {en}, normed; it {does[0]} this token's vector.",
            "ko": f"{ko}의 출력을 정규화한 값이며, 이 토큰 벡터{does[1]}.",
        },
    )


def _cards(spec: BlockSpec, mixer: TokenMixer, projected: bool) -> dict[str, Card]:
    """The residual's symbol and formula in this block's wiring, with the words for its mixer."""
    mix, (en, ko) = mixer.symbol, mixer.called
    leaves = {mix: ko, "Cross": "교차 어텐션", "FFN": "이 블록"}
    parallel, post = spec.wiring == "parallel", spec.wiring == "post"

    def after(*changes: str) -> dict[str, str]:
        past = "x W_s" if projected and changes[0] == mix else "x"
        normed = [f"norm({change})" if spec.norms_out else change for change in changes]
        symbol = " + ".join(([past] if spec.residual else []) + normed)
        symbol = f"norm({symbol})" if post and spec.norm is not None else symbol
        plain = {} if spec.residual else {"ko": f"{leaves[changes[-1]]}에서 나온 토큰 벡터입니다."}
        return {"symbol": symbol, "formula": formula or symbol, **plain}

    plain_sum = spec.residual and not projected and not (post and spec.norm is not None)
    formula = "x_l = x_0 + Σ changes" if plain_sum else ""
    last = [mix, "FFN"] if parallel else ["FFN"] if spec.channel else ["Cross"] if spec.cross else [mix]
    named = {"en": f"The token's vector after {en}.", "ko": f"{ko}의 결과가 더해진 토큰 벡터입니다."}
    return as_built(
        Block.cards,
        resid_in={"formula": formula or "x"},
        resid_mid=None if parallel else named | after(mix),
        resid_cross=after("Cross") if spec.cross else None,
        resid_out=after(*last),
    )


def share_relative(blocks: nn.ModuleList) -> None:
    """Where a relative bias is `shared`, all layers use the first one's table."""
    first = None
    for i, block in enumerate(blocks):
        relative = getattr(getattr(block, "mixer", None), "relative", None)
        if not isinstance(relative, RelativeBias) or not relative.spec.shared:
            continue
        first = relative if first is None else first
        same = relative.table.shape == first.table.shape and relative.one_sided == first.one_sided
        if not same or relative.spec != first.spec:
            raise SettingError(
                f"blocks.{i}.mixer.position: a shared bias needs the same heads, buckets, distances and directions of "
                "sight in all layers; make them equal, or set shared=false"
            )
        relative.table = first.table


def name_parts(model: nn.Module) -> None:
    """Give every part its module path, under which its taps are known."""
    for name, module in model.named_modules():
        module.path = name

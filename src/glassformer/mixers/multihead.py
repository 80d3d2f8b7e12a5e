"""What self- and cross-attention share: projections to heads, the four steps, the output projection.

Attention(Q, K, V) = softmax(QKᵀ/√d_k) V                                   (Vaswani et al. 2017, equation 1)
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from ..call import Call
from ..errors import SettingError
from ..mask import Mask, allowed
from ..nn.head import capped
from ..nn.init import Linear
from ..nn.norm import Norm, NormSpec
from ..nn.position import AlibiSpec, RelativeBiasSpec, RelativeSinusoidSpec, RopeSpec
from ..spec import Spec, check_finite, check_least, check_positive
from ..tap import Card, Tap, as_built, off
from .base import TokenMixer
from .cache import Asked, Keys
from .local import few_rows, fits_in_blocks, in_blocks
from .softmax import QUADRATIC, TILE, ScoreOf, cell_bytes, explicit, fused, pieces, shared_out, tiled

ROOM_BYTES = 1 << 26  # of masks, biases and scores at once where nothing is kept for gradients


class SoftmaxSpec(Spec, frozen=True):
    """What self- and cross-attention share.

    heads, kv_heads   query heads; key/value heads (None: as many; fewer: grouped-query; 1: multi-query)
    head_dim          width of a head (None: width / heads)
    scale             factor on q·k (None: 1/√head_dim)
    qk_norm           normalises q and k before positions enter
    qk_norm_over      each "head" by itself, or "all" heads of a token together (OLMo 2)
    softcap           c·tanh(score/c), keeps scores within ±c (Gemma 2)
    sink              a learned score per head that takes weight and gives no value (attention sink)
    top_k             only so many scores of a query, the largest, enter the softmax (Gupta et al. 2021); None: all
    bias, out_bias    biases of the q, k, v projections ("qv": of q and v only) and of the output projection
    """

    heads: int = 4
    kv_heads: int | None = None
    head_dim: int | None = None
    scale: float | None = None
    qk_norm: NormSpec | None = None
    qk_norm_over: Literal["head", "all"] = "head"
    softcap: float | None = None
    sink: bool = False
    top_k: int | None = None
    bias: bool | Literal["qv"] = False
    out_bias: bool = False

    def __post_init__(self) -> None:
        check_least(self, 1, "head_dim", "top_k")
        if self.qk_norm_over == "all" and self.qk_norm is None:
            raise SettingError("qk_norm_over: there is no norm; set qk_norm as well, or qk_norm_over=head")
        check_positive(self, "softcap")
        check_finite(self, "scale")


class SoftmaxAttention(TokenMixer):
    """What self- and cross-attention share: projections, the four steps, the output projection."""

    mask: Mask
    biased = False  # whether a number of its own is added to every score
    inside = False  # whether it lies in another mixer, which reads the text piece by piece
    symbol, called = "MultiHead", ("attention", "어텐션")
    in_parts = (*QUADRATIC, "head_out")
    written_out = ("pattern", "head_out")
    writes_residual = ("out",)
    cards = {
        "q": Card(
            "q_i", "x_i W_Q", "Query: what this token looks for.", "쿼리: 이 토큰이 무엇을 찾는지 나타냅니다.", ("S10",)
        ),
        "k": Card(
            "k_j",
            "x_j W_K",
            "Key: how this token can be found.",
            "키: 다른 토큰이 이 토큰을 찾는 단서입니다.",
            ("S10",),
        ),
        "v": Card(
            "v_j", "x_j W_V", "Value: what this token hands over.", "값: 이 토큰이 전달하는 내용입니다.", ("S10", "S13")
        ),
        "dots": Card(
            "q·k",
            "q_i · k_j",
            "How well the query fits each key, before scaling.",
            "쿼리가 각 키와 얼마나 맞는지 나타내는, 스케일링 전의 값입니다.",
            ("S11", "S26"),
        ),
        "scores": Card(
            "s_ij",
            "q_i·k_j / √d_k",
            "The scaled score; -∞ where the mask forbids looking.",
            "√d_k로 나눈 점수이며, 마스크가 막은 곳은 -∞입니다.",
            ("S11", "S12", "S26"),
        ),
        "pattern": Card(
            "α_ij",
            "softmax_j(s_ij)",
            "Attention weights: the share of each token in the sum. By itself not an explanation.",
            "어텐션 가중치: 합에서 각 토큰이 차지하는 비중이며, 그 자체가 설명은 아닙니다.",
            ("S9", "S11", "S26", "S27"),
        ),
        "z": Card(
            "z_i",
            "Σ_j α_ij v_j",
            "The weighted sum of the values: what this head gathered for this token.",
            "값의 가중합: 이 헤드가 이 토큰을 위해 모은 정보입니다.",
            ("S9", "S11", "S26"),
        ),
        "head_out": Card(
            "z_i W_O",
            "z_i W_O (the head's rows)",
            "What one head gives to the token's vector; all heads together give the output.",
            "헤드 하나가 토큰 벡터에 보태는 값이며, 모든 헤드를 합하면 출력이 됩니다.",
            ("S14",),
        ),
        "out": Card(
            "MultiHead",
            "Concat(z) W_O",
            "What attention adds to this token's vector.",
            "어텐션이 이 토큰 벡터에 더하는 값입니다.",
            ("S14",),
        ),
    }

    def __init__(self, spec: SoftmaxSpec, dim: int, memory_dim: int | None = None) -> None:
        super().__init__()
        self.spec = spec
        self.heads, self.groups, self.width = spec.heads, *_head_sizes(spec, dim)
        self.scale = self.width**-0.5 if spec.scale is None else spec.scale
        source = dim if memory_dim is None else memory_dim
        self.q = Linear(dim, self.heads * self.width, bias=bool(spec.bias))
        self.k = Linear(source, self.groups * self.width, bias=spec.bias is True)
        self.v = Linear(source, self.groups * self.width, bias=bool(spec.bias))
        self.out = Linear(self.heads * self.width, dim, bias=spec.out_bias)
        together = spec.qk_norm_over == "all"
        self.q_norm = Norm(spec.qk_norm, self.width * (self.heads if together else 1)) if spec.qk_norm else None
        self.k_norm = Norm(spec.qk_norm, self.width * (self.groups if together else 1)) if spec.qk_norm else None
        self.sink = nn.Parameter(torch.zeros(self.heads)) if spec.sink else None
        self.cards = _cards(spec)

    @property
    def distance_bytes(self) -> int:
        """What a query and a key take once for all heads while the scores are masked, at most."""
        return 4 if self.mask.window is None else 12

    def split(self, x: Tensor) -> Tensor:
        """`b t (h e)` to `b t h e`."""
        return x.unflatten(-1, (-1, self.width))

    def query(self, x: Tensor) -> Tensor:
        """`b t d` to queries `b t h e`."""
        return self._normed(self.q(x), self.q_norm)

    def key_value(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """`b s d` to keys and values, both `b s g e`."""
        return self._normed(self.k(x), self.k_norm), self.split(self.v(x))

    def _normed(self, x: Tensor, norm: Norm | None) -> Tensor:
        """Projected `b t (h e)` to `b t h e`, each head normed, or all of them together before they are split."""
        if norm is None:
            return self.split(x)
        return self.split(norm(x)) if self.spec.qk_norm_over == "all" else norm(self.split(x))

    def attend(self, q: Tensor, keys: Keys, call: Call, pos: Tensor, triangle: bool | None) -> Tensor:
        """The four steps and the output projection, to `b t d`.

        q `b t h e` at positions pos `b t`; triangle: True or False where the kernel's own causal triangle (or no mask
        at all) is known to be right, None where the mask must be written out.
        """
        tap = call.tap(self)
        q, k, v = (x.transpose(1, 2) for x in (q, keys.k, keys.v))
        sink = self.sink
        if call.heads is not None:
            q, k, v = (shared_out(x, self.heads)[:, call.heads] for x in (q, k, v))
            sink = None if sink is None else sink[call.heads]
        segments = call.segments if call.segments is None or call.rows is None else call.segments[:, call.rows]
        q = self.added(q, call.heads)
        asked = Asked(q, pos, segments, call.heads, None if call.places is None else call.of_rows(call.places))
        if call.wants(self, *QUADRATIC):
            k, v = shared_out(k, q.shape[1]), shared_out(v, q.shape[1])
            score, flows = self.scorer(asked, k, keys), self.flows(asked, keys, slice(None))
            z = explicit(score, v, sink, tap, self.spec.top_k, flows)
        elif triangle is not None and not self.online:
            z = fused(q, k, v, self.scale, None, triangle)
        else:
            z = self._fast(asked, k, v, sink, keys, call)
        return self.gather(tap("z", z.transpose(1, 2), "b t h e"), call)

    @property
    def online(self) -> bool:
        """Whether it has what the kernel does not know, so that it is worked out tile by tile."""
        return self.spec.softcap is not None or self.spec.sink or self.spec.top_k is not None

    def _fast(self, asked: Asked, k: Tensor, v: Tensor, sink: Tensor | None, keys: Keys, call: Call) -> Tensor:
        """The fast path of a mask, a bias or a variant, `b h t e`, within the call's room for it."""
        q, t, s, mask = asked.q, asked.q.shape[2], k.shape[2], self.mask
        aligned = call.plain and call.rows is None and t == s  # query i stands at the position of key i
        batch = q.shape[0] if self.online else max(asked.pos.shape[0], keys.pos.shape[0])
        heads = q.shape[1] if self.online or self.biased else 1
        each_bytes = cell_bytes(batch, heads, max(4, q.element_size()))
        blocks = aligned and call.places is None
        if blocks and fits_in_blocks(t, mask, each_bytes * q.shape[0] // batch, call.room_bytes):
            folded = in_blocks(asked, keys, k, v, mask)
            some = few_rows(*folded) if self.online or self.biased else [folded]
            z = torch.cat([self._one(*one, sink) for one in some])
            z = z.unflatten(0, (q.shape[0], -1)).transpose(1, 2).flatten(2, 3)[:, :, :t]
            if mask.causal or not mask.globals:
                return z
            first = slice(0, mask.globals)  # these see all
            return torch.cat((self._one(asked.part(first), keys, k, v, sink), z[:, :, mask.globals :]), 2)
        width = min(s, TILE) if self.online and self.spec.top_k is None else s
        cuts = pieces(t, s, each_bytes, width, aligned, mask, self._room_bytes(call))
        if len(cuts) == 1:  # in training even a cut that takes everything would cost a copy on the way back
            return self._one(asked, keys, k, v, sink)
        parts = [self._one(asked.part(a), keys.part(b), k[:, :, b], v[:, :, b], sink) for a, b in cuts]
        return torch.cat(parts, 2)

    def _room_bytes(self, call: Call) -> int | None:
        """What a piece may take. On the way back all pieces would be kept, and a compiled graph has one."""
        keeps = torch.is_grad_enabled() or torch.compiler.is_compiling()
        return call.room_bytes if call.room_bytes is not None or keeps else ROOM_BYTES

    def _one(self, asked: Asked, keys: Keys, k: Tensor, v: Tensor, sink: Tensor | None) -> Tensor:
        """One piece of the fast path, all of its queries against all of its keys, `b h t e`."""
        flows = self.flows(asked, keys, slice(None))
        if not self.online and flows is None:
            return fused(asked.q, k, v, self.scale, self.bias(asked, keys, slice(None)), False)
        k, v = shared_out(k, asked.q.shape[1]), shared_out(v, asked.q.shape[1])
        score, top_k = self.scorer(asked, k, keys), self.spec.top_k
        if top_k is None and flows is None:
            return tiled(score, v, sink)
        return explicit(score, v, sink, off, top_k, flows)

    def scorer(self, asked: Asked, k: Tensor, keys: Keys) -> ScoreOf:
        """The scores of the asked queries against a range of keys k `b h s e`, in fp32 at least."""
        wide = torch.promote_types(k.dtype, torch.float32)

        def score(start: int, end: int, tap: Tap) -> Tensor:
            with torch.autocast(k.device.type, enabled=False):
                dots = asked.q.to(wide) @ k[:, :, start:end].to(wide).mT
                flows = self.flows(asked, keys, slice(start, end))
                if flows is not None:
                    dots = torch.where(flows, dots, asked.q.to(wide) @ k[:, :, start:end].detach().to(wide).mT)
            scores = capped(tap("dots", dots, "b h t s") * self.scale, self.spec.softcap)
            return _biased(scores, self.bias(asked, keys, slice(start, end)))

        return score

    def bias(self, asked: Asked, keys: Keys, part: slice) -> Tensor:
        """What keeps (bool) or shifts (float) the scores of the keys in `part`, broadcastable to `b h t s`."""
        key_segments = None if keys.segments is None else keys.segments[:, part]
        return allowed(self.mask, asked.pos, keys.pos[:, part], asked.segments, key_segments)[:, None]

    def added(self, q: Tensor, heads: Tensor | None) -> Tensor:
        """Queries `b h t e` with what is added to them before they meet the keys."""
        return q

    def flows(self, asked: Asked, keys: Keys, part: slice) -> Tensor | None:
        """Pairs `b 1 t s` of a query and a key that gradients pass; None: all."""
        return None

    def gather(self, z: Tensor, call: Call) -> Tensor:
        """Heads `b t h e` through W_O to `b t d`."""
        tap = call.tap(self)
        if call.wants(self, "head_out"):
            w = self.out.weight.unflatten(1, (self.heads, self.width))  # d h e
            w = w if call.heads is None else w[:, call.heads]
            out = tap("head_out", torch.einsum("bthe,dhe->bthd", z, w), "b t h d").sum(2)
            out = out if self.out.bias is None else out + self.out.bias
        else:
            out = self.out(z.flatten(-2))
        return tap("out", out, "b t d")

    def looking(self, n: int, sources: int) -> int:
        """FLOPs of n queries over so many keys, with their projections: X W_Q, Q Kᵀ, α V and Z W_O."""
        return self.q.flops(n) + self.out.flops(n) + 4 * n * sources * self.heads * self.width

    def keeping(self, places: int, number_bytes: int) -> int:
        """Bytes of so many keys and values with their positions."""
        return places * (2 * self.groups * self.width * number_bytes + 8)


def _head_sizes(spec: SoftmaxSpec, dim: int) -> tuple[int, int]:
    """(key/value heads, width of a head), or a SettingError that says which numbers would do."""
    divisors = ", ".join(str(n) for n in range(1, min(dim, 64) + 1) if dim % n == 0)
    if spec.heads < 1 or (spec.head_dim is None and dim % spec.heads):
        raise SettingError(f"heads: {spec.heads} does not divide d={dim}; use {divisors}, or set head_dim")
    groups = spec.heads if spec.kv_heads is None else spec.kv_heads
    if groups < 1 or spec.heads % groups:
        fitting = ", ".join(str(n) for n in range(1, min(spec.heads, 64) + 1) if spec.heads % n == 0)
        raise SettingError(f"kv_heads: {groups} does not divide heads={spec.heads}; use {fitting}")
    return groups, dim // spec.heads if spec.head_dim is None else spec.head_dim


def _cards(spec: SoftmaxSpec) -> dict[str, Card]:
    """What this attention computes: its biases, norms and positions, its scale, soft-cap, score bias and sink."""
    position = getattr(spec, "position", None)
    mask, plus = getattr(spec, "mask", Mask(causal=False)), " + b" if spec.bias else ""
    of_k = plus if spec.bias is True else ""

    def projected(short: str, place: str) -> str:
        """x W, then in this order what the layer has of it: a bias, QK-norm, smearing, the rotation of RoPE."""
        formula = f"x_{place} W_{short.upper()}{of_k if short == 'k' else plus}"
        norm = "norm" if spec.qk_norm_over == "head" else "norm_all"  # of each head, or of all together
        formula = f"{norm}({formula})" if spec.qk_norm else formula
        formula = f"smear({formula})" if short == "k" and getattr(spec, "smear", False) else formula
        return f"R_{place} {formula}" if isinstance(position, RopeSpec) else formula

    score = "q_i·k_j / √d_k" if spec.scale is None else "q_i·k_j" if spec.scale == 1.0 else f"{spec.scale:.4g} q_i·k_j"
    en, ko = ("scaled score", "√d_k로 나눈 점수") if spec.scale is None else ("score", "점수")
    if spec.softcap is not None:
        score = f"{spec.softcap:g} tanh({score} / {spec.softcap:g})"
        en, ko = f"soft-capped {en}", ko.replace("나눈", "나눈 뒤").replace("점수", "tanh로 제한한 점수")
    if isinstance(position, AlibiSpec):
        score, en = f"{score} − m_h|i−j|", f"{en} less a multiple of the distance"
        ko = f"{ko}에서 거리에 비례하는 값을 뺀 것"
    elif isinstance(position, RelativeSinusoidSpec):
        score = f"{score.replace('q_i', '(q_i+u_h)')} + (q_i+v_h)·W_R r_(i−j) / √d_k"
        score = score if spec.scale is None else score.replace("/ √d_k", f"· {spec.scale:.4g}")
        en, ko = f"{en} with what the query asks of the distance", f"{ko}에 쿼리가 거리에 주는 값을 더한 것"
    elif isinstance(position, RelativeBiasSpec):
        score, en, ko = f"{score} + b_h(j−i)", f"{en} with a bias for the distance", f"{ko}에 거리별 편향을 더한 것"
    dark = ("where the mask forbids looking", "마스크가 막은 곳")
    dark = dark if mask.causal or mask.sparse else ("where there is no token", "토큰이 없는 곳")
    return as_built(
        SoftmaxAttention.cards,
        q={"formula": projected("q", "i")},
        k={"formula": projected("k", "j")},
        v={"formula": f"x_j W_V{plus}"},
        dots={"formula": "(q_i + u_h) · k_j"} if isinstance(position, RelativeSinusoidSpec) else {},
        scores={"formula": score, "en": f"The {en}; -∞ {dark[0]}.", "ko": f"{ko}이며, {dark[1]}은 -∞입니다."},
        pattern=_pattern(spec),
        out={"formula": "Concat(z) W_O" + (" + b_O" if spec.out_bias else "")},
    )


def _pattern(spec: SoftmaxSpec) -> dict[str, str]:
    """The softmax with a learned sink, and over the largest scores alone."""
    formula = "exp(s_ij) / (exp(sink_h) + Σ_j exp(s_ij))" if spec.sink else "softmax_j(s_ij)"
    if spec.top_k is None:
        return {"formula": formula}
    return {
        "formula": f"{formula}, j among the {spec.top_k} largest s_ij",
        "en": "Attention weights over the largest scores alone; all others are 0. By themselves not an explanation.",
        "ko": "점수가 가장 큰 토큰들에만 주는 어텐션 가중치이며, 나머지는 0입니다. 그 자체가 설명은 아닙니다.",
    }


def _biased(scores: Tensor, bias: Tensor) -> Tensor:
    return scores.masked_fill(~bias, -torch.inf) if bias.dtype == torch.bool else scores + bias

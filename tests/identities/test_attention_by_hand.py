"""Every variant of attention in the table of cases against one slow function, number by number, in plain Python."""

import math

import pytest
import torch
from torch import Tensor

from contract.cases import CROSSES, MIXERS, assert_same, call_of, drawn
from glassformer.call import Call
from glassformer.mixers.attention import Attention, AttentionSpec, CrossAttention, CrossSpec
from glassformer.nn.norm import LayerNormSpec
from glassformer.nn.position import (
    AlibiSpec,
    RelativeBiasSpec,
    RelativeSinusoidSpec,
    RopeSpec,
    alibi_slopes,
    relative_bucket,
    rope_frequencies,
)


def normed(x: list[float], norm) -> list[float]:
    mean = sum(x) / len(x) if isinstance(norm.spec, LayerNormSpec) else 0.0
    size = math.sqrt(sum((a - mean) ** 2 for a in x) / len(x) + norm.spec.eps)
    bias = [0.0] * len(x) if norm.bias is None else norm.bias.tolist()
    return [(a - mean) / size * w + b for a, w, b in zip(x, norm.weight.tolist(), bias, strict=True)]


def turned(x: list[float], pos: int, rope: RopeSpec) -> list[float]:
    frequencies, factor = rope_frequencies(rope, len(x))
    half, out = len(frequencies), list(x)
    for i, frequency in enumerate(frequencies.tolist()):
        a, b = (i, i + half) if rope.pairing == "halves" else (2 * i, 2 * i + 1)
        z = complex(x[a], x[b]) * complex(math.cos(pos * frequency), math.sin(pos * frequency)) * factor
        out[a], out[b] = z.real, z.imag
    return out


def vectors(linear, x: Tensor, heads: int, norm=None, rope: RopeSpec | None = None) -> list[list[list[float]]]:
    """Projected, normed and turned vectors by position and head."""
    flat = x @ linear.weight.T + (0 if linear.bias is None else linear.bias)
    if norm is not None and norm.width == flat.shape[-1]:  # over all heads together, before they are parted
        flat, norm = torch.tensor([normed(token, norm) for token in flat.tolist()], dtype=flat.dtype), None
    flat = flat.unflatten(-1, (heads, -1)).tolist()
    out = [[head if norm is None else normed(head, norm) for head in token] for token in flat]
    return out if rope is None else [[turned(head, t, rope) for head in token] for t, token in enumerate(out)]


def visible(spec, i: int, j: int) -> bool:
    if isinstance(spec, CrossSpec):
        return True
    mask = spec.mask
    seen = not mask.causal or j <= i or (i < mask.prefix and j < mask.prefix)
    return seen and (mask.window is None or abs(i - j) < mask.window or j < mask.sinks)


def attention_by_hand(layer, x: Tensor, source: Tensor) -> Tensor:
    """One sequence `t d` looking at `s d`, to `t d`."""
    spec, position = layer.spec, getattr(layer.spec, "position", None)
    rope = position if isinstance(position, RopeSpec) else None
    groups = spec.kv_heads or spec.heads
    q = vectors(layer.q, x, spec.heads, layer.q_norm, rope)
    k = vectors(layer.k, source, groups, layer.k_norm, None if getattr(spec, "smear", False) else rope)
    v = vectors(layer.v, source, groups)
    if getattr(spec, "smear", False):
        own = torch.sigmoid(layer.smear).tolist()
        mix = [
            [[own[g] * a + (1 - own[g]) * b for a, b in zip(k[j][g], k[j - 1][g], strict=True)] for g in range(groups)]
            for j in range(1, len(k))
        ]
        k = [k[0], *mix]
        k = k if rope is None else [[turned(head, j, rope) for head in token] for j, token in enumerate(k)]
    scale = 1 / math.sqrt(len(q[0][0])) if spec.scale is None else spec.scale
    out = []
    for i in range(len(q)):
        z = []
        for h in range(spec.heads):
            g = h * groups // spec.heads
            scores = {}
            for j in range(len(k)):
                if not visible(spec, i, j):
                    continue
                score = scale * sum(a * b for a, b in zip(q[i][h], k[j][g], strict=True))
                score = score if spec.softcap is None else spec.softcap * math.tanh(score / spec.softcap)
                if isinstance(position, AlibiSpec):
                    score -= alibi_slopes(spec.heads)[h].item() * abs(i - j)
                if isinstance(position, RelativeBiasSpec):
                    ahead = not spec.mask.causal or spec.mask.prefix > 0  # somebody sees a later token
                    bucket = relative_bucket(torch.tensor(j - i), position, not ahead)
                    score += layer.relative.table[bucket, h].item()
                scores[j] = math.exp(score)
            total = sum(scores.values()) + (math.exp(layer.sink[h].item()) if spec.sink else 0.0)
            z += [sum(w / total * v[j][g][e] for j, w in scores.items()) for e in range(len(v[0][0]))]
        out.append(layer.out.weight @ torch.tensor(z) + (0 if layer.out.bias is None else layer.out.bias))
    return torch.stack(out)


def known(mixer) -> bool:
    """Whether the loops below know all that it has; sparse masks, segments and top-k have tests of their own."""
    mask = mixer.mask
    more = mask.globals or mask.random or mask.stride or mask.segment or mixer.top_k
    return not more and not isinstance(mixer.position, RelativeSinusoidSpec)


SELF = {name: mixer for name, mixer in MIXERS.items() if isinstance(mixer, AttentionSpec) and known(mixer)}


@torch.no_grad()
@pytest.mark.parametrize("name", SELF)
def test_self_attention(name):
    layer, x = drawn(Attention(SELF[name], 16)), torch.randn(6, 16, generator=torch.Generator().manual_seed(0))
    assert_same(layer.parallel(x[None], call_of(6))[0], attention_by_hand(layer, x, x))


@torch.no_grad()
@pytest.mark.parametrize("name", CROSSES)
def test_cross_attention(name):
    spec, generator = CROSSES[name], torch.Generator().manual_seed(0)
    layer, x = drawn(CrossAttention(spec, 16)), torch.randn(4, 16, generator=generator)
    memory = torch.randn(5, spec.memory_dim or 16, generator=generator)
    call = Call(torch.arange(4)[None], plain=True, memory=memory[None])
    assert_same(layer.parallel(x[None], call)[0], attention_by_hand(layer, x, memory))

"""A one-stack model written out in numpy float64, straight from the weights, for the tests of the sheet."""

import math

import numpy as np

from glassformer.nn.channel import ExpertsSpec, GatedSpec
from glassformer.nn.norm import LayerNormSpec
from glassformer.nn.position import AlibiSpec, RelativeBiasSpec, RopeSpec

KOREAN, ENGLISH = "고양이가 생선을 먹었다", "The quick fox jumps over it"

GAUSS = np.vectorize(math.erf)
ACTIVATIONS = {
    "gelu": lambda x: x * (1 + GAUSS(x / math.sqrt(2))) / 2,
    "relu2": lambda x: np.maximum(x, 0) ** 2,
    "silu": lambda x: x / (1 + np.exp(-x)),
}


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


class ByHand:
    """One row of token ids through a one-stack model; every intermediate result by the name of its tap."""

    def __init__(self, model, ids):
        self.w = {name: p.detach().double().numpy() for name, p in model.named_parameters()}
        self.spec, self.ids, self.found = model.spec, ids, {}
        x = self.embed()
        for i, block in enumerate(self.spec.blocks):
            x = self.block(x, block, f"blocks.{i}")
        if self.spec.norm is not None:
            x = self.found["norm.out"] = self.norm(x, self.spec.norm, "norm")
        if self.spec.head is not None:
            head = self.spec.head
            table = self.w["embed.token.weight" if head.tied else "head.weight"]
            x = head.scale * (x @ table.T + self.w.get("head.bias", 0))
            x = head.softcap * np.tanh(x / head.softcap) if head.softcap else x
        self.out = x

    def embed(self):
        x = self.w["embed.token.weight"][self.ids] * self.spec.embed.scale
        if self.spec.embed.previous:
            x[1:] += self.w["embed.previous.weight"][self.ids[:-1]]
        if self.spec.embed.position is not None:
            x = x + self.w["embed.position.weight"][: len(self.ids)]
        return self.norm(x, self.spec.embed.norm, "embed.norm") if self.spec.embed.norm else x

    def norm(self, x, spec, path):
        if isinstance(spec, LayerNormSpec):
            x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + spec.eps)
        else:
            x = x / np.sqrt((x**2).mean(-1, keepdims=True) + spec.eps)
        return x * (self.w.get(f"{path}.weight", 1.0) + getattr(spec, "offset", 0.0)) + self.w.get(f"{path}.bias", 0.0)

    def line(self, x, path):
        return x @ self.w[f"{path}.weight"].T + self.w.get(f"{path}.bias", 0.0)

    def block(self, x, spec, path):
        post, parallel = spec.wiring == "post", spec.wiring == "parallel"
        norm = lambda x, which: x if spec.norm is None else self.norm(x, spec.norm, f"{path}.{which}")  # noqa: E731
        before = lambda x, which: x if spec.wiring in ("post", "after") else norm(x, f"{which}_norm")  # noqa: E731
        keep = 1.0 if spec.residual else 0.0

        def added(x, change, which):
            if spec.wiring in ("after", "sandwich"):
                change = self.found[f"{path}.{which}_out_norm.out"] = norm(change, f"{which}_out_norm")
            y = keep * x + change
            return norm(y, f"{which}_norm") if post else y

        read = before(x, "mixer")
        self.found |= {f"{path}.resid_in": x, f"{path}.read": read}
        y = added(x, self.attention(read, spec.mixer, f"{path}.mixer"), "mixer")
        self.found[f"{path}.resid_mid"] = y
        if spec.channel is not None:
            read = before(x if parallel else y, "channel")
            y = added(y, self.channel(read, spec.channel, f"{path}.channel"), "channel")
        self.found[f"{path}.resid_out"] = y
        return y

    def attention(self, x, spec, path):
        t, heads = len(x), spec.heads
        split = lambda y: y.reshape(t, -1, len(self.w[f"{path}.q.weight"]) // heads).swapaxes(0, 1)  # noqa: E731
        q, k, v = (self.line(x, f"{path}.{which}") for which in "qkv")
        if spec.qk_norm is not None and spec.qk_norm_over == "all":
            q, k = (self.norm(y, spec.qk_norm, f"{path}.{which}_norm") for y, which in ((q, "q"), (k, "k")))
        q, k, v = split(q), split(k), split(v)
        if spec.qk_norm is not None and spec.qk_norm_over == "head":
            q, k = (self.norm(y, spec.qk_norm, f"{path}.{which}_norm") for y, which in ((q, "q"), (k, "k")))
        if spec.smear:
            own = (1 / (1 + np.exp(-self.w[f"{path}.smear"])))[:, None, None]
            k = np.concatenate((k[:, :1], own * k[:, 1:] + (1 - own) * k[:, :-1]), 1)
        if isinstance(spec.position, RopeSpec):
            q, k = self.turned(q, spec.position), self.turned(k, spec.position)
        k, v = (np.repeat(y, heads // len(y), 0) for y in (k, v))
        dots = q @ k.swapaxes(1, 2)
        scaled = dots * (spec.scale if spec.scale is not None else q.shape[-1] ** -0.5)
        scores = spec.softcap * np.tanh(scaled / spec.softcap) if spec.softcap else scaled
        scores = np.where(self.allowed(t, spec.mask), scores + self.bias(t, spec, path), -np.inf)
        if spec.top_k:
            scores = np.where(scores < np.sort(scores)[..., -min(spec.top_k, t), None], -np.inf, scores)
        sink = self.w[f"{path}.sink"] if spec.sink else np.full(heads, -np.inf)
        pattern = softmax(np.concatenate((scores, np.broadcast_to(sink[:, None, None], (heads, t, 1))), -1))[..., :-1]
        z = pattern @ v
        out = self.line(z.swapaxes(0, 1).reshape(t, -1), f"{path}.out")
        each = self.w[f"{path}.out.weight"].reshape(len(out[0]), heads, -1)
        names = {"q": q, "k": k, "v": v, "dots": dots, "scaled": scaled, "scores": scores, "pattern": pattern, "z": z}
        names |= {"out": out[None], "head_out": np.einsum("hte,dhe->htd", z, each)}
        self.found |= {f"{path}.{name}": value for name, value in names.items()}
        return out

    def turned(self, x, spec):
        e = x.shape[-1]
        angle = np.arange(x.shape[1])[:, None] * spec.base ** (-np.arange(0, e, 2) / e)
        a, b = x[..., : e // 2], x[..., e // 2 :]
        return np.concatenate((a * np.cos(angle) - b * np.sin(angle), a * np.sin(angle) + b * np.cos(angle)), -1)

    def allowed(self, t, mask):
        i, j = np.arange(t)[:, None], np.arange(t)[None]
        ok = np.ones((t, t), bool)
        if mask.causal:
            ok &= (j <= i) | ((i < mask.prefix) & (j < mask.prefix))
        if mask.window is not None:
            ok &= (abs(i - j) < mask.window) | (j < mask.sinks)
        if mask.stride is not None:
            ok &= (i - j) % mask.stride == 0
        if mask.segment is not None:
            ok &= j >= i - i % mask.segment - mask.memory
        return ok

    def bias(self, t, spec, path):
        back = np.arange(t)[:, None] - np.arange(t)[None]
        if isinstance(spec.position, AlibiSpec):
            slopes = 2.0 ** (-8 * np.arange(1, spec.heads + 1) / spec.heads)
            return -slopes[:, None, None] * abs(back)
        if isinstance(spec.position, RelativeBiasSpec):  # causal: 4 exact buckets, then logarithmic up to 8
            back = np.maximum(back, 0)
            far = 4 + (np.log(np.maximum(back, 1) / 4) / np.log(8 / 4) * 4).astype(int)
            bucket = np.where(back < 4, back, np.minimum(far, 7))
            return self.w[f"{path}.relative.table"][bucket].transpose(2, 0, 1)
        return 0.0

    def channel(self, x, spec, path):
        if isinstance(spec, ExpertsSpec):
            router = softmax(self.line(x, f"{path}.router"))
            best = np.argsort(-router, -1)[:, : spec.active]
            kept = np.zeros_like(router)
            np.put_along_axis(kept, best, np.take_along_axis(router, best, -1), -1)
            kept /= kept.sum(-1, keepdims=True)
            self.found[f"{path}.weights"] = kept
            parts = [self.channel(x, spec.expert, f"{path}.experts.{i}") for i in range(spec.experts)]
            return sum(kept[:, i, None] * part for i, part in enumerate(parts))
        hidden = self.line(x, f"{path}.up")
        if isinstance(spec, GatedSpec):
            hidden = ACTIVATIONS[spec.activation](self.line(x, f"{path}.gate")) * hidden
        else:
            hidden = ACTIVATIONS[spec.activation](hidden)
        self.found[f"{path}.hidden"] = hidden
        self.found[f"{path}.out"] = self.line(hidden, f"{path}.down")
        return self.found[f"{path}.out"]


def same(found, wanted, tolerance=2e-5):
    found, wanted = np.asarray(found, dtype=float), np.asarray(wanted, dtype=float)
    return found.shape == wanted.shape and np.abs(found - wanted).max() <= tolerance * max(1, np.abs(wanted).max())


def flat(rows):
    return [part for row in rows for part in (row.parts or (row,))]

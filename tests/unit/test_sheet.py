"""The sheet's numbers against an independent computation in numpy float64, straight from the weights."""

import math

import msgspec
import numpy as np
import pytest
import torch
from sheet_models import ROPE, SPECS, loaded, model_of, of, pair, tokens_of

from glassformer.data.display import Cell
from glassformer.errors import InputError
from glassformer.explain.sheet import sheet
from glassformer.mask import pad_left
from glassformer.mixers.attention import AttentionSpec
from glassformer.nn.channel import ExpertsSpec, GatedSpec
from glassformer.nn.norm import LayerNormSpec, RMSNormSpec
from glassformer.nn.position import AlibiSpec, RelativeBiasSpec, RopeSpec
from glassformer.tap import zero
from glassformer.trace import Trace

KOREAN, ENGLISH = "고양이가 생선을 먹었다", "The quick fox jumps over it"

# ---------------------------------------------------------------- the same model, written out in numpy

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
        x = self.w["embed.token.weight"][self.ids]
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
        return x * self.w.get(f"{path}.weight", 1.0) + self.w.get(f"{path}.bias", 0.0)

    def line(self, x, path):
        return x @ self.w[f"{path}.weight"].T + self.w.get(f"{path}.bias", 0.0)

    def block(self, x, spec, path):
        post = spec.wiring == "post"
        norm = lambda x, which: x if spec.norm is None else self.norm(x, spec.norm, f"{path}.{which}")  # noqa: E731
        keep = 1.0 if spec.residual else 0.0
        read = x if post else norm(x, "mixer_norm")
        self.found |= {f"{path}.resid_in": x, f"{path}.read": read}
        y = keep * x + self.attention(read, spec.mixer, f"{path}.mixer")
        y = norm(y, "mixer_norm") if post else y
        self.found[f"{path}.resid_mid"] = y
        if spec.channel is not None:
            read = x if spec.wiring == "parallel" else y
            read = read if post else norm(read, "channel_norm")
            y = keep * y + self.channel(read, spec.channel, f"{path}.channel")
            y = norm(y, "channel_norm") if post else y
        self.found[f"{path}.resid_out"] = y
        return y

    def attention(self, x, spec, path):
        t, heads = len(x), spec.heads
        split = lambda y: y.reshape(t, -1, len(self.w[f"{path}.q.weight"]) // heads).swapaxes(0, 1)  # noqa: E731
        q, k, v = (split(self.line(x, f"{path}.{which}")) for which in "qkv")
        if spec.qk_norm is not None:
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


# ---------------------------------------------------------------- the sheet against it


@pytest.mark.parametrize("text", [KOREAN, ENGLISH])
@pytest.mark.parametrize("name", SPECS)
def test_every_number_is_that_of_the_model_written_out(name, text):
    model = loaded(SPECS[name], "byte" if name == "rope" else "bpe")
    run = model.trace(text)
    hand = ByHand(model.model, run.stacks[0].tokens[0].numpy())
    made = run.sheet(-2)
    t, h, at = made.position, made.head, made.path
    found, block = hand.found, at.rpartition(".")[0]
    for quantity, wanted in zip(made.quantities, [found[f"{block}.read"][t], *(found[f"{at}.{n}"][h, t] for n in "qkv")], strict=True):  # fmt: skip # noqa: E501
        assert same(quantity.values, wanted) and math.isclose(quantity.norm, np.linalg.norm(quantity.values))
    for row in flat(made.rows):
        (j,) = row.tokens
        assert (row.reason == "") == math.isfinite(found[f"{at}.scores"][h, t, j]) == (row.score is not None)
        assert same(row.weight, found[f"{at}.pattern"][h, t, j]) and same(row.value, found[f"{at}.v"][h, j])
        assert same(row.share_norm, row.weight * np.linalg.norm(row.value))
        if row.score is not None:
            assert same(row.dot, found[f"{at}.dots"][h, t, j]) and same(row.scaled, found[f"{at}.scaled"][h, t, j])
            assert same(row.score, found[f"{at}.scores"][h, t, j])
    assert same(made.z.values, found[f"{at}.z"][h, t])
    assert same(made.away, np.linalg.norm(found[f"{at}.z"][h, t] - found[f"{at}.v"][h, t]))
    assert same(made.moves, moves(hand, t)) if name != "mixed" else True
    check_steps(made, hand, block, t, h)
    if hand.spec.head is not None:
        p = softmax(hand.out[t])
        best = np.argsort(-p)[:8]
        assert [one.token for one in made.next] == best.tolist()
        assert same([one.probability for one in made.next], p[best])
        assert same([one.logit for one in made.next], hand.out[t][best])
    else:
        assert made.next == ()
    assert made.difference < 2e-6


def check_steps(made, hand, block, t, h):
    """The stages after the weighted sum, and how far each block took the token."""
    for step in made.steps:
        wanted = hand.found.get(step.name)
        if step.name.endswith("head_out"):
            assert same(step.values, wanted[h, t])
        elif step.name.endswith("mixer.out"):
            assert same(step.values, wanted[0, t])
        elif wanted is not None:
            assert same(step.values, wanted[t]), step.name
    names = [step.name.removeprefix(f"{block}.") for step in made.steps]
    order = ["resid_in", "mixer.head_out", "mixer.out", "resid_mid", "channel_norm.out", "channel.hidden", "channel.out", "resid_out"]  # fmt: skip # noqa: E501
    assert names == [name for name in order if name in names] and {"resid_in", "mixer.out"} <= set(names)
    start = hand.embed()[t]
    blocks = range(len(hand.spec.blocks))
    far = [np.linalg.norm(hand.found[f"blocks.{i}.resid_out"][t] - start) / np.linalg.norm(start) for i in blocks]
    assert same(made.journey, far)


def moves(hand, t):
    """|(z - v) W_O| / |x| from the formula."""
    all_moves = []
    for i, block in enumerate(hand.spec.blocks):
        at, heads = f"blocks.{i}.mixer", block.mixer.heads
        each = hand.w[f"{at}.out.weight"].reshape(hand.spec.dim, heads, -1)
        away = hand.found[f"{at}.z"][:, t] - hand.found[f"{at}.v"][:, t]
        x = np.linalg.norm(hand.found[f"blocks.{i}.resid_in"][t])
        all_moves.append([np.linalg.norm(each[:, h] @ away[h]) / x for h in range(heads)])
    return all_moves


def flat(rows):
    return [part for row in rows for part in (row.parts or (row,))]


# ---------------------------------------------------------------- S9, S11: each step from the one before


@pytest.mark.parametrize("name", SPECS)
def test_each_step_follows_from_the_one_before(name):
    made = loaded(SPECS[name]).trace(KOREAN).sheet(-2)
    q = np.array(made.quantities[1].values)
    rows = [row for row in flat(made.rows) if not row.reason]
    own = [row for row in rows if row.tokens[0] == made.position]
    assert own or name == "top-k"  # which may leave the token itself out
    assert all(same(row.dot, q @ np.array(made.quantities[2].values)) for row in own)
    assert same([row.scaled for row in rows], [row.dot * made.scale for row in rows])
    assert all((row.shift is None) == (not made.shifted) for row in rows)
    assert same([row.score for row in rows], [row.scaled + (row.shift or 0) for row in rows], 1e-12)
    scores = [row.score for row in rows] + ([made.sink_score] if made.sink_score is not None else [])
    weights = [row.weight for row in rows] + ([made.sink_weight] if made.sink_score is not None else [])
    assert same(weights, softmax(np.array(scores)))
    values = np.array([row.value for row in rows])
    assert same(made.z.values, np.array([row.weight for row in rows]) @ values)
    assert math.isclose(made.weight_sum, 1, rel_tol=1e-6)
    assert (made.sink_weight > 0) == (made.sink_score is not None) == ("sink" in name and name != "window-sinks")
    z = np.array(made.z.values)
    reach = 0.0 if made.sink_score is not None else None  # with a sink, 0 is one more corner of the hull
    for direction in np.random.default_rng(0).normal(size=(50, len(z))):
        along = values @ direction
        low, high = (along.min(), along.max()) if reach is None else (min(along.min(), 0), max(along.max(), 0))
        assert low - 1e-5 <= z @ direction <= high + 1e-5


@pytest.mark.parametrize("name", ["rope", "sink", "alibi", "window", "grouped"])
@pytest.mark.parametrize("text", [KOREAN, ENGLISH])
def test_a_word_of_several_tokens_follows_the_rule(name, text):
    made = loaded(SPECS[name], "byte").trace(text).sheet(-2)
    words = [row for row in made.rows if row.parts]
    assert words and made.position == made.tokens[-1], "the last token asks"
    for word in words:
        seen = [part for part in word.parts if not part.reason]
        assert word.tokens == tuple(part.tokens[0] for part in word.parts) and word.dot is None
        assert bool(word.reason) == (not seen) and word.reason in ("", word.parts[0].reason)
        if seen:
            assert same(word.score, np.log(sum(math.exp(part.score) for part in seen)), 1e-9)
            assert same(word.weight, sum(part.weight for part in seen), 1e-9)
            mean = sum(part.weight * np.array(part.value) for part in seen) / word.weight
            assert same(word.value, mean, 1e-9) and same(word.value_norm, np.linalg.norm(mean), 1e-9)
            assert same(word.share_norm, word.weight * word.value_norm, 1e-9)
    total = sum(row.weight * np.array(row.value) for row in made.rows)
    assert same(total, made.z.values)
    scores = [row.score for row in made.rows if row.score is not None]
    scores += [made.sink_score] if made.sink_score is not None else []
    assert same(
        [row.weight for row in made.rows if row.score is not None],
        softmax(np.array(scores))[: sum(row.score is not None for row in made.rows)],
    )


def test_float64_runs_are_shown_with_all_their_digits():
    model = loaded(SPECS["biases"])  # without RoPE, whose angles are worked out in fp32
    model.model.double()
    run = model.trace(KOREAN)
    hand, made = ByHand(model.model, run.stacks[0].tokens[0].numpy()), run.sheet()
    assert made.dtype == "float64" and made.difference < 1e-14
    assert same(made.z.values, hand.found[f"{made.path}.z"][made.head, made.position], 1e-13)
    assert same([one.logit for one in made.next], np.sort(hand.out[-1])[::-1][:8], 1e-13)


def test_bfloat16_has_no_shift_from_rounding():
    model = loaded()
    model.model.bfloat16()
    made = model.trace(KOREAN).sheet()
    assert made.dtype == "bfloat16" and not made.shifted and 1e-6 < made.difference < 2e-2
    rows = flat(made.rows)
    assert all(row.scaled == row.score for row in rows)
    assert same([row.scaled for row in rows], [row.dot * made.scale for row in rows], 1e-2)


# ---------------------------------------------------------------- masks


def test_why_a_row_is_dark():
    def reasons(spec, **given):
        return [row.reason for row in flat(loaded(spec, "char").trace("고양이가먹다").sheet(**given).rows)]

    assert reasons(SPECS["rope"], token=3, by="token") == [""] * 4 + ["future"] * 3
    assert reasons(SPECS["full"], token=3, by="token") == [""] * 7
    assert reasons(SPECS["window"], token=-1, by="token") == ["outside the window"] * 3 + [""] * 4
    assert reasons(SPECS["window-sinks"], token=5, by="token") == ["", *["outside the window"] * 2, *[""] * 3, "future"]
    assert reasons(SPECS["stride"], token=3, by="token") == ["", *["off the stride"] * 2, "", *["future"] * 3]
    assert reasons(SPECS["segment"], token=6, by="token") == [*["before the memory"] * 5, "", ""]
    assert sorted(reasons(SPECS["top-k"], token=6, by="token")) == [*[""] * 3, *["not among the largest"] * 4]
    assert reasons(SPECS["prefix"], token=1, by="token") == [""] * 4 + ["future"] * 3
    assert loaded(SPECS["prefix"]).trace(KOREAN).sheet().causal
    assert not loaded(SPECS["full"]).trace(KOREAN).sheet().causal


def numbered(ids):
    return [Cell(str(token), (i,), 0, 0, str(token)) for i, token in enumerate(ids)]


def test_padding_and_other_documents_are_named():
    model = model_of(SPECS["rope"])
    tokens, pos = pad_left([[3, 1, 4], [1, 5, 9, 2, 6]])
    run = Trace(model, tokens, pos=pos)
    groups = numbered(tokens[0].tolist())
    made = sheet(run, groups, 3)
    assert [row.reason for row in made.rows] == ["padding", "padding", "", "", "future"]
    assert same(made.weight_sum, 1) and made.rows[0].weight == 0
    alone = sheet(Trace(model, torch.tensor([[3, 1, 4]])), numbered([3, 1, 4]), 1, layer=made.layer, head=made.head)
    assert same(made.z.values, alone.z.values) and same(made.moves, alone.moves) and same(made.journey, alone.journey)
    with pytest.raises(InputError, match="place 1 is padding"):
        sheet(run, groups, 1)
    packed = Trace(model, tokens[1:], pos=torch.tensor([[0, 1, 2, 0, 1]]), segments=torch.tensor([[0, 0, 0, 1, 1]]))
    made = sheet(packed, numbered(tokens[1].tolist()), 4)
    assert [row.reason for row in made.rows] == ["other document"] * 3 + ["", ""]
    assert same([row.weight for row in made.rows[:3]], [0, 0, 0])
    made = sheet(packed, numbered(tokens[1].tolist()), 1)
    assert [row.reason for row in made.rows] == ["", "", "future", "other document", "other document"]


# ---------------------------------------------------------------- which head, which layer


def test_the_default_head_moves_the_token_most():
    run = loaded().trace(KOREAN)
    made = run.sheet("생선을")
    table = np.array(made.moves)
    assert table.shape == (2, 4) and (made.layer, made.head) == np.unravel_index(table.argmax(), table.shape)
    assert made.chosen == ()
    other = 1 - made.layer
    assert (run.sheet("생선을", layer=other).head, run.sheet("생선을", layer=other).layer) == (
        table[other].argmax(),
        other,
    )
    for head in range(4):
        chosen = run.sheet("생선을", head=head)
        assert (chosen.layer, chosen.head, chosen.chosen) == (table[:, head].argmax(), head, ("head",))
    both = run.sheet("생선을", layer=0, head=2)
    assert (both.layer, both.head, both.chosen, both.moves) == (0, 2, ("layer", "head"), made.moves)
    first = run.sheet(0)
    assert (first.layer, first.head, first.special) == (0, 0, True) and np.abs(first.moves).max() < 1e-6


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"layer": 2}, r"there is no layer 2; this model has 2 \(0 to 1\)"),
        ({"layer": -1}, "there is no layer -1"),
        ({"head": 4}, r"there is no head 4; this model has 4 \(0 to 3\)"),
        ({"token": "강아지"}, "not in this text; its rows are: 0 .*, 1 고양이가, 2 생선을, 3 먹었다"),
        ({"token": 4}, r"there is no row 4; this text has 4 \(0 to 3\)"),
        ({"by": "wrod"}, "did you mean word"),
    ],
)
def test_what_does_not_exist_is_listed(given, message):
    with pytest.raises(InputError, match=message):
        loaded().trace(KOREAN).sheet(**given)


def test_layers_of_different_width():
    run = loaded(SPECS["mixed"]).trace(KOREAN)
    assert [len(row) for row in run.sheet().moves] == [2, 8]
    assert run.sheet(head=7).layer == 1
    with pytest.raises(InputError, match=r"there is no head 7; this model has 2 \(0 to 1\)"):
        run.sheet(layer=0, head=7)
    with pytest.raises(InputError, match=r"there is no head 8; this model has 8 \(0 to 7\)"):
        run.sheet(head=8)


# ---------------------------------------------------------------- the rest


def test_formulas_and_symbols_are_those_of_the_layer():
    def shown(spec):
        made = loaded(spec).trace(KOREAN).sheet()
        return [q.formula for q in made.quantities], [step.symbol for step in made.steps]

    formulas, symbols = shown(SPECS["qk-norm"])
    assert formulas == ["x/rms(x) · w", "R_i norm(x_i W_Q)", "R_j norm(x_j W_K)", "x_j W_V"]
    assert symbols[0] == "x" and symbols[-1] == "x + FFN"
    assert shown(SPECS["biases"])[0] == ["(x−μ)/σ · w + b", "x_i W_Q + b", "x_j W_K + b", "x_j W_V + b"]
    assert shown(SPECS["smear"])[0][2] == "R_j smear(x_j W_K)"
    assert shown(SPECS["post"])[1][3:] == ["norm(x + MultiHead)", "σ(xW₁+b₁)", "FFN(x)", "norm(x + FFN)"]
    assert shown(SPECS["parallel"])[1][-1] == "x + MultiHead + FFN"
    assert shown(SPECS["no-channel"])[1] == ["x", "z_i W_O", "MultiHead", "x + MultiHead"]
    assert shown(SPECS["no-residual"])[1][3] == "MultiHead" and shown(SPECS["no-residual"])[1][-1] == "FFN"
    assert "σ(xW_g)⊙xW₁" in shown(SPECS["gated"])[1] and "σ(xW₁)" in shown(SPECS["relu2"])[1]


def test_widths_and_experts():
    relu2 = loaded(SPECS["relu2"]).trace(KOREAN).sheet()
    hidden = next(step for step in relu2.steps if step.name.endswith("hidden"))
    assert relu2.widths == (16, 24, 16) and len(hidden.values) == 24
    assert relu2.active == np.mean(np.array(hidden.values) > 0) and 0 < relu2.active < 1
    made = loaded(SPECS["experts"]).trace(KOREAN).sheet()
    assert len(made.experts) == 3 and sum(w > 0 for w in made.experts) == 2 and same(sum(made.experts), 1)
    assert made.widths == (16, 48, 16) and made.active is None
    bare = loaded(SPECS["no-channel"]).trace(KOREAN).sheet()
    assert bare.widths == () and bare.active is None and bare.experts == []


def test_a_pair_shows_the_decoder():
    run = loaded(pair()).trace((ENGLISH, KOREAN))
    made = run.sheet("먹었다")
    assert made.path.startswith("decoder.blocks.") and made.text == KOREAN and run.text == KOREAN
    names = [step.name.rpartition(made.path.removesuffix("mixer"))[2] for step in made.steps]
    assert names[3:6] == ["resid_mid", "cross.out", "resid_cross"]
    assert same(made.weight_sum, 1) and len(made.next) == 8 and made.difference < 2e-6
    logits = run.model(run.stacks[0].tokens, run.stacks[1].tokens)[0, made.position]
    assert made.next[0].token == logits.argmax().item()


def test_an_edit_shows_in_the_sheet():
    model = loaded()
    made = model.trace(KOREAN, edits=[zero("blocks.0.mixer.z", h=1)]).sheet(layer=0, head=1)
    assert made.z.norm == 0 and made.next != model.trace(KOREAN).sheet(layer=0, head=1).next


def test_numbers_that_are_none_are_refused():
    model = loaded()
    with torch.no_grad():
        model.model.blocks[1].channel.up.weight[0, 0] = torch.nan
    with pytest.raises(InputError, match="not finite from block 1 on: the model is broken or its training diverged"):
        model.trace(KOREAN).sheet()


def test_json_has_all_digits_and_no_nan():
    for name in ("rope", "sink", "window", "experts", "no-head"):
        made = loaded(SPECS[name], "byte").trace(KOREAN).sheet(-2)
        assert msgspec.json.decode(msgspec.json.encode(made), type=type(made)) == made  # NaN and inf would be null


def test_start_and_typed_end_tokens_are_told_apart():
    run = loaded().trace("a <|end|> b")
    made = run.sheet()
    assert [row.special for row in made.rows] == [True] + [False] * (len(made.rows) - 1)
    assert "<|end|>" in [row.label for row in made.rows[1:]]
    assert not any(row.special for row in loaded().trace("a b", start=False).sheet().rows)


def test_a_model_without_a_tokenizer_shows_numbers():
    model = loaded()
    model.tokenizer = None
    made = model.trace([5, 7, 9]).sheet(1)
    assert [row.label for row in made.rows] == ["5", "7", "9"] and not made.special
    assert [one.label for one in made.next] == [str(one.token) for one in made.next]


def test_the_first_row_of_a_batch_is_shown():
    model = model_of(of(ROPE))
    tokens = tokens_of(3, 6)
    both = sheet(Trace(model, tokens), numbered(tokens[0].tolist()), 4)
    one = sheet(Trace(model, tokens[:1]), numbered(tokens[0].tolist()), 4)
    assert same(both.z.values, one.z.values) and same(both.moves, one.moves)


def test_attention_alone_can_be_shown():
    made = loaded(of(AttentionSpec(heads=1), norm=RMSNormSpec())).trace("a").sheet()
    assert made.length == 2 and len(made.rows) == 2


def test_candidates_and_rows_hold_their_exact_text():
    """The piece ' cat' begins a word and 'cat' does not; a view must be able to tell."""
    made = loaded(method="bpe")
    sheet = made.trace(KOREAN).sheet(top=made.tokenizer.vocab_size)
    for one in sheet.next:
        assert one.special or one.text == made.tokenizer.decode([one.token])
        assert one.special or one.label.startswith("␠") == one.text.startswith(" ")
    assert any(one.text.startswith(" ") and one.text.strip() for one in sheet.next)
    assert len({one.label for one in sheet.next}) == len(sheet.next)
    assert "".join(row.text for row in sheet.rows) == KOREAN
    assert [row.label for row in sheet.rows[1:]] == KOREAN.split()
    assert (sheet.row, sheet.rows[sheet.row].label) == (3, "먹었다")


@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_candidates_that_are_no_numbers_are_refused(wrong):
    made = loaded(method="byte")
    with torch.no_grad():
        made.model.head.weight[3, 1] = wrong
    with pytest.raises(InputError, match="not finite after the last block"):
        made.trace(KOREAN).sheet()

"""What a mixer's output is made of, against the sum written out by hand."""

import msgspec
import pytest
import torch
from page_runs import runs
from sheet_models import SPECS, loaded, pair, stack
from torch.utils._python_dispatch import TorchDispatchMode

import glassformer as gf
from glassformer.data.display import Cell
from glassformer.errors import InputError, SettingError
from glassformer.explain import contributions
from glassformer.explain.explained import EXPLANATIONS, available
from glassformer.explain.explanation import Explanation
from glassformer.mixers.conv import ConvSpec
from glassformer.model import BlockSpec

TEXT = "고양이가 생선을 먹었다"
RUNS = runs()


def by_hand(run, layer=0, part="mixer"):
    """‖Σ_h α_hts v_s W_O^h‖ `t s` of the model's own weights, in fp64."""
    at = f"{run.stacks[-1].prefix}blocks.{layer}.{part}"
    mixer = run.model.get_submodule(at)
    pattern, values = run[f"{at}.pattern"][0].double(), run[f"{at}.v"][0].double()
    out = mixer.out.weight.detach().double().view(-1, mixer.heads, mixer.width)
    parts = torch.zeros(*pattern.shape[1:], out.shape[0], dtype=torch.float64)
    for h in range(mixer.heads):
        handed = values[:, h * mixer.groups // mixer.heads] @ out[:, h].mT
        parts += pattern[h, :, :, None] * handed[None]
    return parts


def table(figure):
    return torch.tensor([[0.0 if x is None else x for x in row] for row in figure.values], dtype=torch.float64)


@pytest.mark.parametrize("name", ["rope", "grouped", "one-key-head", "biases", "sink", "softcap", "post", "head-dim"])
def test_attention_hands_over_values_through_its_output_projection(name):
    run = loaded(SPECS[name]).trace(TEXT)
    one = gf.explain("flow", run, layer=1)
    wanted = by_hand(run, 1)
    assert torch.allclose(table(one.figure("mixing")), wanted.norm(dim=-1), rtol=1e-6, atol=1e-9)
    for figure, value in (("before", "resid_in"), ("mixed", "mixer.out"), ("after", "resid_out")):
        lengths = run[f"blocks.1.{value}"][0].double().norm(dim=-1)
        assert one.figure(figure).values == pytest.approx(lengths.tolist(), rel=1e-6)
    [check] = one.checks
    assert check.passed and 0 < check.value < 1e-5


class Written(TorchDispatchMode):
    """The largest tensor in fp64 that is written, in numbers."""

    def __init__(self):
        super().__init__()
        self.largest = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if isinstance(out, torch.Tensor) and out.dtype == torch.float64:
            self.largest = max(self.largest, out.numel())
        return out


def test_vectors_of_all_heads_of_all_tokens_are_never_held():
    """Of single tokens and of groups of many, with room for the products of their vectors and without."""
    n, heads, dim, some = 200, 4, 16, [3, 150]
    model, ids = loaded(SPECS["grouped"]), [3 + k % 20 for k in range(n)]
    singles = [Cell(str(t), (t,), t, t + 1, "") for t in range(n)]
    groups = [Cell("all", tuple(range(n)), 0, n, ""), Cell("three", (1, 2, 100), 1, 2, ""), *singles[:2]]
    wanted = by_hand(model.trace(ids), 1)[some]
    for limit in (1 << 30, 1 << 18):  # room for the products of 16 vectors with each other, and of 10
        run = model.trace(ids, limit_bytes=limit)
        for cells in (singles, groups):
            parts = torch.stack([wanted[:, list(cell.tokens)].sum(1) for cell in cells], 1)
            with Written() as written:
                found = contributions.contributions(run, run.stacks[-1], "blocks.1.mixer", cells, rows=some)
            assert torch.allclose(found.norms, parts.norm(dim=-1), rtol=1e-5, atol=1e-6)
            assert torch.allclose(found.total, wanted.sum(1), rtol=1e-5, atol=1e-6)
            assert written.largest < n * heads * dim, limit


@pytest.mark.parametrize("name", ["after", "sandwich"])
def test_behind_a_norm_the_parts_are_scaled_as_the_whole(name):
    run = loaded(SPECS[name]).trace(TEXT)
    one = gf.explain("flow", run)
    norm = run.model.blocks[0].mixer_out_norm
    out, parts = run["blocks.0.mixer.out"][0].double(), by_hand(run)
    if name == "after":  # LayerNorm takes the mean from every part
        out, parts = out - out.mean(-1, keepdim=True), parts - parts.mean(-1, keepdim=True)
    scale = (out.square().mean(-1) + norm.spec.eps).rsqrt()
    wanted = (parts * scale[:, None, None] * norm.gain.detach().double()).norm(dim=-1)
    assert torch.allclose(table(one.figure("mixing")), wanted, rtol=1e-5)
    assert one.checks[0].passed


@pytest.mark.parametrize(
    "edit", [gf.zero("blocks.0.mixer.z", h=1), gf.scale("blocks.0.mixer.head_out", 0.5, h=[0, 2], t=3)]
)
def test_a_head_that_is_switched_off_hands_over_nothing(edit):
    run = loaded().trace(TEXT, edits=edit)
    mixer = run.model.blocks[0].mixer
    pattern, values = run["blocks.0.mixer.pattern"][0].double(), run["blocks.0.mixer.v"][0].double()
    left = torch.ones(4, len(values), dtype=torch.float64)
    if edit.kind == "zero":
        left[1] = 0
    else:
        left[[0, 2], 3] = 0.5
    out = mixer.out.weight.detach().double().view(-1, 4, mixer.width)
    wanted = torch.einsum("ht,hts,she,dhe->tsd", left, pattern, values, out).norm(dim=-1)
    one = gf.explain("flow", run)
    assert torch.allclose(table(one.figure("mixing")), wanted, rtol=1e-6, atol=1e-9) and one.checks[0].passed
    other = gf.explain("flow", loaded().trace(TEXT, edits=gf.add("blocks.0.mixer.z", 1.0)))
    whole = torch.einsum("hts,she,dhe->tsd", pattern, values, out.unflatten(0, (-1,))).norm(dim=-1)
    assert torch.allclose(table(other.figure("mixing")), whole, rtol=1e-5, atol=1e-7)  # what is added is from no token
    assert other.checks[0].passed and min(other.figure("rest").values) > 0.1


def test_a_words_part_is_that_of_all_its_tokens_and_what_cannot_be_seen_is_none():
    run = loaded().trace(TEXT)
    words, figure = run.cells("word"), gf.explain("flow", run, by="word").figure("mixing")
    parts = by_hand(run)
    assert figure.columns == tuple(cell.text for cell in words) and any(len(cell.tokens) > 1 for cell in words)
    for i, row in enumerate(words):
        for j, column in enumerate(words):
            wanted = parts[row.tokens[-1], list(column.tokens)].sum(0).norm().item()
            assert figure.values[i][j] is None if j > i else figure.values[i][j] == pytest.approx(wanted, rel=1e-6)


def test_cross_attention_has_a_map_of_its_own():
    model = loaded(pair())
    run = model.trace(("생선을", "먹었다"))
    one = gf.explain("flow", run)
    wanted = by_hand(run, 0, "cross").norm(dim=-1)
    assert torch.allclose(table(one.figure("looking")), wanted, rtol=1e-6)
    assert [check.name for check in one.checks] == ["closure", "closure_source"]
    assert all(check.passed for check in one.checks)
    encoder = gf.explain("flow", run, stack=0).figure("mixing")
    assert len(encoder.columns) == run.stacks[0].length and None not in encoder.values[0]


def test_a_layer_without_a_residual_says_so_and_what_it_reads_of_the_source():
    run = gf.load("korean-g2p").trace("국물")
    one = gf.explain("flow", run, layer=2)
    at = "decoder.blocks.2.mixer"
    for name, value, title in (
        ("mixed", f"{at}.out", "토큰 믹서가 대신하는 값"),
        ("looked", f"{at}.cross.context", "토큰 믹서가 원문에서 읽는 값"),
    ):
        figure = one.figure(name)
        assert figure.title.ko == title
        assert figure.values == pytest.approx(run[value][0].double().norm(dim=-1).tolist(), rel=1e-6)
    # tanh(W [x; c] + b) held still is its slope tanh(u) / u times what is within, of which c and b come from no token.
    mixer = run.model.get_submodule(at)
    x, c = (run[f"decoder.blocks.2.{name}"][0].double() for name in ("resid_in", "mixer.context_norm.out"))
    of_x, of_c = mixer.out.weight.double().split((x.shape[1], c.shape[1]), 1)
    wanted = c @ of_c.mT + mixer.out.bias.double()
    u = x @ of_x.mT + wanted
    wanted, rest = u.tanh() / u * wanted, one.figure("rest")
    assert rest.values == pytest.approx(wanted.norm(dim=-1).tolist(), rel=1e-5) and "source" in rest.title.en
    assert gf.explain("flow", run, layer=0).figure("mixed").title.ko == "토큰 믹서가 더하는 값"


def test_a_linear_layer_without_biases_is_taken_apart_by_its_own_weights():
    """A convolution: what s hands to t is W_(t-s) x_s; its sources go through in as many turns as its kernel has."""
    block = BlockSpec(mixer=ConvSpec(width=3, dilation=2, bias=False))
    run = loaded(stack(block, block)).trace("고양이가 생선을 먹었다. 고양이가 생선을 또 먹었다")
    for by in ("token", "word"):
        one, cells = gf.explain("flow", run, layer=1, by=by), run.cells(by)
        x, mixer = run["blocks.1.mixer_norm.out"][0].double(), run.model.blocks[1].mixer
        parts = torch.zeros(len(x), len(x), len(x[0]), dtype=torch.float64)
        for t in range(len(x)):
            for step in range(min(3, t // 2 + 1)):
                parts[t, t - 2 * step] = mixer.conv.weight[:, :, 2 - step].detach().double() @ x[t - 2 * step]
        wanted = torch.stack([parts[:, list(cell.tokens)].sum(1).norm(dim=-1) for cell in cells], 1)
        rows = [cell.tokens[-1] for cell in cells]
        assert torch.allclose(table(one.figure("mixing")), wanted[rows], rtol=1e-6, atol=1e-9)
        assert one.checks[0].value < 1e-5 and one.checks[0].passed and "J_ts" in one.claim.en


def test_a_recurrence_is_taken_apart_with_its_gates_and_slopes_held_still():
    """A GRU: h_t = (1 - z_t) tanh(p)/p (W_n x_t + r_t U_n h_{t-1}) + z_t h_{t-1}, each source by itself."""
    run = RUNS["gru"]()
    at, mixer = "blocks.0.mixer", run.model.blocks[0].mixer
    x, n = run["blocks.0.resid_in"][0].double(), mixer.cell.width
    weight, recurrent = (one.detach().double()[2 * n :] for one in (mixer.cell.weight, mixer.cell.recurrent))
    bias, carried = mixer.cell.bias.detach().double()[2 * n :], mixer.cell.recurrent_bias.detach().double()
    r, z, h = (run[f"{at}.cell.{name}"][0].double() for name in ("reset", "update", "hidden"))
    past = torch.cat((torch.zeros(1, n).double(), h[:-1]))
    pre = x @ weight.T + bias + r * (past @ recurrent.T + carried)
    parts = torch.zeros(len(x), len(x), n).double()
    state = torch.zeros(len(x), n).double()  # what each source has left in it
    for t in range(len(x)):
        read = torch.zeros_like(state)
        read[t] = x[t] @ weight.T
        state = (1 - z[t]) * torch.tanh(pre[t]) / pre[t] * (read + r[t] * (state @ recurrent.T)) + z[t] * state
        parts[t] = state
    wanted = parts if mixer.out is None else parts @ mixer.out.weight.detach().double().T
    one = gf.explain("flow", run)
    assert torch.allclose(table(one.figure("mixing")), wanted.norm(dim=-1), rtol=1e-5, atol=1e-8)
    assert one.checks[0].passed and "J_ts x_s" in one.claim.en


def test_attention_is_pushed_through_without_a_change_for_other_threads():
    """A server explains in several threads at once; what sdpa_kernel switches is switched for all of them."""
    x, moved, told = torch.randn(1, 2, 5, 4).double(), torch.randn(1, 2, 5, 4).double(), []

    def forward(x):
        told.append((torch.backends.cuda.flash_sdp_enabled(), torch.backends.cuda.math_sdp_enabled()))
        return torch.nn.functional.scaled_dot_product_attention(x, 2 * x, x, is_causal=True)

    wanted = torch.einsum("bhtdcise,cise->bhtd", torch.autograd.functional.jacobian(forward, x), moved)
    assert torch.allclose(contributions._pushed(lambda x: (forward(x), []), x, moved), wanted, rtol=1e-9, atol=1e-12)
    assert len(told) == 2 and told[0] == told[1]


def test_gates_and_norms_of_a_state_space_layer_are_frozen():
    """Mamba: Σ_s w_tfs x_sf, with D x_t for itself, times the gate, through W_O; by hand."""
    run = RUNS["mamba"]()
    at, mixer = "blocks.1.mixer", run.model.blocks[1].mixer
    weights, x = run[f"{at}.weights"][0].double(), run[f"{at}.x"][0].double()
    parts = torch.einsum("fts,sf->tsf", weights, x)
    for t in range(len(x)):
        parts[t, t] += mixer.skip.detach().double() * x[t]
    parts = (parts * run[f"{at}.gate"][0].double()[:, None]) @ mixer.out.weight.detach().double().mT
    found = table(gf.explain("flow", run, layer=1).figure("mixing"))
    assert torch.allclose(found, parts.norm(dim=-1), rtol=1e-6, atol=1e-9)


ROWED = ["rope", "pair-post", "sandwich", "gru", "conv", "mamba", "mamba2", "linear", "bahdanau", "fnet", "bag"]


@pytest.mark.parametrize("name", [name for name in ROWED if name in RUNS])
def test_rows_alone_are_those_of_the_whole(name):
    run = RUNS[name]()
    whole, some = gf.explain("flow", run), gf.explain("flow", run, rows="3,-5")
    n = len(whole.figure("mixing").rows)
    for one in some.figures:
        full = whole.figure(one.name)
        assert len(one.values) == 2
        for row, i in zip(one.values, (3, -5 % n), strict=True):
            for given, wanted in zip(
                *((x if isinstance(x, list) else [x]) for x in (row, full.values[i])), strict=True
            ):
                assert (given is None) == (wanted is None) and (
                    wanted is None or given == pytest.approx(wanted, rel=1e-5)
                )
    assert [check.passed for check in some.checks] == [check.passed for check in whole.checks]


def test_rows_that_do_not_exist_are_refused(monkeypatch):
    run = loaded().trace(TEXT)
    monkeypatch.setattr("glassformer.explain.kinds.flow.MOST", 3)
    with pytest.raises(InputError, match="is too large; say which rows, as rows=3,7"):
        gf.explain("flow", run)
    monkeypatch.undo()
    with pytest.raises(InputError, match="rows: 'x' is not allowed; use whole numbers with commas between"):
        gf.explain("flow", run, rows="x")
    with pytest.raises(InputError, match="rows: there is no place 99; there are"):
        gf.explain("flow", run, rows="1,99")


def test_settings_come_from_an_address_too_and_are_refused_by_name():
    run = loaded().trace(TEXT)
    assert gf.explain("flow", run, layer="1", by="word") == gf.explain("flow", run, layer=1, by="word")
    assert gf.explain("flow", loaded(), TEXT) == gf.explain("flow", run)
    for settings, said in (
        ({"layer": "x"}, "layer: 'x' is not allowed; use a whole number"),
        ({"laier": 1}, "laier: unknown setting 'laier'; did you mean layer?"),
        ({"by": "line"}, "by: 'line' is not allowed; use character, word, token"),
    ):
        with pytest.raises(SettingError) as raised:
            gf.explain("flow", run, **settings)
        assert str(raised.value) == said
    for name, settings, said in (("flaw", {}, "did you mean flow"), ("flow", {"layer": 9}, "there is no layer 9")):
        with pytest.raises(InputError, match=said):
            gf.explain(name, run, **settings)
    with pytest.raises(InputError, match="a trace has one already"):
        gf.explain("flow", run, TEXT)
    with pytest.raises(InputError, match="give a text as well"):
        gf.explain("flow", loaded())


def test_the_python_line_gives_the_same_and_json_keeps_it():
    run = loaded().trace(TEXT)
    texts = ["생선을 보았다", "생선을 샀다", "고양이가 잤다"]
    more = {"two": {"second": texts[0]}, "neurons": {"texts": texts}, "contexts": {"texts": texts, "word": "생선을"}}
    for name, _ in available(run):
        one = gf.explain(name, run, **more.get(name, {}))
        assert eval(one.python, {"gf": gf, "trace": run}) == one and one.name == name
        assert msgspec.json.decode(msgspec.json.encode(one), type=Explanation) == one
        assert len({figure.name for figure in one.figures}) == len(one.figures) > 0
        assert one.title == EXPLANATIONS[name].title and one.claim.en and one.claim.ko


def test_work_can_be_cancelled_and_tells_how_far_it_is():
    run, told = loaded().trace(TEXT), []
    gf.explain("influence", run, report=lambda done, of: told.append((done, of)))
    assert told and all(0 <= done < of for done, of in told)

    class Enough(Exception):
        pass

    def enough(done, of):
        raise Enough

    for name in ("flow", "influence"):
        with pytest.raises(Enough):
            gf.explain(name, run, report=enough)

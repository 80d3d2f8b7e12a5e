"""The numbers of explanations against arithmetic written out here."""

import math
import re

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from page_runs import runs
from sheet_models import SPECS, loaded, of, pair, stack

import glassformer as gf
from glassformer.api import Loaded
from glassformer.block import BlockSpec
from glassformer.errors import InputError, SettingError, UnsupportedError
from glassformer.explain.explained import available
from glassformer.explain.explainer import cells_of, names_of
from glassformer.mask import Mask
from glassformer.mixers.attention import AttentionSpec, CrossSpec
from glassformer.mixers.conv import ConvSpec

TEXT, SECOND = "고양이가 생선을 먹었다", "생선을 고양이가 보았다"
RUNS = runs()


@pytest.fixture(scope="module")
def run():
    return loaded().trace(TEXT)


def rows(figure):
    return [list(row) for row in figure.rows]


# ---------------------------------------------------------------- weights, heads, sight


def test_weights_are_the_traces_own(run):
    figure = gf.explain("weights", run, layer=1, head=2).figure("weights")
    assert figure.value == "blocks.1.mixer.pattern" and figure.where == {"b": 0, "h": 2} and figure.scale == "share"
    pattern = run[figure.value][0, 2]
    for t, row in enumerate(figure.values):
        assert row[: t + 1] == pytest.approx(pattern[t, : t + 1].tolist(), rel=1e-6)
        assert row[t + 1 :] == [None] * (len(row) - t - 1) and figure.reasons[t][t + 1 :] == ["future"] * (
            len(row) - t - 1
        )
    mean = gf.explain("weights", run).figure("weights")
    assert mean.values[-1] == pytest.approx(run["blocks.0.mixer.pattern"][0, :, -1].mean(0).tolist(), rel=1e-6)
    assert mean.value == ""
    words = gf.explain("weights", run, by="word", head=0).figure("weights")
    cells = run.cells("word")
    own = run["blocks.0.mixer.pattern"][0, 0, cells[-1].tokens[-1]]
    assert words.values[-1] == pytest.approx([own[list(cell.tokens)].sum().item() for cell in cells], rel=1e-5)


@pytest.mark.parametrize("factor", [0.0, 0.5, 2.0])
def test_weights_that_do_not_sum_to_one_are_told(factor):
    """More and less alike; beside a sink a row may have less, and never more."""
    for name, passed in (("rope", False), ("sink", factor < 1)):
        model = loaded(SPECS[name])
        whole = gf.explain("weights", model.trace(TEXT), layer=0, head=1).checks[0]
        assert whole.passed and (whole.value < 1e-5 if name == "rope" else whole.value < 0)
        broken = model.trace(TEXT, edits=gf.scale("blocks.0.mixer.pattern", factor))
        [check] = gf.explain("weights", broken, layer=0, head=1).checks
        assert check.passed is passed and ("sink" in check.said.en) is (name == "sink")
    path = "decoder.blocks.1.cross.pattern"
    one = gf.explain("alignment", loaded(pair()).trace(("생선을", "먹었다"), edits=gf.scale(path, factor)))
    assert one.checks[0].passed is False and one.checks[0].value == pytest.approx(abs(factor - 1), rel=1e-3)


def test_what_a_sink_takes_is_its_share_of_the_softmax():
    """Of the text and of a source, of one head and of all, also of rows alone; where there is none, no figure of it."""
    pairs = loaded(pair(CrossSpec(kv_heads=1, sink=True), "post")).trace(("생선을", "먹었다"))
    single = loaded(SPECS["sink"]).trace(TEXT, edits=gf.scale("blocks.1.mixer.pattern", 0.5))
    for trace, path, looked in ((single, "blocks.1.mixer", ""), (pairs, "decoder.blocks.1.cross", "source")):
        sink = np.exp(trace.model.get_submodule(path).sink.detach().double().numpy())[:, None]
        scores = trace[f"{path}.scores"][0].double().numpy()  # h t s
        share = sink / (sink + np.exp(scores).sum(-1))
        assert share.max() > 0.1 and share.std() > 0.01
        for head, wanted in ((None, share.mean(0)), (1, share[1])):
            one = gf.explain("weights", trace, layer=1, head=head, of=looked).figure("sink")
            assert one.values == pytest.approx(wanted.tolist(), rel=1e-6, abs=1e-9) and len(one.tokens) == len(wanted)
            few = gf.explain("weights", trace, layer=1, head=head, of=looked, rows="2,-1")
            assert few.figure("sink").values == pytest.approx([one.values[2], one.values[-1]], rel=1e-6, abs=1e-9)
            whole = gf.explain("weights", trace, layer=1, head=head, of=looked).figure("weights")
            for found, row in zip(few.figure("weights").values, (2, -1), strict=True):
                assert np.allclose(np.array(found, float), np.array(whole.values[row], float), 1e-6, equal_nan=True)
            assert whole.reasons is None or few.figure("weights").reasons == [whole.reasons[2], whole.reasons[-1]]
    assert [one.name for one in gf.explain("weights", loaded().trace(TEXT)).figures] == ["weights"]


def test_weights_of_a_source_and_of_signed_layers():
    figure = gf.explain("weights", loaded(pair()).trace(("생선을", "먹었다")), of="source", head=1).figure("weights")
    assert figure.value == "decoder.blocks.0.cross.pattern" and figure.reasons is None
    assert [sum(row) for row in figure.values] == pytest.approx([1.0] * len(figure.rows))
    mamba = RUNS["mamba"]()
    signed = gf.explain("weights", mamba, head=3).figure("weights")
    assert signed.where == {"b": 0, "f": 3}
    assert signed.values[4][2] == pytest.approx(mamba["blocks.0.mixer.weights"][0, 3, 4, 2].item(), rel=1e-6)
    with pytest.raises(UnsupportedError, match="layer 0 has no weights of its own"):
        gf.explain("weights", RUNS["bahdanau"](), layer=0, of="text")
    with pytest.raises(UnsupportedError, match="does not apply"):
        gf.explain("weights", RUNS["lstm"]())


def test_maps_hold_the_largest_weight_of_each_field():
    run = loaded().trace((TEXT + " ") * 15)
    n = run.stacks[0].length
    assert n > 128
    one = gf.explain("maps", run, layer=1, size=10)
    assert [figure.name for figure in one.figures] == ["head_0", "head_1", "head_2", "head_3"]
    ends = [i * n // 10 for i in range(11)]
    for h, figure in enumerate(one.figures):
        pattern = run["blocks.1.mixer.pattern"][0, h]
        for i in range(10):
            for j in range(10):
                field = pattern[ends[i] : ends[i + 1], ends[j] : ends[j + 1]]
                assert figure.values[i][j] == (None if j > i else pytest.approx(field.max().item(), rel=1e-5))
    assert figure.rows[0] == f"0–{ends[1] - 1}"
    assert gf.explain("maps", run, layer=1, size=10) == gf.explain("maps", run, layer="1", size="10")
    with pytest.raises(SettingError, match="size: 0 is not allowed; use a number from 1 to 128"):
        gf.explain("maps", run, size=0)
    with pytest.raises(UnsupportedError, match="does not apply"):
        gf.explain("maps", loaded().trace(TEXT))


def test_heads_are_measured_by_hand():
    model = loaded()
    run = Loaded(model.model, name="x").trace([3, 7, 1, 7, 5, 7, 1])
    ids, table = [3, 7, 1, 7, 5, 7, 1], rows(gf.explain("heads", run).figure("heads"))
    assert [row[:2] for row in table] == [[i, h] for i in range(2) for h in range(4)]
    for layer, head, *found in table:
        pattern = run[f"blocks.{layer}.mixer.pattern"][0, head].double().numpy()
        asked = range(1, len(ids))
        with np.errstate(divide="ignore"):
            logs = np.where(pattern > 0, np.log2(pattern), 0.0)
        equal = [t for t in asked if ids[t] in ids[:t]]
        behind = [t for t in asked if ids[t] in ids[: t - 1]]  # one that is equal, and another after it
        wanted = [
            np.mean([-(pattern[t] * logs[t]).sum() for t in asked]),
            np.mean([sum(pattern[t, s] * (t - s) for s in range(t + 1)) for t in asked]),
            np.mean([pattern[t, t - 1] for t in asked]),
            np.mean([pattern[t, 0] for t in asked]),
            np.mean([pattern[t, t] for t in asked]),
        ]
        assert found[:5] == pytest.approx(wanted, rel=1e-5)
        mass = [sum(pattern[t, s] for s in range(t) if ids[s] == ids[t]) for t in equal]
        assert found[5] == pytest.approx(np.mean(mass), rel=1e-5)
        mass = [sum(pattern[t, s] for s in range(1, t) if ids[s - 1] == ids[t]) for t in behind]
        assert found[6] == pytest.approx(np.mean(mass), rel=1e-5)
        best = max(found[2:7])
        names = ("previous", "first", "self", "equal", "behind")
        assert found[7] == (names[found[2:7].index(best)] if best >= 0.5 else "spread")
    one = rows(gf.explain("heads", run, layer=1).figure("heads"))
    assert one == [row for row in table if row[0] == 1]


def test_sight_says_why_a_cell_is_dark():
    run = loaded(SPECS["window-sinks"]).trace(TEXT)
    one = gf.explain("sight", run, layer=0)
    figure, n = one.figure("sight"), run.stacks[0].length
    for t in range(n):
        for s in range(n):
            lit = s <= t and (t - s < 3 or s < 1)
            assert (figure.values[t][s] == 1) == lit
            assert figure.reasons[t][s] == ("" if lit else "future" if s > t else "outside the window")
    assert one.figure("reach").values == [sum(x is not None for x in row) for row in figure.values]
    assert "itself and the 2 positions before it" in one.claim.en and "바로 앞의 2칸" in one.claim.ko
    whole = gf.explain("sight", run).figure("sight")
    assert whole.values[6][2] == 1 and figure.values[6][2] is None  # over two layers of a window of three


@pytest.mark.parametrize("mixer", [AttentionSpec(mask=Mask(causal=False, window=2)), ConvSpec(width=3, causal=False)])
def test_what_lies_ahead_of_a_window_that_looks_both_ways_is_outside_it(mixer):
    """Not later: also through all layers, and among the sources of one token."""
    run = loaded(of(mixer)).trace([1] * 12, start=False)
    for how in ({}, {"layer": 0}):
        found = [reason for row in gf.explain("sight", run, **how).figure("sight").reasons for reason in row]
        assert set(found) == {"", "outside the window"}, how
    assert {row.reason for row in run.sheet("#0", by="token").rows} == {"", "outside the window"}
    mixed = loaded(stack(BlockSpec(mixer=ConvSpec(width=2)), BlockSpec(mixer=mixer)))
    mixed = gf.explain("sight", mixed.trace([1] * 12, start=False)).figure("sight")
    assert "future" not in {reason for row in mixed.reasons for reason in row}


# ---------------------------------------------------------------- the vectors' way


def test_a_journey_is_the_distance_from_the_fixed_vector(run):
    one = gf.explain("journey", run, token=3)
    vectors = [
        run[name][0, 3].double() for name in ("embed.token", "embed.out", "blocks.0.resid_out", "blocks.1.resid_out")
    ]
    start = vectors[0]
    assert one.figure("distance").x == ("embed.token", "embed.out", "0", "1")
    wanted = [math.dist(x.tolist(), start.tolist()) / start.norm().item() for x in vectors]
    assert one.figure("distance").lines[0].values == pytest.approx(wanted, rel=1e-6)
    wanted = [(x @ start / x.norm() / start.norm()).item() for x in vectors]
    assert one.figure("cosine").lines[0].values == pytest.approx(wanted, rel=1e-6)
    assert one.figure("tokens").values[3] == one.figure("distance").lines[0].values
    words = gf.explain("journey", run, by="word")
    places = list(run.cells("word")[-1].tokens)
    x0, x2 = (run[name][0, places].double().mean(0) for name in ("embed.token", "blocks.1.resid_out"))
    wanted = ((x2 - x0).norm() / x0.norm()).item()
    assert words.figure("distance").lines[0].values[-1] == pytest.approx(wanted, rel=1e-6)
    with pytest.raises(InputError, match="there is no token 99"):
        gf.explain("journey", run, token=99)


def test_one_word_in_two_contexts_begins_equal_and_parts(run):
    one = gf.explain("two", run, second=SECOND, word="생선")
    other = run.loaded.trace(SECOND)
    spots = [
        [i for cell in t.cells("token") for i in cell.tokens if set(cell.source) & set("생선")] for t in (run, other)
    ]
    chosen = [[row[2], row[3]] for row in rows(one.figure("occurrences")) if row[4]]
    assert [[spot[0], spot[-1]] for spot in spots] == chosen
    names = ("embed.token", "embed.out", "blocks.0.resid_out", "blocks.1.resid_out")
    pairs = [[t[name][0, spot].double().mean(0) for t, spot in zip((run, other), spots, strict=True)] for name in names]
    wanted = [(2 * (a - b).norm() / (a.norm() + b.norm())).item() for a, b in pairs]
    assert one.figure("distance").lines[0].values == pytest.approx(wanted, rel=1e-6, abs=1e-12)
    assert wanted[-1] > 0.01
    [check] = one.checks
    assert (check.value, check.passed) == ((0.0, True) if wanted[0] == 0 else (pytest.approx(wanted[0]), None))


def test_the_longest_run_of_tokens_in_common_is_found(run):
    one = gf.explain("two", run, second=TEXT)  # the whole text
    assert [row[4] for row in rows(one.figure("occurrences"))] == [1, 1]
    assert one.figure("distance").lines[0].values == [0.0] * 4 and one.checks[0].passed
    twice = gf.explain("two", run, second="먹었다 먹었다", word="먹었다", second_at=1)
    assert [row[:2] + row[4:] for row in rows(twice.figure("occurrences"))] == [[0, 0, 1], [1, 0, 0], [1, 1, 1]]
    for settings, said in (
        ({}, "second: the other text is empty"),
        ({"second": "xyz"}, "the two texts have nothing in common"),
        ({"second": "먹었다", "word": "없다"}, "word: '없다' is not in"),
        ({"second": "먹었다", "word": "먹었다", "second_at": 5}, "second_at: there is no occurrence 5"),
    ):
        with pytest.raises(InputError, match=said):
            gf.explain("two", run, **settings)


def test_without_a_word_one_is_taken_whose_contexts_differ():
    run = gf.load("small").trace("The cat and the fish ate")
    for second, word in (
        ("The dog and a fish sat", "fish"),  # "The" begins both, and nothing stands before it
        ("The cat and a fish", "fish"),  # longer is what both begin with
        ("The dog and this", "and"),
        ("The cat and", "The cat and"),  # nothing else
    ):
        one = gf.explain("two", run, second=second)
        assert one.figure("distance").lines[0].label.en == word, second
        assert (one.figure("distance").lines[0].values[-1] > 0.01) is (word != "The cat and"), second


def test_a_word_that_is_other_tokens_in_the_second_text_is_found_by_its_letters():
    run = gf.load("transformer").trace("밤하늘에 별이 빛난다")
    one = gf.explain("two", run, second="별")  # there without the blank before it
    assert one.figure("distance").lines[0].label.ko == "별" and one.checks[0].passed is None
    assert one.checks[0].value == one.figure("distance").lines[0].values[0] > 0


def test_fields_widen_as_the_masks_say():
    run = Loaded(loaded(SPECS["window"]).model, name="x").trace(list(range(1, 11)))
    figure = gf.explain("fields", run, token=9).figure("field")
    assert [sum(x == 1 for x in row) for row in figure.values] == [1, 4, 7]  # a window of 4: three more each layer
    table = rows(gf.explain("fields", RUNS["lenet"]()).figure("fields"))
    assert [row[1:3] for row in table[:4]] == [[1, 1], [5, 1], [6, 2], [14, 2]]


# ---------------------------------------------------------------- what is predicted


def test_next_and_surprise_are_the_heads_own(run):
    logits = run.logits[0].double()
    one = gf.explain("next", run, token=2, temperature=0.5, top=5)
    best = (logits[2] / 0.5).softmax(-1).topk(5)
    table = rows(one.figure("candidates"))
    assert [row[0] for row in table] == best.indices.tolist()
    assert [row[4] for row in table] == pytest.approx(best.values.tolist(), rel=1e-6)
    assert one.checks[0].value == pytest.approx(best.values.sum().item(), rel=1e-6)
    ids = run.stacks[0].tokens[0]
    nats = F.cross_entropy(logits[:-1], ids[1:], reduction="none")
    found = gf.explain("surprise", run)
    assert found.figure("surprise").values[0] is None
    assert found.figure("surprise").values[1:] == pytest.approx((nats / math.log(2)).tolist(), rel=1e-6)
    shares = logits.softmax(-1)
    entropy = -(shares * shares.log2()).sum(-1)
    assert found.figure("entropy").values == pytest.approx(entropy.tolist(), rel=1e-6)
    assert found.checks[0].value == pytest.approx(nats.mean().item() / math.log(2), rel=1e-6)


def test_classes_are_those_of_the_model():
    run = RUNS["lenet"]()
    shares = run.logits[0].double().softmax(-1)
    table = rows(gf.explain("classes", run).figure("classes"))
    assert [row[0] for row in table] == shares.argsort(descending=True).tolist()
    assert sum(row[3] for row in table) == pytest.approx(1)


# ---------------------------------------------------------------- states, cost, alignment


def test_states_are_lengths_and_gates_are_means():
    run = RUNS["lstm"]()
    one = gf.explain("states", run, layer=1)
    lines = {line.label.en.split()[0]: line.values for figure in one.figures for line in figure.lines}
    assert {"hidden", "cell", "candidate", "input", "forget", "output"} == set(lines)
    at = "blocks.1.mixer.cell"
    assert lines["forget"] == pytest.approx(run[f"{at}.forget"][0].mean(1).tolist(), rel=1e-6)
    assert lines["hidden"] == pytest.approx(run[f"{at}.hidden"][0].norm(dim=1).tolist(), rel=1e-6)
    gla = RUNS["gla"]()
    lines = {line.label.en: line.values for figure in gf.explain("states", gla).figures for line in figure.lines}
    decay = gla["blocks.0.mixer.log_decay"][0].exp().flatten(1).mean(1)
    assert lines["decay α"] == pytest.approx(decay.tolist(), rel=1e-6)


def test_cost_is_that_of_gf_cost_at_this_length(run):
    table = rows(gf.explain("cost", run).figure("cost"))
    n = run.stacks[0].length
    for row, times in zip(table, (1, 2, 4, 8), strict=True):
        found = gf.cost(run.model.spec, times * n)
        assert row == [
            times * n,
            found.parameters,
            found.flops,
            found.scan_flops,
            found.state_bytes,
            found.steps,
            found.reach,
            found.path,
        ]


def test_the_difference_is_that_of_the_trace(run):
    one = gf.explain("difference", run)
    found = run.difference()
    assert dict(one.figure("difference").rows) == pytest.approx(found, rel=1e-6)
    assert one.checks[0].value == pytest.approx(max(found.values()), rel=1e-6) and one.checks[0].passed


def test_the_three_maps_of_a_pair():
    run = loaded(pair()).trace(("생선을", "먹었다"))
    one = gf.explain("alignment", run, head=1)
    cross, own = one.figure("cross"), one.figure("decoder")
    pattern = run["decoder.blocks.1.cross.pattern"][0, 1]
    assert torch.allclose(torch.tensor(cross.values), pattern[:-1], atol=1e-6)
    assert cross.rows == names_of(cells_of(run, run.stacks[1])[1:]) and cross.where == {"b": 0, "h": 1}
    assert own.values[2][:3] == pytest.approx(run["decoder.blocks.1.mixer.pattern"][0, 1, 2, :3].tolist(), rel=1e-6)
    assert one.figure("encoder").value == "encoder.blocks.0.mixer.pattern" and one.checks[0].passed
    mean = gf.explain("alignment", run).figure("encoder")
    assert torch.allclose(torch.tensor(mean.values), run["encoder.blocks.0.mixer.pattern"][0].mean(0), atol=1e-6)


# ---------------------------------------------------------------- texts that are too long for a whole map


WAYS_OUT = {  # each leads on: what stands behind "as" is taken
    "weights": ("maps draws those of a long text, in fields", "maps", {}),
    "sight": ("say which rows, as rows=3,7", "sight", {"rows": "3,7"}),
    "flow": ("say which rows, as rows=3,7", "flow", {"rows": "3,7"}),
    "influence": ("give a shorter text, or one row, as row=3", "influence", {"row": "3"}),
}


@pytest.mark.parametrize("name", WAYS_OUT)
def test_a_map_of_a_very_long_text_is_refused_with_a_way_out(name):
    long = loaded().trace([1] * 1500, start=False)
    way, other, settings = WAYS_OUT[name]
    with pytest.raises(InputError, match=re.escape(f"a map of 1500 × 1500 tokens is too large; {way}")):
        gf.explain(name, long)
    assert gf.explain(other, long, **settings).figures


@pytest.mark.parametrize("name", RUNS)
def test_rows_of_what_is_seen_are_those_of_the_whole(name):
    trace = RUNS[name]()
    if "sight" not in dict(available(trace)):
        pytest.skip("its places are no row of tokens")
    whole, some = (gf.explain("sight", trace, **how) for how in ({}, {"rows": "2,-1,0"}))
    for figure, kind in (("sight", "values"), ("sight", "reasons"), ("reach", "values")):
        every, few = (getattr(one.figure(figure), kind) for one in (whole, some))
        assert few == [every[i] for i in (2, -1, 0)]
    last = gf.explain("fields", trace).figure("field")
    assert last.values[-1] == whole.figure("sight").values[-1]


def test_the_alignment_of_characters():
    """On the tokens of a group the sum; of a group that was written the mean of its tokens' rows."""
    run = loaded(pair()).trace(("생선을", "먹었다"))
    found = gf.explain("alignment", run, head=1, by="character").figure("cross")
    target, source = run.cells("character"), run.source_cells("character")
    assert found.rows == names_of(target[1:]) and found.columns == names_of(source) and not found.value
    assert len(target) < len(run.cells("token")) and len(source) < len(run.source_cells("token"))
    pattern = run["decoder.blocks.1.cross.pattern"][0, 1]
    for row, cell in zip(found.values, target[1:], strict=True):
        mean = pattern[[t - 1 for t in cell.tokens]].mean(0)
        assert row == pytest.approx([mean[list(one.tokens)].sum().item() for one in source], rel=1e-5)
        assert sum(row) == pytest.approx(1)


def test_a_part_of_a_character_is_called_by_it():
    run = gf.load("small").trace("龜가 별")
    assert names_of(cells_of(run, run.stacks[-1])) == ("⟨start⟩", "龜 1/3", "龜 2/3", "龜 3/3", "가", "별")
    surprise = gf.explain("surprise", run).figure("surprise")
    assert surprise.tokens[1:4] == ("龜 1/3", "龜 2/3", "龜 3/3")
    whole, entropy = gf.explain("surprise", run, by="character").figures
    assert whole.tokens == ("⟨start⟩", "龜", "가", "별") and whole.values[0] is None
    assert whole.values[1] == pytest.approx(sum(surprise.values[1:4])) and whole.values[2:] == surprise.values[4:]
    assert entropy.values[1] == gf.explain("surprise", run).figure("entropy").values[3]

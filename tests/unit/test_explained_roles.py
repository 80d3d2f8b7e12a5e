"""Scores of heads against loops written out here, and heads whose part is known because it was built."""

import copy
import math

import numpy as np
import pytest
import torch
from sheet_models import SPECS, loaded, of

import glassformer as gf
from glassformer.api import Loaded
from glassformer.errors import InputError, SettingError, UnsupportedError
from glassformer.explain.kinds.pruning import PruningSpec
from glassformer.explain.roles import FARTHEST, roles, runs
from glassformer.mask import Mask
from glassformer.mixers.attention import AttentionSpec

TEXT = "고양이가 생선을 먹었다. 고양이가 잤다."
SCORES = ("previous", "induction", "duplicate", "sink", "offset")


def by_hand(pattern, ids, seen):
    """The scores of one pattern `t s`, in loops: shares over what each position but the first sees."""
    picks = {
        "previous": lambda t, s: s == t - 1,
        "induction": lambda t, s: s > 0 and s not in (t, t + 1) and ids[s - 1] == ids[t],  # of another token than t
        "duplicate": lambda t, s: s != t and ids[s] == ids[t],
        "sink": lambda t, s: s == 0,
    } | {k: (lambda t, s, k=k: s - t == k) for k in range(-FARTHEST, FARTHEST + 1) if k not in (-1, 0)}
    found = {}
    for name, pick in picks.items():
        rows = [[s for s in range(len(ids)) if seen(t, s) and pick(t, s)] for t in range(1, len(ids))]
        sums = [sum(pattern[t, s] for s in some) for t, some in enumerate(rows, 1) if some]
        found[name] = np.mean(sums) if sums else None
    return found


@pytest.mark.parametrize("name", ["rope", "window-sinks", "full"])
def test_scores_are_those_of_loops(name):
    model = loaded(SPECS[name])
    drawn = runs(model, 4, 3, 2, 0)
    traces = [model.trace(ids) for ids in drawn.ids]
    mask = SPECS[name].blocks[0].mixer.mask
    n = len(drawn.ids[0])

    def seen(t, s):
        near = mask.window is None or abs(t - s) < mask.window or s < mask.sinks
        return near and (s <= t or not mask.causal)

    even = np.array([[seen(t, s) for s in range(n)] for t in range(n)], float)
    even /= even.sum(1, keepdims=True)
    found = roles(traces)
    assert [(one.layer, one.head) for one in found] == [(i, h) for i in range(2) for h in range(4)]
    for one in found:
        patterns = [t[f"blocks.{one.layer}.mixer.pattern"][0, one.head].double().numpy() for t in traces]
        for scores, given in ((one.scores, patterns), (one.chance, [even] * 2)):
            wanted = [by_hand(p, ids, seen) for p, ids in zip(given, drawn.ids, strict=True)]
            for score in SCORES[:4]:
                values = [w[score] for w in wanted]
                mean = None if None in values else pytest.approx(np.mean(values), rel=1e-5)
                assert scores[score] == mean, score
            there = {
                k: np.mean([w[k] for w in wanted]) for k in wanted[0] if isinstance(k, int) and wanted[0][k] is not None
            }
            assert scores["offset"] == pytest.approx(there[one.offset], rel=1e-5)
            if scores is one.scores:
                assert one.offset == max(there, key=there.get)


def test_random_runs_repeat_and_their_control_does_not():
    model = loaded()
    drawn, anew = (runs(model, 6, 3, 2, 5, again) for again in (True, False))
    for ids, other in zip(drawn.ids, anew.ids, strict=True):
        assert ids[0] == other[0] == model.tokenizer.end_id and len(ids) == len(other) == 1 + 18
        assert ids[1:7] == ids[7:13] == ids[13:] and len(set(ids[1:7])) == 6 and ids[0] not in ids[1:]
        assert other[1:7] != other[7:13] and all(len({*other[i : i + 6]}) == 6 for i in (1, 7, 13))
    assert drawn.ids[0] != drawn.ids[1] and drawn == runs(model, 6, 3, 2, 5) != runs(model, 6, 3, 2, 6)
    assert runs(model, None, 4, 1, 0).length == 25
    tight = Loaded(model.model, name="x")
    assert runs(tight, None, 100, 1, 0).length == 2  # of a context of 256
    with pytest.raises(InputError, match="length: a run of 25 random tokens, 16 times over, does not fit; .* 2 to 15"):
        runs(model, 25, 16, 1, 0)


def test_a_head_that_was_built_for_a_part_is_named_by_it():
    """The pattern is put there by edits: what a previous-token, an induction and a duplicate head do."""
    model = loaded()
    drawn = runs(model, 5, 3, 1, 0)
    [ids], n = drawn.ids, len(drawn.ids[0])
    pattern = torch.zeros(4, n, n)
    for t in range(n):
        earlier = [s for s in range(t) if ids[s] == ids[t]]
        pattern[0, t, max(0, t - 1)] = 1
        pattern[1, t, earlier[-1] + 1 if earlier else 0] = 1
        pattern[2, t, earlier[0] if earlier else 0] = 1
        pattern[3, t, max(0, t - 3)] = 1
    trace = model.trace(ids, edits=gf.replace("blocks.0.mixer.pattern", pattern))
    first = [one for one in roles([trace]) if one.layer == 0]
    assert [one.best for one in first] == ["previous", "induction", "duplicate", "offset"]
    assert [one.scores[one.best] for one in first] == pytest.approx([1.0] * 4) and first[3].offset == -3
    assert first[1].scores["duplicate"] == 0 and first[0].scores["sink"] == pytest.approx(1 / (n - 1))


def test_in_a_layer_that_looks_ahead_the_next_token_is_no_sign_of_induction():
    model = loaded(SPECS["full"])
    [ids] = runs(model, 5, 3, 1, 0).ids
    n, pattern = len(ids), torch.zeros(4, len(ids), len(ids))
    for t in range(n):
        pattern[:2, t, min(t + 1, n - 1)] = 1  # the next token
        others = [s for s in range(1, n) if s not in (t, t + 1) and ids[s - 1] == ids[t]]
        pattern[2:, t, others[0] if others else 0] = 1  # what stands behind the same token elsewhere
    trace = model.trace(ids, edits=gf.replace("blocks.0.mixer.pattern", pattern))
    first = [one for one in roles([trace]) if one.layer == 0]
    assert [one.best for one in first] == ["offset", "offset", "induction", "induction"] and first[0].offset == 1
    assert [one.scores["induction"] for one in first] == pytest.approx([0, 0, 1, 1])


def test_the_explanation_holds_scores_chance_and_what_repeating_is_worth():
    model = loaded()
    trace = model.trace(TEXT)
    one = gf.explain("roles", trace, length=5, times=3, sequences=2, seed=1)
    drawn = runs(model, 5, 3, 2, 1)
    found = roles([model.trace(ids) for ids in drawn.ids])
    table = one.figure("roles").rows
    for row, role in zip(table, found, strict=True):
        assert row[:2] == [role.layer, role.head] and row[6] == role.offset
        assert [*row[2:6], row[7]] == pytest.approx([role.scores[name] for name in SCORES])
        assert row[8] == pytest.approx(role.chance["offset"])
        assert row[9] == (role.best if role.scores[role.best] >= 0.5 else "none")
    assert [row[0] for row in one.figure("chance").rows] == [0, 1]
    assert one.figure("chance").rows[0][1:] == pytest.approx([found[0].chance[name] for name in SCORES[:4]])
    away = one.figure("distances")
    pattern, n = trace["blocks.1.mixer.pattern"][0, 2].double(), trace.stacks[0].length
    row = away.values[away.rows.index("1.2")]
    assert away.columns == tuple(str(k) for k in range(-FARTHEST, 1))
    for k, value in zip(range(-FARTHEST, 1), row, strict=True):
        there = [pattern[t, t + k].item() for t in range(1, n) if 0 <= t + k <= t]
        assert value == (pytest.approx(np.mean(there), rel=1e-6) if there else None), k
    lines = one.figure("surprise").lines
    for line, again in zip(lines, (True, False), strict=True):
        bits = []
        for ids in runs(model, 5, 3, 2, 1, again).ids:
            logs = model(ids)[0].double().log_softmax(-1) / math.log(2)
            bits.append([-logs[t - 1, ids[t]].item() for t in range(1, len(ids))])
        assert line.values == pytest.approx(np.mean(bits, 0), rel=1e-5)
    places = [k for k in range(15) if k % 5]
    early, late = (
        [line for k, line in enumerate(lines[0].values) if k in places and (k < 5) == first] for first in (True, False)
    )
    assert {check.name: check.value for check in one.checks}["gain"] == pytest.approx(np.mean(early) - np.mean(late))


def test_what_the_scores_refuse():
    trace = loaded().trace(TEXT)
    with pytest.raises(SettingError, match="times: 1 is not allowed; use a number from 2 to 16"):
        gf.explain("roles", trace, times=1)
    with pytest.raises(InputError, match="length: a run of 300 random tokens"):
        gf.explain("roles", trace, length=300)
    reader = loaded(of(AttentionSpec(mask=Mask(causal=False)))).trace(TEXT)
    read = gf.explain("roles", reader)
    assert [check.value for check in read.checks] == [None, None] and "surprise" not in [f.name for f in read.figures]
    with pytest.raises(UnsupportedError, match="pruning does not apply"):
        gf.explain("pruning", reader)


# ---------------------------------------------------------------- pruning


def bits_without(model, texts, off):
    """Mean bits a token with heads switched off, by the model's own weights: their rows of W_O are nothing."""
    changed = copy.deepcopy(model.model)
    for layer, head in off:
        mixer = changed.blocks[layer].mixer
        mixer.out.weight.data[:, head * mixer.width : (head + 1) * mixer.width] = 0
    costs = []
    for text in texts:
        ids = model.encode(text)
        logs = changed(torch.tensor([ids]))[0].double().log_softmax(-1) / math.log(2)
        costs += [-logs[t - 1, ids[t]].item() for t in range(1, len(ids))]
    return np.mean(costs)


@torch.no_grad()
def test_the_curve_is_that_of_heads_whose_output_is_nothing():
    model, texts = loaded(), ["고양이가 생선을 먹었다", "별이 빛난다"]
    trace = model.trace(TEXT)
    one = gf.explain("pruning", trace, texts=texts, steps=4, orders=2, seed=3)
    curve, order = one.figure("curve"), one.figure("heads").rows
    assert curve.x == ("0", "2", "4", "6", "8") and [row[2] for row in order] == sorted(
        (r[2] for r in order), reverse=True
    )
    scores = {
        (r.layer, r.head): r.scores["induction"]
        for r in roles([model.trace(i) for i in runs(model, None, 4, 4, 3).ids])
    }
    assert {(row[0], row[1]): row[2] for row in order} == pytest.approx(scores)
    heads = [(row[0], row[1]) for row in order]
    for line, sequence in zip(curve.lines[:2], (heads, heads[::-1]), strict=True):
        wanted = [bits_without(model, texts, sequence[:count]) for count in (0, 2, 4, 6, 8)]
        assert line.values == pytest.approx(wanted, rel=1e-5)
    assert curve.lines[2].values[0] == curve.lines[0].values[0] and curve.lines[2].errors[0] == 0
    assert curve.lines[2].values[-1] == pytest.approx(curve.lines[0].values[-1])
    above = np.mean([a - b for a, b in zip(curve.lines[0].values[1:-1], curve.lines[2].values[1:-1], strict=True)])
    assert one.checks[0].value == pytest.approx(above)
    alone = gf.explain("pruning", trace, texts="\n\n".join(texts), score="alone", steps=1, orders=1)
    whole = bits_without(model, texts, [])
    for layer, head, cost in alone.figure("heads").rows:
        assert cost == pytest.approx(bits_without(model, texts, [(layer, head)]) - whole, abs=1e-5)
    assert alone.checks[0].value is None  # no place between none and all


def test_texts_are_lines_lists_or_a_file(tmp_path):
    trace = loaded().trace(TEXT)
    file = tmp_path / "texts.txt"
    file.write_text("별이 빛난다\n\n생선을 먹었다\n", encoding="utf-8")
    how = {"steps": 1, "orders": 1}
    found = [
        gf.explain("pruning", trace, texts=given, **how).figure("curve")
        for given in (["별이 빛난다", "생선을 먹었다"], "별이 빛난다\n생선을 먹었다", file)
    ]
    assert found[0] == found[1] == found[2] != gf.explain("pruning", trace, **how).figure("curve")
    assert PruningSpec(texts="x").texts == "x"
    with pytest.raises(InputError, match="texts: 1,001 lines are too many; give at most 1,000"):
        gf.explain("pruning", trace, texts=["x"] * 1001)

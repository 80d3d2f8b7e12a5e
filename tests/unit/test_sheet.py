"""The sheet's numbers against an independent computation in numpy float64, straight from the weights."""

import math

import numpy as np
import pytest
from by_hand import ENGLISH, KOREAN, ByHand, flat, same, softmax
from sheet_models import SPECS, loaded

from glassformer.nn.norm import LayerNormSpec


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
    order = ["resid_in", "mixer.head_out", "mixer.out", "mixer_out_norm.out", "resid_mid", "channel_norm.out", "channel.hidden", "channel.out", "channel_out_norm.out", "resid_out"]  # fmt: skip # noqa: E501
    assert names == [name for name in order if name in names] and {"resid_in", "mixer.out"} <= set(names)
    assert ("mixer_out_norm.out" in names) == (f"{block}.mixer_out_norm.out" in hand.found)
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
        gains = np.eye(hand.spec.dim)
        if block.wiring in ("after", "sandwich"):  # the norm of the sum of all heads, its scale kept
            whole, norm = hand.found[f"{at}.out"][0, t], f"blocks.{i}.mixer_out_norm.weight"
            centre = gains - (1 / len(gains) if isinstance(block.norm, LayerNormSpec) else 0)
            size = np.sqrt(((centre @ whole) ** 2).mean() + block.norm.eps)
            gains = np.diag(hand.w[norm] + getattr(block.norm, "offset", 0)) @ centre / size
        all_moves.append([np.linalg.norm(gains @ each[:, h] @ away[h]) / x for h in range(heads)])
    return all_moves


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

"""Causal tracing against runs with edits: a spoilt text in which one vector is put back."""

import pytest
import torch
from page_runs import runs
from sheet_models import SPECS, loaded, pair

import glassformer as gf
from glassformer.errors import InputError
from glassformer.explain.answer import Answer
from glassformer.explain.target import Target
from glassformer.explain.tracing import spoilt_by_noise, traced

TEXT, SECOND = "고양이가 생선을 먹었다", "생선을 고양이가 보았다"


def spoilt_run(run, vectors, more=(), stack=0):
    """The run with other vectors of its tokens, and with further edits."""
    ids = [one.tokens[0].tolist() for one in run.stacks]
    edits = [gf.replace(f"{run.stacks[stack].prefix}embed.token", vectors), *more]
    return run.loaded.trace(ids[0] if len(ids) == 1 else tuple(ids), edits=edits, start=False)


PARTS = {"resid": "resid_out", "mixer": "mixer.out", "channel": "channel.out"}


@pytest.mark.parametrize("name", ["rope", "post", "lstm", "mamba", "full"])
def test_each_cell_is_a_run_with_that_vector_put_back(name):
    run = runs()[name]()
    answer, n = Answer(run, Target(candidate="#5")), run.stacks[0].length
    [x] = spoilt_by_noise(answer, [1, 2], 3.0, 1, 0)
    base = spoilt_run(run, x[0]).logits[0, -1, 5].item()
    for part, short in PARTS.items():
        if part == "channel" and name in ("lstm", "mamba"):
            with pytest.raises(InputError, match="part: no layer of this model has a channel"):
                traced(answer, [x], part=part)
            continue
        found = traced(answer, [x], part=part)
        assert found.clean == pytest.approx(run.logits[0, -1, 5].item(), rel=1e-4)
        assert found.spoilt == pytest.approx(base, rel=1e-4) and found.errors is None and found.gradient is None
        for layer, place in ((0, 1), (1, n - 1), (0, n - 1), (1, 2)):
            path = f"blocks.{layer}.{short}"
            back = spoilt_run(run, x[0], [gf.replace(path, run[path][0, place], t=place)])
            wanted = back.logits[0, -1, 5].item() - base
            assert found.exact[layer, place].item() == pytest.approx(wanted, rel=1e-3, abs=2e-5), (part, layer, place)


def test_what_stands_behind_the_answer_has_no_part():
    run = loaded(SPECS["rope"]).trace(TEXT)
    [x] = spoilt_by_noise(Answer(run, Target(candidate="#5")), [1, 2], 3.0, 1, 0)
    found = traced(Answer(run, Target(token=5, candidate="#5")), [x])
    base = spoilt_run(run, x[0])
    for layer, place in ((0, 1), (0, 5), (1, 4), (1, 5)):
        path = f"blocks.{layer}.resid_out"
        back = spoilt_run(run, x[0], [gf.replace(path, run[path][0, place], t=place)])
        wanted = (back.logits - base.logits)[0, 5, 5].item()
        assert found.exact[layer, place].item() == pytest.approx(wanted, rel=1e-3, abs=2e-5)
    assert not found.exact[:, 6:].any() and found.exact[1, :5].abs().max() < 1e-6 < found.exact[0, :5].abs().max()


def test_several_layers_together():
    run = loaded(SPECS["rope"]).trace(TEXT)
    answer = Answer(run, Target(candidate="#5"))
    [x] = spoilt_by_noise(answer, [1, 2], 3.0, 1, 0)
    found = traced(answer, [x], part="channel", window=2)
    base = spoilt_run(run, x[0])
    both = [gf.replace(f"blocks.{i}.channel.out", run[f"blocks.{i}.channel.out"][0, 2], t=2) for i in range(2)]
    wanted = (spoilt_run(run, x[0], both).logits - base.logits)[0, -1, 5].item()
    assert found.exact[0, 2].item() == pytest.approx(wanted, rel=1e-3, abs=1e-5)  # layers 0 and 1
    with pytest.raises(InputError, match="window: the residual holds what all layers below did"):
        traced(answer, [x], window=2)


def test_noise_is_that_of_the_table_on_the_subject_alone():
    run = loaded(SPECS["rope"]).trace(TEXT)
    answer = Answer(run, Target(candidate="#5"))
    drawn = spoilt_by_noise(answer, [2, 3], 2.0, 400, 0)
    apart = torch.stack([one - answer.rows for one in drawn])[:, 0]
    assert not apart[:, [0, 1, *range(4, answer.length)]].any()
    table = run.model.embed.token.weight
    assert apart[:, 2:4].std().item() == pytest.approx(2 * table.std().item(), rel=0.03)
    assert torch.equal(spoilt_by_noise(answer, [2, 3], 2.0, 1, 0)[0], drawn[0])
    with pytest.raises(InputError, match="subject: it has no token"):
        spoilt_by_noise(answer, [], 2.0, 1, 0)


def test_the_first_order_is_the_limit_of_little_noise():
    model = loaded(SPECS["rope"])
    model.model.double()
    run = model.trace(TEXT)
    answer = Answer(run, Target(candidate="#5"))
    for part in PARTS:
        little = traced(answer, spoilt_by_noise(answer, [1, 2, 3], 1e-5, 1, 0), part=part, way="both")
        largest = little.exact.abs().max()
        assert torch.allclose(little.exact / largest, little.gradient / largest, atol=1e-2)
    much = traced(answer, spoilt_by_noise(answer, [1, 2, 3], 3.0, 1, 0), way="both")
    assert not torch.allclose(much.exact / largest, much.gradient / largest, atol=1e-2)


def test_draws_have_their_error():
    run = loaded(SPECS["rope"]).trace(TEXT)
    answer = Answer(run, Target(candidate="#5"))
    noise = spoilt_by_noise(answer, [1, 2], 3.0, 5, 0)
    each = torch.stack([traced(answer, [one]).exact for one in noise])
    found = traced(answer, noise)
    assert torch.allclose(found.exact, each.mean(0)) and torch.allclose(found.errors, each.std(0) / 5**0.5)


@pytest.mark.parametrize("name", ["pair", "bahdanau"])
def test_in_the_encoder_of_a_pair(name):
    run = runs()[name]()
    answer = Answer(run, Target(candidate="#5"), "source")
    [x] = spoilt_by_noise(answer, [0, 1], 3.0, 1, 0)
    found = traced(answer, [x])
    base = spoilt_run(run, x[0]).logits[0, -1, 5].item()
    path = "encoder.blocks.0.resid_out"
    back = spoilt_run(run, x[0], [gf.replace(path, run[path][0, 1], t=1)])
    assert found.spoilt == pytest.approx(base, rel=1e-4)
    assert found.exact[0, 1].item() == pytest.approx(back.logits[0, -1, 5].item() - base, rel=1e-3, abs=1e-5)


def test_the_explanation():
    run = loaded(SPECS["rope"]).trace(TEXT)
    one = gf.explain("tracing", run, candidate="#5", subject="생선을", draws=2, way="both")
    effects, n = one.figure("effects"), run.stacks[0].length
    assert len(effects.values) == 2 and len(effects.values[0]) == n == len(effects.errors[1])
    places = run.rows("생선을", "token")
    answer = Answer(run, Target(candidate="#5"))
    found = traced(answer, spoilt_by_noise(answer, places, 3.0, 2, 0), way="both")
    assert effects.values[1] == pytest.approx(found.exact[1].tolist(), rel=1e-5, abs=1e-9)
    assert one.figure("gradient").values[0] == pytest.approx(found.gradient[0].tolist(), rel=1e-5, abs=1e-9)
    assert one.figure("best").values == pytest.approx(found.exact.amax(0).tolist(), rel=1e-5, abs=1e-9)
    values = {row[0]: row[1] for row in one.figure("runs").rows}
    assert values["difference"] == pytest.approx(values["clean"] - values["spoilt"], rel=1e-5)
    checks = {check.name: check for check in one.checks}
    assert checks["put_back"].passed and -1 <= checks["agreement"].value <= 1
    before = places[0]
    assert not any(row[i] for row in effects.values for i in range(before))  # what stands before it is not spoilt
    rows = ",".join(map(str, places))
    assert gf.explain("tracing", run, candidate="#5", subject=rows, draws=2, way="both").figures == one.figures
    roughly = gf.explain("tracing", run, candidate="#5", way="gradient", part="mixer")
    assert [figure.name for figure in roughly.figures] == ["gradient", "best", "runs"]
    assert roughly.checks[1].value is None


def test_another_text_in_the_place_of_noise():
    run = loaded(SPECS["rope"]).trace([1, 2, 3, 4, 5])
    model = run.loaded
    other = model.trace([1, 9, 3, 4, 5])
    answer = Answer(run, Target(candidate="#5"))
    found = traced(answer, [answer.rows_of(torch.tensor([[1, 9, 3, 4, 5]]))])
    assert found.spoilt == pytest.approx(other.logits[0, -1, 5].item(), rel=1e-4)
    back = model.trace([1, 9, 3, 4, 5], edits=gf.replace("blocks.0.resid_out", run["blocks.0.resid_out"][0, 1], t=1))
    assert found.exact[0, 1].item() == pytest.approx((back.logits - other.logits)[0, -1, 5].item(), rel=1e-3, abs=1e-5)
    assert found.exact[1, -1].item() == pytest.approx(found.clean - found.spoilt, rel=1e-3)
    text = loaded(SPECS["rope"]).trace("고양이가 먹었다")
    with pytest.raises(InputError, match="second: it has"):
        gf.explain("tracing", text, second="고양이가 생선을 먹었다")
    same = gf.explain("tracing", text, second=text.text, candidate="#5")
    assert same.checks[0].passed is None and not any(x for row in same.figure("effects").values for x in row)
    two = loaded(pair()).trace(("생선을", "먹었다"))
    with pytest.raises(InputError, match="second: of a pair only the source can be compared"):
        gf.explain("tracing", two, second="고양이가")
    gf.explain("tracing", two, second="생선을", of="source")

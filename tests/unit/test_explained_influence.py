"""The explanation of influence against derivatives by hand."""

import pytest
import torch
from sheet_models import SPECS, loaded, pair

import glassformer as gf
from glassformer.errors import UnsupportedError

TEXT = "고양이가 생선을 먹었다"


def derivatives(model, ids):
    """‖∂y_t/∂x_s‖ `t s`, the Jacobian of the blocks written out by torch.autograd.functional."""
    x = model.embed.token.weight.detach()[ids]

    def forward(x):
        call = model.call(torch.tensor([ids]))
        y = x[None]
        for block in model.blocks:
            y, _ = block(y, call)
        return model.norm(y)[0]

    return torch.autograd.functional.jacobian(forward, x).square().sum((1, 3)).sqrt()


def test_it_is_the_norm_of_the_jacobian():
    run = loaded(SPECS["rope"]).trace(TEXT)
    one = gf.explain("influence", run)
    wanted, figure = derivatives(run.model, run.stacks[0].tokens[0].tolist()), one.figure("influence")
    for t, row in enumerate(figure.values):
        assert row[: t + 1] == pytest.approx(wanted[t, : t + 1].tolist(), rel=1e-4) and set(row[t + 1 :]) <= {None}
    assert one.figure("given").values == pytest.approx(wanted.tril().sum(0).tolist(), rel=1e-4)
    assert one.checks[0].value == 0
    single = gf.explain("influence", run, row=3)
    assert single.figure("influence").values == [figure.values[3]]


def test_a_token_that_enters_from_two_tables_is_said_to():
    once, twice = (gf.explain("influence", gf.load(name).trace("A b"), row=0) for name in ("transformer", "small"))
    assert "embed.previous" in twice.claim.en and "embed.previous" in twice.claim.ko
    assert "embed.previous" not in once.claim.en + once.claim.ko


def test_an_estimate_is_right_on_average_and_its_error_is_that_of_one():
    run = loaded(SPECS["rope"]).trace(TEXT)
    exact = gf.explain("influence", run)
    some = [gf.explain("influence", run, method="estimate", directions=8, seed=seed) for seed in range(40)]
    assert some[0].checks[0].value > 0 and "추정" in some[0].claim.ko and "추정" not in exact.claim.ko
    figures = [one.figure("influence") for one in some]
    values, errors = (torch.tensor([getattr(one, what)[-1] for one in figures]) for what in ("values", "errors"))
    squares, wanted = values**2, torch.tensor(exact.figure("influence").values[-1]) ** 2
    assert ((squares.mean(0) - wanted).abs() < 5 * squares.std(0) / 40**0.5).all()
    assert torch.allclose(errors.mean(0), values.std(0), rtol=0.4)
    assert figures[0].values[0][1] is None and figures[0].errors[0][1] is None


def test_of_the_source_of_a_pair():
    run = loaded(pair()).trace(("생선을", "먹었다"))
    figure = gf.explain("influence", run, of="source").figure("influence")
    assert (len(figure.rows), len(figure.columns)) == (run.stacks[1].length, run.stacks[0].length)
    wanted = run.influence(of="source").norms
    assert torch.allclose(torch.tensor(figure.values), wanted.float(), rtol=1e-4)


def test_of_an_image_it_is_laid_out_as_the_image_is():
    model = gf.load("lenet")
    image = torch.rand(1, 28, 28, generator=torch.Generator().manual_seed(0))
    run = model.trace(image)
    row = int(run.logits[0].argmax())
    figure = gf.explain("influence", run).figure("influence")
    pixels = model.inputs(image).requires_grad_()
    model.model(pixels)[0, row].backward()
    assert torch.allclose(torch.tensor(figure.values), pixels.grad[0].norm(dim=0), rtol=1e-4, atol=1e-6)
    assert f"“{model.spec.labels[row] if model.spec.labels else row}”" in figure.title.en


def test_a_run_with_edits_has_none():
    run = loaded().trace(TEXT, edits=gf.zero("blocks.0.mixer.z", h=0))
    with pytest.raises(UnsupportedError, match="does not apply to a run with edits"):
        gf.explain("influence", run)

"""MNIST, trained as the recipes in runs/ say: what LeNet-5, an MLP and a small vision transformer reach, and what each
believes of neighbourhoods (S3, S4, S30; LeCun et al. 1998 give 0.95 % for LeNet-5, Simard et al. 2003 1.6 % for an MLP
of 800 units)."""

import functools
import os
from pathlib import Path

import numpy as np
import pytest
import torch

import glassformer as gf
from glassformer.data.images import ViewSpec, read_labelled
from glassformer.train import read_run
from glassformer.train.classify import errors

RUNS = Path(__file__).parents[2] / "runs"
DATA = Path(os.environ.get("GLASSFORMER_DATA", RUNS.parents[1] / "shared" / "data")) / "mnist" / "mnist.npz"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not DATA.is_file(), reason="needs mnist/mnist.npz in the folder that GLASSFORMER_DATA names"),
]
ORDER = 1  # the seed of the pixels' order


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A model trained by a recipe on pixels in a given order, once a module."""
    folder = tmp_path_factory.mktemp("mnist")

    @functools.cache
    def of(name: str, order: int | None):
        settings = {"data": str(DATA), "threads": "1", "snapshots": "0", "seed": "0"}
        settings |= {} if order is None else {"view.permute": str(order)}
        out = folder / f"{name}-{order}"
        for _ in gf.fit(read_run(RUNS / f"{name}.toml", settings), out):
            pass
        return gf.load(out)

    return of


def error_of(model, **view) -> float:
    """In per cent of the test images."""
    return 100 * model.evaluate(DATA, **({"view": ViewSpec(**view)} if view else {})).error


@pytest.mark.parametrize(("name", "epochs", "most"), [("lenet", 10, 1.2), ("mlp-image", 10, 2.4), ("vit", 3, 2.5)])
def test_test_error_of_each_recipe(trained, name, epochs, most):
    model = trained(name, None)
    run = model.about["run"]
    assert epochs - 0.01 < run["steps"] * run["batch"] / 60_000 < epochs + 0.01
    assert error_of(model) <= most


def test_a_fixed_order_of_the_pixels_does_not_hurt_the_mlp_and_doubles_lenets_errors(trained):
    plain, shuffled = (error_of(trained("mlp-image", order)) for order in (None, ORDER))
    assert abs(shuffled - plain) <= 0.3
    plain, shuffled = (error_of(trained("lenet", order)) for order in (None, ORDER))
    assert shuffled >= 2 * plain


def test_shifted_images_hurt_the_mlp_more_than_lenet(trained):
    """By four pixels, in the mean over four directions; neither has seen a shifted image."""
    loss = {}
    for name in ("lenet", "mlp-image"):
        model = trained(name, None)
        moved = [error_of(model, shift=shift) for shift in ((4, 0), (-4, 0), (0, 4), (0, -4))]
        loss[name] = sum(moved) / 4 - error_of(model)
    assert loss["mlp-image"] > loss["lenet"] > 0


@torch.no_grad()
def test_s4_features_of_a_trained_lenet_move_with_the_image(trained):
    """Bit for bit in the interior: a digit moved by four pixels has its C1 and C3 moved by four and by two places."""
    model, images = trained("lenet", None), read_labelled(DATA, "test").images[:20]
    digits = np.zeros_like(images)
    digits[:, :, 4:-4, 4:-4] = images[:, :, 4:-4, 4:-4]  # so that nothing leaves the image
    moved = np.roll(digits, (4, 4), (2, 3))
    before, after = model.trace(digits), model.trace(moved)
    for name, by in (("blocks.0.out", 4), ("blocks.1.out", 2), ("blocks.2.out", 2), ("blocks.3.out", 1)):
        inner = before[name].shape[-1] - by
        assert torch.equal(after[name][:, :, by:, by:], before[name][:, :, :inner, :inner]), name


def test_what_is_counted_is_what_each_image_gives(trained):
    model, given = trained("mlp-image", None), read_labelled(DATA, "test")
    guesses = model(given.images).argmax(1).numpy()
    assert errors(model.model, given).error == np.mean(guesses != given.labels)

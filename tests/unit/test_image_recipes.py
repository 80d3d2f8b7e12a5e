"""The recipes of images: the models that they name, and that their first steps learn. What they reach on MNIST is held
by tests/identities/test_mnist.py, which takes minutes."""

from pathlib import Path

import numpy as np
import pytest

import glassformer as gf
from glassformer.model import build_model
from glassformer.named.images import lenet, mlp_image
from glassformer.nn.pixels import Sinusoidal2dSpec
from glassformer.train import read_run

RUNS = Path(__file__).parents[2] / "runs"


def squares(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Dim noise with one bright square at one of ten places, and which."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 10, count)
    images = rng.integers(0, 40, (count, 28, 28))
    for image, label in zip(images, labels, strict=True):
        y, x = 2 + 9 * (label // 4), 2 + 6 * (label % 4)
        image[y : y + 6, x : x + 6] = 255
    return images.astype(np.uint8), labels.astype(np.uint8)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A labelled set of such images."""
    path = tmp_path_factory.mktemp("squares") / "mnist.npz"
    (x_train, y_train), (x_test, y_test) = squares(2000, 0), squares(200, 1)
    np.savez(path, x_train=x_train, y_train=y_train, x_test=x_test, y_test=y_test)
    return path


def test_recipes_of_published_models_are_their_presets(data):
    for name, spec in (("lenet", lenet()), ("mlp-image", mlp_image())):
        assert read_run(RUNS / f"{name}.toml", {"data": str(data)}).model == spec


def test_the_small_vision_transformer_has_a_class_token_and_positions_of_row_and_column(data):
    model = build_model(read_run(RUNS / "vit.toml", {"data": str(data)}).model)
    assert model.embed.names()[:3] == ["class", "0,0", "0,1"] and len(model.embed.names()) == 1 + 7 * 7
    assert isinstance(model.spec.embed.position, Sinusoidal2dSpec)
    assert all(not block.mixer.causal for block in model.blocks)
    assert sum(p.numel() for p in model.parameters()) * 4 < 3 << 20  # bytes in float32


@pytest.mark.parametrize(("name", "steps"), [("lenet", 40), ("mlp-image", 15), ("vit", 40)])
def test_the_first_steps_of_a_recipe_learn(data, tmp_path, name, steps):
    settings = {"data": str(data), "steps": str(steps), "batch": "32", "schedule.warmup": "5", "snapshots": "0"}
    reports = list(gf.fit(read_run(RUNS / f"{name}.toml", settings), tmp_path / name))
    assert reports[0].loss > 2 and gf.load(tmp_path / name).evaluate(data).error < 0.1

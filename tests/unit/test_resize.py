"""Images of any size brought to a model's, byte for byte as Pillow scales them."""

import time

import numpy as np
import pytest

from contract.image_cases import CASES, built, images_of
from glassformer.classifier import Classifier
from glassformer.data.fit import fitted
from glassformer.errors import InputError, UnsupportedError
from glassformer.explain.influence import influence
from glassformer.nn.resize import ResizeSpec, middle, resized, scaled

RNG = np.random.default_rng(0)
FILTERS = ("nearest", "box", "bilinear", "hamming", "bicubic", "lanczos")
SIZES = [((37, 53), 16), ((5, 9), 24), ((200, 31), 31), ((64, 64), 64), ((3, 1), 7), ((97, 101), 33), ((90, 20), 20)]


def by_pillow(image, rows, columns, filter):
    Image = pytest.importorskip("PIL.Image", reason="Pillow is the oracle")
    kind = Image.Resampling[filter.upper()]
    return np.moveaxis(np.asarray(Image.fromarray(np.moveaxis(image, 0, 2)).resize((columns, rows), kind)), 2, 0)


@pytest.mark.parametrize("filter", FILTERS)
@pytest.mark.parametrize(("given", "side"), SIZES)
def test_scaled_bytes_are_those_of_pillow(filter, given, side):
    for image in (RNG.integers(0, 256, (3, *given), np.uint8), RNG.integers(0, 2, (3, *given), np.uint8) * 255):
        found = resized(image, ResizeSpec(side=side, filter=filter), side)
        assert np.array_equal(found, by_pillow(image, side, side, filter))


@pytest.mark.parametrize("filter", FILTERS)
def test_scaled_bytes_are_those_of_pillow_for_any_sizes(filter):
    pytest.importorskip("PIL.Image", reason="Pillow is the oracle")
    rng = np.random.default_rng(1)
    for rows, columns, high, wide in rng.integers(1, 50, (60, 4)):
        image = rng.integers(0, 256, (1, rows, columns), np.uint8)
        found = scaled(image, high, wide, filter)
        assert np.array_equal(found, by_pillow(np.repeat(image, 3, 0), high, wide, filter)[:1])


@pytest.mark.parametrize(("rows", "columns", "made"), [(50, 81, (20, 32)), (81, 50, (32, 20)), (30, 30, (20, 20))])
def test_in_proportion_the_shorter_side_is_scaled_and_the_middle_cut_out(rows, columns, made):
    image = RNG.integers(0, 256, (3, rows, columns), np.uint8)
    whole = by_pillow(image, *made, "bilinear")
    top, left = (made[0] - 16) // 2, (made[1] - 16) // 2
    found = resized(image, ResizeSpec(side=20, proportion=True), 16)
    assert np.array_equal(found, whole[:, top : top + 16, left : left + 16])


def test_the_middle_has_black_around_it_where_it_is_smaller():
    image = np.full((1, 2, 7), 9, np.uint8)
    assert middle(image, 5)[0].tolist() == [[0] * 5, [0] * 5, [9] * 5, [9] * 5, [0] * 5]
    assert np.array_equal(resized(image, ResizeSpec(), 5), middle(image, 5))


def test_twelve_million_pixels_take_seconds():
    image, start = RNG.integers(0, 256, (3, 3000, 4000), np.uint8), time.process_time()
    assert resized(image, ResizeSpec(side=224, filter="bicubic"), 224).shape == (3, 224, 224)
    assert time.process_time() - start < 15


def test_an_image_is_brought_to_size_as_the_models_settings_say():
    """Also one that has the model's size, and numbers from 0 to 1 as the bytes that they stand for."""
    spec = ResizeSpec(side=10, filter="bicubic")
    for image in (RNG.integers(0, 256, (3, 8, 8), np.uint8), RNG.integers(0, 256, (3, 13, 9), np.uint8)):
        made = fitted(image, 3, 8, "auto", spec)
        assert made.how == "resize" and np.array_equal(made.image, by_pillow(image, 10, 10, "bicubic")[:, 1:9, 1:9])
        assert np.array_equal(fitted(image / 255, 3, 8, "resize", spec).image, made.image)
        assert fitted(image, 3, 8, "whole", spec).how == "whole"
    gray = RNG.integers(0, 256, (9, 9), np.uint8)
    made = fitted(gray, 3, 8, "auto", spec).image
    assert np.array_equal(made[0], made[1]) and made.shape == (3, 8, 8)
    with pytest.raises(InputError, match="fit: this model has no settings of its own for the size of an image"):
        fitted(gray, 3, 8, "resize")


def test_a_classifier_reads_what_its_settings_make_of_an_image(tmp_path):
    loaded = Classifier(built("deit"))
    image = RNG.integers(0, 256, (3, 30, 20), np.uint8)
    made = fitted(image, 3, 8, "auto", CASES["deit"].resize)
    assert loaded.classify(image) == loaded.classify(made.image, fit="none") != loaded.classify(image, fit="whole")


def test_a_model_without_classes_gives_vectors_and_influence_and_refuses_to_classify():
    for name in ("pooler", "headless", "headless-maps"):
        loaded, images = Classifier(built(name)), images_of(name, 1)
        assert "no classes" in repr(loaded)
        for ask in (loaded.classify, loaded.evaluate):
            with pytest.raises(UnsupportedError, match="this model encodes images and knows no classes"):
                ask(images)
        found = influence(loaded.model, images)
        vectors = loaded(images)
        rows = {"pooler": 1, "headless": vectors.shape[1], "headless-maps": 16}[name]
        assert found.norms.shape == (rows, CASES[name].size ** 2) and found.norms.amax() > 0

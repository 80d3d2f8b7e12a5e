"""Images of any size are brought to what a model reads, as the digits of MNIST were."""

from typing import get_args

import numpy as np
import pytest

from glassformer.data.fit import Fit, fitted
from glassformer.errors import InputError
from glassformer.terminal.options import Fitting


def stroke(size: int = 28) -> np.ndarray:
    """A bright upright stroke with a short foot, as an image of MNIST would have it."""
    image = np.zeros((size, size), np.uint8)
    image[4:24, 12:15] = 255
    image[21:24, 12:20] = 255
    return image


def test_an_image_of_the_right_size_stays_as_it_is_and_is_said_to_be_dark_on_light():
    found = fitted(stroke(), 1, 28)
    assert found.how == "none" and not found.dark and np.array_equal(found.image[0], stroke())
    assert fitted(255 - stroke(), 1, 28).dark
    share = stroke() / 255
    assert fitted(share, 1, 28).image.dtype == share.dtype  # numbers from 0 to 1 stay numbers from 0 to 1
    large = np.zeros((40, 40), np.uint8)
    assert fitted(large, 1, 28, "none").image.shape == (1, 40, 40)  # the model then says what it reads


def test_colours_become_gray_and_gray_every_colour():
    colour = np.zeros((3, 28, 28), np.uint8)
    for channel, luma in enumerate((76, 150, 29)):
        colour[:] = 0
        colour[channel] = 255
        assert np.unique(fitted(colour, 1, 28).image).tolist() == [luma]
    assert np.array_equal(fitted(stroke(), 3, 28).image, np.stack([stroke()] * 3))


@pytest.mark.parametrize("light", [True, False])
@pytest.mark.parametrize(("scale", "top", "left"), [(1, 30, 5), (4, 3, 77), (9, 200, 11)])
def test_ink_is_found_wherever_and_however_large_it_is(light, scale, top, left):
    """Its longer side becomes 20 pixels, its centre of mass lies in the middle, and it is bright on black."""
    drawn = stroke()[4:24, 12:20].repeat(scale, 0).repeat(scale, 1)
    canvas = np.full((drawn.shape[0] + 2 * top, drawn.shape[1] + 2 * left + 40), 240 if light else 10, np.uint8)
    canvas[top : top + len(drawn), left : left + drawn.shape[1]][drawn > 0] = 20 if light else 230
    canvas[0, 0] += 9  # a speck on the paper, which is no ink
    found = fitted(canvas, 1, 28)
    assert found.how == "ink" and not found.dark and found.image.shape == (1, 28, 28) and found.image.dtype == np.uint8
    image = found.image[0].astype(float)
    assert image.max() == 255 and image[0].max() == 0 and len(np.flatnonzero(image.any(1))) == 20
    middle = [(image.sum(1 - axis) * np.arange(28)).sum() / image.sum() for axis in (0, 1)]
    assert abs(middle[0] - 13.5) <= 0.5 and abs(middle[1] - 13.5) <= 0.5
    upright = fitted(drawn, 1, 28, "ink").image[0] if scale == 1 else None
    assert upright is None or len(np.flatnonzero(upright.any(1))) == 20


def test_a_thin_line_is_still_seen():
    canvas = np.full((600, 600), 255, np.uint8)
    canvas[100:500, 300] = 0
    assert fitted(canvas, 1, 28).image.max() == 255


def test_a_colour_model_sees_the_whole_image_in_its_proportions():
    canvas = np.zeros((3, 40, 80), np.uint8)
    canvas[0], canvas[2, :, 40:] = 200, 100
    found = fitted(canvas, 3, 8)
    assert found.how == "whole" and found.image.shape == (3, 8, 8)
    assert (found.image[0] == 200).all() and not found.image[1].any()
    assert np.array_equal(found.image[2, 2:6], [[0, 0, 0, 0, 100, 100, 100, 100]] * 4) or (
        found.image[2, 2:6, :3].max() == 0 and found.image[2, 2:6, 5:].min() == 100
    )
    assert np.unique(found.image[2, [0, 1, 6, 7]]).size == 1  # above and below, the colour of the border


def test_ink_of_a_colour_model_is_gray_whichever_colour_it_was_drawn_in():
    gray, colour = fitted(stroke(), 3, 28, "ink").image, np.zeros((3, 28, 28), np.uint8)
    assert gray.shape == (3, 28, 28) and np.array_equal(gray[0], fitted(stroke(), 1, 28, "ink").image[0])
    for channel in range(3):
        colour[:] = 0
        colour[channel] = stroke()
        found = fitted(colour, 3, 28, "ink").image
        assert found.shape == (3, 28, 28) and (found == found[0]).all() and found.max() == 255
        assert np.array_equal(found > 127, gray > 127), channel


@pytest.mark.parametrize("fit", get_args(Fit))
@pytest.mark.parametrize(("given", "channels"), [(4, 1), (2, 3)])
def test_other_numbers_of_channels_are_left_to_the_model_s_own_refusal(given, channels, fit):
    image = np.zeros((given, 40, 40), np.uint8)
    image[:, 10:30, 10:30] = 255
    assert fitted(image, channels, 28, fit).image is image


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (np.full((50, 60), 255, np.uint8), "nothing is drawn on it that differs from its border"),
        (np.full((50, 60), 300), "the pixels are not all in their range"),
        (np.full((50, 60), np.nan), "the pixels are not all in their range"),
    ],
)
def test_what_cannot_be_fitted_is_refused(image, message):
    with pytest.raises(InputError, match=message):
        fitted(image, 1, 28)


def test_the_command_line_offers_what_there_is():
    assert get_args(get_args(Fitting)[0]) == get_args(Fit)

"""An image of any size, brought to what a classifier reads.

`ink` does what was done to the digits of MNIST (LeCun et al. 1998, section III.A): what is drawn, light on dark, is
scaled into 20/28 of the side with its proportions kept, and put with its centre of mass into the middle.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F

from ..errors import InputError
from ..nn.resize import ResizeSpec, resized
from .images import check_pixels

Fit = Literal["auto", "ink", "whole", "resize", "none"]
_LUMA = np.array([0.299, 0.587, 0.114])  # ITU-R BT.601
_PAPER = 0.25  # of the strongest ink; what is weaker belongs to the paper


@dataclass(frozen=True)
class Fitted:
    """An image `c y x` (bytes, or numbers from 0 to 1), how it was fitted, and whether it is dark on a light ground."""

    image: np.ndarray
    how: Literal["ink", "whole", "resize", "none"]
    dark: bool


def fitted(given: np.ndarray, channels: int, size: int, fit: Fit = "auto", resize: ResizeSpec | None = None) -> Fitted:
    """An image `y x` or `c y x` for a model of `channels` × `size` × `size`.

    Colours become gray for a model of one channel, and gray the same in every channel of another. resize: as the
    model's own settings say (nn.resize). auto: so where the model has such settings; else an image of the model's size
    stays as it is; another is fitted by its ink where the model has one channel, else whole, its longer side scaled to
    `size` and the rest filled with the colour of its border. none: nothing but the channels changes. ink is gray. Other
    numbers of channels stay for the model to refuse.
    Raises InputError for pixels outside their range, for an image on which nothing is drawn, and for resize where the
    model has no such settings.
    """
    image = given if given.ndim == 3 else given[None]
    if image.ndim != 3 or not image.size or image.dtype.kind not in "uif":
        return Fitted(given, "none", False)  # no image at all: what reads it says why
    whole = image.dtype.kind in "ui"
    check_pixels(image, 255 if whole else 1)
    if channels == 1 and len(image) == 3:
        image = _gray(image)
        image = image.round().astype(np.uint8) if whole else image
    elif len(image) == 1:
        image = np.repeat(image, channels, 0)
    if len(image) != channels:
        return Fitted(given, "none", False)
    if fit == "resize" and resize is None:
        raise InputError("fit: this model has no settings of its own for the size of an image; use auto, ink or whole")
    if fit == "auto" and resize is not None:
        fit = "resize"
    elif fit == "auto":
        fit = "none" if image.shape[1:] == (size, size) else "ink" if channels == 1 else "whole"
    most = 255 if whole else 1
    if fit == "resize":
        return Fitted(resized(np.round(image * (255 / most)).astype(np.uint8), resize, size), fit, False)
    ground = np.median(_border(image), 1)
    if fit == "none":
        return Fitted(image, "none", bool(ground.mean() > most / 2))
    if fit == "ink":
        gray = _gray(image) / most
        made = np.repeat(_ink(gray[0], np.median(_border(gray)), size), channels, 0)
    else:
        made = _whole(image / most, ground / most, size)
    return Fitted((made * 255).round().astype(np.uint8), fit, False)


def _gray(image: np.ndarray) -> np.ndarray:
    """`c y x` to `1 y x`: three channels by what the eye makes of them, others by their mean."""
    return np.average(image, 0, _LUMA if len(image) == 3 else None)[None]


def _border(image: np.ndarray) -> np.ndarray:
    """The outermost pixels of each channel, `c n`."""
    return np.concatenate((image[:, 0], image[:, -1], image[:, :, 0], image[:, :, -1]), 1)


def _ink(image: np.ndarray, ground: float, size: int) -> np.ndarray:
    """What differs from the ground, `1 y x` from 0 to 1."""
    ink = np.clip(ground - image if ground > 0.5 else image - ground, 0, None)
    if ink.max() < 0.1:
        raise InputError("nothing is drawn on it that differs from its border; give an image of one thing on a ground")
    ink = np.where(ink < _PAPER * ink.max(), 0, ink)
    rows, columns = (np.flatnonzero(ink.any(axis)) for axis in (1, 0))
    ink = ink[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    ink = _scaled(ink[None], round(size * 20 / 28))[0]
    mass, made = ink.sum(), np.zeros((1, size, size))
    at = []
    for axis, length in enumerate(ink.shape):
        centre = (ink.sum(1 - axis) * np.arange(length)).sum() / mass
        at.append(int(np.clip(round((size - 1) / 2 - centre), 0, size - length)))
    made[0, at[0] : at[0] + ink.shape[0], at[1] : at[1] + ink.shape[1]] = ink / ink.max()
    return made


def _whole(image: np.ndarray, ground: np.ndarray, size: int) -> np.ndarray:
    """All of it in the middle, `c y x` from 0 to 1."""
    image = _scaled(image, size)
    made = np.repeat(np.repeat(ground[:, None, None], size, 1), size, 2)
    (top, left), (rows, columns) = ((size - n) // 2 for n in image.shape[1:]), image.shape[1:]
    made[:, top : top + rows, left : left + columns] = image
    return made


def _scaled(image: np.ndarray, side: int) -> np.ndarray:
    """`c y x` with its longer side scaled to so many pixels, each the mean of what it covers."""
    rows, columns = (max(1, round(n * side / max(image.shape[1:]))) for n in image.shape[1:])
    given = torch.from_numpy(image)[None]
    return F.interpolate(given, (rows, columns), mode="bilinear", antialias=True)[0].clamp(0, 1).numpy()

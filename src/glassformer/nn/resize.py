"""Pixels of another size: how a picture is scaled, number for number as the Pillow library scales bytes.

A pixel of the result is a weighted sum of those it covers, along one axis and then along the other, and each sum is
rounded to a byte. Where a picture becomes smaller, the filter is widened by the same factor.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import numpy as np

from ..errors import SettingError
from ..spec import Spec, check_least

_ONE = 1 << 22  # of the fixed-point weights


class ResizeSpec(Spec, frozen=True, tag="resize"):
    """How an image of any size becomes one of size × size, as published classifiers want it: scaled, then the middle
    cut out, with black around it where it is smaller.

    side        both sides are scaled to so many pixels, whatever the proportions; None: nothing is scaled
    proportion  only the shorter side becomes `side`, the longer one in proportion
    filter      by which a pixel of the result is made of those it covers
    """

    side: int | None = None
    proportion: bool = False
    filter: Literal["nearest", "box", "bilinear", "hamming", "bicubic", "lanczos"] = "bilinear"

    def __post_init__(self) -> None:
        check_least(self, 1, "side")
        if self.proportion and self.side is None:
            raise SettingError("proportion: without side nothing is scaled; give side, or set it to false")


def _cubic(x: np.ndarray) -> np.ndarray:
    """Keys (1981) with a = -1/2."""
    x = np.abs(x)
    near, far = (1.5 * x - 2.5) * x * x + 1, (((x - 5) * x + 8) * x - 4) * -0.5
    return np.where(x < 1, near, np.where(x < 2, far, 0.0))


# The filters of a distance x in pixels, and how far each reaches.
_FILTERS: dict[str, tuple[Callable[[np.ndarray], np.ndarray], float]] = {
    "box": (lambda x: np.where((x > -0.5) & (x <= 0.5), 1.0, 0.0), 0.5),
    "bilinear": (lambda x: np.clip(1 - np.abs(x), 0, None), 1.0),
    "hamming": (lambda x: np.where(np.abs(x) < 1, np.sinc(x) * (0.54 + 0.46 * np.cos(np.pi * x)), 0.0), 1.0),
    "bicubic": (_cubic, 2.0),
    "lanczos": (lambda x: np.where(np.abs(x) < 3, np.sinc(x) * np.sinc(x / 3), 0.0), 3.0),
}


def resized(image: np.ndarray, spec: ResizeSpec, size: int) -> np.ndarray:
    """Bytes `c y x` of any size to bytes `c size size`."""
    rows, columns = image.shape[1:]
    if spec.side is not None:
        high, wide = (
            int(spec.side * n / min(rows, columns)) if spec.proportion else spec.side for n in (rows, columns)
        )
        image = scaled(image, high, wide, spec.filter)
    return middle(image, size)


def middle(image: np.ndarray, size: int) -> np.ndarray:
    """The middle of an image `c y x`, size × size; black where there is nothing."""
    lacking = [max(0, size - n) for n in image.shape[1:]]
    image = np.pad(image, [(0, 0), *((math.ceil(n / 2), n // 2) for n in lacking)])
    top, left = ((n - size) // 2 for n in image.shape[1:])
    return image[:, top : top + size, left : left + size]


def scaled(image: np.ndarray, rows: int, columns: int, filter: str) -> np.ndarray:
    """Bytes `c y x` to bytes of so many rows and columns."""
    if filter == "nearest":
        high, wide = (_nearest(n, m) for n, m in zip(image.shape[1:], (rows, columns), strict=True))
        return image[:, high[:, None], wide]
    # Rounding between the two makes their order matter: along the rows first, but for tall pictures (Pillow 13).
    tall = image.shape[1] - rows > max(0, 2 * (image.shape[2] - columns))
    for axis, wanted in ((1, rows), (2, columns)) if tall else ((2, columns), (1, rows)):
        if image.shape[axis] != wanted:
            image = np.moveaxis(_along(np.moveaxis(image, axis, 0), wanted, filter), 0, axis)
    return image


def _nearest(given: int, wanted: int) -> np.ndarray:
    """Which of the given pixels lies under the middle of each wanted one."""
    step = given / wanted
    return np.cumsum([step * 0.5, *[step] * (wanted - 1)]).astype(int)  # step by step, rounding as Pillow does


def _along(image: np.ndarray, wanted: int, filter: str) -> np.ndarray:
    """Bytes `n …` to bytes of another length n along the first axis."""
    image, given, (weight, reach) = np.ascontiguousarray(image), len(image), _FILTERS[filter]
    scale = given / wanted
    stretch = max(scale, 1.0)
    made = np.empty((wanted, *image.shape[1:]), np.uint8)
    for place in range(wanted):
        centre = (place + 0.5) * scale
        first = max(0, int(centre - reach * stretch + 0.5))
        last = min(given, int(centre + reach * stretch + 0.5))
        weights = weight((np.arange(first, last) - centre + 0.5) * (1.0 / stretch))
        weights = weights / weights.sum()
        fixed = np.trunc(weights * _ONE + np.where(weights < 0, -0.5, 0.5))
        total = np.tensordot(fixed, image[first:last].astype(np.float64), 1)  # whole numbers, exact in fp64
        made[place] = np.clip(np.floor((total + _ONE / 2) / _ONE), 0, 255)
    return made

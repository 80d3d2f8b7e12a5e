"""Images: labelled sets (an .npz like MNIST's, or a folder of IDX files), single files, and what is given in Python.

A pixel is a number from 0 to 1; in a file it is a byte from 0 to 255. Nothing is resized here; `data.fit` does that.
"""

from __future__ import annotations

import gzip
import re
import struct
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from ..errors import InputError, nearest
from ..files import given_path
from ..spec import Spec, check_least
from .picture import png, portable

Split = Literal["train", "test"]
_IDX = {"train": "train", "test": "t10k"}  # how the files of a split begin


class ViewSpec(Spec, frozen=True, tag="view"):
    """How images are changed before a model sees them.

    shift    rows down and columns to the right by which every image is moved; what comes in is 0
    permute  the seed of one fixed order of all pixels, the same in every image and channel; None: as they are
    """

    shift: tuple[int, int] = (0, 0)
    permute: int | None = None

    def __post_init__(self) -> None:
        check_least(self, 0, "permute")


@dataclass(frozen=True)
class Labelled:
    """Images `n c y x` of bytes and the number of each one's class, `n`."""

    images: np.ndarray
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)

    def seen(self, view: ViewSpec) -> Labelled:
        """The same images as a view shows them."""
        return Labelled(seen(self.images, view), self.labels)


def seen(images: np.ndarray, view: ViewSpec) -> np.ndarray:
    """Images `n c y x` as a view shows them."""
    (down, right), (rows, columns) = view.shift, images.shape[2:]
    if down or right:
        moved = np.zeros_like(images)
        (to_row, row), (to_column, column) = _moved(down, rows), _moved(right, columns)
        moved[:, :, to_row, to_column] = images[:, :, row, column]
        images = moved
    if view.permute is not None:
        order = np.random.default_rng(view.permute).permutation(rows * columns)
        images = images.reshape(*images.shape[:2], -1)[:, :, order].reshape(images.shape)
    return images


def _moved(by: int, size: int) -> tuple[slice, slice]:
    """Where to and where from, of an axis whose content moves by so many places."""
    by = max(-size, min(by, size))
    return slice(max(by, 0), size + min(by, 0)), slice(max(-by, 0), size - max(by, 0))


def read_labelled(source: Path | str, split: Split) -> Labelled:
    """The images of a split: of an .npz with x_train, y_train, x_test and y_test, or of a folder with the IDX files of
    MNIST and Fashion-MNIST (train-images-idx3-ubyte and so on, also with .gz).

    Raises InputError for what is missing, broken, or does not fit together.
    """
    source = given_path(source)
    if source.is_dir():
        parts = ("images-idx3", "labels-idx1")
        images, labels = (_idx_file(source, f"{_IDX[split]}-{part}-ubyte") for part in parts)
    elif source.is_file():
        images, labels = _npz(source, f"x_{split}", f"y_{split}")
    else:
        raise InputError(f"{source}: there is no such file or folder; give an .npz file or a folder of IDX files")
    if images.dtype != np.uint8 or images.ndim not in (3, 4):
        raise InputError(
            f"{source}: the images are {images.dtype} of shape {images.shape}; give bytes of shape (count, rows, "
            "columns) or (count, channels, rows, columns)"
        )
    if labels.ndim != 1 or labels.dtype.kind not in "ui" or len(labels) != len(images) or not len(labels):
        raise InputError(
            f"{source}: {len(images)} images do not fit labels of {labels.dtype} and shape {labels.shape}; give one "
            "whole number for each image"
        )
    return Labelled(images if images.ndim == 4 else images[:, None], labels.astype(np.int64))


def check_labelled(source: Path | str, given: Labelled, classes: int, channels: int, size: int) -> None:
    """Raise InputError where images or labels are not those that a model of so many classes reads."""
    wanted = (channels, size, size)
    if given.images.shape[1:] != wanted:
        raise InputError(f"{source}: images of shape {given.images.shape[1:]} do not fit a model of {wanted}")
    low, high = int(given.labels.min()), int(given.labels.max())
    if low < 0 or high >= classes:
        raise InputError(
            f"{source}: label {low if low < 0 else high} does not fit a model of {classes} classes (0 to {classes - 1})"
        )


def _npz(path: Path, *names: str) -> list[np.ndarray]:
    """Arrays of an .npz file by name."""
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            for name in names:
                if name not in file.files:
                    raise InputError(f"{path}: it holds no {name}; {nearest(name, file.files)}")
            return [file[name] for name in names]
    except InputError:
        raise
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error, AttributeError) as error:
        raise InputError(f"{path}: not a whole .npz file ({_line(error)}); fetch or save it again") from None


def _idx_file(folder: Path, name: str) -> np.ndarray:
    """The array of an IDX file in a folder, gzipped or not."""
    path = next((one for one in (folder / name, folder / f"{name}.gz") if one.is_file()), None)
    if path is None:
        raise InputError(f"{folder}: there is no {name} or {name}.gz in it; give the folder that holds the IDX files")
    return _idx(path)


def _idx(path: Path) -> np.ndarray:
    """The array of an IDX file, gzipped or not."""
    data = path.read_bytes()
    try:
        return idx(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data, path)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InputError(f"{path}: not a whole gzip file ({_line(error)}); fetch it again") from None


def idx(data: bytes, path: Path) -> np.ndarray:
    """The array of bytes in an IDX file: two zeros, 8 for bytes, the number of axes, their sizes, the content."""
    if len(data) < 4 or data[:3] != b"\0\0\x08":
        raise InputError(f"{path}: not an IDX file of bytes (it begins with {data[:4].hex()}); fetch it again")
    start = 4 + 4 * data[3]
    sizes = struct.unpack(f">{data[3]}I", data[4:start]) if len(data) >= start else ()
    count = int(np.prod(sizes, dtype=np.int64))
    if len(data) != start + count or not sizes:
        raise InputError(f"{path}: it has {len(data)} bytes and announces {start + count}; fetch it again")
    return np.frombuffer(data, np.uint8, count, start).reshape(sizes)


# ---------------------------------------------------------------- single images


_READERS: dict[str, Callable[[bytes, Path], np.ndarray]] = {".png": png, ".pgm": portable, ".ppm": portable}
KINDS = (*_READERS, ".npy", ".npz")
_OTHERS = (".jpg", ".jpeg", ".gif", ".bmp", ".webp", ".tif", ".tiff", ".heic", ".avif", ".svg")  # images all the same


def image_files(source: Path | str) -> list[Path]:
    """The file itself, or the images of a folder in the order of their names, numbers in them by their value; also
    those of kinds that `read_image` refuses, so that none is passed over in silence.

    Raises InputError where there are none.
    """
    source = given_path(source)
    if source.is_dir():
        kinds = (*KINDS, *_OTHERS)
        found = [path for path in source.iterdir() if path.suffix.lower() in kinds and path.is_file()]
        if not found:
            raise InputError(
                f"{source}: there is no image in this folder ({', '.join(KINDS)}); give another, or a file"
            )
        return sorted(found, key=lambda path: _place(path.name))
    _check_file(source)
    return [source]


def _place(name: str) -> list[str | int]:
    """The texts of a name and the numbers between them, by turns."""
    return [int(one) if i % 2 else one for i, one in enumerate(re.split(r"([0-9]+)", name))]


def _check_file(path: Path) -> None:
    if not path.is_file():
        raise InputError(f"{path}: there is no such file; give an image ({', '.join(KINDS)})")


def read_images(path: Path | str, channels: int) -> list[np.ndarray]:
    """The images in a file, each `y x` or `c y x`: of an array file or an IDX file that holds several, all of them.

    Raises InputError as `read_image` and `apart` do.
    """
    given = read_image(path)
    return [given] if Path(path).suffix.lower() in _READERS else apart(given, channels)


def apart(given: np.ndarray, channels: int) -> list[np.ndarray]:
    """The images `y x` or `c y x` of an array, for a model of so many channels. Of three axes it is a batch `b y x`
    where that is 1, else one image. Raises InputError for other than two to four axes, and for an empty batch."""
    if given.ndim not in (2, 3, 4) or not given.size:
        raise InputError(f"an array of shape {given.shape} is no image; give one of (rows, columns), or a batch of it")
    return list(given) if given.ndim == 4 or (given.ndim == 3 and channels == 1) else [given]


def read_image(path: Path | str) -> np.ndarray:
    """The image in a .npy, .png, .pgm or .ppm file, the only array of an .npz, or the images of an IDX file (also
    gzipped): `y x` or `c y x` (in an array file also a batch `b c y x`, in an IDX file `b y x`).

    Raises InputError for a file that does not exist, is of another kind, or is broken.
    """
    path = given_path(path)
    _check_file(path)
    kind = path.suffix.lower()
    if kind in _READERS:
        return _READERS[kind](path.read_bytes(), path)
    if kind not in KINDS:
        return _of_no_known_name(path)
    try:
        with path.open("rb") as opened:
            made = np.load(opened, allow_pickle=False)
            if isinstance(made, np.ndarray):
                return made
            if len(made.files) != 1:
                raise InputError(
                    f"{path}: it holds {len(made.files)} arrays; save the one image alone, or count a labelled set's "
                    "errors with glassformer evaluate"
                )
            return made[made.files[0]]
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path}: not a whole {kind} file ({_line(error)}); save it again") from None


def _of_no_known_name(path: Path) -> np.ndarray:
    """The images of an IDX file, whatever it is called."""
    with path.open("rb") as opened:
        start = opened.read(3)
    if start != b"\0\0\x08" and start[:2] != b"\x1f\x8b":
        raise InputError(f"{path}: images are read from {', '.join(KINDS)} and IDX files; save it as one of them")
    found = _idx(path)
    if found.ndim < 2:
        raise InputError(f"{path}: it holds labels; give the file of the images")
    return found


def pictures(given: Any, channels: int, size: int) -> Tensor:
    """Images given as arrays, tensors or lists as one batch `b c y x` of floats from 0 to 1.

    Of shape `y x` for a model of one channel, `c y x`, or a batch of either. Whole numbers are bytes from 0 to 255.
    Raises InputError for another size, and for pixels outside their range.
    """
    images = as_tensor(given, channels, size)
    shape = tuple(images.shape)
    if channels == 1 and shape[-2:] == (size, size) and images.ndim in (2, 3):
        images = images.reshape(-1, 1, size, size)
    elif images.ndim == 3:
        images = images[None]
    if images.shape[1:] != (channels, size, size) or not len(images):
        raise InputError(
            f"this model reads images of {channels} × {size} × {size} (channels, rows, columns), alone or as a batch; "
            f"not an array of shape {shape}"
        )
    whole = not images.is_floating_point()
    images = images.to(torch.float32 if whole else images.dtype) / (255 if whole else 1)
    check_pixels(images, 1)
    return images


def as_tensor(given: Any, channels: int, size: int) -> Tensor:
    """An array, a tensor or a list of pixels as a tensor, black and white as 0 and 1.

    Raises InputError for what holds no numbers; it names the shape of an image that fits.
    """
    try:
        images = given if isinstance(given, Tensor) else torch.from_numpy(np.array(given))
    except (TypeError, ValueError):
        raise InputError(
            f"give an image as an array of numbers, {channels} × {size} × {size}; not {type(given).__name__}"
        ) from None
    return images.float() if images.dtype == torch.bool else images


def check_pixels(images: Tensor | np.ndarray, most: int) -> None:
    """Raise InputError for pixels that are not from 0 to `most`."""
    if not bool(((images >= 0) & (images <= most)).all()):
        raise InputError(
            "the pixels are not all in their range; give whole numbers from 0 to 255, or other numbers from 0 to 1"
        )


def _line(error: Exception) -> str:
    return " ".join(str(error).split())

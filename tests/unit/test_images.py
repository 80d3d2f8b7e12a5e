"""Reading images: labelled sets, single files, arrays; what is broken is named."""

import gzip
import itertools
import struct
import time
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch

from glassformer.data.images import (
    Labelled,
    ViewSpec,
    check_labelled,
    image_files,
    pictures,
    read_image,
    read_images,
    read_labelled,
)
from glassformer.data.picture import picture
from glassformer.errors import InputError, SettingError

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (5, 4, 6), dtype=np.uint8)
LABELS = np.array([3, 0, 2, 1, 3], np.uint8)


def idx(array: np.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


@pytest.fixture
def folder(tmp_path):
    """A folder of IDX files as they are published, the test part gzipped."""
    (tmp_path / "train-images-idx3-ubyte").write_bytes(idx(IMAGES))
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(idx(LABELS))
    (tmp_path / "t10k-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(IMAGES[:2])))
    (tmp_path / "t10k-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(LABELS[:2])))
    return tmp_path


def same(found: Labelled, images, labels):
    assert found.images.dtype == np.uint8 and np.array_equal(found.images, images[:, None])
    assert found.labels.dtype == np.int64 and np.array_equal(found.labels, labels)


def test_idx_files_and_npz_give_the_same_images(folder, tmp_path):
    same(read_labelled(folder, "train"), IMAGES, LABELS)
    same(read_labelled(folder, "test"), IMAGES[:2], LABELS[:2])
    path = tmp_path / "set.npz"
    np.savez(path, x_train=IMAGES, y_train=LABELS, x_test=IMAGES[:2], y_test=LABELS[:2].astype(np.int32))
    same(read_labelled(path, "train"), IMAGES, LABELS)
    same(read_labelled(path, "test"), IMAGES[:2], LABELS[:2])


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("train-labels-idx1-ubyte", lambda data: None, r"there is no train-labels-idx1-ubyte or train-.*\.gz in it"),
        ("train-labels-idx1-ubyte", lambda data: data[:-1], "it has 12 bytes and announces 13; fetch it again"),
        ("train-images-idx3-ubyte", lambda data: data + b"x", "it has 137 bytes and announces 136"),
        ("train-images-idx3-ubyte", lambda data: b"PK" + data, "not an IDX file of bytes .it begins with 504b0000"),
        ("train-images-idx3-ubyte", lambda data: b"\0\0\x0d\x03" + data[4:], "not an IDX file of bytes"),
        ("train-images-idx3-ubyte", lambda data: data[:7], "it has 7 bytes and announces"),
        ("train-labels-idx1-ubyte", lambda data: idx(LABELS[:3]), "5 images do not fit labels of uint8"),
        ("train-images-idx3-ubyte", lambda data: idx(LABELS), r"the images are uint8 of shape \(5,\); give bytes of"),
    ],
)  # fmt: skip
def test_a_broken_idx_file_is_named(folder, name, change, message):
    path = folder / name
    new = change(path.read_bytes())
    path.unlink() if new is None else path.write_bytes(new)
    with pytest.raises(InputError, match=message):
        read_labelled(folder, "train")


def test_a_cut_gzip_file_is_named(folder):
    path = folder / "t10k-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(InputError, match="t10k-images-idx3-ubyte.gz: not a whole gzip file"):
        read_labelled(folder, "test")


def test_what_an_npz_must_hold(tmp_path):
    path = tmp_path / "set.npz"
    np.savez(path, x_train=IMAGES, y_tran=LABELS)
    with pytest.raises(InputError, match=r"set\.npz: it holds no y_train; did you mean y_tran"):
        read_labelled(path, "train")
    np.savez(path, x_train=IMAGES.astype(float), y_train=LABELS)
    with pytest.raises(InputError, match="the images are float64 of shape"):
        read_labelled(path, "train")
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(InputError, match=r"not a whole \.npz file"):
        read_labelled(path, "train")
    with pytest.raises(InputError, match="there is no such file or folder"):
        read_labelled(tmp_path / "nothing", "train")


@pytest.mark.parametrize(
    ("shape", "labels", "message"),
    [
        ((1, 1, 4, 6), [0], "do not fit a model of"),
        ((1, 1, 4, 4), [4], "label 4 does not fit a model of 4 classes .0 to 3."),
    ],
)
def test_a_set_must_fit_its_model(shape, labels, message):
    with pytest.raises(InputError, match=message):
        check_labelled("set", Labelled(np.zeros(shape, np.uint8), np.array(labels)), 4, 1, 4)


# ---------------------------------------------------------------- views


def test_a_shift_moves_every_image_and_fills_with_black():
    given = Labelled(IMAGES[:, None], LABELS.astype(np.int64))
    for down, right in ((1, 0), (0, 2), (-1, 3), (-2, -1)):
        wanted = np.zeros_like(IMAGES)
        for y in range(4):
            for x in range(6):
                if 0 <= y - down < 4 and 0 <= x - right < 6:
                    wanted[:, y, x] = IMAGES[:, y - down, x - right]
        same(given.seen(ViewSpec(shift=(down, right))), wanted, LABELS)
    assert not given.seen(ViewSpec(shift=(9, 0))).images.any()


def test_a_permutation_is_one_and_the_same_for_all_images_and_channels():
    colour = np.stack([np.stack([IMAGES[0], IMAGES[0]]), np.stack([IMAGES[1], IMAGES[1]])])
    seen = Labelled(colour, LABELS[:2]).seen(ViewSpec(permute=7)).images
    assert np.array_equal(seen[0, 0], seen[0, 1]) and not np.array_equal(seen, colour)
    lines = [seen[i, 0].ravel() for i in range(2)]
    places = [[(a, b) for a, b in zip(*(x.ravel() for x in pair), strict=True)] for pair in (lines, IMAGES[:2])]
    assert sorted(places[0]) == sorted(places[1])  # pixels keep company with the same pixels of the other image
    assert np.array_equal(seen, Labelled(colour, LABELS[:2]).seen(ViewSpec(permute=7)).images)
    assert not np.array_equal(seen, Labelled(colour, LABELS[:2]).seen(ViewSpec(permute=8)).images)
    with pytest.raises(SettingError, match=r"^permute: -1 is not allowed"):
        ViewSpec(permute=-1)


# ---------------------------------------------------------------- single images


def encoded(pixels: np.ndarray, colour: int, kind: int, palette: bytes = b"") -> bytes:
    """A PNG of `y x c` bytes, each row filtered with `kind`, as the specification defines the filters."""
    height, width, channels = pixels.shape
    flat, rows = pixels.reshape(height, -1).astype(int), []
    for y in range(height):
        row = [kind]
        for x in range(flat.shape[1]):
            a = flat[y, x - channels] if x >= channels else 0
            b = flat[y - 1, x] if y else 0
            c = flat[y - 1, x - channels] if y and x >= channels else 0
            p = a + b - c
            nearest = a if abs(p - a) <= min(abs(p - b), abs(p - c)) else b if abs(p - b) <= abs(p - c) else c
            row.append((flat[y, x] - (0, a, b, (a + b) // 2, nearest)[kind]) % 256)
        rows.append(bytes(row))

    def chunk(name: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    head = struct.pack(">IIBBBBB", width, height, 8, colour, 0, 0, 0)
    squeezed = zlib.compress(b"".join(rows))
    parts = [chunk(b"IHDR", head), *([chunk(b"PLTE", palette)] if palette else []), chunk(b"IDAT", squeezed[:9])]
    return b"\x89PNG\r\n\x1a\n" + b"".join([*parts, chunk(b"IDAT", squeezed[9:]), chunk(b"IEND", b"")])


@pytest.mark.parametrize("kind", range(5))
def test_png_of_every_filter(tmp_path, kind):
    path = tmp_path / "a.png"
    path.write_bytes(encoded(IMAGES[0][..., None], 0, kind))
    assert np.array_equal(read_image(path), IMAGES[0])
    colour = RNG.integers(0, 256, (4, 3, 3), dtype=np.uint8)
    path.write_bytes(encoded(colour, 2, kind))
    assert np.array_equal(read_image(path), colour.transpose(2, 0, 1))
    for half, ground in ((colour // 2, 255), (colour // 2 + 128, 0)):  # dark lies on white, bright on black
        path.write_bytes(encoded(np.concatenate([half, np.full((4, 3, 1), 51, np.uint8)], -1), 6, kind))
        assert np.array_equal(read_image(path), (half * 0.2 + ground * 0.8).round().transpose(2, 0, 1))
    numbers = RNG.integers(0, 2, (4, 3, 1), dtype=np.uint8)
    path.write_bytes(encoded(numbers, 3, kind, bytes([9, 8, 7, 1, 2, 3])))
    assert np.array_equal(read_image(path)[0], np.where(numbers[..., 0] == 0, 9, 1))


def test_array_and_portable_files(tmp_path):
    np.save(tmp_path / "a.npy", IMAGES[0])
    np.savez(tmp_path / "a.npz", whatever=IMAGES[1])
    assert np.array_equal(read_image(tmp_path / "a.npy"), IMAGES[0])
    assert np.array_equal(read_image(tmp_path / "a.npz"), IMAGES[1])
    (tmp_path / "a.pgm").write_bytes(b"P5\n# made by hand\n6 4\n255\n" + IMAGES[0].tobytes())
    assert np.array_equal(read_image(tmp_path / "a.pgm"), IMAGES[0])
    (tmp_path / "a.pgm").write_bytes(b"P2 2 2 15\n0 15\n# and\n5 10\n")
    assert read_image(tmp_path / "a.pgm").tolist() == [[0, 255], [85, 170]]
    (tmp_path / "a.ppm").write_bytes(b"P6 1 2 255 " + bytes([1, 2, 3, 4, 5, 6]))
    assert read_image(tmp_path / "a.ppm").tolist() == [[[1], [4]], [[2], [5]], [[3], [6]]]


WRONG = {
    "a.png": [(b"PNG", "not a PNG file"), (encoded(IMAGES[0][..., None], 0, 1)[:-30], "a broken PNG file")],
    "a.pgm": [(b"P5 2 2 255 abc", "a broken PGM or PPM file"), (b"GIF89a", "not a PGM or PPM file")],
    "b.pgm": [(b"P2 2 2 9 1 2 3 10", "a broken PGM or PPM file"), (b"P2 1 1 9 x", "a broken PGM or PPM file")],
    "a.npy": [(b"nothing", r"not a whole \.npy file")],
    "a.jpg": [(b"\xff\xd8\xff", r"images are read from \.png, \.pgm, \.ppm, \.npy, \.npz and IDX files")],
    "labels-idx1-ubyte": [(idx(LABELS), "it holds labels; give the file of the images")],
    "images-idx3-ubyte": [(idx(IMAGES)[:-1], "it has 135 bytes and announces 136")],
    "images-idx3-ubyte.gz": [(gzip.compress(idx(IMAGES))[:-9], "not a whole gzip file")],
}


@pytest.mark.parametrize(("name", "data", "message"), [(n, *one) for n, several in WRONG.items() for one in several])
def test_a_broken_image_is_named(tmp_path, name, data, message):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(InputError, match=rf"{name}: {message}"):
        read_image(tmp_path / name)


def head(data: bytes, width: int, height: int, *rest: int) -> bytes:
    """A PNG with another head; rest: bits, colour and so on."""
    return data[:16] + struct.pack(">II", width, height) + bytes(rest) + data[24 + len(rest) :]


def test_other_kinds_of_png_are_refused_by_name(tmp_path):
    path, data = tmp_path / "a.png", encoded(IMAGES[0][..., None], 0, 0)
    path.write_bytes(head(data, 6, 4, 8, 0, 0, 0, 1))
    with pytest.raises(InputError, match="only PNG files that are not interlaced are read"):
        read_image(path)
    path.write_bytes(head(data, 6, 4, 3))
    with pytest.raises(InputError, match="a broken PNG file .3 bits a channel"):
        read_image(path)
    path.write_bytes(head(data, 100_000, 100_000))
    with pytest.raises(InputError, match=r"it has 100000 × 100000 pixels, and at most 50 million are read"):
        read_image(path)
    bomb = zlib.compress(bytes(10**7))
    path.write_bytes(data[:33] + struct.pack(">I4s", len(bomb), b"IDAT") + bomb + bytes(4))
    with pytest.raises(InputError, match="its pixels do not fit its size"):
        read_image(path)
    path.write_bytes(encoded(np.full((1, 1, 1), 2, np.uint8), 3, 0, bytes(6)))
    with pytest.raises(InputError, match="a colour beyond its palette"):
        read_image(path)
    with pytest.raises(InputError, match="there is no such file"):
        read_image(tmp_path / "b.png")
    np.savez(tmp_path / "two.npz", a=IMAGES, b=IMAGES)
    with pytest.raises(InputError, match=r"it holds 2 arrays; .* glassformer evaluate"):
        read_image(tmp_path / "two.npz")


@pytest.mark.parametrize("bits", [1, 2, 4])
def test_png_of_few_bits_shares_its_bytes_between_pixels(tmp_path, bits):
    """Gray from 0 to 2^bits − 1 becomes 0 to 255; one of the grays may be declared clear."""
    levels = RNG.integers(0, 1 << bits, (3, 5), dtype=np.uint8)
    ones = np.unpackbits(levels[..., None], axis=2)[:, :, 8 - bits :].reshape(3, -1)
    packed = np.packbits(ones, axis=1)
    data = head(encoded(packed[..., None], 0, 4), 5, 3, bits, 0)
    (tmp_path / "a.png").write_bytes(data)
    wanted = levels.astype(int) * 255 // ((1 << bits) - 1)
    assert np.array_equal(read_image(tmp_path / "a.png"), wanted)
    clear = struct.pack(">I4sH", 2, b"tRNS", 0) + bytes(4)  # black is clear: the rest is bright and lies on black
    (tmp_path / "a.png").write_bytes(data[:33] + clear + data[33:])
    assert np.array_equal(read_image(tmp_path / "a.png"), wanted)
    clear = struct.pack(">I4sH", 2, b"tRNS", (1 << bits) - 1) + bytes(4)  # white is clear, and the rest is darker
    (tmp_path / "a.png").write_bytes(data[:33] + clear + data[33:])
    found = read_image(tmp_path / "a.png")
    rest = wanted[wanted < 255]
    assert np.array_equal(found, wanted if rest.mean() < 127.5 else np.where(wanted == 255, 0, wanted))


def test_png_of_sixteen_bits_and_a_palette_with_clear_colours(tmp_path):
    both = RNG.integers(0, 256, (3, 5, 2), dtype=np.uint8)  # upper and lower halves
    (tmp_path / "a.png").write_bytes(head(encoded(both.reshape(3, 10, 1), 0, 0), 5, 3, 16, 0))
    assert np.array_equal(read_image(tmp_path / "a.png"), both[..., 0])
    numbers = np.array([[0, 1, 2]], np.uint8)[..., None]
    data = encoded(numbers, 3, 0, bytes([9, 8, 7, 200, 200, 200, 30, 40, 50]))
    clear = struct.pack(">I4s", 2, b"tRNS") + bytes([255, 0]) + bytes(4)  # the second colour is not seen
    (tmp_path / "a.png").write_bytes(data[:33] + clear + data[33:])
    assert read_image(tmp_path / "a.png")[:, 0].T.tolist() == [[9, 8, 7], [255] * 3, [30, 40, 50]]


def painted(width: int, height: int, *before: bytes, kind: int = 4) -> bytes:
    """A PNG of zeros, each row filtered with `kind`; before: whole chunks in front of its head."""
    body = zlib.compress((bytes([kind]) + bytes(width)) * height)
    data = head(encoded(np.zeros((1, 1, 1), np.uint8), 0, 0), width, height)[:33]
    return data[:8] + b"".join(before) + data[8:] + struct.pack(">I4s", len(body), b"IDAT") + body + bytes(4)


@pytest.mark.parametrize(("width", "height"), [(1, 4_000_000), (4_000_000, 1), (32_769, 1)])
def test_a_picture_of_one_long_line_is_refused_at_once(width, height):
    """A line of four million pixels took minutes, one diagonal after another."""
    for data in (painted(width, height), b"P5 %d %d 255 " % (width, height) + bytes(width * height)):
        start = time.process_time()
        with pytest.raises(InputError, match=rf"{width} × {height} pixels, and a side may have at most 32,768"):
            picture(data, Path("a.png"))
        assert time.process_time() - start < 1


def test_the_limit_of_pixels_is_that_of_who_asks_wherever_the_head_stands():
    """What stood in front of the head hid the size from the page's limit."""
    said = rb"".join((struct.pack(">I4s", 3, b"tEXt"), b"a\0b", bytes(4)))
    assert not picture(painted(1000, 1000), Path("a.png"), 1_000_000).any()
    for data in (painted(1001, 1000), b"P5 1001 1000 255 " + bytes(1_001_000)):
        with pytest.raises(InputError, match="1001 × 1000 pixels, and at most 1 million are read"):
            picture(data, Path("a.png"), 1_000_000)
    for before in (said, painted(4, 4)[8:33]):  # a text, and the head of a small picture
        with pytest.raises(InputError, match="its size is not at its beginning"):
            picture(painted(1001, 1000, before), Path("a.png"), 1_000_000)


def test_reading_a_png_ends_where_nobody_waits_for_it():
    class Left(BaseException):
        pass

    asked = itertools.count()

    def check():
        if next(asked) == 100:
            raise Left

    with pytest.raises(Left):
        picture(painted(32_768, 100), Path("a.png"), check=check)
    assert next(asked) == 101


@pytest.mark.parametrize(
    "data",
    [
        *(painted(*size) for size in ((0, 9), (9, 0), (0, 0), (0, 10**6))),
        *(b"P%d %d %d 255\n" % (kind, *size) for kind in (2, 5) for size in ((0, 9), (9, 0))),
        b"P2 1 1 255 " + b"9" * 30,
        b"P2 1 1 255 " + b"9" * 5000,
        b"P2 1 1 255 1 1",
        b"P5 1 1 " + b"9" * 5000 + b" a",
        b"P5 " + b"9" * 5000 + b" 1 255 a",
    ],
)
def test_sizes_and_numbers_that_no_picture_has_are_refused(data):
    with pytest.raises(InputError, match=r"^a: (it has 0 × 1000000 pix|a broken P|not a PGM or PPM file)"):
        picture(data, Path("a"))


def test_a_png_of_many_small_chunks_is_read_at_once():
    """Joined one by one, the bytes of 80,000 chunks were copied so many times."""
    body = zlib.compress(RNG.integers(0, 256, (300, 301), dtype=np.uint8).clip(0, 1).tobytes(), 0)
    chunks = b"".join(struct.pack(">I4sB", 1, b"IDAT", one) + bytes(4) for one in body)
    data = painted(300, 300)[:33]
    whole = data + struct.pack(">I4s", len(body), b"IDAT") + body + bytes(4)
    start = time.process_time()
    assert np.array_equal(picture(data + chunks, Path("a.png")), picture(whole, Path("a.png")))
    assert time.process_time() - start < 1


def test_a_large_png_takes_seconds(tmp_path):
    """Twelve million pixels took a minute, one by one."""
    rows = np.full((3000, 1 + 4000), 4, np.uint8)  # each filtered with the nearest neighbour
    body = zlib.compress(rows.tobytes())
    data = encoded(np.zeros((1, 1, 1), np.uint8), 0, 0)
    data = head(data, 4000, 3000)[:33] + struct.pack(">I4s", len(body), b"IDAT") + body + bytes(4)
    (tmp_path / "a.png").write_bytes(data)
    start = time.process_time()
    found = read_image(tmp_path / "a.png")
    assert time.process_time() - start < 10
    assert np.array_equal(found[0], (4 * np.arange(1, 4001)) % 256) and found[1, 0] == 8


# ---------------------------------------------------------------- several of them


def test_the_images_of_a_folder_are_in_the_order_of_their_numbers(tmp_path):
    for name in ("10.png", "9.PNG", "a2.npy", "a10.npy", "b.jpg", "notes.txt", "²3.png"):
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "8.png").mkdir()
    assert [path.name for path in image_files(tmp_path)] == ["9.PNG", "10.png", "a2.npy", "a10.npy", "b.jpg", "²3.png"]
    assert image_files(tmp_path / "notes.txt") == [tmp_path / "notes.txt"]
    (tmp_path / "none").mkdir()
    with pytest.raises(InputError, match=r"none: there is no image in this folder \(\.png, .*\); give another"):
        image_files(tmp_path / "none")
    with pytest.raises(InputError, match="there is no such file"):
        image_files(tmp_path / "nothing")


def test_a_file_of_several_images_is_a_batch_where_gray_is_read(folder, tmp_path):
    for path in (folder / "train-images-idx3-ubyte", folder / "t10k-images-idx3-ubyte.gz"):
        found = read_images(path, 1)
        assert len(found) in (5, 2) and all(map(np.array_equal, found, IMAGES))
    np.save(tmp_path / "a.npy", IMAGES[:3])
    assert [one.shape for one in read_images(tmp_path / "a.npy", 1)] == [(4, 6)] * 3
    assert [one.shape for one in read_images(tmp_path / "a.npy", 3)] == [(3, 4, 6)]
    np.save(tmp_path / "a.npy", IMAGES[:, None])
    assert [one.shape for one in read_images(tmp_path / "a.npy", 1)] == [(1, 4, 6)] * 5
    (tmp_path / "a.png").write_bytes(encoded(RNG.integers(0, 256, (4, 4, 3), dtype=np.uint8), 2, 0))
    assert [one.shape for one in read_images(tmp_path / "a.png", 1)] == [(3, 4, 4)]  # one image of three colours
    for wrong in (np.zeros(4), np.zeros((0, 4, 4)), np.zeros((1, 1, 1, 4, 4)), np.array(3)):
        np.save(tmp_path / "a.npy", wrong)
        with pytest.raises(InputError, match="is no image; give one of"):
            read_images(tmp_path / "a.npy", 1)


# ---------------------------------------------------------------- arrays


def test_every_form_of_an_image_is_the_same_batch():
    image = RNG.integers(0, 256, (4, 4), dtype=np.uint8)
    wanted = torch.from_numpy(image.astype(np.float32) / 255)[None, None]
    for given in (image, image[None], image[None, None], torch.from_numpy(image), image.tolist(), wanted[0, 0]):
        found = pictures(given, 1, 4)
        assert found.shape == (1, 1, 4, 4) and torch.equal(found, wanted)
    assert pictures(wanted.double(), 1, 4).dtype == torch.float64
    assert torch.equal(pictures(image > 100, 1, 4), torch.from_numpy(image > 100).float()[None, None])
    assert pictures(np.stack([image] * 3), 1, 4).shape == (3, 1, 4, 4)
    assert pictures(np.stack([image] * 3), 3, 4).shape == (1, 3, 4, 4)
    assert pictures(np.zeros((2, 3, 4, 4), np.uint8), 3, 4).shape == (2, 3, 4, 4)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (np.zeros((4, 5)), r"this model reads images of 1 × 4 × 4 .*not an array of shape \(4, 5\)"),
        (np.zeros((0, 4, 4)), "not an array of shape"),
        (np.full((4, 4), 300), "whole numbers from 0 to 255, or other numbers from 0 to 1"),
        (np.full((4, 4), 1.5), "the pixels are not all in their range"),
        (np.full((4, 4), np.nan), "the pixels are not all in their range"),
        ([[1, 2], [3]], "give an image as an array of numbers, 1 × 4 × 4; not list"),
        ("a.png", "give an image as an array of numbers, 1 × 4 × 4; not str"),
    ],
)
def test_what_is_no_image_is_refused(given, message):
    with pytest.raises(InputError, match=message):
        pictures(given, 1, 4)

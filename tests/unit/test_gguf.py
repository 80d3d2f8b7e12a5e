"""GGUF files: every type of tensor and entry as the package writes them, and whatever is wrong refused before it costs
memory."""

import struct
import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import glassformer as gf
from glassformer.errors import CheckpointError, GlassformerError, InputError, UnsupportedError
from glassformer.formats import gguf as reader
from glassformer.formats.gguf import is_gguf, read_header, read_whole

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    gguf = pytest.importorskip("gguf", reason='the files are written by the package gguf: pip install "gguf"')

KINDS = [kind for kind in gguf.GGMLQuantizationType if kind in gguf.quants._type_traits]
PLAIN = ["F32", "F16", "F64", "BF16"]


def written(path, entries=(), tensors=(), arch="llama", **split):
    """A file with (key, value, type) entries and (name, array, kind or None) tensors."""
    writer = gguf.GGUFWriter(path, arch, **split)
    for key, value, kind in entries:
        writer.add_key_value(key, value, kind)
    for name, array, kind in tensors:
        writer.add_tensor(name, array, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def blocks(kind, rows=5, width=512):
    """Random content of a quantised type, as bytes."""
    size, count = gguf.GGML_QUANT_SIZES[kind]
    generator = np.random.default_rng(int(kind))
    return generator.integers(0, 256, (rows, width // size * count), np.uint8)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.name != "BF16"], ids=lambda kind: kind.name)
def test_every_type_is_opened_as_the_package_opens_it(tmp_path, kind, monkeypatch):
    raw = blocks(kind)
    file = written(tmp_path / "a.gguf", tensors=[("x", raw, kind)])
    with np.errstate(all="ignore"):
        wanted = gguf.dequantize(raw, kind)
        for chunk in (1, 4 << 20):  # row by row, and all at once
            monkeypatch.setattr(reader, "CHUNK_BYTES", chunk)
            weights = read_header(file).weights()
            assert weights.stored["x"].shape == (5, 512)
            found = weights["x"]
            assert found.dtype == torch.float32
            assert np.array_equal(found.numpy(), np.asarray(wanted, np.float32), equal_nan=True)


@pytest.mark.parametrize("name", PLAIN)
def test_plain_numbers_stay_in_the_file(tmp_path, name):
    value = torch.randn(6, 32).to(
        {"F32": torch.float32, "F16": torch.float16, "F64": torch.float64}.get(name, torch.bfloat16)
    )
    raw = value.view(torch.int16).numpy().view(np.uint8) if name == "BF16" else value.numpy()
    file = written(tmp_path / "a.gguf", tensors=[("x", raw, gguf.GGMLQuantizationType[name])])
    weights = read_header(file).weights()
    assert weights.stored["x"].mapped and weights.stored["x"].dtype == value.dtype
    assert torch.equal(weights["x"], value)


def test_entries_of_every_type(tmp_path):
    kinds = gguf.GGUFValueType
    entries = [
        ("a.u8", 200, kinds.UINT8),
        ("a.i8", -5, kinds.INT8),
        ("a.u16", 60_000, kinds.UINT16),
        ("a.i16", -300, kinds.INT16),
        ("a.u32", 4_000_000_000, kinds.UINT32),
        ("a.i32", -70_000, kinds.INT32),
        ("a.f32", 1e-5, kinds.FLOAT32),
        ("a.bool", True, kinds.BOOL),
        ("a.text", "고양이가 \U0001f408", kinds.STRING),
        ("a.u64", 1 << 60, kinds.UINT64),
        ("a.i64", -(1 << 60), kinds.INT64),
        ("a.f64", 1e-200, kinds.FLOAT64),
        ("a.texts", ["가", "", "나다"], kinds.ARRAY),
        ("a.numbers", [1, -2, 3], kinds.ARRAY),
    ]
    found = read_header(written(tmp_path / "a.gguf", entries)).metadata
    assert {key: found[key] for key, *_ in entries} == {key: value for key, value, _ in entries}
    assert type(found["a.bool"]) is bool and found["a.f32"] == 1e-5  # the shortest number that float32 tells apart


# ---------------------------------------------------------------- what is wrong


def small(tmp_path):
    value = np.arange(96, dtype=np.float32).reshape(3, 32)
    return written(
        tmp_path / "a.gguf",
        [("a.texts", ["가", "나"], gguf.GGUFValueType.ARRAY)],
        [("x", value, None), ("y", value, None)],
    )


def test_every_cut_is_noticed(tmp_path):
    file = small(tmp_path)
    whole = file.read_bytes()
    assert set(read_header(file).tensors) == {"x", "y"}
    end = read_header(file).tensors["y"].end
    for size in [*range(0, 400, 7), *range(end - 40, end)]:
        file.write_bytes(whole[:size])
        with pytest.raises(CheckpointError, match=r"a\.gguf"):
            read_header(file)


@given(st.data())
def test_damaged_headers_never_end_in_anything_but_a_mistake(tmp_path_factory, data):
    file = small(tmp_path_factory.mktemp("damaged"))
    raw = bytearray(file.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(4, 260))] = data.draw(st.integers(0, 255))
    file.write_bytes(bytes(raw))
    try:
        found = read_header(file)
    except GlassformerError:
        return
    assert all(held.end <= len(raw) for held in found.tensors.values())


def header(tensors=0, entries=0, body=b"", version=3):
    return b"GGUF" + struct.pack("<IQQ", version, tensors, entries) + body


def text(value):
    return struct.pack("<Q", len(value)) + value.encode()


def tensor(name="x", sizes=(32,), kind=0, offset=0):
    return (
        text(name)
        + struct.pack("<I", len(sizes))
        + struct.pack(f"<{len(sizes)}Q", *sizes)
        + struct.pack("<IQ", kind, offset)
    )


HUGE = 1 << 62


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"GGML" + bytes(100), "does not begin as a GGUF file does"),
        (header(version=1), "version 1 of GGUF is not read"),
        (header(version=0x03000000), "version 50331648 of GGUF is not read, and neither are files of the other byte"),
        (header(tensors=HUGE), f"it cannot hold {HUGE} tensors"),
        (header(entries=HUGE), f"it cannot hold {HUGE} entries"),
        (header(entries=1, body=struct.pack("<Q", HUGE) + bytes(100)), "is cut off at byte"),
        (header(entries=1, body=text("a") + struct.pack("<IIQ", 9, 4, HUGE) + bytes(9)), f"cannot hold {HUGE} numbers"),
        (header(entries=1, body=text("a") + struct.pack("<IIQ", 9, 8, HUGE) + bytes(9)), f"cannot hold {HUGE} texts"),
        (header(entries=1, body=text("a") + struct.pack("<IIQ", 9, 9, 1) + bytes(99)), "a list of values of type 9 is"),
        (header(entries=1, body=text("a") + struct.pack("<I", 77) + bytes(9)), "an entry of type 77"),
        (header(entries=2, body=(text("a") + struct.pack("<IB", 0, 1)) * 2 + bytes(9)), "it has 'a' twice"),
        (header(tensors=1, body=tensor(sizes=(HUGE, HUGE)) + bytes(99)), "lies in bytes"),
        (header(tensors=1, body=tensor(sizes=(1 << 40,)) + bytes(99)), "lies in bytes"),
        (header(tensors=1, body=tensor(offset=1 << 63) + bytes(400)), "lies in bytes"),
        (header(tensors=1, body=tensor(offset=3) + bytes(400)), "lies in bytes"),
        (header(tensors=1, body=tensor(sizes=(0,)) + bytes(400)), "lies in bytes"),
        (header(tensors=1, body=tensor(sizes=(1,) * 5) + bytes(400)), "'x' has 5 axes"),
        (header(tensors=1, body=tensor(sizes=(33,), kind=2) + bytes(400)), "rows of 33 in 'x', in blocks of 32"),
        (header(tensors=1, body=tensor(kind=4711) + bytes(400)), "the type number 4711 is not known"),
        (header(tensors=2, body=tensor() * 2 + bytes(400)), "it has 'x' twice"),
        (header(tensors=2, body=tensor() + tensor("y") + bytes(400)), "'x' and 'y' overlap"),
        (
            header(1, 1, text("general.alignment") + struct.pack("<II", 4, 3) + tensor() + bytes(400)),
            "an alignment of 3",
        ),
    ],
)
def test_what_cannot_be_is_refused_by_name(tmp_path, raw, said):
    (tmp_path / "a.gguf").write_bytes(raw)
    with pytest.raises((CheckpointError, UnsupportedError), match=r"a\.gguf|x: ") as raised:
        read_header(tmp_path / "a.gguf")
    assert said in str(raised.value)
    with pytest.raises(GlassformerError):
        gf.load(tmp_path / "a.gguf")


def test_many_files_in_a_folder_and_none(tmp_path):
    assert is_gguf(tmp_path) is None
    small(tmp_path)
    assert is_gguf(tmp_path) == tmp_path / "a.gguf"
    (tmp_path / "b.gguf").write_bytes(b"GGUF")
    with pytest.raises(InputError, match=r"holds 2 \.gguf files; give one of them, such as .*a\.gguf"):
        gf.load(tmp_path)


# ---------------------------------------------------------------- several files


def parts(tmp_path, names="vwxyz", name="a"):
    tensors = [(one, np.full((2, 32), i, np.float32), None) for i, one in enumerate(names)]
    written(tmp_path / f"{name}.gguf", [("a.b", 7, gguf.GGUFValueType.UINT32)], tensors, split_max_tensors=2)
    return sorted(tmp_path.glob(f"{name}-*.gguf"))


def test_of_several_files_the_entries_of_the_first_and_the_tensors_of_all(tmp_path):
    files = parts(tmp_path)
    assert [file.name for file in files] == [f"a-0000{i}-of-00003.gguf" for i in (1, 2, 3)]
    assert is_gguf(tmp_path) == files[0]
    for file in files:
        found = read_whole(file)
        assert found.path == files[0] and found.metadata["a.b"] == 7
        assert [found.weights()[name].unique().tolist() for name in "vwxyz"] == [[0], [1], [2], [3], [4]]
    alone = small(tmp_path)
    assert read_whole(alone) == read_header(alone)
    with pytest.raises(InputError, match=r"holds 4 \.gguf files; give one of them"):
        is_gguf(tmp_path)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda files, other: files[1].unlink(),
            r"a-00002-of-00003\.gguf is missing, one of 3 files of weights; fetch",
        ),
        (lambda files, other: files[0].rename(files[0].with_name("b.gguf")), r"a-00001-of-00003\.gguf is missing"),
        (
            lambda files, other: other[0].replace(files[1]),
            r"a-00002-of-00003\.gguf is not part 2 of 3, as its name says",
        ),
        (lambda files, other: small(files[1].parent).replace(files[1]), r"a-00002-of-00003\.gguf is not part 2 of 3"),
        (lambda files, other: other[1].replace(files[1]), r"a-00001-of-00003\.gguf and .*00002-of.* both have 'v'"),
        (lambda files, other: other[2].replace(files[2]), r"the 3 parts hold 6 tensors and should hold 5; fetch them"),
        (lambda files, other: files[1].write_bytes(files[1].read_bytes()[:-9]), r"a-00002-of-00003\.gguf is broken or"),
    ],
)
def test_parts_that_do_not_belong_together_are_named(tmp_path, change, said):
    files = parts(tmp_path)
    change(files, parts(tmp_path, "abvcde", "other"))
    with pytest.raises(CheckpointError, match=said):
        read_whole(files[2])


@pytest.mark.parametrize("count", [2, 70_000, "3", [3], -1])
def test_a_part_without_its_name_finds_no_others(tmp_path, count):
    kinds = {int: gguf.GGUFValueType.INT32, str: gguf.GGUFValueType.STRING, list: gguf.GGUFValueType.ARRAY}
    file = written(tmp_path / "model.gguf", [("split.count", count, kinds[type(count)])])
    with pytest.raises(
        CheckpointError, match=r"model\.gguf is one of .* parts, which are found by their names, as NAME"
    ):
        gf.load(file)


ABSURD = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
import glassformer as gf
try:
    gf.load(sys.argv[1])
except gf.GlassformerError as error:
    print(error)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="the limit of memory is set as Unix has it")
def test_an_absurd_size_costs_no_memory(tmp_path):
    (tmp_path / "a.gguf").write_bytes(header(tensors=1, body=tensor(sizes=(1 << 34, 1 << 20)) + bytes(99)))
    found = subprocess.run([sys.executable, "-c", ABSURD, tmp_path / "a.gguf"], capture_output=True, text=True)
    assert "lies in bytes" in found.stdout and not found.stderr


def test_without_the_package_the_way_out_is_named(tmp_path, monkeypatch):
    file = written(tmp_path / "a.gguf", tensors=[("x", blocks(KINDS[1]), KINDS[1])])
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(UnsupportedError, match=r'opened by the package gguf; pip install "glassformer\[gguf\]"'):
        read_header(file)
    plain = written(tmp_path / "b.gguf", tensors=[("x", np.ones((2, 32), np.float32), None)])
    assert read_header(plain).weights()["x"].sum() == 64  # these need no package

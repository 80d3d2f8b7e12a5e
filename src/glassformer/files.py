"""Where files are kept, and writing them so that a crash leaves the old one or the new one, never a half."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import secrets
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from .errors import CheckpointError, InputError, WriteError

PAGES = (".html", ".htm")  # how a file ends that is a page
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def home() -> Path:
    """The folder of what is kept between runs, such as fetched models: $GLASSFORMER_HOME, else `glassformer` in the
    platform's folder for caches. It need not be there yet. Raises InputError where neither is known."""
    named = os.environ.get("GLASSFORMER_HOME")
    try:
        return Path(named).expanduser().absolute() if named else _caches() / "glassformer"
    except RuntimeError:  # a user without a home
        raise InputError("no folder to keep files in is known here; set GLASSFORMER_HOME to one") from None


def _caches() -> Path:
    """Where programs of this platform keep what they can make or fetch again."""
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    given = Path(os.environ.get("LOCALAPPDATA" if sys.platform == "win32" else "XDG_CACHE_HOME", ""))
    beside = ("AppData", "Local") if sys.platform == "win32" else (".cache",)
    return given if given.is_absolute() else Path.home().joinpath(*beside)  # a relative one is to be ignored (XDG)


def given_path(path: Path | str) -> Path:
    """The place that somebody names. Raises InputError for an empty text, which Path takes for the current folder."""
    if not str(path):
        raise InputError("the name of the file or folder is empty; give its path")
    return Path(path)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary file beside `path` that takes its place when the block ends well, and vanishes when it does not.

    Raises WriteError where the disk is full or the place is not to be written to.
    """
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        name = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))  # less what the umask keeps back
        temporary, mode = name, name.stat().st_mode
        yield temporary
        temporary.chmod(mode)  # safetensors puts a file of its own in the place, for the owner alone
        temporary.replace(path)
    except (OSError, SafetensorError) as error:
        if isinstance(error, WriteError):
            raise
        raise WriteError(_unwritten(path, error)) from None
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def check_new(folder: Path) -> None:
    """Raise InputError for the place of a new folder where a file is, or a folder that holds something."""
    if folder.is_file():
        raise InputError(f"{folder} is a file, which is kept; give a new folder")
    if folder.is_dir() and any(folder.iterdir()):
        raise InputError(f"{folder} holds something already, which is kept; give a new folder")


@contextlib.contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A temporary folder beside `path` that takes its place when the block ends well, and vanishes when it does not.

    Raises InputError where something is there already, unless it is an empty folder; WriteError as `replacing`.
    """
    if path.is_symlink():
        raise InputError(f"{path} is a link, which is kept; give a new folder")
    check_new(path)
    place = path.resolve()  # `.` has no name
    temporary = place.with_name(f".{place.name}.{secrets.token_hex(4)}")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        temporary.mkdir()
        yield temporary
        temporary.replace(place)
    except WriteError as error:
        raise WriteError(str(error).replace(str(temporary), str(path))) from None
    except (OSError, SafetensorError) as error:
        raise WriteError(_unwritten(path, error)) from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _unwritten(path: Path, error: OSError | SafetensorError) -> str:
    """Why a file could not be written, and what to do."""
    if isinstance(error, OSError):
        number, reason = error.errno, error.strerror or str(error)
    else:  # the library writes the number into its message only
        found = re.search(r"os error (\d+)|code: (\d+)", str(error))
        number = int(found[1] or found[2]) if found else None
        reason = os.strerror(number) if number else str(error)
    way_out = "free some space" if number in _FULL else "check the path and its permissions"
    kept = ". What was there before is kept" if os.access(path, os.F_OK) else ""
    return f"{path}: cannot be written ({reason}); {way_out}{kept}"


def read_json(path: Path) -> Any:
    """The content of a JSON file; raises CheckpointError for a missing or broken one."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(f"{path} is missing") from None
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is broken or truncated ({error}); restore it from a copy") from None


def read_object(path: Path, needed: bool = False) -> dict[str, Any]:
    """The object in a JSON file; empty where there is none, unless it is needed. Raises CheckpointError for a broken
    one."""
    data = read_json(path) if needed or path.is_file() else {}
    if not isinstance(data, dict):
        raise CheckpointError(f"{path} must be a JSON object, not {data!r:.40}; restore it from a copy")
    return data


def write_json(path: Path, data: Any) -> None:
    """Write data as readable JSON, atomically."""
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(data, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")

"""One training at a time in a run folder."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from ..errors import InputError, WriteError

try:
    import fcntl
except ImportError:  # Windows has no such locks; there a second training is not noticed
    fcntl = None


@contextlib.contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Hold a run folder, made where it does not exist, against other trainings in this process and in others.

    The system lets go of the lock when the process ends, however it ends; there is no file to be left behind. A folder
    that was made here and is still empty at the end goes again. Raises InputError where another training holds it.
    """
    was_there = folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WriteError(f"{folder}: cannot be made a run folder ({error.strerror}); choose another path") from None
    handle = _locked(folder)
    try:
        yield
    finally:
        if handle is not None:
            os.close(handle)
        if not was_there:
            with contextlib.suppress(OSError):
                folder.rmdir()


def _locked(folder: Path) -> int | None:
    """The descriptor that holds the lock; None where the file system knows no locks."""
    if fcntl is None:
        return None
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise InputError(
            f"{folder}: another training is at work in this folder; let it end, stop it, or choose another folder"
        ) from None
    except OSError:
        os.close(handle)
        return None
    return handle

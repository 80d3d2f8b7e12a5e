"""How a training in the terminal ends before its time: Ctrl-C, `kill`, a terminal that is closed."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Generator
from types import FrameType, TracebackType
from typing import Any, Self

from ..errors import GlassformerError
from ..train import Report

SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


class Stopped(KeyboardInterrupt):
    """A signal has ended the training. status: that of a program which this signal ends."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.status = 128 + number


class Stopping:
    """Inside this context a signal to end is heeded: before `follow` at once, and there after the update in progress.

    A second Ctrl-C does not wait for it; the other signals may come several times, as from `timeout` or a closed
    terminal. A signal that is ignored (as by nohup) stays so, and outside the context every signal does what it did.
    """

    def __init__(self) -> None:
        self.asked: int | None = None
        self.waits = False
        self.before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # signals belong to it
            found = {number: signal.getsignal(number) for number in SIGNALS}
            self.before = {number: old for number, old in found.items() if old not in (signal.SIG_IGN, None)}
            for number in self.before:
                signal.signal(number, self._heed)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for number, old in self.before.items():
            signal.signal(number, old)
        if self.asked and isinstance(error, OSError) and not isinstance(error, GlassformerError):
            raise Stopped(self.asked) from None  # the terminal was closed: nobody reads any more

    def _heed(self, number: int, frame: FrameType | None) -> None:
        again, self.asked = self.asked is not None, self.asked or number
        if number == signal.SIGINT if again else not self.waits:
            raise Stopped(number)

    def follow(
        self, reports: Generator[Report], tell: Callable[[Report], None], stopped: Callable[[int], None] | None = None
    ) -> Report:
        """Tell each report; returns the last. Raises Stopped, with everything saved, where a signal came before it;
        `stopped` is told the step. Whatever else ends it saves too."""
        self.waits = True
        with contextlib.closing(reports):
            for last in reports:
                ends = self.asked is not None and last.step < last.steps
                if ends:
                    reports.close()  # saves, before a terminal that may be gone is written to
                tell(last)
                if ends:
                    if stopped:
                        stopped(last.step)
                    raise Stopped(self.asked)
        return last

"""Work that a person waits for: it tells how far it is, and ends as soon as nobody waits for it any more.

PyTorch cannot be stopped within an operation, but between two of them it can: inside `Work.watched` every operation of
this thread asks first whether the work still is wanted, also those of the way back through a graph. So a trace, an
influence, an explanation or a generation ends within one operation, and none of them knows of it.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Literal

import anyio
import anyio.to_thread
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from ..errors import GlassformerError

Lane = Literal["run", "long", "quick", "fetch"]
# Runs, which never wait for what is computed of others; computations; numbers of a run; downloads.
AT_ONCE: dict[Lane, int] = {"run": 2, "long": 2, "quick": 4, "fetch": 2}
MOST_WAITING = 16
TOLD_S = 0.1  # progress is told no more often


class Cancelled(BaseException):
    """Nobody waits for this work any more. No Exception: what catches all of these must not go on with it."""


class BusyError(GlassformerError):
    """As much is being computed as may be."""


class EndedError(GlassformerError):
    """Work was cancelled, so it has no outcome: nobody reads this where the person left, and whoever still waits does
    so for a server that ends."""

    def __init__(self) -> None:
        super().__init__("the server was stopped; start it again and reload the page")


class Work:
    """One computation for one person.

    tell    is given each line for that person, from the thread that computes
    """

    def __init__(self, tell: Callable[[dict[str, Any]], None] | None = None) -> None:
        self._tell, self._ended = tell, threading.Event()
        self._told, self._what, self._passed = 0.0, "", 0

    def cancel(self) -> None:
        """End it at its next operation."""
        self._ended.set()

    def check(self) -> None:
        """Raise Cancelled where nobody waits any more."""
        if self._ended.is_set():
            raise Cancelled

    def tell(self, line: dict[str, Any]) -> None:
        """Give the person a line at once."""
        self.check()
        if self._tell is not None:
            self._tell(line)

    def report(self, what: str, done: int = 0, total: int = 0) -> None:
        """Tell what is being done, and how much of it of how much (0: not known), as pull's and hub's reports do."""
        self.check()
        now = time.monotonic()
        if what != self._what or done == total or now - self._told >= TOLD_S:
            self._what, self._told = what, now
            self.tell({"progress": {"what": what, "done": done, "all": total}})

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Inside, every operation of this thread may end the work, and a model's blocks tell that they have run."""
        _here.work, self._passed = self, 0
        try:
            with _Asking(self):
                yield
        finally:
            _here.work = None

    @contextlib.contextmanager
    def holding(self, lock: threading.Lock) -> Iterator[None]:
        """A lock, waited for as long as the work is wanted."""
        while not lock.acquire(timeout=0.05):
            self.check()
        try:
            yield
        finally:
            lock.release()

    def block_ran(self, count: int) -> None:
        """A block has run of so many, in a run that was begun with report("run")."""
        self._passed += 1
        if self._what == "run" and self._passed <= count:
            self.report("run", self._passed, count)


_here = threading.local()


class _Asking(TorchDispatchMode):
    """Asks before every operation; what is computed is the same to the last bit."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing here is compiled: without PyTorch's guard against that, which takes a second to load at the first
        operation and as long as a small operation at each."""
        return False

    def __init__(self, work: Work) -> None:
        super().__init__()
        self.check = work.check

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.check()
        return operation(*args, **(kwargs or {}))


def tell_blocks(stacks: list[nn.Module]) -> None:
    """Let the blocks of a model's stacks tell the work of the thread they run in that they have run."""
    blocks = [block for stack in stacks for block in stack.blocks]

    def ran(*_: Any) -> None:
        work = getattr(_here, "work", None)
        if work is not None:
            work.block_ran(len(blocks))

    for block in blocks:
        block.register_forward_hook(ran)


class Desk:
    """Where work waits until it may begin: little at once, so that each is done soon, and no more than may wait."""

    def __init__(self) -> None:
        self._limits = {lane: anyio.CapacityLimiter(count) for lane, count in AT_ONCE.items()}
        self._works: set[Work] = set()

    def check_room(self, lane: Lane) -> None:
        """Raise BusyError where too many wait already."""
        waiting = self._limits[lane].statistics().tasks_waiting
        if waiting >= MOST_WAITING:
            raise BusyError(f"the server is busy: {waiting} requests are waiting; try again in a moment")

    def is_full(self, lane: Lane) -> bool:
        """Whether work has to wait."""
        return self._limits[lane].available_tokens <= 0

    async def done(self, work: Work, does: Callable[[], Any], lane: Lane) -> Any:
        """What it returns, computed in a thread as soon as there is room. Raises EndedError where it was cancelled."""

        def computed() -> Any:
            try:
                work.check()
                with work.watched():
                    return does()
            except Cancelled:
                raise EndedError from None

        self._works.add(work)
        try:
            return await anyio.to_thread.run_sync(computed, limiter=self._limits[lane])
        finally:
            self._works.discard(work)

    def stop(self) -> None:
        """End all work, since the server ends."""
        for work in [*self._works]:
            work.cancel()

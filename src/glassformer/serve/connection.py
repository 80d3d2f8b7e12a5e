"""A connection to the server: whoever opens one and says nothing does not keep it."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

MOST_REQUESTS = 256  # at once; others are told to come back
MOST_CONNECTIONS = 512  # further ones are closed as they come
HEAD_S = 20.0  # in which the head of a request has to be there, from the connection or the request before on


class Connection(H11Protocol):
    """uvicorn's, which waits for ever for the head of a request that was begun, or never is."""

    _waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Somebody is there."""
        super().connection_made(transport)
        if len(self.connections) > MOST_CONNECTIONS:
            transport.close()
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Something was sent: a head, a part of one, or of a body, which has its own time (guard.py)."""
        super().data_received(data)
        self._wait()

    def on_response_complete(self) -> None:
        """A request was answered, and the next one may come."""
        super().on_response_complete()
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nobody is there any more."""
        super().connection_lost(exc)
        self._stop()

    def _wait(self) -> None:
        """Wait for a head, unless one is there that is not answered yet; what was waited already counts."""
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop()
        elif self._waiting is None:
            self._waiting = self.loop.call_later(HEAD_S, self.transport.close)

    def _stop(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
        self._waiting = None

"""The server as a program: where it listens, by which link it is found, and how it ends."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import socket
import sys
import threading
import webbrowser
from collections.abc import Callable
from types import FrameType
from urllib.parse import quote, urlencode

import msgspec
import torch
import uvicorn
from starlette.applications import Starlette

from ..errors import GlassformerError, InputError
from ..explain.explained import available, explain
from ..page.documents import Asked
from .app import application, check_built
from .connection import MOST_REQUESTS, Connection
from .models import Models
from .runs import RUN_BYTES, Runs
from .work import AT_ONCE, Work

PORT = 8765
TRIED = 20  # ports above it, where it is in use
FIRST_SEEN = ("flow", "next")  # explanations that the page shows first
LOOPBACK = ("127.0.0.1", "localhost", "::1")


def listening(host: str, port: int | None) -> socket.socket:
    """A socket bound to a port of this machine: the one that is named (0: any that is free), else the first free one
    from PORT on. Raises InputError where there is none."""
    wanted = range(PORT, PORT + TRIED) if port is None else [port]
    try:
        family, _, _, _, where = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except (OSError, UnicodeError):
        raise InputError(f"--host: {host} is no address of this machine; use 127.0.0.1, or 0.0.0.0 for all") from None
    for one in wanted:
        made = socket.socket(family, socket.SOCK_STREAM)
        if sys.platform != "win32":  # there it would share the port
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            made.bind((where[0], one, *where[2:]))
        except OSError as error:
            made.close()
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise InputError(
                    f"--host: {host} is no address of this machine; use 127.0.0.1, or 0.0.0.0 for all"
                ) from None
        else:
            return made
    raise InputError(
        f"--port: {', '.join(map(str, wanted[:1]))} cannot be had, another program has it or the system keeps it; "
        "use another, or 0 for any that is free"
    )


def link(host: str, port: int, given: dict[str, str], **place: str) -> str:
    """The address that a person opens. given: the token, and the language in which the page opens (main.ts), each left
    out where it is ""; place: what is chosen there, as in ui/src/lib/page.svelte.ts."""
    name = shown(host)
    chosen, asked = urlencode(place, quote_via=quote), urlencode({key: one for key, one in given.items() if one})
    return f"http://{name}:{port}/{'?' if asked else ''}{asked}{'#' if chosen else ''}{chosen}"


def shown(host: str) -> str:
    """The name by which a server that is bound to `host` is reached."""
    if host in ("0.0.0.0", "::"):
        return socket.gethostname()
    return f"[{host}]" if ":" in host else host


def token_for(host: str) -> str:
    """The word that the link holds where other machines can reach the server, else none."""
    return "" if host in LOOPBACK else secrets.token_urlsafe(24)


def serve(
    bound: socket.socket, models: Models, *, host: str, token: str, run_bytes: int = RUN_BYTES,
    ready: Callable[[], None] = lambda: None, first: Asked | None = None,
) -> None:  # fmt: skip
    """Answer until somebody ends it. ready: called as soon as it answers; first: what the page asks for at first.
    Raises KeyboardInterrupt at Ctrl-C, when all work has ended, unless the caller has another use for that signal."""
    check_built()
    # Several people compute at once: each with its share of the cores, and not all with all of them.
    torch.set_num_threads(max(1, torch.get_num_threads() // AT_ONCE["long"]))
    runs = Runs(models, run_bytes)
    app = application(runs=runs, host=host, token=token)

    class Server(uvicorn.Server):
        """uvicorn's, which ends all work before it waits for the answers to be sent."""

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            """Begin to answer."""
            await super().startup(sockets)
            if first is not None:
                threading.Thread(target=warmed, args=(runs, first), daemon=True).start()
            ready()

        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            """A signal to end."""
            app.state.desk.stop()
            super().handle_exit(sig, frame)

    Server(configured(app)).run(sockets=[bound])


def configured(app: Starlette) -> uvicorn.Config:
    """How uvicorn answers: quietly, no more at once than it can, and nobody who says nothing."""
    how = {"log_level": "error", "access_log": False, "server_header": False, "ws": "none"}
    limits = {"limit_concurrency": MOST_REQUESTS, "timeout_graceful_shutdown": 2}
    return uvicorn.Config(app, http=Connection, **limits, **how)


def warmed(runs: Runs, first: Asked) -> None:
    """Make a run and look at it as the page will, so that nobody waits for what is loaded at the first use."""
    with contextlib.suppress(GlassformerError):
        trace = runs.kept(runs.make(first, Work()).id).trace.beside()
        for name, _ in available(trace):
            if name in FIRST_SEEN:
                msgspec.json.encode(explain(name, trace))


def open_browser(address: str) -> None:
    """Show an address in the person's browser where there is a display; a browser within the terminal is none."""
    shows = sys.platform in ("darwin", "win32") or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")))
    if shows:
        threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()

"""Who may ask, and how: the checks that every request passes before anything is done for it.

Another page that the same browser shows can send requests here, and with a name that it makes point to this machine
(DNS rebinding) read the answers. So the name by which the server was called must be its own, and a request for numbers
must come from its own page. Where other machines can reach the server, it demands a word that only its link holds.
"""

from __future__ import annotations

import hmac
import ipaddress
import socket
from urllib.parse import urlsplit

import anyio
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..errors import InputError
from .answers import SlowError, TooLargeError, language, refusal

BODY_S = 60.0  # in which all of it has to be there
BODY_BYTES = 2 << 20  # a picture of 1 MiB in base64, and more than any text
ADDRESS_BYTES = 8 << 10
TOO_LARGE = "the request is too large; give a shorter text or a smaller picture"
OPEN = ("/api/font",)  # asked for by the page's style, which sends no word
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self' 'unsafe-inline'",  # the lengths of bars and ribbons
        "connect-src 'self'",
        "img-src 'self' data: blob:",
        "font-src 'self' data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}


class Guard:
    """Checks a request, limits its body, and puts the headers of safety on every answer.

    host    what the server is bound to; token: the word that is demanded under api/, "" for none
    """

    def __init__(self, app: ASGIApp, host: str = "127.0.0.1", token: str = "") -> None:
        self.app, self.token, self.host = app, token, host.strip("[]").lower()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            elif scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})
            return

        async def safe(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(raw=message.setdefault("headers", []))
                for name, value in HEADERS.items():
                    headers[name] = value
                if scope["path"].startswith("/api") and "cache-control" not in headers:
                    headers["cache-control"] = "no-store"
            await send(message)

        request = Request(scope)
        found = self.refused(request)
        if found is not None:
            status, said = found
            await refusal(InputError(said), language(request), status)(scope, receive, safe)
            return
        await self.app(scope, receive, safe)

    def refused(self, request: Request) -> tuple[int, str] | None:
        """(status, why) where a request is not answered."""
        headers, path = request.headers, request.scope["path"]
        if not self.is_own(headers.get("host", "")):
            return 403, "the server was called by a name that is not its own; open the link that it printed"
        if len(request.scope.get("raw_path") or b"") + len(request.scope["query_string"]) > ADDRESS_BYTES:
            return 414, "the address is too long; ask for fewer places at once"
        if not (path == "/api" or path.startswith("/api/")):
            return None
        if is_foreign(headers):
            return 403, "another page asked for this; open the server's own page"
        if path not in OPEN and not self.is_allowed(headers):
            return 401, "the link's token is missing or wrong; open the link that the server printed"
        if request.method == "POST" and headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            return 415, "a request is sent as application/json; reload the page"
        length = headers.get("content-length", "0")
        if not length.isascii() or not length.isdigit() or int(length[:20]) > BODY_BYTES:
            return 413, TOO_LARGE
        return None

    def is_own(self, host: str) -> bool:
        """Whether a request's Host is a name of this server: what it is bound to, this machine's own names, or an
        address, which no other's name can become."""
        try:
            name = (urlsplit(f"//{host}").hostname or "").lower()
        except ValueError:
            return False
        if name in ("localhost", "127.0.0.1", "::1", self.host):
            return bool(name)
        if not self.token:  # bound to this machine alone
            return False
        if name in (socket.gethostname().lower(), f"{socket.gethostname().lower()}.local"):
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True

    def is_allowed(self, headers: Headers) -> bool:
        """Whether the request holds the word, compared in the same time whatever it holds."""
        given = headers.get("authorization", "").removeprefix("Bearer ").encode("latin-1", "replace")
        return not self.token or hmac.compare_digest(given, self.token.encode())


def is_foreign(headers: Headers) -> bool:
    """Whether a browser says that another page asks. Other programs say nothing of where a request comes from."""
    if headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
        return True
    origin = headers.get("origin")
    return origin is not None and _netloc(origin) != headers.get("host", "").lower()


def _netloc(origin: str) -> str:
    """The host and port of an origin, "" where there is none."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


async def body_of(request: Request) -> bytes:
    """The body of a request, also of one that does not say its length. Raises TooLargeError, and SlowError where it
    does not come."""
    found = bytearray()
    try:
        with anyio.fail_after(BODY_S):
            async for part in request.stream():
                found += part
                if len(found) > BODY_BYTES:
                    raise TooLargeError(TOO_LARGE)
    except TimeoutError:
        raise SlowError(f"the request was not sent within {BODY_S:.0f} seconds; try again") from None
    return bytes(found)

"""The guard before every page: who is asking, from where, by which name, and how much is sent.

A request is answered if it names this server (against DNS rebinding), comes from a page of this server (against
cross-site requests), and has the session's cookie, which the token in the URL gives. There are no websockets.
"""

import hashlib
import hmac
from urllib.parse import parse_qs, urlencode

from concord.dashboard.settings import Settings
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

#: Headers of every answer. A page loads, and connects to, nothing but this server; no other page frames it.
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
#: Methods that change nothing.
READING = ("GET", "HEAD")


class TooMuch(Exception):
    """A request is larger than the limit."""


class Guard:
    """Middleware that refuses whoever should not get in.

    Args:
        app:      The pages.
        settings: Settings of the server.
    """

    def __init__(self, app: ASGIApp, settings: Settings):
        self.app, self.settings = app, settings
        self.cookie = f"nnp-{settings.port}"
        self.session = hmac.new(settings.token.encode(), b"session", hashlib.sha256).hexdigest()

    async def __call__(self, scope: Scope, receive: Receive, send: Send):
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        answer = self._refusal(Request(scope))
        if answer is not None:
            await answer(scope, receive, _with_headers(send))
            return
        await self.app(scope, self._counted(receive), _with_headers(send))

    def _refusal(self, request: Request) -> PlainTextResponse | RedirectResponse | None:
        """The answer to a request that does not reach the pages; None for one that does."""
        headers = request.headers
        if headers.get("host", "").lower() not in self.settings.hosts:
            return _sentence(421, "This server has another name. Start it with --name NAME to reach it by this one.")
        if not self._is_own(request):
            return _sentence(403, "Requests from pages of other sites are refused.")
        if request.method in READING and "token" in request.query_params:
            return self._entered(request)
        if not hmac.compare_digest(request.cookies.get(self.cookie, "").encode(), self.session.encode()):
            return _sentence(403, "Open the address with the token that `nnp dashboard` has printed.")
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > self.settings.upload:
            return too_much(self.settings.upload)
        return None

    def _is_own(self, request: Request) -> bool:
        """Whether a request comes from a page of this server, or is a reader's own."""
        headers = request.headers
        origin, site = headers.get("origin"), headers.get("sec-fetch-site", "none")
        own = f"{self.settings.scheme}://{headers['host'].lower()}"
        if origin is not None:
            return origin.lower() == own
        if request.method not in READING:
            return site == "same-origin"
        return site in ("none", "same-origin") or headers.get("sec-fetch-mode") == "navigate"

    def _entered(self, request: Request) -> PlainTextResponse | RedirectResponse:
        """The same address without the token, and the session's cookie."""
        query = parse_qs(request.url.query, keep_blank_values=True)
        (token,) = query.pop("token")[:1]
        if not hmac.compare_digest(token.encode(), self.settings.token.encode()):
            return _sentence(403, "This token is wrong. Open the address that `nnp dashboard` has printed.")
        path = "/" + request.url.path.lstrip("/")  # //host/ would be another server
        answer = RedirectResponse(path + (f"?{urlencode(query, doseq=True)}" if query else ""), 303)
        answer.set_cookie(
            self.cookie, self.session, httponly=True, samesite="lax", secure=self.settings.scheme == "https")
        return answer

    def _counted(self, receive: Receive) -> Receive:
        """A function that receives a body, until it is larger than the limit."""
        total = 0

        async def counted() -> Message:
            nonlocal total
            message = await receive()
            total += len(message.get("body", b""))
            if total > self.settings.upload:
                raise TooMuch(self.settings.upload)
            return message

        return counted


def too_much(limit: int) -> PlainTextResponse:
    """The answer to a request of more than `limit` bytes."""
    return _sentence(
        413,
        f"The request is larger than {limit / 2**20:g} MB, the limit of this server. Name a file on "
        "the server instead, or start it with a larger --upload.",
    )


def _sentence(code: int, words: str) -> PlainTextResponse:
    return PlainTextResponse(words + "\n", code, headers={"Connection": "close"})


def _with_headers(send: Send) -> Send:
    """A function that sends answers with `HEADERS`; only assets may be kept by the browser."""

    async def sent(message: Message):
        if message["type"] == "http.response.start":
            headers = MutableHeaders(raw=message["headers"])
            headers.update(HEADERS)
            headers.setdefault("Cache-Control", "no-store")
            message["headers"] = headers.raw
        await send(message)

    return sent

"""The routes of the page.

Events for open pages are made once, however many read them. A page that reads too slowly holds up
nobody: what waits for it is dropped, and it gets everything anew once it reads again.

Three things could go wrong on a page without a token that only this machine reaches: another
site's script asks for it (refused by ``Sec-Fetch-Site``, and the browser lets nobody read the
answer), another site's name is pointed at this machine (refused by ``Host``, DNS rebinding), and a
name that a stranger gave to a read or a target is taken for HTML (the script writes text only, and
the Content-Security-Policy runs nothing but the page's own files).

A token is compared in constant time. A browser hands it over once, in the address or in a form,
and then shows a cookie that is derived from it; programs send it as ``Authorization: Bearer``.

A connection waits from its start, or from its last answer, until a request has arrived as a whole.
It is closed after ``REQUEST_SECONDS``. If more than ``MOST_WAITING`` wait, the oldest one of the
address with the most of them is closed at once, so half-sent requests keep nobody out.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Collection
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import h11
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import (
    FileResponse,
    JSONResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from streamer.client import DaemonError, RefusedError
from streamer.daemon.control import MAX_BINS
from streamer.protocol.endpoints import Hosts
from streamer.web.follower import Follower

MAX_PAGES = 200
_MOST_WAITING = 4


def event(name: str, fields: dict[str, Any]) -> bytes:
    """One event, as the HTML standard has it (section 9.2, server-sent events)."""
    # without line breaks, which would end the data
    data = json.dumps(fields, separators=(",", ":"), allow_nan=False)
    return f"event: {name}\ndata: {data}\n\n".encode()


class Page:
    """The events that wait for one page; ``behind``: it needs everything."""

    def __init__(self) -> None:
        self.waiting: list[bytes] = []
        self.behind = True
        self.wake = asyncio.Event()


class Broadcast:
    """everything: makes the event with all that there is."""

    def __init__(self, everything: Callable[[], bytes]) -> None:
        self._everything = everything
        self._pages: set[Page] = set()
        self._ended = False

    @property
    def full(self) -> bool:
        """Whether there is no room for another page."""
        return len(self._pages) >= MAX_PAGES

    def send(self, made: bytes) -> None:
        """An event for all pages."""
        for page in self._pages:
            page.waiting.append(made)
            if len(page.waiting) > _MOST_WAITING:
                page.behind = True
            if page.behind:
                page.waiting.clear()
            page.wake.set()

    def end(self) -> None:
        """There are no more events."""
        self._ended = True
        for page in self._pages:
            page.wake.set()

    async def events(self) -> AsyncIterator[bytes]:
        """Everything, then what changes, until the page is closed."""
        page = Page()
        self._pages.add(page)
        try:
            while not self._ended:
                if page.behind:
                    page.behind = False
                    yield self._everything()
                waiting, page.waiting = page.waiting, []
                for made in waiting:
                    yield made
                if not page.waiting and not page.behind and not self._ended:
                    page.wake.clear()
                    await page.wake.wait()
        finally:
            self._pages.discard(page)


STATIC = Path(__file__).parent / "static"
_BINS = 200


def make_app(broadcast: Broadcast, follower: Follower) -> Starlette:
    """The page, its files, its events, and the coverage of a target on request."""

    async def page(request: Request) -> Response:
        return FileResponse(STATIC / "index.html")

    async def events(request: Request) -> Response:
        if broadcast.full:
            return JSONResponse({"problem": "too many pages are open"}, 503)
        return StreamingResponse(broadcast.events(), media_type="text/event-stream")

    async def coverage(request: Request) -> Response:
        target, bins, barcode = map(request.query_params.get, ("target", "bins", "barcode"))
        if bins and not (bins.isdecimal() and len(bins) < 10 and 1 <= int(bins) <= MAX_BINS):
            return JSONResponse({"problem": f"bins must be 1 to {MAX_BINS}"}, 400)
        try:
            rows = await follower.coverage(target or "", int(bins or _BINS), barcode)
        except RefusedError as error:
            return JSONResponse({"problem": str(error)}, 404)
        except DaemonError as error:
            return JSONResponse({"problem": str(error)}, 503)
        return JSONResponse({"target": target, "rows": rows})

    return Starlette(
        routes=[
            Route("/", page),
            Route("/events", events),
            Route("/coverage", coverage),
            Mount("/static", StaticFiles(directory=STATIC)),
        ]
    )


LOGIN = "/login"
# of the page that asks for the token
_STYLE = "/static/page.css"
_MAX_FORM_BYTES = 4096
# requests being answered, open pages among them: half of all pages
_MOST_OF_ADDRESS = MAX_PAGES // 2
_COOKIE_SECONDS = 30 * 24 * 3600

_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}


class Token:
    """The secret of the page, "" for none; port: of the page, which its cookie is named after."""

    def __init__(self, token: str, port: int) -> None:
        self._token = token.encode()
        self.cookie = f"streamer-{port}"
        # it outlives the daemon, and does not show the token
        self._proof = hmac.new(self._token, b"live page", hashlib.sha256).hexdigest()

    @property
    def needed(self) -> bool:
        """Whether there is one."""
        return bool(self._token)

    def matches(self, token: str) -> bool:
        """Whether that is the token."""
        return self.needed and hmac.compare_digest(token.encode(), self._token)

    def admits(self, headers: dict[bytes, bytes]) -> bool:
        """Whether a request shows the token, or its cookie."""
        if not self.needed:
            return True
        kind, _, token = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
        if kind.lower() == "bearer" and self.matches(token.strip()):
            return True
        try:
            cookie = SimpleCookie(headers.get(b"cookie", b"").decode("latin-1")).get(self.cookie)
        except CookieError:
            return False
        return cookie is not None and hmac.compare_digest(
            cookie.value.encode(), self._proof.encode()
        )

    def welcome(self, path: str) -> Response:
        """To the page, now with the cookie and without the token in the address."""
        response = RedirectResponse(path, 303)
        response.set_cookie(
            self.cookie, self._proof, max_age=_COOKIE_SECONDS, httponly=True, samesite="lax"
        )
        return response


class Guard:
    """Passes on to ``app`` the requests that may be answered, and adds headers to all answers.

    login: the page that asks for the token.
    """

    def __init__(self, app: ASGIApp, hosts: Hosts, token: Token, login: bytes) -> None:
        self._app = app
        self._hosts = hosts
        self._token = token
        self._login = login
        self._open: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI has it."""
        if scope["type"] != "http":
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                sent = {name.lower() for name, _ in message["headers"]}
                message["headers"] = [*message["headers"], *_missing(sent)]
            await send(message)

        if answer := await self._answer(scope, receive):
            await answer(scope, receive, send_guarded)
            return
        address = (scope.get("client") or ("",))[0]
        full = self._open[address] >= _MOST_OF_ADDRESS
        app = PlainTextResponse("too many requests of one address\n", 503) if full else self._app
        self._open[address] += 1
        try:
            await app(scope, receive, send_guarded)
        finally:
            self._open[address] -= 1
            if not self._open[address]:
                del self._open[address]

    async def _answer(self, scope: Scope, receive: Receive) -> Response | None:
        """The answer to a request that is not passed on."""
        headers: dict[bytes, bytes] = dict(scope["headers"])
        path, method = scope["path"], scope["method"]
        if not self._hosts.allow(headers.get(b"host", b"").decode("latin-1")):
            problem = "this page is not called by that name: add it to web.hosts\n"
            return PlainTextResponse(problem, 421)
        foreign = headers.get(b"sec-fetch-site", b"none") not in (b"none", b"same-origin")
        if foreign and headers.get(b"sec-fetch-mode") != b"navigate":
            return PlainTextResponse("asked for by another site\n", 403)
        if not self._token.needed:
            return RedirectResponse("/", 303) if path == LOGIN else None
        if path == LOGIN and method == "POST":
            return self._let_in((await _form(receive)).get("token", [""])[0])
        tokens = parse_qs(scope["query_string"].decode("latin-1")).get("token")
        if tokens is not None and method == "GET":
            return self._let_in(tokens[0], path)
        if path == _STYLE or (path != LOGIN and self._token.admits(headers)):
            return None
        return self._ask(401 if path != LOGIN else 200)

    def _let_in(self, token: str, path: str = "/") -> Response:
        if not self._token.matches(token):
            return self._ask(401, wrong=True)
        # another site's address would begin with two slashes
        return self._token.welcome("/" + path.lstrip("/\\"))

    def _ask(self, status: int, *, wrong: bool = False) -> Response:
        said = b"That is not the token." if wrong else b""
        page = self._login.replace(b"<!-- said -->", said)
        headers = {"WWW-Authenticate": "Bearer"} if status == 401 else {}
        return Response(page, status, headers, "text/html")


def _missing(sent: Collection[bytes]) -> list[tuple[bytes, bytes]]:
    pairs = [(name.lower().encode(), value.encode()) for name, value in _HEADERS.items()]
    return [(name, value) for name, value in pairs if name not in sent]


async def _form(receive: Receive) -> dict[str, list[str]]:
    """The fields of a form; none of one that is too large."""
    body = b""
    while len(body) <= _MAX_FORM_BYTES:
        message: Any = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            return parse_qs(body.decode("latin-1"))
    return {}


REQUEST_SECONDS = 15
MOST_WAITING = 200

# by address, in the order of their begin
_waiting: defaultdict[str, dict[RequestTimed, asyncio.TimerHandle]] = defaultdict(dict)


class RequestTimed(H11Protocol):
    """A connection as uvicorn has it, with a limit on the time that a request takes to arrive."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to time the wait for the first request."""
        super().connection_made(transport)
        self._address = self.client[0] if self.client else ""
        self._see()

    def data_received(self, data: bytes) -> None:
        """A part of a request has come, or all of it."""
        super().data_received(data)
        self._see()

    def on_response_complete(self) -> None:
        """Begin to time the wait for the next request."""
        super().on_response_complete()
        self._see()

    def connection_lost(self, exc: Exception | None) -> None:
        """A request came: nothing is waited for."""
        super().connection_lost(exc)
        self._wait_no_more()

    def _see(self) -> None:
        if self.transport.is_closing() or self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self._wait_no_more()
        elif self not in (of_address := _waiting[self._address]):
            of_address[self] = self.loop.call_later(REQUEST_SECONDS, self.transport.abort)
            if sum(map(len, _waiting.values())) > MOST_WAITING:
                most = max(_waiting, key=lambda address: len(_waiting[address]))
                oldest = next(iter(_waiting[most]))
                oldest.transport.abort()
                oldest._wait_no_more()

    def _wait_no_more(self) -> None:
        of_address = _waiting[self._address]
        if timer := of_address.pop(self, None):
            timer.cancel()
        if not of_address:
            del _waiting[self._address]

"""Who may see the page, and what its browser may load.

Three things could go wrong on a page without a token that only this machine reaches: another
site's script asks for it (refused by ``Sec-Fetch-Site``, and the browser lets nobody read the
answer), another site's name is pointed at this machine (refused by ``Host``, DNS rebinding), and a
name that a stranger gave to a read or a target is taken for HTML (the script writes text only, and
the Content-Security-Policy runs nothing but the page's own files).

A token is compared in constant time. A browser hands it over once, in the address or in a form,
and then shows a cookie that is derived from it; programs send it as ``Authorization: Bearer``.
"""

from __future__ import annotations

import hashlib
import hmac
from collections import Counter
from collections.abc import Collection
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs

from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from streamer.protocol.http_address import Hosts
from streamer.web.broadcast import MAX_PAGES

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

    def matches(self, given: str) -> bool:
        """Whether that is the token."""
        return self.needed and hmac.compare_digest(given.encode(), self._token)

    def admits(self, headers: dict[bytes, bytes]) -> bool:
        """Whether a request shows the token, or its cookie."""
        if not self.needed:
            return True
        kind, _, given = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
        if kind.lower() == "bearer" and self.matches(given.strip()):
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
                given = {name.lower() for name, _ in message["headers"]}
                message["headers"] = [*message["headers"], *_missing(given)]
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
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token")
        if given is not None and method == "GET":
            return self._let_in(given[0], path)
        if path == _STYLE or (path != LOGIN and self._token.admits(headers)):
            return None
        return self._ask(401 if path != LOGIN else 200)

    def _let_in(self, given: str, path: str = "/") -> Response:
        if not self._token.matches(given):
            return self._ask(401, wrong=True)
        # another site's address would begin with two slashes
        return self._token.welcome("/" + path.lstrip("/\\"))

    def _ask(self, status: int, *, wrong: bool = False) -> Response:
        said = b"That is not the token." if wrong else b""
        page = self._login.replace(b"<!-- said -->", said)
        headers = {"WWW-Authenticate": "Bearer"} if status == 401 else {}
        return Response(page, status, headers, "text/html")


def _missing(given: Collection[bytes]) -> list[tuple[bytes, bytes]]:
    pairs = [(name.lower().encode(), value.encode()) for name, value in _HEADERS.items()]
    return [(name, value) for name, value in pairs if name not in given]


async def _form(receive: Receive) -> dict[str, list[str]]:
    """The fields of a form; none of one that is too large."""
    body = b""
    while len(body) <= _MAX_FORM_BYTES:
        message: Any = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            return parse_qs(body.decode("latin-1"))
    return {}

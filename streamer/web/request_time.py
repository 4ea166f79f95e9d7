"""A limit on the time that a request to the page takes to arrive.

A connection waits from its start, or from its last answer, until a request has arrived as a whole.
It is closed after ``REQUEST_SECONDS``. If more than ``MOST_WAITING`` wait, the oldest one of the
address with the most of them is closed at once, so half-sent requests keep nobody out.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_SECONDS = 15
MOST_WAITING = 200

# by address, in the order of their begin
_waiting: defaultdict[str, dict[RequestTimed, asyncio.TimerHandle]] = defaultdict(dict)


class RequestTimed(H11Protocol):
    """A connection as uvicorn has it, with a limit on the time that a request takes to arrive."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """It waits for its first request."""
        super().connection_made(transport)
        self._address = self.client[0] if self.client else ""
        self._see()

    def data_received(self, data: bytes) -> None:
        """A part of a request has come, or all of it."""
        super().data_received(data)
        self._see()

    def on_response_complete(self) -> None:
        """It waits for the next request."""
        super().on_response_complete()
        self._see()

    def connection_lost(self, exc: Exception | None) -> None:
        """It waits no more."""
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

"""Server-sent events for all open pages: each event is made once, however many read it.

A page that reads too slowly holds up nobody: what waits for it is dropped, and it gets everything
anew once it reads again.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

MAX_PAGES = 200
_MOST_WAITING = 4


def event(name: str, fields: dict[str, Any]) -> bytes:
    """One event, as the HTML standard has it (section 9.2, server-sent events)."""
    # without line breaks, which would end the data
    data = json.dumps(fields, separators=(",", ":"), allow_nan=False)
    return f"event: {name}\ndata: {data}\n\n".encode()


class Page:
    """What waits for one page: events; ``behind``: it needs everything."""

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

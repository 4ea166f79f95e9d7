"""The daemon as the page sees it: its feed, as any subscriber reads it, and its control socket.

Both connections heal by themselves: libzmq connects again, a reply that does not come is asked for
again, and after whatever was missed all rows are asked for anew.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

import structlog

from streamer.aio import Subscriber
from streamer.client import Control, DaemonError, RefusedError
from streamer.client.control import CoverageBin
from streamer.protocol.keys import ClientKeys
from streamer.web.model import TOPICS, RunModel


def steady() -> float:
    """Seconds since the machine started, also those that it slept; nobody sets this clock."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


POLL_SECONDS = 1.0

# rows have no numbers by which a missing one shows
_REFRESH_SECONDS = 30.0
_KEPT_SECONDS, _MOST_KEPT = 1.0, 64

T = TypeVar("T")
log = structlog.get_logger("web")


class Follower:
    """Keeps a model up to date; ``changed`` is called every ``seconds``.

    error: why control does not answer, None if it does. A ``Control`` belongs to one thread, so all
    requests have one of their own.
    """

    def __init__(
        self,
        model: RunModel,
        feed: str,
        control: str,
        changed: Callable[[], None],
        keys: ClientKeys | None = None,
        *,
        seconds: float = POLL_SECONDS,
    ) -> None:
        self.error: DaemonError | None = None
        self._keys = keys
        self._seconds = seconds
        self._model = model
        self._feed, self._endpoint = feed, control
        self._changed = changed
        self._thread = ThreadPoolExecutor(1, "control")
        self._control: Control | None = None
        self._coverage: dict[tuple[object, ...], tuple[float, list[CoverageBin]]] = {}

    async def run(self) -> None:
        """Follow until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._listen())
                tasks.create_task(self._ask_again_and_again())
        finally:
            await self._call(self._close)
            self._thread.shutdown(wait=False)

    async def coverage(self, *key: Any) -> list[CoverageBin]:
        """Of target, bins and, if given, a barcode, at most a second old.

        DaemonError or RefusedError if there is none.
        """
        now = time.monotonic()
        kept = self._coverage
        for key in [key for key, (made, _) in kept.items() if made < now - _KEPT_SECONDS]:
            del kept[key]
        if key not in kept:
            columns = await self._call(lambda: self._open().coverage(*key))
            if len(kept) >= _MOST_KEPT:
                kept.clear()
            kept[key] = time.monotonic(), columns
            return columns
        return kept[key][1]

    async def _listen(self) -> None:
        while True:
            try:
                async with Subscriber(self._feed, TOPICS, keys=self._keys) as feed:
                    while True:
                        message = await feed.receive(POLL_SECONDS)
                        if message is not None:
                            self._model.message(message, steady())
            except DaemonError as error:
                log.warning("the feed is read anew", problem=str(error))
                await asyncio.sleep(POLL_SECONDS)

    async def _ask_again_and_again(self) -> None:
        model, refreshed, due = self._model, 0.0, time.monotonic()
        while True:
            try:
                model.status(await self._call(lambda: self._open().status()), steady())
                if model.stale or time.monotonic() - refreshed > _REFRESH_SECONDS:
                    await self._ticking(self._refresh())
                    refreshed = time.monotonic()
                self.error = None
            except DaemonError as error:
                self.error = error
                model.problem, model.stale = str(error), True
            self._changed()
            due = max(due + self._seconds, time.monotonic())
            await asyncio.sleep(due - time.monotonic())

    async def _ticking(self, work: Coroutine[Any, Any, None]) -> None:
        """Do what may take long, as for many targets; pages still hear something meanwhile."""
        task = asyncio.create_task(work)
        try:
            while not (await asyncio.wait({task}, timeout=self._seconds))[0]:
                self._changed()
            await task
        finally:
            task.cancel()

    async def _refresh(self) -> None:
        """Ask for all rows."""
        answers: list[Any] = []
        with suppress(RefusedError):  # of a key without that right
            self._model.judged(await self._call(lambda: self._open().request("panel")))
        for ask in (
            lambda: self._open().targets()[1],
            lambda: self._open().targets(by="barcode", found=True)[1],
            lambda: self._open().novelty(),
        ):
            try:
                answers.append(await self._call(ask))
            except RefusedError:
                # not counted, or not yet
                answers.append(None)
        self._model.all_rows(*answers)

    def _open(self) -> Control:
        if self._control is None:
            self._control = Control(self._endpoint, keys=self._keys)
        return self._control

    def _close(self) -> None:
        if self._control is not None:
            self._control.close()

    async def _call(self, ask: Callable[[], T]) -> T:
        """The outcome of a call in the thread of the control socket."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, ask)

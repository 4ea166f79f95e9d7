"""Read ahead: parse the next batch while this one is matched."""

import threading
from collections.abc import Callable, Iterable, Iterator
from queue import Empty, Full, Queue
from typing import TypeVar

T = TypeVar("T")

_POLL_SECONDS = 0.2
_IDLE_SECONDS = 0.02


def prefetched(
    items: Iterable[T],
    depth: int = 2,
    *,
    idle: Callable[[], object] | None = None,
    idle_seconds: float = _IDLE_SECONDS,
    pause: T | None = None,
) -> Iterator[T]:
    """Yield the items in order; a thread produces up to ``depth`` ahead.

    Its errors are raised here. idle: called every ``idle_seconds`` while waiting for the next item.
    pause: yielded repeatedly while no item is ready.
    """
    poll = _POLL_SECONDS if idle is None else idle_seconds
    ahead: Queue[tuple[T | None, BaseException | None, bool]] = Queue(depth)
    stopped = threading.Event()

    def put(entry: tuple[T | None, BaseException | None, bool]) -> bool:
        while not stopped.is_set():
            try:
                ahead.put(entry, timeout=_POLL_SECONDS)
            except Full:
                continue
            return True
        return False

    def produce() -> None:
        try:
            for item in items:
                if not put((item, None, False)):
                    return
        except BaseException as error:
            put((None, error, True))
        else:
            put((None, None, True))

    thread = threading.Thread(target=produce, name="read-ahead", daemon=True)
    thread.start()
    try:
        while True:
            try:
                item, error, ended = ahead.get(timeout=poll)
            except Empty:
                if idle is not None:
                    idle()
                if pause is not None:
                    yield pause
                continue
            if error is not None:
                raise error
            if ended:
                return
            yield item  # type: ignore[misc]
    finally:
        stopped.set()

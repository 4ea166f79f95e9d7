"""A thread of the daemon: an error that ends it brings the daemon down instead of hanging it.

Queues between threads: one to wait for, and one to poll together with sockets.

A thread that gives up the GIL to write a byte, or to work for a few microseconds, often gets it
back only half a millisecond later. So putting and taking keep it where they can.
"""

import contextlib
import os
import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from trie.cpu.stages import StageWork

T = TypeVar("T")


class Inbox(Generic[T]):
    """Items from any thread to one reader, which ``wait``s for them.

    It is unbounded, since the credit of producers bounds what is in the daemon.
    """

    def __init__(self) -> None:
        self._items: deque[T] = deque()
        # released to wake the reader
        self._bell = threading.Lock()
        self._bell.acquire()

    @property
    def waiting(self) -> bool:
        """Whether there is something to take."""
        return bool(self._items)

    @property
    def length(self) -> int:
        """How many items wait."""
        return len(self._items)

    def put(self, item: T) -> None:
        """Add an item and wake the reader."""
        self._items.append(item)
        self.wake()

    def wake(self) -> None:
        """Wake the reader, without an item; also from a signal handler."""
        # another thread may be faster
        with contextlib.suppress(RuntimeError):
            if self._bell.locked():
                self._bell.release()

    def wait(self, seconds: float) -> None:
        """Return after ``seconds``, or once it was woken since the last call or ``take``."""
        self._bell.acquire(timeout=seconds)

    def take(self) -> list[T]:
        """Everything that has been put since the last call."""
        # first the wake, then the items, so that an item put in between leaves a wake
        self._slept()
        taken: list[T] = []
        while self._items:
            taken.append(self._items.popleft())
        return taken

    def close(self) -> None:
        """Free what is needed to wake the reader."""

    def _slept(self) -> None:
        self._bell.acquire(blocking=False)


class Mailbox(Inbox[T]):
    """An inbox that can be polled, too."""

    def __init__(self) -> None:
        super().__init__()
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)
        # reentrant: a signal handler may call wake() while its own thread closes
        self._lock = threading.RLock()
        self._closed = False
        # a token that a waker takes and the reader puts back; while it is taken, a byte is in the
        # pipe or about to be. This avoids needless writes and reads, each of which releases the GIL
        self._asleep: deque[None] = deque([None])

    def fileno(self) -> int:
        """A descriptor that is readable while there is something to take."""
        return self._reader

    def wake(self) -> None:
        """Wake the reader, without an item."""
        if not self._asleep:
            return
        with self._lock:
            if self._closed:
                return
            with contextlib.suppress(IndexError):
                self._asleep.pop()
                os.write(self._writer, b"\0")

    def _slept(self) -> None:
        if not self._asleep:
            # a byte that is still to come causes another call
            with contextlib.suppress(BlockingIOError):
                os.read(self._reader, 1)
                self._asleep.append(None)

    def close(self) -> None:
        """Close the pipe; later items are dropped."""
        with self._lock:
            if not self._closed:
                self._closed = True
                os.close(self._reader)
                os.close(self._writer)


# the longest time that a thread waits before it checks whether to stop
POLL_SECONDS = 0.2
POLL_MILLISECONDS = 200


class Worker(threading.Thread):
    """A thread that does ``work`` until ``stopping`` is set; it calls ``notify`` at its end."""

    def __init__(self, name: str, notify: Callable[[], None]) -> None:
        super().__init__(name=name, daemon=True)
        self.stopping = threading.Event()
        self.ready = threading.Event()
        self.error: BaseException | None = None
        self.stage_work = StageWork()
        self._notify = notify

    def work(self) -> None:
        """The body of the thread, which makes, uses and closes its sockets."""
        raise NotImplementedError

    def run(self) -> None:
        """Do the work, and store the error if it fails."""
        try:
            self.work()
        except BaseException as error:
            self.error = error
        finally:
            self.ready.set()
            self._notify()

    def fail(self, error: BaseException) -> None:
        """End the daemon with this error; from any thread."""
        self.error = error
        self._notify()

    @property
    def loading(self) -> bool:
        """Whether its work may be left behind if the daemon ends meanwhile."""
        return False

    def stop(self) -> None:
        """Ask the thread to end."""
        self.stopping.set()

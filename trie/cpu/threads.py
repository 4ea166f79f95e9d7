"""Run kernels that have released the GIL on several cores."""

from __future__ import annotations

import atexit
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from queue import SimpleQueue
from typing import Any, Protocol, TypeVar

from trie.cpu.interrupts import interrupt_in

T = TypeVar("T")


def usable_cores() -> int:
    """The cores this process may run on: a container's or a batch system's share of the host's."""
    return len(os.sched_getaffinity(0))


class _Pool:
    """Up to ``most`` threads, started on demand, which run jobs that raise nothing in order.

    No step takes a lock of Python code, as concurrent.futures does: an interrupt between taking and
    releasing it would block every later caller. Queues and lists of CPython do each step in one.
    """

    def __init__(self, name: str, most: int) -> None:
        self._name = name
        self._most = most
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._unfinished: list[None] = []
        self._threads: list[threading.Thread] = []
        atexit.register(self._end)

    def give(self, job: Callable[[], None]) -> None:
        """Have a job run by the next idle thread, or by none if no thread can be started."""
        self._unfinished.append(None)
        count = len(self._threads)
        if count < min(self._most, len(self._unfinished)):
            # a program that ends on an error waits for what runs, not for what may come
            thread = threading.Thread(target=self._run, name=f"{self._name}_{count}", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # no memory, or a limit on threads
                if not self._threads:
                    self._unfinished.pop()
                    return
            else:
                self._threads.append(thread)
        self._jobs.put(job)

    @property
    def spare(self) -> int:
        """How many threads may be free: others do not keep them for long."""
        return self._most

    def _run(self) -> None:
        for job in iter(self._jobs.get, None):
            job()
            del job  # releases its arrays before the wait for the next
            self._unfinished.pop()
        self._jobs.put(None)

    def _end(self) -> None:
        """Kernels must not run on while the interpreter shuts down."""
        # each thread passes it on: an interrupt may have kept one from being listed
        self._jobs.put(None)
        for thread in self._threads:
            thread.join()


class Helpers(Protocol):
    """Threads that run jobs beside the one that gives them."""

    def give(self, job: Callable[[], None]) -> None:
        """Have a job run by the next idle thread, or by none; it raises nothing."""

    @property
    def spare(self) -> int:
        """How many threads are free to help now."""


_caller = threading.local()


def tasks_go_to(helpers: Helpers | None) -> Helpers | None:
    """From now on these help with this thread's tasks, None: the pool. Returns those before."""
    before: Helpers | None = getattr(_caller, "helpers", None)
    _caller.helpers = helpers
    return before


def in_background() -> None:
    """From now on this thread's tasks run in a pool of their own.

    A pool runs jobs in order, so that short work of other threads would wait for long.
    """
    tasks_go_to(_pool("background"))


@cache
def _pool(name: str) -> _Pool:
    return _Pool(name, max(usable_cores(), 8))


def free_threads(threads: int) -> int:
    """How many of the threads are free to share a task now, this one included."""
    return threads if threads <= 1 else min(threads, 1 + _helpers().spare)


def _helpers() -> Helpers:
    """Those of this thread's tasks."""
    found: Helpers = getattr(_caller, "helpers", None) or _pool("kernel")
    return found


def run_all(tasks: Sequence[Callable[[], T]], threads: int) -> list[T]:
    """The results of all tasks, in order, run on up to ``threads`` threads, this one included.

    After an exception no further task begins, and the first one is raised once all have ended: no
    kernel writes into an array that the caller gives up. An interrupt, which this thread sees at
    the end of a task, is raised rather than another exception, which the caller might handle.
    """
    if threads <= 1 or len(tasks) <= 1:
        return [task() for task in tasks]
    waiting = deque(range(len(tasks)))
    results: dict[int, T] = {}
    errors: dict[int, BaseException] = {}

    def work() -> None:
        while True:
            try:
                index = waiting.popleft()
            except IndexError:
                return
            try:
                results[index] = tasks[index]()
            except BaseException as error:
                errors[index] = error
                waiting.clear()

    begun: list[None] = []
    ended: SimpleQueue[None] = SimpleQueue()
    # emptied at the end: busy helpers keep their jobs for long, which must not keep arrays alive
    works = [work]

    def help_() -> None:
        begun.append(None)
        for some in works:
            some()
        ended.put(None)

    helpers = _helpers()
    try:
        for _ in range(min(threads, len(tasks)) - 1):
            helpers.give(help_)
        work()
    finally:
        waiting.clear()
        # a helper that begins meanwhile finds nothing to do, and reports its end all the same
        count = 0
        while count < len(begun):
            ended.get()
            count += 1
        works.clear()
    if errors:
        raise next(filter(interrupt_in, errors.values()), errors[min(errors)])
    return [results[index] for index in range(len(tasks))]


def run_each(work: Callable[..., T], arguments: Iterable[Iterable[Any]], threads: int) -> list[T]:
    """The results of ``work`` with each of these arguments, in order, as ``run_all`` runs tasks."""
    return run_all([partial(work, *one) for one in arguments], threads)


def run_ranges(
    work: Callable[[int, int], T],
    start: int,
    stop: int,
    threads: int,
    *,
    grain: int = 1,
    align: int = 1,
    most: int | None = None,
) -> list[T]:
    """The results of ``work(a, b)`` for ranges that cover [start, stop), in order, on threads.

    There are as many ranges as threads, but no more than one for each ``grain`` and one more, and
    none for threads that are busy: each range costs a hand-over of the GIL. Cuts as in
    ``split_range``. most: there are more ranges if these would be longer, for the main thread
    notices an interrupt only between two.
    """
    parts = free_threads(min(threads, 1 + (stop - start) // grain))
    if most is not None:
        parts = max(parts, -(-(stop - start) // most))
    ranges = split_range(start, stop, parts, align=align)
    return run_each(work, ranges, threads)


def split_range(start: int, stop: int, parts: int, *, align: int = 1) -> list[tuple[int, int]]:
    """Cut [start, stop) into up to ``parts`` ranges of nearly equal length.

    Cuts lie at multiples of ``align`` from ``start``.
    """
    parts = max(1, min(parts, (stop - start) // max(align, 1)))
    cuts = [start + (stop - start) * i // parts // align * align for i in range(parts)] + [stop]
    cuts[0] = start
    return [(a, b) for a, b in zip(cuts, cuts[1:], strict=False) if b > a]

"""Run kernels that have released the GIL on several cores."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import cache
from queue import SimpleQueue
from typing import TypeVar

from trie.cpu.interrupts import interrupt_in
from trie.cpu.pool import Helpers

T = TypeVar("T")


def usable_cores() -> int:
    """The cores this process may run on: a container's or a batch system's share of the host's."""
    return len(os.sched_getaffinity(0))


_caller = threading.local()


def in_background() -> None:
    """From now on this thread's work is run by threads that the others do not wait for.

    Helpers are taken in the order in which they are asked for: short work would wait for long.
    """
    _caller.helpers = "background"


@cache
def _helpers(name: str) -> Helpers:
    return Helpers(name, max(usable_cores(), 8))


def run_all(tasks: Sequence[Callable[[], T]], threads: int) -> list[T]:
    """The results of all tasks, in order, run on at most ``threads`` threads, of which this is one.

    The first exception of a task is raised after every task that has begun has ended, so that no
    kernel still writes into an array that the caller gives up; the others do not begin. So it is
    with an interrupt, which the caller's thread sees at the end of a task, and which goes first:
    who deals with the exception of a task would go on.
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

    def help_() -> None:
        begun.append(None)
        work()
        ended.put(None)

    helpers = _helpers(getattr(_caller, "helpers", "kernel"))
    try:
        for _ in range(min(threads, len(tasks)) - 1):
            helpers.give(help_)
        work()
    finally:
        waiting.clear()
        # who begins meanwhile finds nothing to do, and tells that it has ended all the same
        count = 0
        while count < len(begun):
            ended.get()
            count += 1
    if errors:
        raise next(filter(interrupt_in, errors.values()), errors[min(errors)])
    return [results[index] for index in range(len(tasks))]


def split_range(start: int, stop: int, parts: int, *, align: int = 1) -> list[tuple[int, int]]:
    """Cut [start, stop) into at most ``parts`` ranges of nearly equal length.

    Cuts lie at multiples of ``align`` from ``start``.
    """
    parts = max(1, min(parts, (stop - start) // max(align, 1)))
    cuts = [start + (stop - start) * i // parts // align * align for i in range(parts)] + [stop]
    cuts[0] = start
    return [(a, b) for a, b in zip(cuts, cuts[1:], strict=False) if b > a]

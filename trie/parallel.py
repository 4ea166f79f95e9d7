"""Run kernels that have released the GIL on several cores."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import TypeVar

T = TypeVar("T")


def usable_cores() -> int:
    """The cores this process may run on: a container's or a batch system's share of the host's."""
    return len(os.sched_getaffinity(0))


_caller = threading.local()


def in_background() -> None:
    """From now on this thread's work is run by threads that the others do not wait for.

    Tasks are taken in the order in which they come: short ones would wait behind long ones.
    """
    _caller.prefix = "background"


@lru_cache(maxsize=4)
def _pool(threads: int, prefix: str) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix=prefix)


def run_all(tasks: Sequence[Callable[[], T]], threads: int) -> list[T]:
    """The results of all tasks, in order, run on at most ``threads`` threads.

    The first exception of a task is raised after every task has ended, so that no kernel still
    writes into an array that the caller gives up.
    """
    if threads <= 1 or len(tasks) <= 1:
        return [task() for task in tasks]
    pool = _pool(threads, getattr(_caller, "prefix", "kernel"))
    futures = [pool.submit(task) for task in tasks]
    errors = [future.exception() for future in futures]
    for error in errors:
        if error is not None:
            raise error
    return [future.result() for future in futures]


def split_range(start: int, stop: int, parts: int, *, align: int = 1) -> list[tuple[int, int]]:
    """Cut [start, stop) into at most ``parts`` ranges of nearly equal length.

    Cuts lie at multiples of ``align`` from ``start``.
    """
    parts = max(1, min(parts, (stop - start) // max(align, 1)))
    cuts = [start + (stop - start) * i // parts // align * align for i in range(parts)] + [stop]
    cuts[0] = start
    return [(a, b) for a, b in zip(cuts, cuts[1:], strict=False) if b > a]

"""How long runs take: the least of several by a host's clock, the median by a card's events."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import numpy as np

T = TypeVar("T")


def least_seconds(
    run: Callable[[], object],
    repeats: int,
    *,
    clock: Callable[[], float] = time.perf_counter,
    warm: bool = True,
) -> float:
    """The least seconds of ``repeats`` runs by ``clock``, more than 0.

    warm: after one that does not count, since it may compile.
    """
    return least_and_result(run, repeats, clock=clock, warm=warm)[0]


def least_and_result(
    run: Callable[[], T],
    repeats: int,
    *,
    clock: Callable[[], float] = time.perf_counter,
    warm: bool = True,
) -> tuple[float, T]:
    """As ``least_seconds``, and what the last of the runs gave; one at least is made."""
    if warm:
        run()
    least = float("inf")
    for _ in range(max(repeats, 1)):
        start = clock()
        result = run()
        least = min(least, clock() - start)
    # a clock of the CPU's time may stand still while little is done
    return max(least, 1e-9), result


def median_on_card(
    queue: Callable[[], object], repeats: int = 7, *, enough: float = float("inf")
) -> float:
    """The median seconds, by events, of what ``queue`` queues on the default stream of the card.

    One run before does not count. There are fewer runs if they take ``enough`` seconds together.
    """
    from gpu.card.intrinsics import cuda

    queue()
    cuda.synchronize()
    seconds: list[float] = []
    while len(seconds) < repeats and sum(seconds) <= enough:
        begin, end = cuda.event(), cuda.event()
        begin.record()
        queue()
        end.record()
        end.synchronize()
        seconds.append(1e-3 * begin.elapsed_time(end))
    return float(np.median(seconds))

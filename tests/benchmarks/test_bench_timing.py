"""The benchmark's measures of time, by a clock that the test sets."""

from __future__ import annotations

from itertools import count

import pytest

from benchmarks.timing import least_and_result, least_seconds

pytestmark = pytest.mark.whole


class Runs:
    """Runs that take so many seconds each, one after the other, and give their number."""

    def __init__(self, *seconds):
        self._seconds = iter(seconds)
        self._number = count()
        self._now = 100.0

    def clock(self):
        return self._now

    def __call__(self):
        self._now += next(self._seconds)
        return next(self._number)


@pytest.mark.parametrize(
    ("seconds", "warm", "least"),
    [((1, 9, 4, 6), True, 4), ((9, 4, 6), False, 4), ((8, 0, 0, 0), True, 1e-9)],
)
def test_the_least_of_the_runs_that_count(seconds, warm, least):
    runs = Runs(*seconds)
    assert least_seconds(runs, 3, clock=runs.clock, warm=warm) == least
    with pytest.raises(StopIteration):
        runs()


def test_what_the_last_run_gave():
    runs = Runs(5, 3, 2)
    assert least_and_result(runs, 2, clock=runs.clock) == (2, 2)

"""What tests of the solvers share."""

from __future__ import annotations

import concurrent.futures
import itertools
import signal

import pytest


@pytest.fixture
def waits_of_interrupted(monkeypatch):
    """Interrupt the first wait for a kernel beside the main thread; the next value counts waits."""
    result, waits = concurrent.futures.Future.result, itertools.count(1)

    def interrupted(future):
        if next(waits) == 1:
            signal.raise_signal(signal.SIGINT)
        return result(future)

    monkeypatch.setattr(concurrent.futures.Future, "result", interrupted)
    return waits

"""What tests of the solvers share."""

from __future__ import annotations

import concurrent.futures
import itertools
import os
import signal
import subprocess
import sys

import pytest

from tests.data_files import ROOT
from tests.waiting import DEADLINE


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


@pytest.fixture
def on_a_plain_processor():
    """Runs a script in a process for which numba compiles without wide vectors."""

    def run(script):
        done = subprocess.run(
            [sys.executable, "-c", script],
            env=os.environ | {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""},
            cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr

    return run

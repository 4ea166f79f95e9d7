"""Where a test of kernels runs: on a card, or in numba's simulator in a process of its own.

numba reads NUMBA_ENABLE_CUDASIM when it is imported, so a process is either the one or the other. A
module of such tests has ``pytestmark = placement.marks()`` and takes ``share(cases)`` of its cases;
a test that calls ``run_simulated`` runs it in the simulator.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

from tests.data_files import ROOT
from tests.waiting import SIMULATION

HERE = Path(__file__).parent
SIMULATED = os.environ.get("NUMBA_ENABLE_CUDASIM") == "1"


@cache
def usable():
    """Whether kernels run in this process."""
    if SIMULATED:
        return True
    try:
        from gpu.card.device import devices

        return bool(devices())
    except Exception:
        return False


def marks():
    """Skipped where no kernel runs; on a card chosen by ``-m gpu``."""
    found = [
        pytest.mark.skipif(not usable(), reason="no CUDA device; run in the simulator instead"),
        # small inputs leave most of a card idle
        pytest.mark.filterwarnings("ignore:.*under-utilization"),
    ]
    return found if SIMULATED else [*found, pytest.mark.gpu]


def share(cases):
    """The cases of this process: each simulator takes its part, a card all."""
    part, parts = map(int, os.environ.get("SIMULATED_SHARE", "0/1").split("/"))
    return cases[part::parts]


@contextmanager
def small_blocks(threads, *modules):
    """Warps for the simulator, and in those modules blocks (``THREADS``) that it can carry."""
    with pytest.MonkeyPatch.context() as patch:
        if SIMULATED:
            from tests.gpu import lockstep

            lockstep.install()
            for module in modules:
                patch.setattr(module, "THREADS", threads)
        yield patch


class Simulator:
    """Test modules of those names, or a part of their cases, in a process of its own."""

    def __init__(self, part, parts, names):
        self._command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"]
        self._command += [HERE / name for name in names]
        self._share = f"{part}/{parts}"
        self._process = None

    def start(self):
        self._process = self._process or subprocess.Popen(
            self._command,
            env=os.environ | {"NUMBA_ENABLE_CUDASIM": "1", "SIMULATED_SHARE": self._share},
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        return self._process

    def end(self):
        if self._process is not None:
            self._process.kill()
            self._process.wait()


@contextmanager
def simulators(parts, *names):
    """The test modules of those names in ``parts`` simulators side by side, as processes.

    Where tests are spread over workers (pytest-xdist), each starts the simulator that it waits for.
    """
    made = [Simulator(part, parts, names) for part in range(parts)]
    try:
        if "PYTEST_XDIST_WORKER" not in os.environ:
            for simulator in made:
                simulator.start()
        yield made
    finally:
        for simulator in made:
            simulator.end()


def assert_passed(simulator):
    """The tests of one simulator have passed, and none was skipped."""
    process = simulator.start()
    output, _ = process.communicate(timeout=SIMULATION)
    assert process.returncode == 0, output
    assert " passed" in output
    assert "skipped" not in output

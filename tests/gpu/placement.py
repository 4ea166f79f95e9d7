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

HERE = Path(__file__).parent
SIMULATED = os.environ.get("NUMBA_ENABLE_CUDASIM") == "1"


@cache
def usable():
    """Whether kernels run in this process."""
    if SIMULATED:
        return True
    try:
        from gpu.device import devices

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
            import lockstep

            lockstep.install()
            for module in modules:
                patch.setattr(module, "THREADS", threads)
        yield patch


@contextmanager
def simulators(parts, *names):
    """The test modules of those names in ``parts`` simulators side by side, as processes."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"]
    processes = [
        subprocess.Popen(
            [*command, *(HERE / name for name in names)],
            env=os.environ | {"NUMBA_ENABLE_CUDASIM": "1", "SIMULATED_SHARE": f"{part}/{parts}"},
            cwd=HERE.parent.parent,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for part in range(parts)
    ]
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.wait()


def assert_passed(process):
    """The tests of one simulator have passed, and none was skipped."""
    output, _ = process.communicate(timeout=280)
    assert process.returncode == 0, output
    assert " passed" in output
    assert "skipped" not in output

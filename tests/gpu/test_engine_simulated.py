"""The engine in numba's CUDA simulator, with lockstep warps: no card is needed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PARTS = 2


@pytest.fixture(scope="module")
def simulated():
    """The parts of test_engine.py, each in a process of its own, side by side."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", HERE / "test_engine.py"]
    processes = [
        subprocess.Popen(
            command,
            env=os.environ | {"NUMBA_ENABLE_CUDASIM": "1", "ENGINE_PART": f"{part}/{PARTS}"},
            cwd=HERE.parent.parent,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for part in range(PARTS)
    ]
    yield processes
    for process in processes:
        process.kill()
        process.wait()


@pytest.mark.parametrize("part", range(PARTS))
def test_the_engine_in_the_simulator(simulated, part):
    output, _ = simulated[part].communicate(timeout=280)
    assert simulated[part].returncode == 0, output
    assert " passed" in output
    assert "skipped" not in output

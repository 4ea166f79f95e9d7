"""The Levenshtein kernels in numba's CUDA simulator, with lockstep warps: no card is needed."""

from __future__ import annotations

import placement
import pytest

PARTS = 2
MODULES = ("test_levenshtein_kernels.py", "test_levenshtein_stream.py")


@pytest.fixture(scope="module")
def simulated():
    with placement.simulators(PARTS, *MODULES) as processes:
        yield processes


@pytest.mark.parametrize("part", range(PARTS))
def test_in_the_simulator(simulated, part):
    placement.assert_passed(simulated[part])

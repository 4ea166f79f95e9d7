"""Commands on a GPU that fails, in numba's CUDA simulator: no card is needed."""

from __future__ import annotations

import placement
import pytest

PARTS = 2


@pytest.fixture(scope="module")
def simulated():
    with placement.simulators(PARTS, "test_failing_gpu.py") as processes:
        yield processes


@pytest.mark.parametrize("part", range(PARTS))
def test_in_the_simulator(simulated, part):
    placement.assert_passed(simulated[part])

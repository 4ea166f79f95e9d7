"""Kernels and engine in numba's CUDA simulator, with lockstep warps: no card is needed."""

from __future__ import annotations

import placement
import pytest

PARTS = 2


@pytest.fixture(
    scope="module",
    params=["test_kernels.py test_lockstep.py", "test_engine.py test_daemon_on_card.py"],
)
def simulated(request):
    with placement.simulators(PARTS, *request.param.split()) as processes:
        yield processes


@pytest.mark.parametrize("part", range(PARTS))
def test_in_the_simulator(simulated, part):
    placement.assert_passed(simulated[part])

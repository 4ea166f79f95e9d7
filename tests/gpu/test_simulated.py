"""Kernels in numba's CUDA simulator, with lockstep warps: no GPU is needed."""

from __future__ import annotations

import pytest

from tests.gpu import placement

PARTS = 2


@pytest.fixture(
    scope="module",
    params=[
        "exact/test_exact_kernels.py test_lockstep.py",
        "exact/test_exact_engine.py exact/test_daemon_on_card.py",
        "levenshtein/test_levenshtein_kernels.py levenshtein/test_levenshtein_stream.py",
        "ltb/test_ltb_kernels.py",
        "asm/test_asm_kernels.py",
        "hamming/test_hamming_kernels.py",
        "primer/test_primer_kernels.py",
        "lcs/test_lcs_kernels.py",
        "test_failing_gpu.py",
    ],
)
def simulated(request):
    with placement.simulators(PARTS, *request.param.split()) as processes:
        yield processes


@pytest.mark.parametrize("part", range(PARTS))
def test_in_the_simulator(simulated, part):
    placement.assert_passed(simulated[part])

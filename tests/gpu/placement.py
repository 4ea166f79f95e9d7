"""Where a test of kernels runs: on a GPU, or in numba's CUDA simulator."""

from __future__ import annotations

import os
import re
from collections import defaultdict, deque
from contextlib import contextmanager
from functools import cache

import pytest

LIMITS = {"MOST_THREADS", "FILL_THREADS", "BLOCK_THREADS", "FEW_THREADS", "MANY_THREADS"}
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
    """Of the tests in a module: ``-m gpu`` chooses those that run on a GPU."""
    # small inputs leave most of a GPU idle
    idle = pytest.mark.filterwarnings("ignore:.*under-utilization")
    return [idle] if SIMULATED else [idle, pytest.mark.gpu]


NO_GPU = pytest.mark.skipif(SIMULATED or not usable(), reason="no GPU")
"""For a test that the simulator cannot run."""


@contextmanager
def small_blocks(threads, *modules):
    """Warps for the simulator, and in those modules blocks (``*THREADS``) that it can carry.

    Some kernels are made once a process with the size of a block in them: every test module of one
    asks for the same size.
    """
    with pytest.MonkeyPatch.context() as patch:
        if SIMULATED:
            from tests.gpu import lockstep

            lockstep.install()
            sizes = re.compile(r"([A-Z_]+_)?THREADS")
            for module in modules:
                for name in filter(sizes.fullmatch, vars(module)):
                    if name not in LIMITS:
                        patch.setattr(module, name, threads)
        yield patch


def small_pieces(patch, symbols):
    """Pieces of packed text of that many symbols, and pinned buffers that fit them."""
    from gpu.asm import bit_parallel

    patch.setattr(bit_parallel, "PACKED", symbols)
    patch.setattr(bit_parallel, "_idle", defaultdict(deque))

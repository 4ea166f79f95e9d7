"""The lockstep warps themselves."""

from __future__ import annotations

import numpy as np
import pytest
from numba import cuda

from tests.gpu import lockstep

lockstep.install()
ALL = 0xFFFFFFFF


def run(function, threads=32, size=None):
    out = np.zeros(size or threads, dtype=np.int32)
    cuda.jit(function)[1, threads](out)
    return out.tolist()


def test_values_move_between_lanes():
    def kernel(out):
        lane = np.int32(cuda.threadIdx.x)
        up = cuda.shfl_up_sync(ALL, lane, 1)
        down = cuda.shfl_down_sync(ALL, up, 1)
        turned = cuda.shfl_xor_sync(ALL, down, 3)
        out[cuda.threadIdx.x] = cuda.shfl_sync(ALL, turned, 5) + up

    # lane 0 keeps its own value on the way up, lane 31 on the way down
    assert run(kernel) == [6 + max(lane - 1, 0) for lane in range(32)]


def test_votes():
    def kernel(out):
        lane = cuda.threadIdx.x
        votes = cuda.ballot_sync(ALL, lane % 8 == 1)
        alike = cuda.match_any_sync(ALL, lane // 16)
        cuda.syncwarp(ALL)
        every = cuda.all_sync(ALL, lane < 32)
        some = cuda.any_sync(ALL, lane > 31)
        out[lane] = int(votes).bit_count() + 100 * int(alike).bit_count() + 10000 * every + some

    assert run(kernel) == [11604] * 32


def diverging(out):
    if cuda.threadIdx.x < 16:
        cuda.syncwarp(ALL)
    else:
        cuda.ballot_sync(ALL, True)


def leaving(out):
    if cuda.threadIdx.x == 7:
        return
    cuda.syncwarp(ALL)


def part_of_a_warp(out):
    cuda.ballot_sync(0xFFFF, True)


def barrier_and_vote(out):
    if cuda.threadIdx.x == 0:
        cuda.syncthreads()
    else:
        cuda.syncwarp(ALL)


@pytest.mark.parametrize("kernel", [diverging, leaving, part_of_a_warp, barrier_and_vote])
def test_lanes_that_do_not_meet_are_an_error(kernel):
    with pytest.raises(lockstep.DivergenceError):
        run(kernel)

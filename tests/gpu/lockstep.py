"""Lockstep warps for numba's CUDA simulator, which has no warp intrinsics.

Each CUDA thread is a greenlet: it runs until it meets others, at a warp intrinsic or at
``syncthreads``, or ends. When all 32 lanes of a warp stand at the same intrinsic their values are
exchanged and they go on; a lane that ends or waits elsewhere while others of its warp wait for it
is an error, as it would be a hang or worse on a card. The order in which the threads of a block run
is drawn anew for every stretch, and is the same in every run, so that an order that matters shows.

The simulator has a Python thread for each CUDA thread, wraps arrays and reads the sources of the
stack to find an array in shared memory: that takes most of its time, and is replaced here too.
"""

from __future__ import annotations

import random
import sys
from functools import partial

import numpy as np
from greenlet import getcurrent, greenlet
from numba import cuda
from numba.cuda.simulator import kernel, kernelapi

WARP = 32
BARRIER = ("syncthreads",)


class DivergenceError(RuntimeError):
    """Lanes of a warp that do not meet at one intrinsic, or threads that do not at a barrier."""


class Lane(greenlet):
    """One CUDA thread; ``threadIdx`` and ``blockIdx`` are what the simulator asks for."""

    def __init__(self, body, block, thread):
        super().__init__(body)
        self.blockIdx = block
        self.threadIdx = thread
        self.waits_for = None  # None: it can run; else (what, its value)
        self.answer = None

    def meet(self, what, value=None):
        """Wait until the others are here; what the exchange gives this lane."""
        self.waits_for = (what, value)
        self.parent.switch()
        return self.answer


def run_block(manager, grid_point, *args):
    """In place of the simulator's ``BlockManager.run``."""
    block = kernelapi.Dim3(*grid_point)
    x, y, z = (*manager._block_dim, 1, 1)[:3]
    lanes = [
        Lane(partial(manager._f, *args), block, kernelapi.Dim3(i, j, h))
        for h in range(z)
        for j in range(y)
        for i in range(x)
    ]
    order = random.Random(str(grid_point))  # another one in each block
    try:
        while waiting := [lane for lane in lanes if not lane.dead]:
            ready = [lane for lane in waiting if lane.waits_for is None]
            order.shuffle(ready)
            for lane in ready:
                lane.switch()  # raises what the lane raises
            for first in range(0, len(lanes), WARP):
                _exchange(lanes[first : first + WARP])
            waiting = [lane for lane in waiting if not lane.dead]
            if waiting and all(lane.waits_for == (BARRIER, None) for lane in waiting):
                for lane in waiting:
                    lane.waits_for = None
            elif waiting and all(lane.waits_for is not None for lane in waiting):
                raise DivergenceError("threads of a block wait for each other in different places")
    finally:
        for lane in lanes:
            if not lane.dead:
                lane.throw()


def _exchange(warp):
    asked = {lane.waits_for[0] for lane in warp if not lane.dead and lane.waits_for}
    asked.discard(BARRIER)
    if not asked:
        return
    if (
        len(warp) < WARP
        or len(asked) > 1
        or any(lane.dead for lane in warp)
        or any(lane.waits_for is None or lane.waits_for[0] not in asked for lane in warp)
    ):
        raise DivergenceError(f"the lanes of a warp do not meet: {asked}")
    what = asked.pop()
    answers = EXCHANGES[what[0]]([lane.waits_for[1] for lane in warp], *what[1:])
    for lane, answer in zip(warp, answers, strict=True):
        lane.answer = answer
        lane.waits_for = None


def _ballot(values):
    return [np.uint32(sum(bool(value) << i for i, value in enumerate(values)))] * WARP


def _shift_up(values, delta):
    return values[:delta] + values[: WARP - delta]


def _shift_down(values, delta):
    return values[delta:] + values[WARP - delta :]


def _match_any(values):
    return [np.uint32(sum((v == w) << i for i, w in enumerate(values))) for v in values]


EXCHANGES = {
    "ballot": _ballot,
    "any": lambda values: [any(values)] * WARP,
    "all": lambda values: [all(values)] * WARP,
    "shfl": lambda pairs: [pairs[int(source) % WARP][0] for _, source in pairs],
    "up": _shift_up,
    "down": _shift_down,
    "xor": lambda values, mask: [values[i ^ mask] for i in range(WARP)],
    "match_any": _match_any,
    "syncwarp": lambda values: [None] * WARP,
}


def _check(mask, value=None):
    if int(mask) != 0xFFFFFFFF:
        raise DivergenceError("only whole warps meet")
    if isinstance(value, np.unsignedinteger):
        raise TypeError("shuffles take signed words on a device")


def _meet(what, value=None):
    return getcurrent().meet(what, value)


class WarpIntrinsics:
    """What the simulator's module ``cuda`` gets in addition."""

    def ballot_sync(self, mask, predicate):
        _check(mask)
        return _meet(("ballot",), predicate)

    def any_sync(self, mask, predicate):
        _check(mask)
        return _meet(("any",), predicate)

    def all_sync(self, mask, predicate):
        _check(mask)
        return _meet(("all",), predicate)

    def shfl_sync(self, mask, value, source):
        _check(mask, value)
        return _meet(("shfl",), (value, source))

    def shfl_up_sync(self, mask, value, delta):
        _check(mask, value)
        return _meet(("up", int(delta)), value)

    def shfl_down_sync(self, mask, value, delta):
        _check(mask, value)
        return _meet(("down", int(delta)), value)

    def shfl_xor_sync(self, mask, value, lane_mask):
        _check(mask, value)
        return _meet(("xor", int(lane_mask)), value)

    def match_any_sync(self, mask, value):
        _check(mask)
        return _meet(("match_any",), value)

    def syncwarp(self, mask=0xFFFFFFFF):
        _check(mask)
        _meet(("syncwarp",))

    def syncthreads(self):
        _meet(BARRIER)


def _shared_array(shared, shape, dtype):
    """An array in the shared memory of a block, which the line that asks for it names."""
    caller = sys._getframe(1)
    key = caller.f_code, caller.f_lineno
    if key not in shared._allocations:
        if isinstance(dtype, kernelapi.types.Type):
            dtype = kernelapi.numpy_support.as_dtype(dtype)
        made = shared._allocations[key] = np.empty(shape, dtype)
        made.reshape(-1).view(np.uint8)[:] = 0xA5  # nobody clears it
    return shared._allocations[key]


def _of_lane(name):
    return property(lambda _: getattr(getcurrent(), name))


def install():
    """Give the simulator of this process warps."""
    for name, function in vars(WarpIntrinsics).items():
        if not name.startswith("_"):
            setattr(kernelapi.FakeCUDAModule, name, function)
            # what device functions of other modules than the kernel's see
            setattr(cuda, name, partial(function, None))
    kernelapi.FakeCUDAModule.threadIdx = _of_lane("threadIdx")
    kernelapi.FakeCUDAModule.blockIdx = _of_lane("blockIdx")
    kernelapi.FakeCUDAShared.array = _shared_array
    kernel.FakeWithinKernelCUDAArray = lambda array: array._ary
    kernel.BlockManager.run = run_block

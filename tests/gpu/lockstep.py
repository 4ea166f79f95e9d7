"""Lockstep warps for numba's CUDA simulator, which has no warp intrinsics.

The simulator runs each CUDA thread as a Python thread. Here one of them runs at a time: it holds
a baton until it meets others, at a warp intrinsic or at ``syncthreads``, or ends. When all 32 lanes
of a warp stand at the same intrinsic their values are exchanged and they go on; a lane that ends or
waits elsewhere while others of its warp wait for it is an error, as it would be a hang or worse on
a card. The order in which the threads of a block run is drawn anew for every stretch, from a fixed
seed, so that an order that matters shows.
"""

from __future__ import annotations

import random
import threading
from functools import partial

import numpy as np

WARP = 32


class DivergenceError(RuntimeError):
    """Lanes of a warp that do not meet at one intrinsic, or threads that do not at a barrier."""


def closed_lock():
    """A lock that the next ``acquire`` waits for: the cheapest baton there is."""
    lock = threading.Lock()
    lock.acquire()
    return lock


class Lane(threading.Thread):
    """One CUDA thread; ``threadIdx`` and ``blockIdx`` are what the simulator asks for."""

    def __init__(self, target, block, thread, number, dim3):
        super().__init__(daemon=True)
        self.body = target
        self.blockIdx = dim3(*block)
        self.threadIdx = dim3(*thread)
        self.thread_id = number
        self.baton = closed_lock()
        self.home = None
        self.waits_for = None  # None: it can run; else (what, its value)
        self.answer = None
        self.ended = False
        self.error = None
        self.cancelled = False

    def run(self):
        self.baton.acquire()
        try:
            if not self.cancelled:
                self.body()
        except BaseException as error:
            self.error = error
        self.ended = True
        if not self.cancelled:
            self.home.release()

    def meet(self, what, value=None):
        """Wait until the others are here; what the exchange gives this lane."""
        self.waits_for = (what, value)
        self.home.release()
        self.baton.acquire()
        if self.cancelled:
            raise DivergenceError
        return self.answer

    def syncthreads(self):
        self.meet(("syncthreads",))


def run_block(manager, grid_point, *args):
    """In place of the simulator's ``BlockManager.run``."""
    from numba.cuda.simulator.kernelapi import Dim3

    home = closed_lock()
    x, y, z = (*manager._block_dim, 1, 1)[:3]
    points = [(i, j, h) for h in range(z) for j in range(y) for i in range(x)]
    lanes = [
        Lane(lambda: manager._f(*args), grid_point, point, number, Dim3)
        for number, point in enumerate(points)
    ]
    order = random.Random(20)
    for lane in lanes:
        lane.home = home
        lane.start()
    try:
        while any(not lane.ended for lane in lanes):
            ready = [lane for lane in lanes if not lane.ended and lane.waits_for is None]
            order.shuffle(ready)
            for lane in ready:
                lane.baton.release()
                home.acquire()
                if lane.error is not None:
                    raise lane.error
            for first in range(0, len(lanes), WARP):
                _exchange(lanes[first : first + WARP])
            waiting = [lane for lane in lanes if not lane.ended]
            if waiting and all(lane.waits_for == (("syncthreads",), None) for lane in waiting):
                for lane in waiting:
                    lane.waits_for = None
            elif waiting and all(lane.waits_for is not None for lane in waiting):
                raise DivergenceError("threads of a block wait for each other in different places")
    finally:
        for lane in lanes:
            if not lane.ended:
                lane.cancelled = True
                lane.baton.release()
        for lane in lanes:
            lane.join()


def _exchange(warp):
    asked = {lane.waits_for[0] for lane in warp if not lane.ended and lane.waits_for}
    asked.discard(("syncthreads",))
    if not asked:
        return
    if (
        len(warp) < WARP
        or len(asked) > 1
        or any(lane.ended for lane in warp)
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
    return threading.current_thread().meet(what, value)


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
        threading.current_thread().syncthreads()


def install():
    """Give the simulator of this process warps."""
    from numba import cuda
    from numba.cuda.simulator import kernel, kernelapi

    for name, function in vars(WarpIntrinsics).items():
        if not name.startswith("_"):
            setattr(kernelapi.FakeCUDAModule, name, function)
            # what device functions of other modules than the kernel's see
            setattr(cuda, name, partial(function, None))
    kernel.BlockManager.run = run_block

"""A GPU that fails, in numba's simulator: at certain calls, or beyond its memory."""

from __future__ import annotations

import weakref
from contextlib import contextmanager

import numpy as np
import pytest

OUT_OF_MEMORY = "[2] Call to cuMemAlloc results in CUDA_ERROR_OUT_OF_MEMORY"
LOST = "[719] Call to cuLaunchKernel results in CUDA_ERROR_LAUNCH_FAILED"


_results = {}


class FailingGpu:
    """Counts the calls to the driver, and lets some fail.

    fails: takes the number of a call and its kind (memory, launch or copy) and returns the driver's
    message, or None where the call succeeds. limit: bytes of memory. cards: as how many devices it
    is listed. failed: whether a call has. most: bytes that were taken at a time. A kernel that was
    launched with the same arguments before is not run again: the simulator takes its time.
    """

    def __init__(self, fails=lambda number, kind: None, limit=1 << 24, cards=1):
        self.kinds = []
        self.failed = False
        self.taken = self.most = 0
        self._fails = fails
        self._limit = limit
        self._cards = cards

    def call(self, kind):
        """Raise the driver's error if this call is to fail."""
        self.kinds.append(kind)
        self._raise(self._fails(len(self.kinds) - 1, kind))

    def keep(self, array):
        """Count the bytes of an array on the GPU for as long as it is there."""
        owner = array._ary
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        if self.taken + owner.nbytes > self._limit:
            self._raise(OUT_OF_MEMORY)
        self.taken += owner.nbytes
        self.most = max(self.most, self.taken)
        weakref.finalize(owner, self._free, owner.nbytes)
        return array

    def memory(self):
        """Free and total bytes."""
        return self._limit - self.taken, self._limit

    def launch(self, run, kernel, *arguments):
        """Run a kernel, or do what it did before with these arguments."""
        self.call("launch")
        arrays = [one._ary for one in arguments if hasattr(one, "_ary")]
        key = (
            kernel.fn, kernel.grid_dim, kernel.block_dim,
            *(one._ary.tobytes() if hasattr(one, "_ary") else one for one in arguments),
        )  # fmt: skip
        if key not in _results:
            run(kernel, *arguments)
            _results[key] = [array.copy() for array in arrays]
        for array, result in zip(arrays, _results[key], strict=True):
            array[...] = result

    def _free(self, size):
        self.taken -= size

    def _raise(self, message):
        from numba.cuda.cudadrv.driver import CudaAPIError

        if message is not None:
            self.failed = True
            raise CudaAPIError(message)

    @contextmanager
    def installed(self):
        """Have the commands of this process find this GPU."""
        from numba import cuda
        from numba.cuda.simulator import api, kernel
        from numba.cuda.simulator.cudadrv import devicearray, devices

        from gpu.card import device

        def calling(kind, function):
            def call(*arguments, **options):
                self.call(kind)
                return function(*arguments, **options)

            return call

        def allocating(function):
            def call(*arguments, **options):
                self.call("memory")
                return self.keep(function(*arguments, **options))

            return call

        def unset(*arguments, **options):
            made = plain(*arguments, **options)
            made._ary.reshape(-1).view(np.uint8)[:] = 0xA5
            return made

        plain, run = cuda.device_array, kernel.FakeCUDAKernel.__call__

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(cuda, "device_array", allocating(unset))
            patch.setattr(cuda, "to_device", allocating(cuda.to_device))
            patch.setattr(cuda, "pinned_array", calling("memory", cuda.pinned_array))
            for kind, owner, name in (
                ("copy", devicearray.FakeCUDAArray, "copy_to_host"),
                ("copy", devicearray.FakeCUDAArray, "copy_to_device"),
                ("copy", api.stream, "synchronize"),
                ("copy", api.Event, "synchronize"),
            ):
                patch.setattr(owner, name, calling(kind, getattr(owner, name)))
            patch.setattr(
                kernel.FakeCUDAKernel, "__call__", lambda *given: self.launch(run, *given)
            )
            info = devices._MemoryInfo
            patch.setattr(
                devices.FakeCUDAContext, "get_memory_info", lambda _: info(*self.memory())
            )
            found = [
                device.Device(number, "simulated", (9, 0), 1 << 30) for number in range(self._cards)
            ]
            patch.setattr(device, "devices", lambda: found)
            yield self

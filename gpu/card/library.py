"""Running sums and sorting on the GPU by CuPy (CUB and Thrust); in numba's simulator by NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpu.card.cuda_errors import CudaEngineError
from gpu.card.intrinsics import SIMULATED

MISSING = "growing on CUDA needs CuPy: pip install 'kmer-streamer[gpu]'"


class DeviceLists:
    """Sums and sorts the lists of one slot, on its stream.

    counts, sums: uint32[W]; codes, ordered: uint64[n]; device arrays of numba.
    """

    def __init__(self, counts: Any, sums: Any, codes: Any, ordered: Any, stream: Any) -> None:
        self._arrays = (counts, sums, codes, ordered)
        if SIMULATED:
            return
        try:
            import cupy
        except ImportError:
            raise CudaEngineError(MISSING) from None
        self._cupy = cupy
        self._stream = _borrowed(cupy, stream)
        self._views = tuple(cupy.asarray(array) for array in self._arrays)

    def sum(self, words: int) -> None:
        """sums[i] = counts[0] + ... + counts[i] for the first ``words``."""
        if SIMULATED:
            counts, sums, _, _ = self._arrays
            sums[:words] = np.cumsum(counts.copy_to_host()[:words], dtype=np.uint32)
            return
        with self._stream:
            self._cupy.cumsum(self._views[0][:words], dtype=np.uint32, out=self._views[1][:words])

    def sort(self, number: int) -> None:
        """ordered = the first ``number`` codes, ascending."""
        if SIMULATED:
            _, _, codes, ordered = self._arrays
            ordered[:number] = np.sort(codes.copy_to_host()[:number])
            return
        with self._stream:
            ordered = self._views[3][:number]
            ordered[...] = self._views[2][:number]
            ordered.sort()


def _borrowed(cupy: Any, stream: Any) -> Any:
    """numba's stream as a CuPy stream."""
    handle = stream.handle
    number = int(getattr(handle, "value", handle) or 0)
    if hasattr(cupy.cuda.Stream, "from_external"):

        class Handle:
            def __cuda_stream__(self) -> tuple[int, int]:
                return 0, number

        return cupy.cuda.Stream.from_external(Handle())
    return cupy.cuda.ExternalStream(number)

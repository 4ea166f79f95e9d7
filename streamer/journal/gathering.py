"""Gather the frames of a group in contiguous memory that a disk can take directly.

A write that bypasses the page cache needs whole pages of aligned memory. This copy costs less than
the kernel's into fresh pages of its cache, and each record is checksummed while it is in the core's
cache.
"""

# numba types kernels by the arguments of their first call

from __future__ import annotations

import mmap
from collections.abc import Sequence

import numpy as np
from numba import carray  # type: ignore[attr-defined]

from streamer.journal.record import Frame
from streamer.protocol.checksum_kernels import continue_crc32c
from streamer.protocol.checksums import crc32c, crc32c_address
from trie.cpu.intrinsics import array_address, pointer
from trie.cpu.jit import njit
from trie.cpu.threads import GIL_BYTES

# more than most groups need; memory beyond this is released
_KEPT_BYTES = 64 << 20
# frames of smaller records are joined first, which costs less than passing each one's address
_JOINED_BYTES = 1 << 18


class Gatherer:
    """Page-aligned memory, reused for one group after another."""

    def __init__(self) -> None:
        self._memory = np.zeros(0, np.uint8)

    def gather(
        self, records: Sequence[Sequence[Frame]], *, before: int, size: int
    ) -> tuple[memoryview, list[int]]:
        """Return ``size`` bytes with the frames from ``before`` on, and the CRC-32C of each record.

        The rest is 0. The bytes are valid until the next call.
        """
        memory = self._memory
        if size > memory.size:
            # a power of two, so that few groups need a larger one
            memory = np.frombuffer(mmap.mmap(-1, 1 << (size - 1).bit_length()), np.uint8)
            if memory.size <= _KEPT_BYTES:
                self._memory = memory
        parts = [_parts(one) for one in records]
        arrays = [np.frombuffer(frame, np.uint8) for one in parts for frame in one]
        places = np.array([(array_address(array), array.size) for array in arrays], np.int64)
        counts = np.array([*map(len, parts)], np.int64)
        sums = np.zeros(len(records), np.uint32)
        address = np.uint64(crc32c_address())
        run = _gather if size > GIL_BYTES else _gather_few
        run(address, places.reshape(-1, 2), counts, memory[:size], before, sums)
        found = sums.tolist() if address else [crc32c(one) for one in records]
        return memory[:size].data, found


def _parts(frames: Sequence[Frame]) -> list[Frame]:
    """Return the nonempty frames, or all of them joined."""
    there = [frame for frame in frames if len(frame)]
    if len(there) > 1 and sum(map(len, there)) <= _JOINED_BYTES:
        return [b"".join(there)]
    return there


@njit(cache=True, nogil=True)
def _gather(address, places, counts, memory, before, sums):
    memory[:before] = 0
    at = before
    frame = 0
    for record in range(counts.size):
        begin = at
        for _ in range(counts[record]):
            source = carray(pointer(np.uint64(places[frame, 0])), places[frame, 1], np.uint8)
            target = memory[at : at + source.size]
            for i in range(source.size):  # slice assignment would check for overlap
                target[i] = source[i]
            at += source.size
            frame += 1
        if address and at > begin:
            place = np.uint64(memory.ctypes.data + begin)
            sums[record] = continue_crc32c(address, np.uint32(0), place, at - begin)
    memory[at:] = 0


@njit(cache=True)
def _gather_few(address, places, counts, memory, before, sums):
    _gather(address, places, counts, memory, before, sums)

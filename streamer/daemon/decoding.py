"""Checks and decodes batches that came together with a few kernel calls, whatever their number.

If batches are decoded one by one, each checksum and each pass over letters releases and retakes the
GIL, and the GIL limits a daemon on a GPU. Damage and unusual names are left to ``decode_batch``,
which reports errors.
"""

# mypy: no-check-untyped-defs
# (kernels are typed by numba, by the arguments of their first call)

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress

import numpy as np
from numba import carray  # type: ignore[attr-defined]

from streamer.matching.matcher import MakeTogether
from streamer.protocol.checksum_kernels import continue_crc32c
from streamer.protocol.checksums import crc32c, crc32c_address
from streamer.protocol.context_frame import with_context
from streamer.protocol.header import SEAL_BYTES, Header, WireError
from streamer.sequences.packed_names import PackedNames, count_names
from streamer.sequences.read_batch import ReadBatch
from trie.cpu.intrinsics import array_address, pointer
from trie.cpu.jit import njit
from trie.windows import ascending

# header, names, offsets, letters, checksum; a context may precede the checksum
_FRAMES = 5
_NAMES, _OFFSETS, _LETTERS = range(1, _FRAMES - 1)


def decode_together(
    messages: Sequence[tuple[Header, Sequence[memoryview]]], make: MakeTogether
) -> list[tuple[ReadBatch, bytes] | None]:
    """What ``decode_batch`` returns for each batch, or None: then call ``unseal`` and that.

    messages: the fields of each header, and all frames of the message. Where the result is not
    None, the checksum in the last frame is right. The letters stay in their frames.
    """
    decoded: list[tuple[ReadBatch, bytes] | None] = [None] * len(messages)
    address = crc32c_address()
    which = [
        at
        for at, (header, frames) in enumerate(messages)
        if header.get("form") == "columns"
        and _FRAMES <= len(frames) <= _FRAMES + 1
        and len(frames[_OFFSETS]) >= 8
        and not len(frames[_OFFSETS]) % 8
        and len(frames[-1]) == SEAL_BYTES
    ]
    if not (address and which) or sys.byteorder == "big":
        return decoded
    frames = [messages[at][1] for at in which]
    sizes = np.array([[*map(len, of_one[:_FRAMES])] for of_one in frames], dtype=np.int64)
    places = np.array([[*map(_address, of_one[:_LETTERS])] for of_one in frames], dtype=np.uint64)
    ends = np.zeros(len(which) + 1, dtype=np.int64)
    np.cumsum(sizes[:, _OFFSETS] // 8, out=ends[1:])
    # frames may be unaligned
    offsets = np.empty(ends[-1], dtype=np.int64)
    sums = np.empty(len(which), dtype=np.uint32)
    names = np.empty(len(which), dtype=np.int64)
    _inspect(np.uint64(address), places, sizes, ends, offsets, sums, names)
    fine = names >= 0
    told = zip(which, names.tolist(), ends.tolist(), frames, strict=False)
    columns = [
        (
            at,
            PackedNames(bytes(of_one[_NAMES]), count),
            offsets[begin : begin + count + 1],
            of_one[_LETTERS],
        )
        for at, count, begin, of_one in told
        if count >= 0
    ]
    if not columns:
        return decoded
    sums = sums[fine]
    batches = make([own[1:] for own in columns], sums)
    for (at, packed, *_), batch, found in zip(columns, batches, sums.tolist(), strict=True):
        *further, seal = messages[at][1][_LETTERS + 1 :]
        if batch is None or crc32c(further, found) != int.from_bytes(seal, "little"):
            continue
        # ``decode_batch`` reports what is wrong with a context
        with suppress(WireError):
            decoded[at] = with_context(batch, further), packed.packed
    return decoded


def _address(frame: memoryview) -> int:
    return array_address(np.frombuffer(frame, np.uint8)) if len(frame) else 0


@njit(cache=True, nogil=True)
def _inspect(address, places, sizes, ends, offsets, sums, names):
    """Store each message's checksum up to its offsets, its offsets and its number of names.

    The number is -1 if ``count_names`` cannot count them or the offsets are inconsistent.
    """
    for i in range(sizes.shape[0]):
        value = np.uint32(0)
        for j in range(_LETTERS):
            if sizes[i, j]:
                value = continue_crc32c(address, value, places[i, j], sizes[i, j])
        sums[i] = value
        count = np.int64(-1)
        if sizes[i, _NAMES]:
            count = count_names(carray(pointer(places[i, _NAMES]), sizes[i, _NAMES], np.uint8))
        own = offsets[ends[i] : ends[i + 1]]
        there = carray(pointer(places[i, _OFFSETS]), sizes[i, _OFFSETS], np.uint8)
        here = own.view(np.uint8)
        for at in range(here.size):
            here[at] = there[at]
        fine = own.size == count + 1 and own[0] == 0 and own[-1] == sizes[i, _LETTERS]
        names[i] = count if fine and ascending(own) else -1

"""Texts to the card and hits from it: a core packs or widens a piece in pinned memory of its own.

A text goes as 2 bits a symbol and a bit that tells gaps (``gpu.packing``), so 0.375 bytes a symbol;
hits come as 6 bytes. Waking the cores takes a millisecond, so each is woken once for all pieces.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu.engine.place import OnCard
from gpu.intrinsics import SIMULATED, cuda
from gpu.kernels.asm import slicing
from gpu.packing import SPARE_WORDS, pack_chunk, pack_letters
from trie.codes import InvalidBaseError
from trie.parallel import run_all, usable_cores

HITS = 1 << 19
"""Hits of a piece: as many bytes as packed symbols of one."""


class Buffer:
    """Pinned memory for a piece, and the stream on which it comes and goes."""

    def __init__(self) -> None:
        words = slicing.packed_words(slicing.PACKED) + SPARE_WORDS
        self.words = cuda.pinned_array(max(words, 6 * HITS // 4), np.uint32)
        self.stream = cuda.stream()


_idle: deque[tuple[int, Buffer]] = deque()
"""Buffers that nobody uses, with their device: pinning memory takes longer than many searches."""


def _with_buffer(device: int, work: Callable[[Buffer], None]) -> None:
    """Do it with a buffer that has come or gone, on its device."""
    with OnCard(device, alone=True).active():
        try:
            held, buffer = _idle.popleft()
            if held != device:
                _idle.append((held, buffer))
                buffer = Buffer()
        except IndexError:
            buffer = Buffer()
        buffer.stream.synchronize()
        work(buffer)
        _idle.append((device, buffer))


def _device() -> int:
    return 0 if SIMULATED else int(cuda.get_current_device().id)


def _in_pieces(size: int, piece: int, work: Callable[[int, Buffer], None]) -> None:
    """Call work(first, buffer) for the pieces of ``size``, on as many cores as have a piece."""
    device = _device()
    tasks = [partial(_with_buffer, device, partial(work, first)) for first in range(0, size, piece)]
    run_all(tasks, usable_cores())


def send_packed(symbols: NDArray[np.uint8], packed: Any, *, letters: bool = False) -> None:
    """Pack a text and send it: codes or ``letters``, uint8[n] on the host.

    packed: uint32[slicing.packed_words(n)] or more on the card; all has arrived on return.
    InvalidBaseError for a letter that is not of DNA.
    """
    pack = pack_letters if letters else pack_chunk

    def send(first: int, buffer: Buffer) -> None:
        part = symbols[first : first + slicing.PACKED]
        starts, bases = slicing.packed_places(part.size)
        try:
            # for windows of one symbol a start is what is no gap
            pack(
                part,
                np.array([0, part.size]),
                1,
                out_bases=buffer.words[bases.start : bases.stop + SPARE_WORDS],
                out_starts=buffer.words[starts],
            )
        except InvalidBaseError as error:
            raise InvalidBaseError(error.byte, first + error.position) from None
        to = slicing.packed_words(slicing.PACKED) * (first // slicing.PACKED)
        used = [starts, bases] if starts.stop < bases.start else [slice(0, bases.stop)]
        for words in used:
            there = packed[to + words.start : to + words.stop]
            there.copy_to_device(buffer.words[words], stream=buffer.stream)
        buffer.stream.synchronize()

    _in_pieces(symbols.size, slicing.PACKED, send)


def fetch_hits(
    ends: Any, distances: Any, total: int
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """The first ``total`` of ends uint32 and distances uint16 on the card, widened on the host."""
    wide_ends = np.empty(total, dtype=np.int64)
    wide_distances = np.empty(total, dtype=np.int32)

    def fetch(first: int, buffer: Buffer) -> None:
        size = min(HITS, total - first)
        here = buffer.words[:size], buffer.words.view(np.uint16)[2 * size : 3 * size]
        for source, to in zip((ends, distances), here, strict=True):
            source[first : first + size].copy_to_host(to, stream=buffer.stream)
        buffer.stream.synchronize()
        wide_ends[first : first + size] = here[0]
        wide_distances[first : first + size] = here[1]

    _in_pieces(total, HITS, fetch)
    return wide_ends, wide_distances

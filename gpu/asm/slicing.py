"""Slice packed text into lanes: the bit planes of the bit-sliced search.

    plane    word [group, column / 4, lane, column % 4], uint32: bit b is of symbol
             ((32 group + lane) * 32 + b) * span + column

So a thread (group, lane) has 32 segments of ``span`` symbols, one per bit, and reads four columns
at once; a warp reads 512 bytes. Columns are grouped in tiles of TILE. There are three planes: bit 0
and bit 1 of a code, and gap codes. The words of the last are set only in tiles (group, column /
TILE) that contain a gap code, marked in ``gaps``.

Packed text (``gpu.card.packing``: 16 bases per word, the first most significant, and a bit per
symbol, set unless it is a gap) lies on the device in pieces of PACKED symbols: PACKED / 32 words of
those bits, PACKED / 16 of bases, and SPARE_WORDS. A thread takes 16 columns of a lane: it
transposes 32 packed words, one from each segment, into 16 columns of both planes. Eight adjacent
threads write whole sectors.

Send texts to the GPU and fetch hits, through pinned memory, while all cores pack and widen.

A text is sent as 2 bits per symbol and a bit that marks gaps (``gpu.card.packing``): 0.375 bytes
per symbol; a hit takes 6 bytes. Only the caller's thread calls the driver: calls from others cost
more.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu.card.intrinsics import (
    REGISTERS,
    SIMULATED,
    bytes_of,
    cuda,
    instruction,
    transposed,
    transposing,
)
from gpu.card.memory import fetch, send
from gpu.card.packing import SPARE_WORDS, pack_chunk, pack_letters, packed_sizes
from trie.codes import InvalidBaseError
from trie.cpu.threads import run_all, split_range, usable_cores

UNIT = 16  # symbols of a packed word: the columns of a thread
PACKED = 1 << 23  # symbols of a piece of packed text; a power of two, at least 32


def packed_places(symbols: int) -> tuple[slice, slice]:
    """Slices of a piece: the bits of that many symbols, and their bases with SPARE_WORDS."""
    bases = PACKED // 32
    words, bits = packed_sizes(symbols)
    return slice(0, bits), slice(bases, bases + words)


def packed_words(symbols: int) -> int:
    """Words of packed text for that many symbols."""
    whole, rest = divmod(symbols, PACKED)
    return whole * packed_places(PACKED)[1].stop + (packed_places(rest)[1].stop if rest else 0)


def _load(b: int, bits: bool) -> list[str]:
    """w{b}: 16 symbols of segment b, or with ``bits`` the gaps among 32; ORs any gap into $0."""
    lines = [f"mad.lo.u32 x, $6, {b}, $5; min.u32 x, x, $7;"]
    if not bits:
        lines += [f"shr.b32 y, x, {(PACKED // 16).bit_length() - 1};"]
        lines += [
            f"mad.lo.u32 y, y, {PACKED // 32 + SPARE_WORDS}, x; add.u32 y, y, {PACKED // 32};"
        ]
        lines += ["mul.wide.u32 at, y, 4; add.u64 at, at, $4;", f"ld.global.nc.u32 w{b}, [at];"]
    lines += [f"shr.b32 x, x, 1; shr.b32 y, x, {(PACKED // 32).bit_length() - 1};"]
    lines += [f"mad.lo.u32 y, y, {PACKED // 16 + SPARE_WORDS}, x; mul.wide.u32 at, y, 4;"]
    lines += ["add.u64 at, at, $4; ld.global.nc.u32 y, [at]; not.b32 y, y; or.b32 $0, $0, y;"]
    return [*lines, f"mov.b32 w{b}, y;"] if bits else lines


def _text(bits: bool) -> str:
    """Both planes, or with ``bits`` the plane of gaps at $2; $0: nonzero if there is a gap."""
    words = [f"w{b}" for b in range(32)]
    lines = [f"{{ {REGISTERS} .reg .u32 {', '.join(words)}; .reg .u64 at, low, high;"]
    lines += ["mov.u32 $0, 0;", *(line for b in range(32) for line in _load(b, bits))]
    lines += [transposing(words), "shl.b64 low, $2, 4; add.u64 low, low, $1; shl.b64 high, $3, 4;"]
    lines += ["add.u64 high, high, $1;"]
    planes = {"low": words} if bits else {"low": words[30::-2], "high": words[:0:-2]}
    for plane, columns in planes.items():
        for q in range(len(columns) // 4):
            four = ", ".join(columns[4 * q : 4 * q + 4])
            lines += [f"st.global.v4.u32 [{plane} + {512 * q}], {{{four}}};"]
    return " ".join([*lines, "}"])


def _put(planes: Any, place: Any, columns: Any) -> None:
    """Write the words of columns, in the simulator."""
    words = bytes_of(planes).view(np.uint32)
    for i, word in enumerate(columns):
        words[4 * (int(place) + 32 * (i // 4)) + i % 4] = word


def _units(first: Any, step: Any, last: Any) -> list[int]:
    return [min(int(first) + b * int(step), int(last)) for b in range(32)]


def _gap_columns(packed: Any, *units: Any) -> Any:
    words = bytes_of(packed).view(np.uint32)
    halves = [unit // 2 for unit in _units(*units)]
    size = PACKED // 32
    return transposed([~words[at + at // size * (2 * size + SPARE_WORDS)] for at in halves])


def _slice_bases(planes: Any, low: Any, high: Any, packed: Any, *units: Any) -> Any:
    words = bytes_of(packed).view(np.uint32)
    size = PACKED // 32
    columns = transposed(
        [words[at + size + at // (2 * size) * (size + SPARE_WORDS)] for at in _units(*units)]
    )
    _put(planes, low, columns[30::-2])
    _put(planes, high, columns[:0:-2])
    return np.bitwise_or.reduce(_gap_columns(packed, *units))


def _slice_gaps(planes: Any, place: Any, _: Any, packed: Any, *units: Any) -> Any:
    _put(planes, place, _gap_columns(packed, *units))
    return np.uint32(0)


def slice_text(tile: int) -> Callable[..., None]:
    """The kernel; ``[groups * span / tile, 2 * tile]``.

    Arguments: text uint32[packed_words(n)], units int64, packed words in it (the rest of the last
    segments is arbitrary), span int64 (a multiple of tile), planes uint32[3 * plane_size],
    plane_size int64 = groups * span * 32, gaps uint32[groups * span / tile].
    """
    pieces = tile // UNIT
    # planes, where to write the two planes (in fours of words), text, first unit, step, last unit
    operands = ("global", "u64", "u64", "global", "u32", "u32", "u32")
    slice_bases = instruction(_text(bits=False), ("u32",), operands, _slice_bases, volatile=True)
    slice_gaps = instruction(_text(bits=True), ("u32",), operands, _slice_gaps, volatile=True)

    def kernel(text, units, span, planes, plane_size, gaps):
        shared = cuda.shared.array(1, np.uint32)
        if cuda.threadIdx.x == 0:
            shared[0] = np.uint32(0)
        piece = np.int64(cuda.threadIdx.x) % pieces
        lane = np.int64(cuda.threadIdx.x) // pieces
        tiles = span // tile
        group = cuda.blockIdx.x // tiles
        column = (cuda.blockIdx.x - group * tiles) * tile + piece * UNIT
        unit = ((group * 32 + lane) * 32 * span + column) // UNIT
        low = (group * span + column) * 8 + lane
        high = low + plane_size // 4
        step = span // UNIT
        cuda.syncthreads()
        seen = slice_bases(planes, low, high, text, unit, step, units - 1)
        if seen != np.uint32(0):
            cuda.atomic.max(shared, 0, np.uint32(1))
        cuda.syncthreads()
        some = shared[0]
        if cuda.threadIdx.x == 0:
            gaps[cuda.blockIdx.x] = some
        # a word of bits covers 32 columns
        if some and column % 32 == 0:
            slice_gaps(planes, high + plane_size // 4, high, text, unit, step, units - 1)

    return kernel


PIECES = 4  # pieces of packed text sent at once
HITS = 1 << 21  # hits fetched at once: about as many bytes
FEW_HITS = 1 << 16  # hits that one core widens faster than several
_BUFFERS = 2


class PinnedPair:
    """Two pinned buffers: one is in transfer while the cores work on the other."""

    def __init__(self) -> None:
        size = max(PIECES * packed_words(PACKED), 6 * HITS // 4)
        self.buffers = [cuda.pinned_array(size, np.uint32) for _ in range(_BUFFERS)]
        self.moved = [cuda.event() for _ in range(_BUFFERS)]


_idle: defaultdict[int, deque[PinnedPair]] = defaultdict(deque)
"""Free buffers by device: pinning memory takes longer than many searches."""


@contextmanager
def _pinned_pair() -> Iterator[PinnedPair]:
    idle = _idle[0 if SIMULATED else int(cuda.get_current_device().id)]
    try:
        pair = idle.pop()
    except IndexError:
        pair = PinnedPair()
    yield pair
    idle.append(pair)


def _pack(symbols: NDArray[np.uint8], first: int, out: NDArray[np.uint32], letters: bool) -> None:
    """Pack the piece of the text that begins at ``first``."""
    part = symbols[first : first + PACKED]
    starts, bases = packed_places(part.size)
    pack = pack_letters if letters else pack_chunk
    try:
        # for k = 1 a window starts at every symbol that is not a gap
        pack(part, np.array([0, part.size]), 1, out_bases=out[bases], out_starts=out[starts])
    except InvalidBaseError as error:
        raise InvalidBaseError(error.byte, first + error.position) from None


def send_packed(
    symbols: NDArray[np.uint8], packed: Any, stream: Any, *, letters: bool = False
) -> None:
    """Pack a text and send it: codes or ``letters``, uint8[n] on the host.

    packed: uint32[slicing.packed_words(n)] or more on the GPU; the transfer is complete on return.
    Raises InvalidBaseError for a letter that is not DNA.
    """
    cores = usable_cores()
    size = packed_words(PACKED)
    at = 0
    with _pinned_pair() as pair:
        for number, begin in enumerate(range(0, symbols.size, PIECES * PACKED)):
            stop = min(symbols.size, begin + PIECES * PACKED)
            buffer, moved = pair.buffers[number % _BUFFERS], pair.moved[number % _BUFFERS]
            if number >= _BUFFERS:
                moved.synchronize()
            tasks = [
                partial(_pack, symbols, first, buffer[i * size : (i + 1) * size], letters)
                for i, first in enumerate(range(begin, stop, PACKED))
            ]
            run_all(tasks, cores)
            words = packed_words(stop - begin)
            send(buffer, packed[at : at + words], stream)
            moved.record(stream)
            at += words
        stream.synchronize()


def fetch_hits(
    ends: Any, distances: Any, total: int, stream: Any
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """The first ``total`` of ends uint32 and distances uint16 on the GPU, widened on the host."""
    wide: tuple[NDArray[Any], NDArray[Any]] = np.empty(total, np.int64), np.empty(total, np.int32)
    cores = usable_cores() if total >= FEW_HITS else 1
    firsts = range(0, total, HITS)

    def staged(number: int) -> tuple[NDArray[Any], NDArray[Any]]:
        buffer, size = pair.buffers[number % _BUFFERS], min(HITS, total - firsts[number])
        return buffer[:size], buffer.view(np.uint16)[2 * size : 3 * size]

    with _pinned_pair() as pair:
        for number in range(len(firsts) + _BUFFERS):
            moved = pair.moved[number % _BUFFERS]
            landed = number - _BUFFERS
            if 0 <= landed < len(firsts):
                moved.synchronize()
                first = firsts[landed]
                run_all(
                    [
                        partial(np.copyto, to[first + a : first + b], here[a:b])
                        for to, here in zip(wide, staged(landed), strict=True)
                        for a, b in split_range(0, here.size, cores)
                    ],
                    cores,
                )
            if number < len(firsts):
                for source, to in zip((ends, distances), staged(number), strict=True):
                    part = source[firsts[number] :] if number else source
                    fetch(part, to, stream, to.size)
                moved.record(stream)
    return wide

"""Text into lanes: codes as bit planes of the bit-sliced search.

    plane    word [group, column / 4, lane, column % 4], uint32: bit b is of symbol
             ((32 group + lane) * 32 + b) * span + column

so that a thread (group, lane) has 32 segments of ``span`` symbols, one a bit, and reads four
columns at once; a warp reads 512 bytes. Columns come in tiles of TILE. There are three planes: bit
0 and bit 1 of a code, and gaps, whose words are set only in tiles (group, column / TILE) that hold
a gap code, as ``gaps`` tells.

A thread takes 16 columns of a lane: 16 bytes of each of 32 segments. Four segments are laid side by
side in a byte, two bits each, eight such words are parted into planes and their bytes turned: per
16 bytes x 32 about 350 operations for 512 symbols. Eight threads side by side read 128 bytes, and
write whole sectors: 1.25 bytes a symbol of memory, which bounds it.

Packed text (``gpu.card.packing``: 16 bases a word, the first most significant, and a bit a symbol
that is no gap) is sliced likewise: 32 words are turned, which makes 16 columns of both planes. It
lies on the card in pieces of PACKED symbols: PACKED / 32 words of those bits, PACKED / 16 of bases,
and SPARE_WORDS.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gpu.asm.turning import REGISTERS, SELECT, turned, turning
from gpu.asm.vectors import bytes_of
from gpu.card.assembly import instruction
from gpu.card.intrinsics import cuda
from gpu.card.packing import SPARE_WORDS, packed_sizes

PIECE = 16
"""Columns of a thread: bytes of a load of codes, symbols of a packed word."""

PACKED = 1 << 21
"""Symbols of a piece of packed text; a power of two, at least 32."""

_PLACES = ("global", "u64", "u64", "global", "u32", "u32", "u32")
"""Planes, where to write the two planes (in fours of words), text, first unit, step, last unit."""


def packed_places(symbols: int) -> tuple[slice, slice]:
    """Where in a piece the bits of so many symbols are, and where their bases and SPARE_WORDS."""
    bases = PACKED // 32
    words, bits = packed_sizes(symbols)
    return slice(0, bits), slice(bases, bases + words)


def packed_words(symbols: int) -> int:
    """Words of packed text."""
    whole, rest = divmod(symbols, PACKED)
    return whole * packed_places(PACKED)[1].stop + (packed_places(rest)[1].stop if rest else 0)


def _put(planes: Any, place: Any, columns: Any) -> None:
    """The words of columns, for the simulator."""
    words = bytes_of(planes).view(np.uint32)
    for i, word in enumerate(columns):
        words[4 * (int(place) + 32 * (i // 4)) + i % 4] = word


def _units(first: Any, step: Any, last: Any) -> list[int]:
    return [min(int(first) + b * int(step), int(last)) for b in range(32)]


def _codes_of(codes: Any, *units: Any) -> Any:
    return np.stack([bytes_of(codes)[16 * u : 16 * u + 16] for u in _units(*units)])


def _columns(bits: Any) -> Any:
    """uint32[16] of bits[segment, column]."""
    return np.packbits(bits.astype(bool), axis=0, bitorder="little").T.copy().view("<u4")[:, 0]


def _load_codes(b: int) -> str:
    """w0 to w3: 16 symbols of segment b."""
    return (
        f"mad.lo.u32 x, $6, {b}, $5; min.u32 x, x, $7; mul.wide.u32 at, x, 16; "
        "add.u64 at, at, $4; ld.global.nc.v4.u32 {w0, w1, w2, w3}, [at];"
    )


def _codes_text() -> str:
    """Both planes; $0: all bytes ored together."""
    names = ", ".join(f"x{g}_{q}" for g in range(8) for q in range(4))
    lines = [f"{{ {REGISTERS} .reg .u32 w0, w1, w2, w3, v0, v1, v2, v3, {names};"]
    lines += [".reg .u64 at, low, high; mov.u32 $0, 0;"]
    for g in range(8):
        for s in range(4):
            lines += [_load_codes(8 * (g // 2) + 2 * s + g % 2)]
            lines += ["lop3.b32 $0, $0, w0, w1, 0xFE; lop3.b32 $0, $0, w2, w3, 0xFE;"]
            for q in range(4):
                mask = 0x03030303 << 2 * s
                if s == 0:
                    lines += [f"and.b32 x{g}_{q}, w{q}, {mask};"]
                else:
                    # 0xF8: a | (b & c)
                    lines += [f"shl.b32 x, w{q}, {2 * s};"]
                    lines += [f"lop3.b32 x{g}_{q}, x{g}_{q}, x, {mask}, 0xF8;"]
    lines += ["shl.b64 low, $2, 4; add.u64 low, low, $1; shl.b64 high, $3, 4;"]
    lines += ["add.u64 high, high, $1;"]
    words = [f"v{h}" for h in range(4)]
    for q in range(4):
        for plane in ("low", "high"):
            for h in range(4):
                one, other = f"x{2 * h}_{q}", f"x{2 * h + 1}_{q}"
                if plane == "low":
                    lines += [f"shl.b32 y, {other}, 1; mov.b32 x, {one};"]
                else:
                    lines += [f"shr.b32 x, {one}, 1; mov.b32 y, {other};"]
                lines += [f"lop3.b32 v{h}, x, y, 0x55555555, {SELECT};"]
            lines += [turning(words, (16, 8))]
            lines += [f"st.global.v4.u32 [{plane} + {512 * q}], {{{', '.join(words)}}};"]
    return " ".join([*lines, "}"])


def _slice_codes(planes: Any, low: Any, high: Any, codes: Any, *units: Any) -> Any:
    here = _codes_of(codes, *units)
    _put(planes, low, _columns(here & 1))
    _put(planes, high, _columns(here & 2))
    return np.bitwise_or.reduce(here.reshape(-1, 4).copy().view(np.uint32)[:, 0])


def _gaps_text() -> str:
    """The plane of gap codes, at $2."""
    names = [f"n{h}_{q}" for h in range(4) for q in range(4)]
    lines = [f"{{ {REGISTERS} .reg .u32 w0, w1, w2, w3, {', '.join(names)};"]
    lines += [".reg .u64 at, low;", *(f"mov.u32 {name}, 0;" for name in names)]
    for b in range(32):
        h, j = divmod(b, 8)
        lines += [_load_codes(b)]
        for q in range(4):
            lines += [f"{'shl' if j > 2 else 'shr'}.b32 x, w{q}, {abs(j - 2)};"]
            lines += [f"lop3.b32 n{h}_{q}, n{h}_{q}, x, {0x01010101 << j}, 0xF8;"]
    lines += ["shl.b64 low, $2, 4; add.u64 low, low, $1;"]
    for q in range(4):
        words = [f"n{h}_{q}" for h in range(4)]
        lines += [turning(words, (16, 8))]
        lines += [f"st.global.v4.u32 [low + {512 * q}], {{{', '.join(words)}}};"]
    return " ".join([*lines, "mov.u32 $0, 0; }"])


def _slice_gaps(planes: Any, place: Any, _: Any, codes: Any, *units: Any) -> Any:
    _put(planes, place, _columns(_codes_of(codes, *units) & 4))
    return np.uint32(0)


def _load_packed(b: int, bits: bool) -> list[str]:
    """w{b}: 16 symbols of segment b, or with ``bits`` which of 32 are gaps; any gap to $0."""
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


def _packed_text(bits: bool) -> str:
    """Both planes, or with ``bits`` that of gaps at $2; $0: not 0 if there is a gap."""
    words = [f"w{b}" for b in range(32)]
    lines = [f"{{ {REGISTERS} .reg .u32 {', '.join(words)}; .reg .u64 at, low, high;"]
    lines += ["mov.u32 $0, 0;", *(line for b in range(32) for line in _load_packed(b, bits))]
    lines += [turning(words), "shl.b64 low, $2, 4; add.u64 low, low, $1; shl.b64 high, $3, 4;"]
    lines += ["add.u64 high, high, $1;"]
    planes = {"low": words} if bits else {"low": words[30::-2], "high": words[:0:-2]}
    for plane, columns in planes.items():
        for q in range(len(columns) // 4):
            four = ", ".join(columns[4 * q : 4 * q + 4])
            lines += [f"st.global.v4.u32 [{plane} + {512 * q}], {{{four}}};"]
    return " ".join([*lines, "}"])


def _gap_columns(packed: Any, *units: Any) -> Any:
    words = bytes_of(packed).view(np.uint32)
    halves = [unit // 2 for unit in _units(*units)]
    size = PACKED // 32
    return turned([~words[at + at // size * (2 * size + SPARE_WORDS)] for at in halves])


def _slice_packed(planes: Any, low: Any, high: Any, packed: Any, *units: Any) -> Any:
    words = bytes_of(packed).view(np.uint32)
    size = PACKED // 32
    columns = turned(
        [words[at + size + at // (2 * size) * (size + SPARE_WORDS)] for at in _units(*units)]
    )
    _put(planes, low, columns[30::-2])
    _put(planes, high, columns[:0:-2])
    return np.bitwise_or.reduce(_gap_columns(packed, *units))


def _slice_bits(planes: Any, place: Any, _: Any, packed: Any, *units: Any) -> Any:
    _put(planes, place, _gap_columns(packed, *units))
    return np.uint32(0)


def slice_text(tile: int, packed: bool) -> Callable[..., None]:
    """The kernel for codes or for packed text; ``[groups * span / tile, 2 * tile]``.

    Arguments: text, uint8[] codes, readable to the next multiple of 16 and aligned to as much, or
    uint32[packed_words(n)]; units int64, of 16 symbols (what is beyond them in the last segments is
    anything), span int64 (a multiple of tile), planes uint32[3 * plane_size], plane_size int64 =
    groups * span * 32, gaps uint32[groups * span / tile].
    """
    pieces = tile // PIECE
    texts: tuple[str, Any, str, Any]
    if packed:
        texts = (_packed_text(bits=False), _slice_packed, _packed_text(bits=True), _slice_bits)
    else:
        texts = (_codes_text(), _slice_codes, _gaps_text(), _slice_gaps)
    slice_both = instruction(texts[0], ("u32",), _PLACES, texts[1], volatile=True)
    slice_gaps = instruction(texts[2], ("u32",), _PLACES, texts[3], volatile=True)
    alarm = 0xFFFFFFFF if packed else 0x04040404
    # a word of bits is 32 columns
    columns_of_gaps = 32 if packed else PIECE

    def kernel(text, units, span, planes, plane_size, gaps):
        shared = cuda.shared.array(1, np.uint32)
        if cuda.threadIdx.x == 0:
            shared[0] = np.uint32(0)
        piece = np.int64(cuda.threadIdx.x) % pieces
        lane = np.int64(cuda.threadIdx.x) // pieces
        tiles = span // tile
        group = cuda.blockIdx.x // tiles
        column = (cuda.blockIdx.x - group * tiles) * tile + piece * PIECE
        unit = ((group * 32 + lane) * 32 * span + column) // PIECE
        low = (group * span + column) * 8 + lane
        high = low + plane_size // 4
        step = span // PIECE
        cuda.syncthreads()
        seen = slice_both(planes, low, high, text, unit, step, units - 1)
        if seen & np.uint32(alarm):
            cuda.atomic.max(shared, 0, np.uint32(1))
        cuda.syncthreads()
        some = shared[0]
        if cuda.threadIdx.x == 0:
            gaps[cuda.blockIdx.x] = some
        if some and column % columns_of_gaps == 0:
            slice_gaps(planes, high + plane_size // 4, high, text, unit, step, units - 1)

    return kernel

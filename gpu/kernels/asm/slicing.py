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

Packed text (``gpu.packing``: 16 bases a word, the first most significant, and a bit a symbol that
is no gap) is sliced likewise: 32 words are turned, which makes 16 columns of both planes. It lies
on the card in pieces of PACKED symbols: PACKED / 32 words of those bits, then PACKED / 16 of bases.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gpu.intrinsics import cuda, load_word
from gpu.kernels.asm.statements import block
from gpu.kernels.asm.turning import EXCHANGES, turning
from gpu.kernels.asm.vectors import load_four, store_four

PIECE = 16
"""Columns of a thread: the bytes of a load."""

PACKED = 1 << 23
"""Symbols of a piece of packed text; a power of two, at least 32."""


def packed_places(symbols: int) -> tuple[slice, slice]:
    """Where in a piece the bits of so many symbols are, and where their bases."""
    bases = PACKED // 32
    return slice(0, -(-symbols // 32)), slice(bases, bases - (-symbols // 16))


def packed_words(symbols: int) -> int:
    """Words of packed text."""
    whole, rest = divmod(symbols, PACKED)
    return whole * (PACKED // 32 * 3) + (packed_places(rest)[1].stop if rest else 0)


_KERNEL = """
def kernel(codes, units, span, planes, plane_size, gaps):
    shared = cuda.shared.array(1, np.uint32)
    thread = np.uint32(cuda.threadIdx.x)
    if thread == 0:
        shared[0] = np.uint32(0)
    piece = np.uint32(thread % np.uint32({pieces}))
    lane = np.uint32(thread // np.uint32({pieces}))
    tiles = np.uint32(np.uint32(span) // np.uint32({tile}))
    block = np.uint32(cuda.blockIdx.x)
    group = np.uint32(block // tiles)
    tile = np.uint32(block - np.uint32(group * tiles))
    column = np.uint32(np.uint32(tile * np.uint32({tile})) + np.uint32(piece * np.uint32({piece})))
    step = np.uint32(np.uint32(span) // np.uint32({piece}))
    unit = np.uint32(np.uint32(np.uint32(group * np.uint32(32)) + lane) * np.uint32(32)) * step
    unit = np.uint32(unit + np.uint32(column // np.uint32({piece})))
    last = np.uint32(units - 1)
    seen = np.uint32(0)
    {gather}
    out = np.uint64(group) * np.uint64(span) + np.uint64(column)
    out = np.uint64(np.uint64(out >> np.uint64(2)) * np.uint64(32) + np.uint64(lane))
    high = np.uint64(out + np.uint64(plane_size) // np.uint64(4))
    {store}
    cuda.syncthreads()
    if np.uint32(seen & np.uint32(0x04040404)) != np.uint32(0):
        shared[0] = np.uint32(1)
    cuda.syncthreads()
    some = shared[0]
    if thread == 0:
        gaps[block] = some
    if some == np.uint32(0):
        return
    {clear}
    for eighth in range(4):
        {none}
        for j in range(8):
            at = np.uint32(unit + np.uint32(np.uint32(8 * eighth + j) * step))
            w0, w1, w2, w3 = load_four(codes, min(at, last))
            shift = np.uint32(j)
            {gap}
        shift = np.uint32(8 * eighth)
        {place}
    out = np.uint64(high + np.uint64(plane_size) // np.uint64(4))
    {store_gaps}
"""


def _gather() -> list[str]:
    """x{g}_{q}: symbols of segments 8 (g / 2) + 2 s + g % 2, s = 0..3, two bits each a byte."""
    lines = []
    for g in range(8):
        for s in range(4):
            b = 8 * (g // 2) + 2 * s + g % 2
            names = ", ".join(f"w{q}" for q in range(4))
            lines += [
                f"at = np.uint32(unit + np.uint32(np.uint32({b}) * step))",
                f"{names} = load_four(codes, min(at, last))",
            ]
            for q in range(4):
                mask = hex(0x03030303 << 2 * s)
                part = f"np.uint32(np.uint32(w{q} << np.uint32({2 * s})) & np.uint32({mask}))"
                if s == 0:
                    lines += [f"x{g}_{q} = {part}"]
                else:
                    lines += [f"x{g}_{q} = np.uint32(x{g}_{q} | {part})"]
            lines += ["seen = np.uint32(np.uint32(seen | w0) | np.uint32(w1 | np.uint32(w2 | w3)))"]
    return lines


def _store() -> list[str]:
    lines = []
    for q in range(4):
        for plane, name in enumerate(("low", "high")):
            words = [f"{name}{h}" for h in range(4)]
            for h, word in enumerate(words):
                one, other = f"x{2 * h}_{q}", f"x{2 * h + 1}_{q}"
                if plane == 0:
                    other = f"np.uint32({other} << np.uint32(1))"
                else:
                    one = f"np.uint32({one} >> np.uint32(1))"
                lines += [
                    f"{word} = np.uint32(np.uint32({one} & np.uint32(0x55555555)) | "
                    f"np.uint32({other} & np.uint32(0xAAAAAAAA)))"
                ]
            lines += turning(words, (16, 8))
            at = f"np.uint64({'high' if plane else 'out'} + np.uint64({32 * q}))"
            lines += [f"store_four(planes, {at}, {', '.join(words)})"]
    return lines


def slice_text(tile: int) -> Callable[..., None]:
    """The kernel; ``[groups * span / tile, 2 * tile]``.

    Arguments: codes uint8[], readable to the next multiple of 16 and aligned to as much, units
    int64 (16 symbols each; what is beyond them in the last segments is anything), span int64 (a
    multiple of tile), planes uint32[3 * plane_size], plane_size int64 = groups * span * 32, gaps
    uint32[groups * span / tile].
    """
    pieces = tile // PIECE
    words = [(q, c) for q in range(4) for c in range(4)]
    text = _KERNEL.format(
        tile=tile,
        pieces=pieces,
        piece=PIECE,
        gather=block(4, _gather()),
        store=block(4, _store()),
        clear=block(4, [f"g{q}_{c} = np.uint32(0)" for q, c in words]),
        none=block(8, [f"n{q} = np.uint32(0)" for q in range(4)]),
        gap=block(
            12,
            [
                f"n{q} = np.uint32(n{q} | np.uint32(np.uint32(np.uint32(w{q} >> np.uint32(2)) "
                "& np.uint32(0x01010101)) << shift))"
                for q in range(4)
            ],
        ),
        place=block(
            8,
            [
                f"g{q}_{c} = np.uint32(g{q}_{c} | np.uint32(np.uint32(np.uint32(n{q} >> "
                f"np.uint32({8 * c})) & np.uint32(255)) << shift))"
                for q, c in words
            ],
        ),
        store_gaps=block(
            4,
            [
                f"store_four(planes, np.uint64(out + np.uint64({32 * q})), "
                + ", ".join(f"g{q}_{c}" for c in range(4))
                + ")"
                for q in range(4)
            ],
        ),
    )
    scope: dict[str, Any] = {
        "cuda": cuda, "np": np, "load_four": load_four, "store_four": store_four, **EXCHANGES,
    }  # fmt: skip
    exec(text, scope)
    made: Callable[..., None] = scope["kernel"]
    return made


def signature() -> tuple[str, ...]:
    """Argument types of ``slice_text``."""
    return ("uint8[::1]", "int64", "int64", "uint32[::1]", "int64", "uint32[::1]")


_PACKED = """
def kernel(packed, words, span, planes, plane_size, gaps):
    shared = cuda.shared.array(1, np.uint32)
    thread = np.uint32(cuda.threadIdx.x)
    if thread == 0:
        shared[0] = np.uint32(0)
    part = np.uint32(thread % np.uint32({pieces}))
    lane = np.uint32(thread // np.uint32({pieces}))
    tiles = np.uint32(np.uint32(span) // np.uint32({tile}))
    block = np.uint32(cuda.blockIdx.x)
    group = np.uint32(block // tiles)
    tile = np.uint32(block - np.uint32(group * tiles))
    column = np.uint32(np.uint32(tile * np.uint32({tile})) + np.uint32(part * np.uint32(16)))
    step = np.uint32(np.uint32(span) // np.uint32(16))
    first = np.uint32(np.uint32(np.uint32(group * np.uint32(32)) + lane) * np.uint32(32)) * step
    first = np.uint32(first + np.uint32(column // np.uint32(16)))
    last = np.uint32(words - 1)
    bits = np.uint32(0xFFFFFFFF)
    {load}
    {turn}
    out = np.uint64(group) * np.uint64(span) + np.uint64(column)
    out = np.uint64(np.uint64(out >> np.uint64(2)) * np.uint64(32) + np.uint64(lane))
    high = np.uint64(out + np.uint64(plane_size) // np.uint64(4))
    {store}
    cuda.syncthreads()
    if bits != np.uint32(0xFFFFFFFF):
        shared[0] = np.uint32(1)
    cuda.syncthreads()
    some = shared[0]
    if thread == 0:
        gaps[block] = some
    # 32 columns a thread
    if some == np.uint32(0) or np.uint32(part & np.uint32(1)) != np.uint32(0):
        return
    {load_gaps}
    {turn}
    out = np.uint64(high + np.uint64(plane_size) // np.uint64(4))
    {store_gaps}
"""


def slice_packed(tile: int) -> Callable[..., None]:
    """The kernel; ``[groups * span / tile, 2 * tile]``.

    Arguments: packed uint32[packed_words(n)], words int64 (16 symbols each), the others as for
    ``slice_text``.
    """
    names = [f"w{i}" for i in range(32)]

    def at(i: int) -> str:
        return f"min(np.uint32(first + np.uint32(np.uint32({i}) * step)), last)"

    def stored(words: list[str], base: str, q: int) -> str:
        return f"store_four(planes, np.uint64({base} + np.uint64({32 * q})), {', '.join(words)})"

    def bits(i: int) -> list[str]:
        return [
            f"at = np.uint32({at(i)} >> np.uint32(1))",
            f"piece = np.uint32(at // np.uint32({PACKED // 32}))",
            f"at = np.uint32(at + np.uint32(piece * np.uint32({PACKED // 16})))",
        ]

    load, load_gaps = [], []
    for i, name in enumerate(names):
        load += [
            f"at = {at(i)}",
            f"piece = np.uint32(at // np.uint32({PACKED // 16}))",
            f"at = np.uint32(at + np.uint32(piece * np.uint32({PACKED // 32})))",
            f"{name} = load_word(packed, np.uint32(at + np.uint32({PACKED // 32})))",
            *bits(i),
            "bits = np.uint32(bits & load_word(packed, at))",
        ]
        load_gaps += [*bits(i), f"{name} = np.uint32(~load_word(packed, at))"]
    store = []
    for q in range(4):
        places = [30 - 2 * (4 * q + c) for c in range(4)]
        store += [stored([names[i] for i in places], "out", q)]
        store += [stored([names[i + 1] for i in places], "high", q)]
    text = _PACKED.format(
        tile=tile,
        pieces=tile // 16,
        load=block(4, load),
        load_gaps=block(4, load_gaps),
        turn=block(4, turning(names)),
        store=block(4, store),
        store_gaps=block(4, [stored(names[4 * q : 4 * q + 4], "out", q) for q in range(8)]),
    )
    scope: dict[str, Any] = {
        "cuda": cuda, "np": np, "load_word": load_word, "store_four": store_four, **EXCHANGES,
    }  # fmt: skip
    exec(text, scope)
    made: Callable[..., None] = scope["kernel"]
    return made


def signature_packed() -> tuple[str, ...]:
    """Argument types of ``slice_packed``."""
    return ("uint32[::1]", "int64", "int64", "uint32[::1]", "int64", "uint32[::1]")

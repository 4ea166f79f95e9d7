"""A tile of the text as rows, which ``bit_sliced`` computes from the text's planes before a search.

The words of a tile's plane are W = 8 matrices of 32 x 32 bits, with one word of each of the 32
segments. A lane has half a matrix, every second segment's word, so that 16 lanes read adjacent
words. They are transposed in its registers, except for one bit of the index: 8 exchanges with
another lane swap halves of two words at a time.

    lane     half 4 | plane 3 | matrix 2 0      word r: of segment 2 r + half
    result   the same                           word r: row 32 matrix + 16 half + r

So the bits of a row are the even segments, then the odd ones. With one word of each matrix per lane
this would take 80 exchanges.
"""

from __future__ import annotations

import numpy as np

from gpu.card.assembly import instruction
from gpu.card.bits import REGISTERS, transposing
from gpu.card.intrinsics import ALL_LANES, as_signed, cuda, device_function
from gpu.hamming.shape import WORDS, place

HALF = 16  # segments of which a lane holds a word
APART = 2 * WORDS  # distance between a lane's words

GIVEN, EVEN, ODD = (0x7632, 0x5410), (0x5410, 0x3254), (0x7610, 0x3276)
"""Byte selectors over two words, for a lane of the lower and of the upper half: what it gives to
the other lane, and its two words afterwards.
"""


def _bytes(one: int, other: int, numbers: int) -> int:
    both = one.to_bytes(4, "little") + other.to_bytes(4, "little")
    return int.from_bytes(bytes(both[numbers >> 4 * i & 7] for i in range(4)), "little")


def _lay(text, linear, planes, at, to, lane, row):
    rows = [int(text.reshape(-1)[int(at) + APART * r]) for r in range(HALF)]
    for r in range(HALF):
        linear.reshape(-1)[int(to) // 4 + APART * r] = rows[r]
    for shift in (8, 4, 2, 1):
        low = sum(((1 << shift) - 1) << i for i in range(0, 32, 2 * shift))
        for r in range(HALF):
            if not r & shift:
                one, other = rows[r], rows[r + shift]
                rows[r] = one & low | (other & low) << shift
                rows[r + shift] = one >> shift & low | other & low << shift
    upper = int(lane) >= HALF
    for r in range(0, HALF, 2):
        sent = np.uint32(_bytes(rows[r], rows[r + 1], GIVEN[upper]))
        got = int(np.uint32(cuda.shfl_xor_sync(ALL_LANES, as_signed(sent), HALF)))
        rows[r] = _bytes(rows[r], got, EVEN[upper])
        rows[r + 1] = _bytes(rows[r + 1], got, ODD[upper])
    for r in range(HALF):
        planes[int(row) // 4 + place(r)] = rows[r]


def _selected(name: str, numbers: tuple[int, int]) -> str:
    return f"selp.b32 {name}, {numbers[1]}, {numbers[0]}, upper;"


lay_rows = instruction(
    "\n".join(
        [
            "{",
            REGISTERS,
            f".reg .b32 got, given, even, odd, {', '.join(f'w{r}' for r in range(HALF))};",
            ".reg .b64 from; .reg .pred upper;",
            "mad.wide.u32 from, $3, 4, $0;",
            *(f"ld.global.nc.u32 w{r}, [from+{4 * APART * r}];" for r in range(HALF)),
            *(f"st.shared.u32 [$4+{4 * APART * r}], w{r};" for r in range(HALF)),
            transposing([f"w{r}" for r in range(HALF)], (8, 4, 2, 1)),
            f"setp.ge.u32 upper, $5, {HALF};",
            _selected("given", GIVEN),
            _selected("even", EVEN),
            _selected("odd", ODD),
            *(
                f"prmt.b32 got, w{r}, w{r + 1}, given;"
                f"shfl.sync.bfly.b32 got, got, {HALF}, 31, -1;"
                f"prmt.b32 w{r}, w{r}, got, even;"
                f"prmt.b32 w{r + 1}, w{r + 1}, got, odd;"
                for r in range(0, HALF, 2)
            ),
            *(
                f"st.shared.v2.u32 [$6+{4 * place(r)}], {{w{r}, w{r + 1}}};"
                for r in range(0, HALF, 2)
            ),
            "}",
        ]
    ),
    (), ("global", "shared", "shared", "u32", "u32", "u32", "u32"), _lay, volatile=True,
)  # fmt: skip
"""``lay_rows(text, linear, planes, at, to, lane, row)``: a lane's words of a tile, as rows.

at: the index of the first in ``text``; to: the address in ``linear``, for the unchanged words; row:
that of the lane's first row in ``planes``. 8 exchanges, about 140 operations.
"""


def _load_two(words, address):
    return words[int(address) // 4], words[int(address) // 4 + 1]


load_two = instruction(
    "ld.shared.v2.u32 {$0, $1}, [$3];", ("u32",) * 2, ("shared", "u32"), _load_two, volatile=True
)
"""``load_two(words, address)``: two words of shared memory, 8 | address."""


def _store_two(words, address, one, other):
    words[int(address) // 4] = one
    words[int(address) // 4 + 1] = other


store_two = instruction(
    "st.shared.v2.u32 [$1], {$2, $3};",
    (), ("shared", "u32", "u32", "u32"), _store_two, volatile=True,
)  # fmt: skip
"""``store_two(words, address, one, other)``: store two words there."""


@device_function
def differs(low, high, base):
    """For 32 symbols of the planes, whether they differ from this base."""
    low = np.uint32(low ^ np.uint32(0xFFFFFFFF * (base & 1)))
    return np.uint32(low | np.uint32(high ^ np.uint32(0xFFFFFFFF * (base >> 1))))


@device_function
def segment_on(row, last):
    """A row's word one segment further; last: bit 0 is the first segment of the next tile."""
    odd = np.uint32(np.uint32(row & np.uint32(0xFFFE)) << np.uint32(15))
    odd = np.uint32(odd | np.uint32(last << np.uint32(31)))
    return np.uint32(odd | np.uint32(row >> np.uint32(16)))

"""Aligned reads as the sequencer gave them (SAM specification 1.4): what SAM and BAM share.

Primary records only: the others repeat a read, or parts of it. Those of the reverse strand are
turned back. Where letters were cut off (hard clipping) the read cannot be made again.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from streamer.sequences.text_window import FormatError
from trie.codes import LETTER_TO_CODE
from trie.cpu.jit import njit

REVERSE: Final = 0x10
"""Of a flag: the letters are those of the other strand."""

NOT_PRIMARY: Final = 0x900
"""Of a flag: secondary or supplementary."""

OPERATIONS: Final = "MIDNSHP=X"
"""Of a CIGAR, by their codes."""

HARD_CLIP: Final = 5
IN_READ: Final = 0b1_1001_0011
"""A bit an operation that takes letters of the read: M I S = X."""

_COMPLEMENTS = bytes.maketrans(b"ACGTURYKMBVDHacgturykmbvdh", b"TGCAAYRMKVBHDtgcaayrmkvbhd")
LETTER_COMPLEMENTS: NDArray[np.uint8] = np.frombuffer(_COMPLEMENTS, dtype=np.uint8)
"""uint8[256], of letters."""

CODE_COMPLEMENTS: NDArray[np.uint8] = np.arange(256, dtype=np.uint8)
"""uint8[256], of base codes."""
CODE_COMPLEMENTS[LETTER_TO_CODE[np.frombuffer(b"ACGT", dtype=np.uint8)]] = LETTER_TO_CODE[
    np.frombuffer(b"TGCA", dtype=np.uint8)
]


def check_cigar(operations: list[tuple[int, int]], letters: int, name: str) -> None:
    """FormatError for (code, length) that cannot be of a whole read with this many letters."""
    codes = [code for code, _ in operations]
    if bad := next((code for code in codes if code >= len(OPERATIONS)), None):
        problem = f"the CIGAR has an operation that is not known, {bad}"
        raise FormatError(problem, name)
    if HARD_CLIP in codes:
        problem = "hard-clipped: letters of the read are missing; read the file it was aligned from"
        raise FormatError(problem, name)
    total = sum(length for code, length in operations if IN_READ >> code & 1)
    if operations and letters and total != letters:
        problem = f"the CIGAR is of {total} letters, the sequence has {letters}"
        raise FormatError(problem, name)


@njit(cache=True, nogil=True)
def turn_back(codes, first, stop, complements):
    """Reverse and complement codes[first:stop] in their place."""
    last = stop - 1
    while first < last:
        codes[first], codes[last] = complements[codes[last]], complements[codes[first]]
        first += 1
        last -= 1
    if first == last:
        codes[first] = complements[codes[first]]

"""What SAM and BAM share: restoring aligned reads as sequenced (SAM specification 1.4).

Only primary records count; secondary and supplementary ones repeat a read or parts of it. Reads on
the reverse strand are reverse-complemented. Hard-clipped reads cannot be restored, because bases
are missing.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from streamer.sequences.text_window import FormatError
from trie.codes import LETTER_TO_CODE
from trie.cpu.jit import njit

REVERSE: Final = 0x10
"""FLAG bit: the sequence is reverse-complemented."""

NOT_PRIMARY: Final = 0x900
"""FLAG bits: secondary or supplementary alignment."""

OPERATIONS: Final = "MIDNSHP=X"
"""The CIGAR operations, by code."""

HARD_CLIP: Final = 5
IN_READ: Final = 0b1_1001_0011
"""Bit mask of the operations that consume bases of the read: M I S = X."""

_COMPLEMENTS = bytes.maketrans(b"ACGTURYKMBVDHacgturykmbvdh", b"TGCAAYRMKVBHDtgcaayrmkvbhd")
LETTER_COMPLEMENTS: NDArray[np.uint8] = np.frombuffer(_COMPLEMENTS, dtype=np.uint8)
"""uint8[256]: the complement of each letter."""

CODE_COMPLEMENTS: NDArray[np.uint8] = np.arange(256, dtype=np.uint8)
"""uint8[256]: the complement of each base code."""
CODE_COMPLEMENTS[LETTER_TO_CODE[np.frombuffer(b"ACGT", dtype=np.uint8)]] = LETTER_TO_CODE[
    np.frombuffer(b"TGCA", dtype=np.uint8)
]


def check_cigar(operations: list[tuple[int, int]], letters: int, name: str) -> None:
    """Raise FormatError if (code, length) pairs cannot describe a whole read of so many letters."""
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
    """Reverse-complement codes[first:stop] in place."""
    last = stop - 1
    while first < last:
        codes[first], codes[last] = complements[codes[last]], complements[codes[first]]
        first += 1
        last -= 1
    if first == last:
        codes[first] = complements[codes[first]]

"""Encode lines of letters while searching for their ends, 64 letters at a time.

Cost of 64 letters that are all bases: one load, about fifteen vector operations, one store, one
branch. Other letters and the end of a line are handled one by one.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numba import types

from trie.codes import INVALID
from trie.cpu import llvm
from trie.cpu.intrinsics import trailing_zeros
from trie.cpu.jit import inner
from trie.cpu.llvm import BYTES, I64, INDEX, instruction
from trie.cpu.text_scan import copy_line, equals

LF: Final = np.uint8(10)
CR: Final = np.uint8(13)


@instruction(types.uint64, None, INDEX, None, INDEX)
def put_codes(builder: Any, letters: Any, at: Any, codes: Any, to: Any) -> Any:
    """codes[to : to + 64] from 64 letters; returns uint64, a bit for each that is not a base.

    In upper and lower case bits 2-1 of A, C, T, G are 00, 01, 10, 11; XORed with their upper bit
    they are the codes.
    """

    def every(number: int) -> Any:
        return llvm.constant(BYTES, number)

    upper = builder.and_(llvm.load(builder, letters, at, BYTES), every(0xDF))
    pair = builder.and_(builder.lshr(upper, every(1)), every(3))
    llvm.store(builder, builder.xor(pair, builder.lshr(pair, every(1))), codes, to)
    other = None
    for letter in b"ACGTU":
        differs = builder.icmp_unsigned("!=", upper, every(letter))
        other = differs if other is None else builder.and_(other, differs)
    return builder.bitcast(other, I64)


@inner
def encode_line(text, at, stop, codes, to, table, cr, raw):
    """The codes of a line's letters, from text[at] to its end; unchanged bytes if ``raw``.

    The line ends at LF, with ``cr`` also at CR. table: uint8[256], the code of each byte, INVALID
    for one that is not a letter. Both arrays need 64 bytes of slack after what is read and written.
    Returns the end of the line (``stop`` or more if there is none) and the first byte that is not a
    letter.
    """
    first = at
    bad = np.int64(text.size)
    while at < stop:
        if raw:
            copy_line(text, at, codes, to + at - first)
            other = ~np.uint64(0)
        else:
            other = put_codes(text, at, codes, to + at - first)
        if other:
            ends = equals(text, at, LF)
            if cr:
                ends |= equals(text, at, CR)
            count = np.int64(64)
            if ends:
                count = np.int64(trailing_zeros(ends))
                other &= (np.uint64(1) << np.uint64(count)) - np.uint64(1)
            if raw:
                other = np.uint64(0)
            while other:
                i = at + np.int64(trailing_zeros(other))
                code = table[text[i]]
                codes[to + i - first] = code
                if code == INVALID and i < bad:
                    bad = i
                other &= other - np.uint64(1)
            if ends:
                return at + count, bad
        at += 64
    return at, bad

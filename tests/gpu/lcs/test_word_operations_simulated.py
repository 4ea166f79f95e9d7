"""One step of the systolic kernel: on a GPU it is part of every pass, never alone."""

from __future__ import annotations

import numpy as np

from gpu.lcs.systolic import step, symbol_words


def test_a_step_is_the_bit_vectors_of_listing_4():
    """Carries that run through all words of a lane, in and out."""
    rng = np.random.default_rng(60)
    for words, scale in ((1, 1), (2, 8), (4, 8), (8, 8), (10, 8)):
        stride = symbol_words(words)
        table = rng.integers(0, 2**32, stride * 3, dtype=np.uint32)
        table[:stride] = 0xFFFFFFFF
        for symbols in (0x00000000, 0x02010001, 0x01020102):
            v = tuple(rng.integers(0, 2**32, words, dtype=np.uint32))
            carries = np.uint32(rng.integers(0, 2**32, dtype=np.uint32))
            got = step(words, scale)(table, symbols * scale, 4 * min(words, 4), carries, v)
            whole = sum(int(x) << (32 * i) for i, x in enumerate(v))
            out = 0
            for column in range(4):
                symbol = symbols >> (8 * column) & 255
                at = stride * symbol + min(words, 4)
                m = sum(int(table[at + 128 * (i // 4) + i % 4]) << (32 * i) for i in range(words))
                total = whole + (whole & m) + (int(carries) >> (31 - column) & 1)
                out = 2 * out + (total >> (32 * words))
                whole = (total | (whole & ~m)) & ((1 << (32 * words)) - 1)
            assert int(got[0]) == out
            assert [int(x) for x in got[1:]] == [
                whole >> (32 * i) & 0xFFFFFFFF for i in range(words)
            ]

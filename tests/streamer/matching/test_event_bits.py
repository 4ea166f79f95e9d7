"""The events of a batch from those of its parts."""

from __future__ import annotations

import numpy as np
import pytest

from streamer.matching.events import Events, add_bits, no_bits

SEED = 7


@pytest.mark.parametrize("size", [1, 7, 31, 32, 33, 64, 65, 500])
def test_bits_of_parts_are_put_together_at_any_place(size):
    rng = np.random.default_rng(SEED)
    for start in range(70):
        total = start + size + int(rng.integers(0, 70))
        codes = rng.integers(0, 3, total, dtype=np.uint8)
        whole = no_bits(total)
        for first, stop in ((0, start), (start, start + size), (start + size, total)):
            for words, part in zip(whole, Events.of(codes[first:stop]).bits, strict=True):
                add_bits(part, first, words)
        np.testing.assert_array_equal(Events(total, whole).codes, codes)

"""Base codes packed for storage come back as they were."""

from __future__ import annotations

import numpy as np
import pytest

from trie.codes import GAP, pack_codes, unpack_codes


@pytest.mark.parametrize("share_of_gaps", [0, 0.1, 1])
def test_codes_come_back(share_of_gaps):
    for size in (*range(20), 63, 64, 65, 1000, 4099):
        rng = np.random.default_rng(size)
        codes = rng.integers(0, 4, size, dtype=np.uint8)
        codes[rng.random(size) < share_of_gaps] = GAP
        packed, gaps = pack_codes(codes)
        assert packed.size == -(-size // 4)
        assert gaps.tolist() == [i for i, code in enumerate(codes) if code == GAP]
        assert np.array_equal(unpack_codes(packed, gaps, size), codes)


def test_the_first_base_is_lowest():
    packed, _ = pack_codes(np.array([3, 0, 2, 1, 1], dtype=np.uint8))
    assert packed.tolist() == [0b01_10_00_11, 0b01]

"""Chunks of a batch as bit planes and as symbols, packed in parts: against plain NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from gpu import ltb
from gpu.levenshtein.search import packing, plane_words


def plain_planes(bases, offsets, origin, stop):
    """Bit s + 64 of the four planes, symbol by symbol."""
    words = plane_words(stop - origin)
    bits = np.zeros((4, 32 * words), dtype=np.uint8)
    for at in range(origin, stop):
        for plane in range(3):
            bits[plane, 64 + at - origin] = bases[at] >> plane & 1
    for place in (origin, stop, *offsets):
        if origin <= place <= stop:
            bits[3, 64 + place - origin] = 1
    return np.packbits(bits, axis=1, bitorder="little").view(np.uint32)


def plain_symbols(bases, offsets, origin, stop):
    symbols = bases[origin:stop].copy()
    for place in (origin, *offsets):
        if origin <= place < stop:
            symbols[place - origin] |= 8
    return symbols


@pytest.mark.parametrize("total", [1, 31, 32, 33, 63, 64, 65, 127, 128, 129, 700])
def test_parts_in_any_order_make_the_chunk(total, monkeypatch):
    monkeypatch.setattr("gpu.levenshtein.search.PART", 128)
    monkeypatch.setattr(ltb, "PART", 50)
    rng = np.random.default_rng(total)
    bases = rng.integers(0, 5, total).astype(np.uint8)
    cuts = rng.integers(0, total + 1, 6)
    offsets = np.sort(np.concatenate(([0, total], cuts, cuts[:1]))).astype(np.int64)
    for origin, stop in ((0, total), (total // 3, total), (total // 3, total // 3 + 1)):
        size = plane_words(stop - origin)
        planes = np.full(4 * size + 7, 0xDEADBEEF, dtype=np.uint32)
        symbols = np.full(stop - origin + 7, 99, dtype=np.uint8)
        for work in (
            packing(bases, offsets, origin, stop, planes),
            ltb.packing(bases, offsets, origin, stop, symbols),
        ):
            for part in reversed(work):
                part()
        case = f"{origin}:{stop} of {total}, reads at {offsets}"
        np.testing.assert_array_equal(
            planes[: 4 * size].reshape(4, size),
            plain_planes(bases, offsets, origin, stop),
            err_msg=case,
        )
        np.testing.assert_array_equal(
            symbols[: stop - origin], plain_symbols(bases, offsets, origin, stop), err_msg=case
        )
        assert (planes[4 * size :] == 0xDEADBEEF).all()

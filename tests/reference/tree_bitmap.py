"""The Tree Bitmap from its definition: sets of prefixes as strings; shares nothing with trie."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

FIELDS = {
    "inmaps": np.uint32,
    "exmaps": np.uint64,
    "prefix_sums": np.uint32,
    "level_offsets": np.uint64,
}


def letters(code: int, k: int) -> str:
    """A k-mer code as its base-4 digits, first symbol first."""
    digits = ""
    for _ in range(k):
        digits = str(code % 4) + digits
        code //= 4
    return digits


def arrays_of(codes: Iterable[int], k: int) -> dict[str, NDArray[Any]]:
    """The four arrays of contract section 2, from the set of all prefixes of all k-mers."""
    prefixes = {""} | {
        kmer[:length] for kmer in {letters(code, k) for code in codes} for length in range(k + 1)
    }
    levels = [sorted(p for p in prefixes if len(p) == 3 * level) for level in range(k // 3 + 1)]
    offsets = [sum(map(len, levels[:level])) for level in range(len(levels) + 1)]
    inmaps, exmaps, prefix_sums = [], [], []
    for level, nodes in enumerate(levels):
        children_before = 0
        for node in nodes:
            inmap = 1
            for a in range(4):
                inmap += (f"{node}{a}" in prefixes) << (1 + a)
                for b in range(4):
                    inmap += (f"{node}{a}{b}" in prefixes) << (5 + 4 * a + b)
            exmap = 0
            for symbol in range(64):
                exmap += (node + letters(symbol, 3) in prefixes) << symbol
            inmaps.append(inmap)
            exmaps.append(exmap)
            prefix_sums.append(offsets[level + 1] + children_before)
            children_before += exmap.bit_count()
    values = (inmaps, exmaps, prefix_sums, offsets)
    return {
        field: np.array(value, dtype=dtype)
        for (field, dtype), value in zip(FIELDS.items(), values, strict=True)
    }


def assert_is(tree: Any, expected: dict[str, NDArray[Any]]) -> None:
    """Assert that the four arrays are bit-identical, including types."""
    for field, dtype in FIELDS.items():
        array = getattr(tree, field)
        assert array.dtype == dtype, field
        np.testing.assert_array_equal(array, expected[field], err_msg=field)


def assert_same(tree: Any, other: Any) -> None:
    """Assert that two snapshots are bit-identical."""
    assert tree.k == other.k
    assert_is(tree, {field: getattr(other, field) for field in FIELDS})

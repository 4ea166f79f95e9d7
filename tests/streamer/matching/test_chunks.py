"""Every window lies in exactly one chunk, whatever the chunk's size."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamer.matching.match_engine import chunk_bounds, slice_reads


@settings(max_examples=300, deadline=None)
@given(
    lengths=st.lists(st.integers(0, 30), max_size=12), k=st.integers(1, 9), extra=st.integers(0, 60)
)
def test_partition_of_windows(lengths, k, extra):
    chunk = k + extra
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
    windows = [
        start
        for begin, end in zip(offsets, offsets[1:], strict=False)
        for start in range(begin, end - k + 1)
    ]
    seen = []
    bounds = chunk_bounds(offsets, k, chunk)
    for start, stop in bounds:
        assert 0 < stop - start <= chunk
        parts = slice_reads(offsets, start, stop)
        assert parts[0] == 0
        assert parts[-1] == stop - start
        assert (np.diff(parts) >= 0).all()
        for begin, end in zip(parts, parts[1:], strict=False):
            seen.extend(range(start + begin, start + end - k + 1))
    assert seen == windows
    if len(bounds):
        assert (bounds[0, 0], bounds[-1, 1]) == (0, offsets[-1])
    else:
        assert offsets[-1] == 0


def test_a_chunk_longer_than_any_machine_integer():
    offsets = np.array([0, 10, 40], dtype=np.int64)
    assert chunk_bounds(offsets, 4, 2**70).tolist() == [[0, 40]]


@pytest.mark.parametrize("start", [0, 7, 10])
def test_part_of_a_batch(start):
    offsets = np.array([0, 10, 10, 40], dtype=np.int64)
    bounds = chunk_bounds(offsets, 4, 8, start, 33)
    assert bounds[0, 0] == start
    assert bounds[-1, 1] == 33
    # inside a read chunks overlap by k - 1; a cut at a read's end leaves no overlap
    for (_, stop), (next_start, _) in zip(bounds, bounds[1:], strict=False):
        assert next_start == (10 if stop in (10, 11, 12) else stop - 3)

"""Ascending codes: what is lacking and what both have, against NumPy, on any number of threads."""

from __future__ import annotations

import numpy as np
import pytest

from trie import ascending


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize(("held", "more"), [(0, 0), (0, 5), (5, 0), (1, 1), (40, 7), (7, 90)])
def test_both_ways(held, more, threads, monkeypatch):
    monkeypatch.setattr(ascending, "_GRAIN", 3)
    rng = np.random.default_rng(held + more)
    for _ in range(20):
        first = np.unique(rng.integers(0, 150, held, dtype=np.uint64))
        second = np.unique(rng.integers(0, 150, more, dtype=np.uint64))
        new = ascending.lacking(first, second, threads)
        assert new.tolist() == sorted(set(second.tolist()) - set(first.tolist()))
        where = ascending.places(first, second, threads)
        assert where.tolist() == [
            first.tolist().index(code) if code in first else -1 for code in second
        ]
        both = ascending.merged(first, second, threads)
        assert both.tolist() == sorted(first.tolist() + second.tolist())


def test_largest_codes():
    top = np.array([0, 2**62 - 1, 2**64 - 1], dtype=np.uint64)
    assert ascending.merged(top, top[1:]).tolist() == [0, *[2**62 - 1] * 2, *[2**64 - 1] * 2]
    assert ascending.lacking(top[:2], top).tolist() == [2**64 - 1]

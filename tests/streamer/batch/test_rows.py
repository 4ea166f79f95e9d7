"""Rows are the columns, whichever way they are written."""

from __future__ import annotations

import numpy as np
import pytest

from streamer.batch.hits import EIGHT, FIELDS, Hits, fill, structured


def columns(rng, size, alike):
    def some(dtype, high, *, one):
        return rng.integers(-1, high, 1 if one else size).astype(dtype)

    return (
        some(np.int32, 9, one=alike),
        some(np.int64, 1 << 40, one=alike),
        some(np.int64, 1 << 40, one=False),
        some(np.int32, 1 << 30, one=False),
        abs(some(np.uint8, 2, one=alike) % 2),
        some(np.int32, 1 << 30, one=alike),
    )


@pytest.mark.parametrize("alike", [True, False])
@pytest.mark.parametrize("skipped", range(3))
def test_rows_from_any_place_on(alike, skipped):
    rng = np.random.default_rng(skipped)
    for size in (0, 1, 2, EIGHT - 1, EIGHT, EIGHT + 1, EIGHT + 2, 5 * EIGHT, 777):
        given = columns(rng, size, alike)
        rows = np.zeros(size + skipped + 1, dtype=FIELDS)
        fill(rows[skipped:-1].view(np.uint64).reshape(-1, 4), *given)
        for name, column in zip(rows.dtype.names, given, strict=True):
            wanted = np.array(["+", "-"])[column] if name == "strand" else column
            assert (rows[name][skipped:-1] == wanted).all(), (size, name)
        for edge in (*rows[:skipped], rows[-1]):
            assert edge.tobytes() == bytes(rows.itemsize), size


def test_parts_follow_each_other():
    rng = np.random.default_rng(5)
    parts = []
    for size in (11, 3, 1, 40, 100):
        given = columns(rng, size, alike=True)
        parts.append(Hits(*(np.broadcast_to(column, (size,)) for column in given)))
    rows = structured(parts)
    assert rows["end"].tolist() == [end for part in parts for end in part.end.tolist()]
    assert rows["text"].tolist() == [text for part in parts for text in part.text.tolist()]

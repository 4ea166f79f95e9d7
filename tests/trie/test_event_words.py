"""Event words against their definition, bit by bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.reference.exact import unpack_events
from trie.snapshots.tree_bitmap import MAX_INDEX, WordOverflowError, pack_events
from trie.snapshots.tree_bitmap import MAX_WORD_NODES as MAX_NODES

rows = st.tuples(st.integers(0, 2), st.integers(1, 31), st.integers(0, MAX_NODES - 1))


@given(st.lists(rows, max_size=40))
@settings(max_examples=100, deadline=None, derandomize=True)
def test_words_are_what_the_figure_draws(symbols: list[tuple[int, int, int]]) -> None:
    events = np.array([s[0] for s in symbols], dtype=np.uint8)
    depths = np.array([s[1] for s in symbols], dtype=np.uint8)
    nodes = np.array([s[2] for s in symbols], dtype=np.uint32)
    words = pack_events(events, depths, nodes)
    expected = [
        f"{event - 1:01b}{start + depth - 1:031b}{node:027b}{depth:05b}"
        for start, (event, depth, node) in enumerate(symbols)
        if event
    ]
    assert [f"{word:064b}" for word in words.tolist()] == expected
    fields = unpack_events(words)
    kept = [(e, start, n, d) for start, (e, d, n) in enumerate(symbols) if e]
    assert list(zip(*(field.tolist() for field in fields), strict=True)) == kept


def test_a_node_too_large_is_an_error_that_says_so() -> None:
    events = np.array([1], dtype=np.uint8)
    depths = np.array([3], dtype=np.uint8)
    with pytest.raises(WordOverflowError, match="node 134217728"):
        pack_events(events, depths, np.array([MAX_NODES], dtype=np.uint32))
    assert pack_events(events, depths, np.array([MAX_NODES - 1], dtype=np.uint32)).size == 1
    # a node where there is no event does not matter
    assert pack_events(events * 0, depths, np.array([MAX_NODES], dtype=np.uint32)).size == 0


def test_an_index_too_large_is_an_error_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_INDEX == 2**31
    monkeypatch.setattr("trie.snapshots.tree_bitmap.MAX_INDEX", 10)
    events = np.zeros(12, dtype=np.uint8)
    events[7] = 2
    depths = np.full(12, 3, dtype=np.uint8)
    nodes = np.zeros(12, dtype=np.uint32)
    assert pack_events(events, depths, nodes).size == 1
    events[8] = 1
    with pytest.raises(WordOverflowError, match="index 10"):
        pack_events(events, depths, nodes)

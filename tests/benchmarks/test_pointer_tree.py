"""What only the pointer tree promises: a node for every symbol."""

from __future__ import annotations

import pytest

from benchmarks import pointer_tree
from benchmarks.pointer_tree import PointerTree
from trie.snapshots.tree_bitmap import TooManyNodesError


def test_a_node_for_every_symbol() -> None:
    tree = PointerTree(5)
    assert tree.insert([0, 1, 4**5 - 1, 0]).tolist() == [True, True, True, False]
    # the root, AAAA and its two leaves, TTTTT
    assert tree._depths.tolist() == [1, 2, 2, 2, 2, 3]


def test_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pointer_tree, "MAX_NODES", 5000)
    tree = PointerTree(31)
    with pytest.raises(TooManyNodesError, match="full at"):
        tree.insert(range(0, 4**31, 4**31 // 1000))

"""The dictionary of k-mers: codes, growing trees, the Tree Bitmap snapshot and CPU matching."""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from trie.snapshots.tree_bitmap import TreeBitmap
    from trie.trees.hybrid_tree import snapshot

__all__ = ["TreeBitmap", "snapshot"]


def __getattr__(name: str) -> Any:
    """Load the kernels on first use, so that ``import trie`` alone does not wait for numba."""
    homes = {"TreeBitmap": "trie.snapshots.tree_bitmap", "snapshot": "trie.trees.hybrid_tree"}
    if name in homes:
        return getattr(import_module(homes[name]), name)
    raise AttributeError(f"module 'trie' has no attribute '{name}'")

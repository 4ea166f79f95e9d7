"""The dictionary of k-mers: codes, growing trees, the Tree Bitmap snapshot and CPU matching."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from trie.snapshots.tree_bitmap import TreeBitmap
    from trie.trees.hybrid_tree import snapshot

__all__ = ["TreeBitmap", "snapshot"]


def __getattr__(name: str) -> Any:
    """Load the kernels on first use, so that ``import trie`` alone does not wait for numba."""
    if name in __all__:
        from trie.trees import hybrid_tree

        return getattr(hybrid_tree, name)
    raise AttributeError(f"module 'trie' has no attribute '{name}'")

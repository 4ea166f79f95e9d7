"""One CUDA device of exact matching: its slots, the snapshot in use and the set of k-mers."""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from gpu.card.cuda_errors import CardMemoryError
from gpu.card.intrinsics import cuda
from gpu.card.streams import CardShare, StreamCard
from gpu.exact.bucket_table import default_method
from gpu.exact.device_tree import DeviceTree, device_bytes, kmer_count
from gpu.exact.kmer_set import KmerSet
from gpu.exact.slot import Slot
from trie.snapshots.tree_bitmap import TreeBitmap
from trie.strands import Strands


class ExactCard(StreamCard[Slot]):
    """A device with the snapshot in use and the set of k-mers.

    threads: host threads to pack chunks. claimed: the event after the last queued ``claim``.
    """

    def __init__(
        self, k: int, strands: Strands, max_symbols: int, threads: int, share: CardShare
    ) -> None:
        super().__init__(share, partial(Slot, k, max_symbols))
        self.k = k
        self.strands: Strands = strands
        self.threads = threads
        with self.active():
            self.claimed = cuda.event()
            self._tree_ready = cuda.event()
        self.kmers: KmerSet | None = None
        self._tree: DeviceTree | None = None
        self._tree_version = 0
        self._tree_size = 0
        # its host arrays may still be in transfer
        self._tree_source: TreeBitmap | None = None

    def prepare_growth(self) -> None:
        """Allocate the buffers for new k-mers before the first chunk: pinning memory is slow."""
        with self.active():
            for slot in self.slots:
                slot.growth.warm(slot.max_symbols)
                slot.stream.synchronize()

    def load(
        self,
        codes: NDArray[np.uint64],
        values: NDArray[np.uint64],
        canonical: bool,
        expected: int,
    ) -> None:
        """Build the set of k-mers from distinct ``codes`` and their ``values``."""
        with self.active():
            stream = self.slots[0].stream
            self.kmers = KmerSet(self.k, canonical, codes.size + expected, self.budget, stream)
            self.kmers.add(codes, values, stream)
            self.kmers.known = codes.size

    def tree(
        self, tree: TreeBitmap, version: int, method: str, slot: Slot, *, words: bool = False
    ) -> DeviceTree:
        """The snapshot on this device, ready for what is queued next on the slot's stream.

        words: event words are requested, which need a walk whatever the kernel. A new version is
        sent on that stream; chunks in flight keep theirs. Raises CardMemoryError if it does not
        fit.
        """
        if method == "default":
            method = default_method(self.k)
        with_buckets = method == "buckets" and not words
        if (
            self._tree is None
            or self._tree_version != version
            or (with_buckets and self._tree.table is None)
        ):
            self._send(tree, slot, with_buckets)
            self._tree_version = version
        self._tree_ready.wait(slot.stream)
        assert self._tree is not None
        slot.tree = self._tree
        return self._tree

    def _send(self, tree: TreeBitmap, slot: Slot, with_buckets: bool) -> None:
        """Queue the upload of the snapshot that is used from now on."""
        kmers = kmer_count(tree)
        size = device_bytes(self.k, tree.node_count, kmers, with_buckets=with_buckets)
        what = f"a dictionary of {tree.node_count} trie-nodes"
        try:
            self.budget.take(what, size)
        except CardMemoryError:
            self._drop_tree()
            self.budget.take(what, size)
        self._tree = DeviceTree(tree, slot.stream, with_buckets=with_buckets)
        self._tree_ready.record(slot.stream)
        self.budget.give(self._tree_size)
        self._tree_size, self._tree_source = size, tree

    def _drop_tree(self) -> None:
        """Free the old snapshot if old and new do not fit together."""
        for slot in self.slots:
            slot.stream.synchronize()
            slot.tree = None
        self._tree = self._tree_source = None
        self.budget.give(self._tree_size)
        self._tree_size = 0

    def close(self) -> None:
        """Free the memory."""
        super().close()
        self._tree = self._tree_source = None
        if self.kmers is not None:
            self.kmers.table = None

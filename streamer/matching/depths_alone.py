"""How deep windows go in the trie, without its nodes, so a fixed dictionary needs no snapshot."""

from __future__ import annotations

import threading

import numpy as np

from streamer.dictionary.targets import Dictionary
from streamer.matching.result import BatchResult, Depths
from trie.codes import with_reverse_complements
from trie.prefixes import PrefixDepths
from trie.trees.shards import sort_unique


class DepthsAlone:
    """Measures depths in a fixed dictionary; thread-safe.

    The index it uses is built on first use.
    """

    def __init__(self, dictionary: Dictionary, threads: int) -> None:
        self._dictionary = dictionary
        self._threads = threads
        self._prefixes: PrefixDepths | None = None
        self._making = threading.Lock()

    def of(self, result: BatchResult) -> Depths:
        """Return the depths of the windows of a batch whose events are known."""
        depths = np.zeros(result.batch.bases.size, dtype=np.uint8)
        self._made().measure(
            result.batch.bases,
            result.batch.offsets,
            result.events,
            depths,
            canonical=self._dictionary.strands == "canonical",
            threads=self._threads,
        )
        return Depths.alone(depths)

    def _made(self) -> PrefixDepths:
        with self._making:
            if self._prefixes is None:
                codes, k = self._dictionary.codes, self._dictionary.k
                if self._dictionary.strands == "both":
                    codes = sort_unique(with_reverse_complements(codes, k), k, self._threads)
                self._prefixes = PrefixDepths(codes, k)
            return self._prefixes

"""A matcher of a few lines, whose results depend on all earlier batches and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from streamer.dictionary.targets import NO_SET, Dictionary, TargetSets
from streamer.matching.events import Events
from streamer.matching.result import BatchResult
from streamer.matching.starting import Start
from streamer.sequences.read_batch import ReadBatch
from trie.codes import GAP
from trie.windows import MATCH, MISMATCH

K = 4


def dictionary_of(codes: Iterable[int]) -> Dictionary:
    """A dictionary of k-mers without targets."""
    array = np.array(sorted(set(codes)), np.uint64)
    sets = np.full(array.size, NO_SET, np.uint32)
    return Dictionary(K, "forward", array, sets, TargetSets.empty())


class ToyMatcher:
    """Matches in the given order. grows: whether it adds every k-mer that it does not hold.

    limit: a batch only adds k-mers if fewer are known before it, 0: always.
    It has the parts of ``StreamMatcher`` that the daemon uses.
    """

    def __init__(self, dictionary: Dictionary, start: Start, *, grows: bool, limit: int) -> None:
        self.number, self.version = start.number, start.version
        self.dictionary = dictionary
        self.fixed = not grows
        self._limit = limit
        self.known = {*dictionary.codes.tolist(), *start.grown.tolist()}
        self._position = start.position

    def succeed(self, before: ToyMatcher) -> None:
        """Continue the stream from another matcher."""
        self.number, self._position = before.number, before._position

    def match(self, batch: ReadBatch) -> BatchResult:
        """The results of the next batch."""
        result = self._match(batch)
        self.number += 1
        self._position += batch.symbols
        return result

    def match_again(self, batches: Sequence[ReadBatch]) -> list[BatchResult]:
        """The results of batches that are not the next ones."""
        assert self.fixed
        return [self._match(batch) for batch in batches]

    def _match(self, batch: ReadBatch) -> BatchResult:
        bases, offsets = batch.bases.tolist(), batch.offsets.tolist()
        events = np.zeros(len(bases), np.uint8)
        new: dict[int, int] = {}
        grows = not self.fixed and (not self._limit or len(self.known) < self._limit)
        for begin, end in zip(offsets, offsets[1:], strict=False):
            for start in range(begin, end - K + 1):
                code = _code(bases[start : start + K])
                if code is None:
                    continue
                if code in self.known:
                    events[start] = MATCH
                    continue
                events[start] = MISMATCH
                if grows:
                    self.known.add(code)
                    new[code] = start
        before, self.version = self.version, self.version + bool(new)
        return BatchResult(
            self.number,
            self._position,
            batch,
            K,
            Events(len(bases), codes=events),
            np.uint32(NO_SET),
            before,
            self.version,
            new_kmers=np.array([*new], np.uint64),
            new_starts=np.array([*new.values()], np.int64),
        )


def _code(bases: Sequence[int]) -> int | None:
    code = 0
    for base in bases:
        if base == GAP:
            return None
        code = 4 * code + base
    return code

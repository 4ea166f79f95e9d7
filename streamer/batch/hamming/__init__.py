"""Search with k mismatches for many patterns of one length (PMASM paper).

Definition 2 of the paper: every start s and pattern P such that the Hamming distance of P and
text[s : s + m] is at most k. A gap code is a mismatch, in the text and in a pattern. Rows are
ordered by text, end, pattern and strand (``+`` first); for strand ``-``, the reverse complement of
the pattern is searched for, left to right in the text as given.

    search        letters in, one structured array out
    find          batches of base codes in, columns out chunk by chunk: memory stays bounded

Every method gives the same hits. The default is ``bit-sliced``, or ``pigeonhole`` where that is
likely faster, with hundreds of patterns; the others are the paper's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from streamer.batch.choice import Choice, Device, choose
from streamer.batch.hamming.engines import AllChunks, SearchedText
from streamer.batch.hamming.problem import columns, orient
from streamer.batch.hits import Hits, concatenate
from streamer.batch.records import Letters, NamedSequence, as_records
from trie.cpu.interrupts import interrupts_as_such
from trie.cpu.threads import usable_cores

T = TypeVar("T")

METHODS: dict[str, tuple[Device, ...]] = {
    "bit-sliced": ("cpu", "cuda"),
    "pigeonhole": ("cpu", "cuda"),
    "naive": ("cpu", "cuda"),
    "shift-add": ("cpu", "cuda"),
    "pmasm": ("cpu",),
    "pmasm-thread": ("cuda",),
    "pmasm-block-thread": ("cuda",),
    "pmasm-shared": ("cuda",),
}
"""The devices that have each method."""

DEFAULT = "bit-sliced"
ROWS_AT_ONCE = 1 << 22  # most rows per ``Hits`` that ``find`` yields


class HammingSearch:
    """Patterns prepared for one method on one device, for any number of texts.

    patterns: records of one length, 1 to 256. k: mismatches allowed, below it. strands: forward,
    reverse or both. choice: from ``choose``. free: no method was requested. threads: 0 means every
    core. source: what errors call the patterns. Raises UsageError and DataError as
    ``oriented.orient`` does.
    """

    def __init__(
        self,
        patterns: Sequence[NamedSequence],
        k: int,
        *,
        strands: str = "both",
        choice: Choice,
        free: bool = False,
        threads: int = 0,
        source: str = "patterns",
    ) -> None:
        oriented = orient(patterns, k, strands, source=source)
        self._threads = threads or usable_cores()
        self.length = oriented.length
        self._chunks = AllChunks(choice, oriented, self._threads, free=free)

    def find(
        self, codes: NDArray[np.uint8], offsets: NDArray[np.int64], before: int = 0
    ) -> Iterator[Hits]:
        """Yield the hits in a batch of texts, in order, a few million rows at a time.

        codes: uint8[total], concatenated base codes of the texts. offsets: int64[texts + 1].
        before: how many symbols of the first text precede the batch; where a text is cut,
        ``length`` - 1 symbols are repeated.
        """
        for _, hits in self.find_all([(None, codes, offsets, before)]):
            yield hits

    def find_all(
        self, texts: Iterable[tuple[T, NDArray[np.uint8], NDArray[np.int64], int]]
    ) -> Iterator[tuple[T, Hits]]:
        """Yield the hits in batches of texts, in order, each with the first value of its batch.

        The other values are the arguments of ``find``. Several GPUs search several batches at once.
        """
        made = (
            SearchedText(codes, _moved(offsets, before), tag)
            for tag, codes, offsets, before in texts
        )
        for text, first, words in self._chunks.words(made):
            for parts in _shares(words):
                yield text.tag, columns(parts, first, text.offsets, self.length, self._threads)


def _moved(offsets: NDArray[np.int64], before: int) -> NDArray[np.int64]:
    """Return where texts begin if ``before`` symbols of the first one are absent."""
    if before:
        offsets = offsets.copy()
        offsets[0] -= before
    return offsets


def _shares(words: list[NDArray[np.uint64]]) -> Iterator[list[NDArray[np.uint64]]]:
    """Split the hit words of a chunk into parts of up to ROWS_AT_ONCE."""
    if sum(part.size for part in words) <= ROWS_AT_ONCE:
        yield words
        return
    for part in words:
        for first in range(0, part.size, ROWS_AT_ONCE):
            yield [part[first : first + ROWS_AT_ONCE]]


@interrupts_as_such()
def search(
    text: Letters | Sequence[Letters],
    patterns: Letters | Sequence[Letters],
    k: int,
    *,
    strands: str = "both",
    method: str | None = None,
    device: str = "auto",
    threads: int | None = None,
    gpus: int = 1,
) -> NDArray[np.void]:
    """Find every window of one or several texts within k mismatches of a pattern.

    text, patterns: letters (bytes, str or uint8), or several of them. Returns a structured array
    with the fields text, start, end, distance, strand, pattern (streamer.batch.hits.FIELDS), text
    and pattern by number. gpus: the most GPUs to use, 0 for all.

    Raises UsageError for invalid options, DataError for patterns that are empty, of different
    lengths, above 256 symbols or not longer than k, InvalidBaseError (a ValueError) for a letter
    that is not DNA, StreamerError if CUDA is requested but not usable.

    >>> from streamer.batch import hamming
    >>> hits = hamming.search(b"ACGTTGCATTACG", ["TTGCA", "CATTG"], 1, strands="forward")
    >>> for hit in hits:
    ...     print(hit["start"], hit["end"], hit["distance"], hit["pattern"])
    1 6 1 1
    3 8 0 0
    6 11 1 1
    """
    choice = choose(METHODS, DEFAULT, method, device, gpus=gpus)
    prepared = HammingSearch(
        as_records(patterns), k, strands=strands, choice=choice, free=method is None,
        threads=threads or 0,
    )  # fmt: skip
    texts = [record.codes for record in as_records(text)]
    codes = texts[0] if len(texts) == 1 else np.concatenate([np.empty(0, np.uint8), *texts])
    offsets = np.concatenate([[0], np.cumsum([one.size for one in texts])]).astype(np.int64)
    return concatenate(list(prepared.find(codes, offsets))).structured()

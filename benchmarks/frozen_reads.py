"""Reads against a dictionary that never changes: the text index beside the plain table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from benchmarks.inputs import Codes, batch_of, cut, random_codes
from benchmarks.suite import Row
from benchmarks.timing import least_and_result
from streamer.matching.events import Events
from streamer.sequences.read_batch import ReadBatch
from trie.index.kmer_index import KmerIndex
from trie.index.reference_text import ReferenceText
from trie.index.text_index import TextIndex
from trie.windows import window_codes

KS = (21, 31)
ERRORS = 0.01  # of the bases
LENGTHS = (150, 10_000)


def reads_of(text: Codes, total: int, length: int, seed: int) -> ReadBatch:
    """Reads of one length, either strand, with errors; half from the text, half random."""
    rng = np.random.default_rng(seed)
    length = min(length, text.size)
    reads = max(2, total // length)
    starts = rng.integers(0, text.size - length + 1, reads)
    rows = text[starts[:, np.newaxis] + np.arange(length)]
    turned = rng.random(reads) < 0.5
    rows[turned] = 3 - rows[turned, ::-1]
    wrong = rng.random(rows.shape) < ERRORS
    rows[wrong] = (rows[wrong] + rng.integers(1, 4, int(wrong.sum()), dtype=np.uint8)) & 3
    foreign = rng.permutation(reads) < reads // 2
    rows[foreign] = rng.integers(0, 4, (int(foreign.sum()), length), dtype=np.uint8)
    return batch_of(rows.ravel(), cut(rows.size, length))


def rows(
    kmers: int,
    ks: Sequence[int] = KS,
    total: int = 32_000_000,
    threads: Sequence[int] = (1, 2),
    repeats: int = 3,
) -> Iterator[Row]:
    """Windows a second from codes to events, with both indexes, in ``total`` bases of reads."""
    for k in ks:
        text = random_codes(kmers + k - 1, 1)
        whole = np.array([0, text.size])
        codes = np.unique(window_codes(text, whole, k, canonical=True)[0])
        table = KmerIndex(k, expected=codes.size)
        table.add(codes)
        by_text = TextIndex.of(ReferenceText.of(text, whole), k, canonical=True)
        for length in LENGTHS:
            batch = reads_of(text, total, length, 2)
            for used in threads:
                yield from _compared(k, table, by_text, batch, used, repeats)


def _compared(
    k: int, table: KmerIndex, by_text: TextIndex, batch: ReadBatch, threads: int, repeats: int
) -> Iterator[Row]:
    bases, offsets = batch.bases, batch.offsets

    def of_table() -> Events:
        return Events.of(table.match(bases, offsets, canonical=True, threads=threads))

    def of_text() -> Events:
        return Events(bases.size, by_text.match(bases, offsets, threads=threads))

    plain, expected = least_and_result(of_table, repeats)
    fast, found = least_and_result(of_text, repeats)
    equal = bool((expected.codes == found.codes).all())
    windows = int((expected.codes != 0).sum())
    for method, seconds in (("text index", fast), ("plain table", plain)):
        yield {
            "k": k, "bases a read": int(batch.lengths[0]), "method": method, "threads": threads,
            "windows/s": windows / seconds, "windows/s a thread": windows / seconds / threads,
            "x plain table": plain / seconds, "equal": equal,
        }  # fmt: skip

"""Exact matching on the CPU: a frozen and a growing dictionary, against peers.

Rates of different machines cannot be compared; ratios to a peer in the same rows can.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from benchmarks import peers
from benchmarks.inputs import LETTERS, Codes, batch_of, cut, half_hit, random_codes
from benchmarks.plain_hash import PlainHashSet
from benchmarks.suite import Row, Sheet
from benchmarks.timing import least_seconds
from streamer.sequences.read_batch import ReadBatch
from trie.cpu.threads import usable_cores
from trie.index.kmer_index import KmerIndex
from trie.snapshots.tree_bitmap import walk
from trie.trees.hybrid_tree import snapshot
from trie.windows import window_codes

KS = (15, 21, 31)
PEERS = ("plain hash set", "sshash")


def tables(device: str, kmers: int = 10_000_000, reads: list[str] | None = None) -> list[Sheet]:
    """Dictionaries of ``kmers`` k-mers; ``reads``: FASTQ files for the section ``files``."""
    if device == "cuda":
        from benchmarks import exact_on_gpu

        return exact_on_gpu.tables(kmers)
    from benchmarks import file_to_report, frozen_reads, trees

    bases = [size for size in trees.FIGURE_39_BASES if size <= kmers]
    figure_39 = "Hybrid Tree Bitmap against pointer tree (thesis, Fig. 39)"
    return [
        Sheet("Frozen dictionary, windows a second", frozen, kmers, section="frozen"),
        Sheet(
            "Frozen dictionary, reads with 1 % errors, half foreign", frozen_reads.rows, kmers,
            section="reads",
        ),
        Sheet("Growing dictionary", grow, 5 * kmers, section="grow"),
        Sheet("Snapshots, seconds", trees.snapshots, kmers, section="snapshot"),
        Sheet("Memory, bytes a k-mer", trees.memory, (kmers // 10, kmers), section="memory"),
        Sheet(figure_39, trees.figure_39, bases, section="figure39"),
        Sheet(
            "FASTQ.gz to --report reads", file_to_report.rows, reads, usable_cores(), 15 * kmers,
            section="files",
        ),
    ]  # fmt: skip


def letters_of(batch: ReadBatch) -> list[bytes]:
    """The reads as letters."""
    text = LETTERS[batch.bases].tobytes()
    cuts = batch.offsets.tolist()
    return [text[a:b] for a, b in zip(cuts[:-1], cuts[1:], strict=True)]


def sequenced(text: Codes, total: int, read: int, seed: int) -> ReadBatch:
    """Reads of one length from random places of the text, either strand, with 5 % errors."""
    rng = np.random.default_rng(seed)
    read = min(read, text.size)
    reads = max(1, total // read)
    starts = rng.integers(0, text.size - read + 1, reads)
    rows = text[starts[:, np.newaxis] + np.arange(read)]
    turned = rng.random(reads) < 0.5
    rows[turned] = 3 - rows[turned, ::-1]
    wrong = rng.random(rows.shape) < 0.05
    rows[wrong] = (rows[wrong] + rng.integers(1, 4, int(wrong.sum()), dtype=np.uint8)) & 3
    return batch_of(rows.ravel(), cut(rows.size, read))


def unique_pieces(text: Codes, k: int) -> list[str]:
    """The text cut so that no (canonical) k-mer occurs twice, the input that sshash accepts."""
    codes, positions = window_codes(text, np.array([0, text.size]), k, canonical=True)
    new = KmerIndex(k, expected=codes.size).add(codes)
    edges = np.flatnonzero(np.diff(np.concatenate([[False], new, [False]]).astype(np.int8)))
    letters = LETTERS[text].tobytes().decode()
    return [letters[positions[a] : positions[b - 1] + k] for a, b in edges.reshape(-1, 2).tolist()]


def frozen(
    kmers: int, ks: Sequence[int] = KS, threads: Sequence[int] = (1, 2), repeats: int = 3
) -> Iterator[Row]:
    """Look-ups in a dictionary of ``kmers`` random k-mers, canonical, for three kinds of reads.

    Methods: the index, the snapshot walk (events and depths), a plain hash set and the streaming
    query of sshash (which makes a Python object of every hit).
    """
    for k in ks:
        text = random_codes(kmers + k - 1, 1)
        codes, _ = window_codes(text, np.array([0, text.size]), k, canonical=True)
        index = KmerIndex(k, expected=codes.size)
        index.add(codes)
        plain = PlainHashSet(k, expected=codes.size)
        plain.grow(text, np.array([0, text.size]), np.empty(text.size, dtype=np.uint8))
        tree = snapshot(codes, k)
        query = peers.sshash(unique_pieces(text, k), k)
        for name, batch in (
            ("half from the dictionary, half random", half_hit(text, kmers, 2)),
            ("150-base reads, 5% errors", sequenced(text, kmers, 150, 3)),
            ("10,000-base reads, 5% errors", sequenced(text, kmers, 10_000, 4)),
        ):
            stream = batch.bases, batch.offsets
            events = np.zeros(batch.bases.size, dtype=np.uint8)
            runs: dict[tuple[str, int], Callable[[], object]] = {}
            for used in threads:
                options: dict[str, Any] = {"canonical": True, "threads": used}
                runs["index", used] = partial(index.match, *stream, events=events, **options)
                runs["snapshot walk", used] = partial(walk, tree, *stream, **options)
            runs["plain hash set", 1] = partial(plain.match, *stream, events)
            if query is not None:
                runs["sshash", 1] = partial(_ask_all, query.query_sequence, letters_of(batch))
            yield from _frozen_rows(k, name, batch, index, runs, repeats)


def _ask_all(ask: Callable[[bytes], object], reads: list[bytes]) -> None:
    for read in reads:
        ask(read)


def _frozen_rows(
    k: int,
    stream: str,
    batch: ReadBatch,
    index: KmerIndex,
    runs: dict[tuple[str, int], Callable[[], object]],
    repeats: int,
) -> Iterator[Row]:
    # no read here holds a gap code
    windows = int(np.maximum(batch.lengths - k + 1, 0).sum())
    events = index.match(batch.bases, batch.offsets, canonical=True)
    share = round(float((events == 1).sum()) / windows, 3)
    rates: dict[tuple[str, int], float | None] = {
        method: windows / least_seconds(run, repeats, warm=False) for method, run in runs.items()
    }
    rates.setdefault(("sshash", 1), None)
    for (method, used), rate in rates.items():
        row: Row = {
            "k": k, "stream": stream, "hits": share, "method": method, "threads": used,
            "windows/s": rate, "note": "" if rate else peers.missing(method),
        }  # fmt: skip
        for peer in PEERS:
            theirs = rates[peer, 1]
            row[f"x {peer}"] = rate / theirs if rate and theirs else None
        yield row


def grow(total: int, threads: Sequence[int] = (1, 2), repeats: int = 3) -> Iterator[Row]:
    """A dictionary that grows by random symbols: rows of new k-mers a second.

    From empty, including every doubling, and with a table allocated at its final size (whose pages
    are first touched in the measured run, as after doublings).
    """
    k = 21
    bases, offsets = random_codes(total, 1), np.array([0, total])
    events = np.empty(total, dtype=np.uint8)

    def ours(expected: int, used: int, size: int = total) -> int:
        index = KmerIndex(k, expected=expected)
        grown = index.grow(bases[:size], np.array([0, size]), canonical=True, threads=used)
        return len(grown[0])

    def plain(expected: int) -> None:
        PlainHashSet(k, expected=expected).grow(bases, offsets, events)

    for used in threads:
        ours(0, used, min(total, 100_000))  # compiles
    plain(0)
    new = ours(0, 1)
    for start, expected in (("empty", 0), ("final size", new)):
        runs: dict[tuple[str, int], Callable[[], object]] = {
            ("index", used): partial(ours, expected, used) for used in threads
        }
        runs["plain hash set", 1] = partial(plain, expected)
        for (method, used), run in runs.items():
            yield {
                "k": k, "new k-mers": new, "method": method, "table from": start, "threads": used,
                "new k-mers/s": new / least_seconds(run, repeats, warm=False),
            }  # fmt: skip

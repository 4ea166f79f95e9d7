"""Measurements of exact matching on the CPU: a frozen and a growing dictionary, against peers.

Every function returns plain rows and prints nothing. A rate is the best of several runs of the
same stream in the same process, after one small run that compiles the kernels. Rates of different
machines do not compare; the ratio to a peer in the same rows does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamer.bench.plain_hash import PlainHashSet
from streamer.bench.timing import least_seconds
from trie.index.kmer_index import KmerIndex
from trie.snapshots.tree_bitmap import TreeBitmap, snapshot
from trie.snapshots.walk import walk
from trie.windows import window_codes

Row = dict[str, Any]

KS = (15, 21, 31)
SSHASH_MISSING = "sshash is not installed: pip install 'kmer-streamer[bench]'"
_LETTERS = np.frombuffer(b"ACGTN", dtype=np.uint8)


@dataclass(frozen=True)
class Stream:
    """A named batch of reads."""

    name: str
    bases: NDArray[np.uint8]
    offsets: NDArray[np.int64]

    def reads(self) -> list[bytes]:
        """The reads as letters."""
        text = _LETTERS[self.bases].tobytes()
        cuts = self.offsets.tolist()
        return [text[a:b] for a, b in zip(cuts[:-1], cuts[1:], strict=True)]

    def windows(self, k: int) -> int:
        """How many windows it has; no read here holds a gap code."""
        return int(np.maximum(np.diff(self.offsets) - k + 1, 0).sum())


def half_hit(text: NDArray[np.uint8], total: int, seed: int, read: int = 1000) -> Stream:
    """Reads of 1,000 bases, every other one from the dictionary's text, the rest random."""
    rng = np.random.default_rng(seed)
    reads = max(2, total // read)
    rows = rng.integers(0, 4, (reads, read), dtype=np.uint8)
    starts = rng.integers(0, max(1, text.size - read), reads)
    for i in range(0, reads, 2):
        rows[i] = np.resize(text[starts[i] : starts[i] + read], read)
    return Stream("half from the dictionary, half random", rows.ravel(), _even(reads, read))


def sequenced(
    text: NDArray[np.uint8], total: int, read: int, seed: int, error: float = 0.05
) -> Stream:
    """Reads of one length from anywhere in the text, either strand, with substitutions."""
    rng = np.random.default_rng(seed)
    read = min(read, text.size)
    reads = max(1, total // read)
    starts = rng.integers(0, text.size - read + 1, reads)
    rows = text[starts[:, np.newaxis] + np.arange(read)]
    turned = rng.random(reads) < 0.5
    rows[turned] = 3 - rows[turned, ::-1]
    wrong = rng.random(rows.shape) < error
    rows[wrong] = (rows[wrong] + rng.integers(1, 4, int(wrong.sum()), dtype=np.uint8)) & 3
    return Stream(f"{read}-base reads, {error:.0%} errors", rows.ravel(), _even(reads, read))


def _even(reads: int, read: int) -> NDArray[np.int64]:
    return np.arange(reads + 1, dtype=np.int64) * read


def unique_pieces(text: NDArray[np.uint8], k: int) -> list[str]:
    """The text cut so that no (canonical) k-mer occurs twice, the input that sshash accepts."""
    codes, positions = window_codes(text, np.array([0, text.size]), k, canonical=True)
    new = KmerIndex(k, expected=codes.size).add(codes)
    edges = np.flatnonzero(np.diff(np.concatenate([[False], new, [False]]).astype(np.int8)))
    letters = _LETTERS[text].tobytes().decode()
    return [letters[positions[a] : positions[b - 1] + k] for a, b in edges.reshape(-1, 2).tolist()]


def _sshash_query(text: NDArray[np.uint8], k: int) -> Any | None:
    """A streaming query over the text's k-mers, or None where the package is missing."""
    try:
        import sshash
    except ImportError:
        return None
    # minimizers a little longer than log4 of the text, as its authors advise
    shortest = int(np.ceil(np.log(max(4, text.size)) / np.log(4))) + 1
    config = sshash.BuildConfig(k, max(1, min(k - 2, shortest)))
    config.verbose = False
    config.threads = 1
    return config.build(unique_pieces(text, k)).streaming_query()


def frozen(
    kmers: int = 10_000_000,
    total: int = 10_000_000,
    ks: Sequence[int] = KS,
    threads: Sequence[int] = (1, 2),
    repeats: int = 3,
    seed: int = 1,
) -> list[Row]:
    """Look-ups in a dictionary of ``kmers`` random k-mers: rows of windows a second.

    Methods: the index, the snapshot walk (events and depths), a plain hash set and the streaming
    query of sshash (which makes a Python object of every hit); canonical everywhere.
    """
    rows: list[Row] = []
    for k in ks:
        text = np.random.default_rng(seed).integers(0, 4, kmers + k - 1, dtype=np.uint8)
        codes, _ = window_codes(text, np.array([0, text.size]), k, canonical=True)
        index = KmerIndex(k, expected=codes.size)
        index.add(codes)
        plain = PlainHashSet(k, expected=codes.size)
        plain.grow(text, np.array([0, text.size]), np.empty(text.size, dtype=np.uint8))
        tree = snapshot(codes, k)
        query = _sshash_query(text, k)
        for stream in (
            half_hit(text, total, seed + 1),
            sequenced(text, total, 150, seed + 2),
            sequenced(text, total, 10_000, seed + 3),
        ):
            rows += _frozen_rows(k, stream, index, tree, plain, query, threads, repeats)
    return rows


def _frozen_rows(
    k: int,
    stream: Stream,
    index: KmerIndex,
    tree: TreeBitmap,
    plain: PlainHashSet,
    query: Any | None,
    threads: Sequence[int],
    repeats: int,
) -> list[Row]:
    bases, offsets = stream.bases, stream.offsets
    events = np.zeros(bases.size, dtype=np.uint8)
    windows = stream.windows(k)
    reads = stream.reads()
    share = round(float((index.match(bases, offsets, canonical=True) == 1).sum()) / windows, 3)

    def row(method: str, used: int, run: Callable[[], object], note: str = "") -> Row:
        rate = windows / least_seconds(run, repeats, warm=False)
        return _row(k, stream, share, method, used, rate, note)

    def ask_sshash() -> None:
        for read in reads:
            assert query is not None
            query.query_sequence(read)

    rows = []
    for used in threads:
        rows += [
            row(
                "index",
                used,
                lambda used=used: index.match(  # type: ignore[misc]
                    bases, offsets, canonical=True, threads=used, events=events
                ),
            ),
            row(
                "snapshot walk",
                used,
                lambda used=used: walk(  # type: ignore[misc]
                    tree, bases, offsets, canonical=True, threads=used
                ),
            ),
        ]
    rows.append(row("plain hash set", 1, lambda: plain.match(bases, offsets, events)))
    if query is None:
        rows.append(_row(k, stream, share, "sshash", 1, None, SSHASH_MISSING))
    else:
        rows.append(row("sshash", 1, ask_sshash))
    return rows


def _row(
    k: int, stream: Stream, share: float, method: str, threads: int, rate: float | None, note: str
) -> Row:
    return {
        "k": k,
        "stream": stream.name,
        "hits": share,
        "method": method,
        "threads": threads,
        "windows/s": rate,
        "note": note,
    }


def with_ratios(rows: list[Row]) -> list[Row]:
    """The rows of ``frozen`` with their ratio to each peer on the same k-mers and stream."""
    peers = {
        (row["k"], row["stream"], row["method"]): row["windows/s"]
        for row in rows
        if row["method"] in ("plain hash set", "sshash")
    }
    for row in rows:
        for peer in ("plain hash set", "sshash"):
            ours, theirs = row["windows/s"], peers[row["k"], row["stream"], peer]
            row[f"x {peer}"] = ours / theirs if ours and theirs else None
    return rows


def grow(
    total: int = 50_000_000,
    k: int = 21,
    threads: Sequence[int] = (1, 2),
    repeats: int = 3,
    seed: int = 1,
) -> list[Row]:
    """A growing dictionary fed with random symbols: rows of new k-mers a second.

    From empty, every doubling included, and with a table of the final size made beforehand (its
    pages are touched first in the measured run, as with the doublings).
    """
    bases = np.random.default_rng(seed).integers(0, 4, total, dtype=np.uint8)
    offsets = np.array([0, total])
    events = np.empty(total, dtype=np.uint8)
    warm = min(total, 100_000)
    for used in threads:
        KmerIndex(k).grow(bases[:warm], np.array([0, warm]), canonical=True, threads=used)
    PlainHashSet(k).grow(bases[:warm], np.array([0, warm]), events[:warm])
    new = len(KmerIndex(k).grow(bases, offsets, canonical=True, events=events)[0])

    def ours(expected: int, used: int) -> None:
        index = KmerIndex(k, expected=expected)
        index.grow(bases, offsets, canonical=True, threads=used, events=events)

    rows: list[Row] = []
    for start, expected in (("empty", 0), ("final size", new)):
        for used in threads:
            seconds = least_seconds(partial(ours, expected, used), repeats, warm=False)
            rows.append(_grow_row(k, new, "index", start, used, new / seconds))
        seconds = least_seconds(
            lambda e=expected: PlainHashSet(k, expected=e).grow(bases, offsets, events),  # type: ignore[misc]
            repeats,
            warm=False,
        )
        rows.append(_grow_row(k, new, "plain hash set", start, 1, new / seconds))
    return rows


def _grow_row(k: int, new: int, method: str, start: str, threads: int, rate: float) -> Row:
    return {
        "k": k,
        "new k-mers": new,
        "method": method,
        "table from": start,
        "threads": threads,
        "new k-mers/s": rate,
    }

"""Exact matching from its definition, with strings, dicts and sets only.

An independent reference: it uses nothing of the project.
"""

from __future__ import annotations

from itertools import groupby
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trie.codes import with_reverse_complements
from trie.snapshots.tree_bitmap import MAX_INDEX
from trie.snapshots.tree_bitmap import MAX_WORD_NODES as MAX_NODES

COMPLEMENT = str.maketrans("ACGT", "TGCA")


def clean(sequence):
    return sequence.upper().replace("U", "T")


def reverse_complement(kmer):
    return kmer[::-1].translate(COMPLEMENT)


def stored(kmer, strands):
    """The form in which a k-mer is stored."""
    return kmer if strands == "forward" else min(kmer, reverse_complement(kmer))


def windows_of(sequence, k):
    """(start, k-mer, or None if it contains a gap) of every window."""
    sequence = clean(sequence)
    for start in range(len(sequence) - k + 1):
        kmer = sequence[start : start + k]
        yield start, kmer if set(kmer) <= set("ACGT") else None


def dictionary_of(records, k, strands):
    """{stored k-mer: indices of the records that contain it, ascending}."""
    known = {}
    for index, (_, sequence) in enumerate(records):
        for _, kmer in windows_of(sequence, k):
            if kmer is not None:
                owners = known.setdefault(stored(kmer, strands), [])
                if not owners or owners[-1] != index:
                    owners.append(index)
    return known


def match(reads, k, *, strands="canonical", mode="frozen", records=(), seed=0):
    """[(read index, start, event, owners)] of every window without a gap, one window at a time."""
    known = dictionary_of(records, k, strands)
    position = 0
    for _, sequence in reads:
        for start, kmer in windows_of(sequence, k):
            if kmer is not None and position + start + k <= seed:
                known.setdefault(stored(kmer, strands), [])
        position += len(sequence)
    rows = []
    for index, (_, sequence) in enumerate(reads):
        for start, kmer in windows_of(sequence, k):
            if kmer is None:
                continue
            form = stored(kmer, strands)
            if form in known:
                rows.append((index, start, "match", tuple(known[form])))
            else:
                rows.append((index, start, "mismatch", ()))
                if mode == "grow":
                    known[form] = []
    return rows


def match_limited(batches, k, limit, *, strands="canonical", mode="frozen", records=(), seed=0):
    """As ``match`` for each list of reads, plus the new k-mers of each as written, and all known.

    A batch may add k-mers if fewer than ``limit`` were known before it (0: always).
    """
    known = dictionary_of(records, k, strands)
    rows, brought = [], []
    position = reads_before = 0
    for reads in batches:
        grows = not limit or len(known) < limit
        new = []
        for _, sequence in reads:
            for start, kmer in windows_of(sequence, k) if grows else ():
                if kmer is not None and position + start + k <= seed:
                    if stored(kmer, strands) not in known:
                        new.append(kmer)
                    known.setdefault(stored(kmer, strands), [])
            position += len(sequence)
        for index, (_, sequence) in enumerate(reads, reads_before):
            for start, kmer in windows_of(sequence, k):
                if kmer is None:
                    continue
                form = stored(kmer, strands)
                event = "match" if form in known else "mismatch"
                rows.append((index, start, event, tuple(known.get(form, ()))))
                if event == "mismatch" and mode == "grow" and grows:
                    known[form] = []
                    new.append(kmer)
        reads_before += len(reads)
        brought.append(new)
    return rows, brought, known


def label(owners, records):
    if not owners:
        return "."
    names = [records[i][0] for i in owners[:8]]
    return ";".join([*names, "..."] if len(owners) > 8 else names)


def prefixes_of(known, strands):
    """Every state of the dictionary's trie, as a string."""
    kmers = set(known)
    if strands == "both":
        kmers |= {reverse_complement(kmer) for kmer in known}
    return {kmer[:depth] for kmer in kmers for depth in range(len(kmer) + 1)} | {""}


def depth_of(window, prefixes, strands):
    """k for a match, else 1 + the length of the longest prefix of the window in the trie."""
    path = stored(window, strands) if strands == "canonical" else window
    if path in prefixes:
        return len(path)
    return 1 + max(depth for depth in range(len(path)) if path[:depth] in prefixes)


def windows_report(reads, k, *, records=(), **options):
    """Rows of the windows report without the depth, which has its own oracle."""
    found = match(reads, k, records=records, **options)
    return [
        (reads[index][0], start, event, label(owners, records))
        for index, start, event, owners in found
    ]


def intervals_report(reads, k, *, records=(), **options):
    rows = []
    found = match(reads, k, records=records, **options)
    for (index, _, event, owners), run in groupby(
        enumerate(found),
        key=lambda item: (item[1][0], item[1][1] - item[0], item[1][2], item[1][3]),
    ):
        run = [row for _, row in run]
        first, last = run[0][1], run[-1][1]
        rows.append((reads[index][0], first, last + k, event, len(run), label(owners, records)))
    return rows


def reads_report(reads, k, *, records=(), **options):
    found = match(reads, k, records=records, **options)
    by_read = {}
    for row in found:
        by_read.setdefault(row[0], []).append(row)
    rows = []
    for index, (name, sequence) in enumerate(reads):
        of_read = by_read.get(index, [])
        matches = sum(row[2] == "match" for row in of_read)
        tally = {}
        for row in of_read:
            for owner in row[3]:
                tally[owner] = tally.get(owner, 0) + 1
        best = min(tally, key=lambda owner: (-tally[owner], owner)) if tally else None
        skipped = max(len(sequence) - k + 1, 0) - len(of_read)
        rows.append(
            (
                name,
                len(sequence),
                len(of_read),
                matches,
                len(of_read) - matches,
                skipped,
                "." if best is None else records[best][0],
            )
        )
    return rows


def decode_kmer(code: int, k: int) -> str:
    """The letters of one k-mer code."""
    return "".join("ACGT"[(code >> (2 * (k - 1 - i))) & 3] for i in range(k))


def reverse_complements(codes: NDArray[np.uint64], k: int) -> NDArray[np.uint64]:
    """The codes of the k-mers' reverse complements."""
    return with_reverse_complements(codes, k)[codes.size :]


def windows(
    bases: NDArray[np.uint8], offsets: NDArray[np.int64], k: int
) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Forward code and start of every window of one read without a gap code."""
    starts = np.arange(max(bases.size - k + 1, 0))
    codes = np.zeros(starts.size, dtype=np.uint64)
    good = np.ones(starts.size, dtype=np.bool_)
    for i in range(k):
        at = bases[i : i + starts.size]
        codes = (codes << np.uint64(2)) | (at & 3).astype(np.uint64)
        good &= at < 4
    read = np.searchsorted(offsets, starts, side="right")
    good &= read == np.searchsorted(offsets, starts + (k - 1), side="right")
    return codes[good], starts[good]


def expected(
    bases: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    k: int,
    dictionary: NDArray[np.uint64],
    *,
    canonical: bool,
) -> tuple[NDArray[np.uint8], NDArray[np.uint64]]:
    """Events uint8[symbols] (1 match, 2 mismatch, 0 none) and event words by window start."""
    codes, starts = windows(bases, offsets, k)
    if canonical:
        codes = np.minimum(codes, reverse_complements(codes, k))
    stored = np.unique(dictionary)
    depth = np.zeros(codes.size, dtype=np.uint64)
    node = np.zeros(codes.size, dtype=np.uint64)
    matched = np.ones(codes.size, dtype=np.bool_)
    going = matched.copy()
    first_of_level = 0
    for length in range(k + 1):
        prefixes = np.unique(stored >> np.uint64(2 * (k - length)))
        if length == 0:
            prefixes = np.zeros(1, dtype=np.uint64)
        mine = codes >> np.uint64(2 * (k - length))
        known = np.isin(mine, prefixes)
        depth[going & ~known] = length
        matched &= known
        going &= known
        if length % 3 == 0:
            rank = np.searchsorted(prefixes, mine[going]) + first_of_level
            node[going] = rank.astype(np.uint64)
            first_of_level += prefixes.size
    depth[matched] = k
    index = starts.astype(np.uint64) + depth - np.uint64(1)
    words = (
        ((~matched).astype(np.uint64) << np.uint64(63))
        | (index << np.uint64(32))
        | (node << np.uint64(5))
        | depth
    )
    events = np.zeros(bases.size, dtype=np.uint8)
    events[starts] = np.where(matched, 1, 2)
    return events, words


class UnpackedEvents(NamedTuple):
    """The fields of n event words, in their order."""

    events: NDArray[np.uint8]
    """1 match, 2 mismatch."""
    starts: NDArray[np.int64]
    """The first symbol of the window in its chunk."""
    nodes: NDArray[np.uint32]
    depths: NDArray[np.uint8]


def unpack_events(words: NDArray[np.uint64]) -> UnpackedEvents:
    """The fields of event words (uint64[n])."""
    words = np.ascontiguousarray(words, dtype=np.uint64)
    depths = words & np.uint64(31)
    index = (words >> np.uint64(32)) & np.uint64(MAX_INDEX - 1)
    return UnpackedEvents(
        events=np.where(words >> np.uint64(63), 2, 1).astype(np.uint8),
        starts=index.astype(np.int64) - depths.astype(np.int64) + 1,
        nodes=((words >> np.uint64(5)) & np.uint64(MAX_NODES - 1)).astype(np.uint32),
        depths=depths.astype(np.uint8),
    )

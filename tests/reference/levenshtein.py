"""Approximate matching by its definition: Sellers' recurrence over every k-mer, ties included.

An independent reference: it uses nothing of the project. A cell holds (distance, start) of the best
alignment that ends there; among equal distances the largest start.
"""

from __future__ import annotations

import numpy as np

LETTERS = {letter: code for code, letter in enumerate("ACGT")}
FAR = 1 << 32


def reverse_complement(kmer):
    return kmer[::-1].translate(str.maketrans("ACGT", "TGCA"))


def coded(text):
    """Base codes; anything that is not a base equals nothing."""
    return np.array([LETTERS.get(c, 9) for c in text.upper().replace("U", "T")], dtype=np.int64)


def dictionary_of(records, k):
    """{k-mer as in the records: owners ascending}."""
    known = {}
    for index, (_, sequence) in enumerate(records):
        sequence = sequence.upper().replace("U", "T")
        for start in range(len(sequence) - k + 1):
            kmer = sequence[start : start + k]
            if set(kmer) <= set("ACGT"):
                owners = known.setdefault(kmer, [])
                if not owners or owners[-1] != index:
                    owners.append(index)
    return known


def ends_of(patterns, text):
    """(distance, start), each int64[patterns, len(text) + 1]: the best match that ends there."""
    rows = np.stack([coded(pattern) for pattern in patterns])
    count, k = rows.shape
    text = coded(text)
    # a cell is distance * FAR - start: its minimum is the least distance, then the largest start
    column = np.arange(k + 1, dtype=np.int64)[None, :].repeat(count, axis=0) * FAR
    cells = [column[:, k].copy()]
    for j, symbol in enumerate(text):
        following = np.empty_like(column)
        following[:, 0] = -(j + 1)
        for i in range(1, k + 1):
            diagonal = column[:, i - 1] + np.where(rows[:, i - 1] == symbol, 0, FAR)
            following[:, i] = np.minimum(
                diagonal, np.minimum(column[:, i], following[:, i - 1]) + FAR
            )
        column = following
        cells.append(column[:, k].copy())
    packed = np.stack(cells, axis=1)
    distance = -(-packed // FAR)
    return distance, distance * FAR - packed


def nearest(kmers, text, distance, *, both=True):
    """[(start, end, distance, strand, k-mer)] of a read: one row per end with a match."""
    kmers = sorted(kmers)
    patterns = kmers + ([reverse_complement(kmer) for kmer in kmers] if both else [])
    if not patterns:
        return []
    found, starts = ends_of(patterns, text)
    # the first of equal ones: + before -, then the smallest code
    best = found.argmin(axis=0)
    rows = []
    for end in range(len(text) + 1):
        index = int(best[end])
        if found[index, end] <= distance:
            strand = "+" if index < len(kmers) else "-"
            row = (int(starts[index, end]), end, int(found[index, end]), strand)
            rows.append((*row, kmers[index % len(kmers)]))
    return rows


def best_of_runs(rows):
    """One row per maximal run of adjacent ends: the least distance, leftmost of equal ones.

    Of one k-mer and strand, each takes its span in the order of distance, then end.
    """
    runs = []
    for row in rows:
        if runs and row[1] == runs[-1][-1][1] + 1:
            runs[-1].append(row)
        else:
            runs.append([row])
    taken = []
    best = [min(run, key=lambda row: (row[2], row[1])) for run in runs]
    for row in sorted(best, key=lambda row: (row[2], row[1])):
        of_same = [other for other in taken if other[3:] == row[3:]]
        if all(row[1] <= other[0] or other[1] <= row[0] for other in of_same):
            taken.append(row)
    return sorted(taken, key=lambda row: row[1])

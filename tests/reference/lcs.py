"""The longest common subsequence from its definition, and random pairs of sequences.

An independent reference: it uses nothing of the project.
"""

from __future__ import annotations

from functools import cache

import numpy as np

GAPS = set(b"NRYKMSWBDHVnrykmswbdhv")

LENGTHS = (0, 1, 2, 31, 32, 33, 63, 64, 65, 127, 129)
LONG = (1_023, 1_024, 1_025, 4_095, 4_096, 4_097)


def recursive(a, b):
    """Rules R1-R3 as written (seed, 2.2), for a few symbols."""

    @cache
    def length(i, j):
        if i == 0 or j == 0:
            return 0
        if a[i - 1] == b[j - 1] and a[i - 1] not in GAPS:
            return length(i - 1, j - 1) + 1
        return max(length(i, j - 1), length(i - 1, j))

    return length(len(a), len(b))


def length(a, b, gaps=GAPS):
    """As ``recursive``, one anti-diagonal of the table at a time."""
    a = np.frombuffer(a, dtype=np.uint8).astype(np.int16)
    b = np.frombuffer(b, dtype=np.uint8).astype(np.int16)
    a[np.isin(a, list(gaps))] = -1
    b[np.isin(b, list(gaps))] = -2
    m, n = a.size, b.size
    # row i of diagonal d is the cell (i, d - i)
    last = np.zeros(m + 1, dtype=np.int64)
    before = np.zeros(m + 1, dtype=np.int64)
    for d in range(1, m + n + 1):
        low, high = max(1, d - n), min(m, d - 1)
        here = np.zeros(m + 1, dtype=np.int64)
        if low <= high:
            rows = np.arange(low, high + 1)
            equal = a[rows - 1] == b[d - rows - 1]
            here[rows] = np.where(
                equal, before[rows - 1] + 1, np.maximum(last[rows], last[rows - 1])
            )
        before, last = last, here
    return int(last[m])


def is_subsequence(some, whole):
    rest = iter(whole)
    return all(symbol in rest for symbol in some)


def plain(sequence):
    """Upper-case bases, U as T."""
    return sequence.upper().replace(b"U", b"T")


def random_bases(rng, count, letters=b"ACGT"):
    return np.frombuffer(letters, dtype=np.uint8)[rng.integers(0, len(letters), count)].tobytes()


def mutated(rng, sequence, rate):
    """Substitutions, deletions and insertions, each at a third of the rate."""
    out = bytearray()
    for symbol, draw in zip(sequence, rng.random(len(sequence)), strict=True):
        if draw < rate / 3:
            continue
        if draw < 2 * rate / 3:
            out += random_bases(rng, 1)
        elif draw < rate:
            out += bytes([symbol]) + random_bases(rng, 1)
        else:
            out.append(symbol)
    return bytes(out)


def pairs(seed, lengths, count):
    """(a, b): random, similar, rearranged, equal, with gap codes, of few letters, with none in
    common."""
    rng = np.random.default_rng(seed)
    for i in range(count):
        a = random_bases(rng, int(rng.choice(lengths)))
        b = random_bases(rng, int(rng.choice(lengths)))
        kind = i % 8
        if kind == 1:
            b = mutated(rng, a, 0.05)
        elif kind == 2:
            cut = len(a) // 3
            b = mutated(rng, a[cut:] + a[:cut], 0.02)
        elif kind == 3:
            a = random_bases(rng, len(a), b"ACGTACGTNRacgtuy")
            b = random_bases(rng, len(b), b"ACGTACGTNRacgtuy")
        elif kind == 4:
            b = a
        elif kind == 5:
            a, b = random_bases(rng, len(a), b"AC"), random_bases(rng, len(b), b"GT")
        elif kind == 6:
            a, b = random_bases(rng, len(a), b"AAAC"), random_bases(rng, len(b), b"AAAT")
        yield a, b

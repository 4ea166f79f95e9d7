"""Random inputs of the suites, the same in every run."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streamer.sequences.read_batch import ReadBatch

Codes = NDArray[np.uint8]

LETTERS = np.frombuffer(b"ACGT", dtype=np.uint8)
READ = 1_000  # bases of a read


def random_codes(size: int, seed: int) -> Codes:
    """Random base codes: uint8[size]."""
    return np.random.default_rng(seed).integers(0, 4, size, dtype=np.uint8)


def random_letters(size: int, seed: int) -> Codes:
    """Random letters: uint8[size]."""
    return LETTERS[random_codes(size, seed)]


def random_kmers(number: int, k: int, seed: int) -> NDArray[np.uint64]:
    """Random codes in no order, with repeats by chance: uint64[number]."""
    return np.random.default_rng(seed).integers(0, 4**k, number, dtype=np.uint64)


def cut(total: int, read: int) -> NDArray[np.int64]:
    """Offsets of reads of one length; the last may be shorter."""
    return np.append(np.arange(0, total, read), total).astype(np.int64)


def batch_of(bases: Codes, offsets: NDArray[np.int64]) -> ReadBatch:
    """Base codes as reads."""
    return ReadBatch([f"read{i}" for i in range(offsets.size - 1)], offsets, bases)


def half_hit(text: Codes, total: int, seed: int) -> ReadBatch:
    """Two reads or more of one length, every other one from the text, the rest random."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, 4, (max(2, total // READ), READ), dtype=np.uint8)
    text = np.resize(text, max(text.size, READ))
    starts = rng.integers(0, text.size - READ + 1, (len(rows) + 1) // 2)
    rows[::2] = np.lib.stride_tricks.sliding_window_view(text, READ)[starts]
    return batch_of(rows.reshape(-1), cut(rows.size, READ))

"""Reads as sequencers make them: pairs of Illumina, and long reads of a given identity.

Errors fall independently on the bases: those of Illumina are substitutions that become more
frequent towards the end of a read, those of long reads substitutions, deletions and insertions.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.inputs import LETTERS, Codes
from trie.codes import GAP, reverse_complement

Offsets = NDArray[np.int64]
_LETTERS = np.append(LETTERS, np.uint8(ord("N")))

LONG_MEDIAN, LONG_SPREAD, SHORTEST = 3_000, 0.9, 300
"""Of long reads, whose lengths are log-normal, in bases; spread: of the natural logarithm."""

_SUBSTITUTED, _DELETED = 0.4, 0.35
"""Shares of the errors of long reads; the others are insertions."""

_MOST_GAPS = 0.1


class Reads(NamedTuple):
    """Base codes of all reads, uint8, and where each begins, int64[reads + 1]."""

    codes: Codes
    offsets: Offsets

    def read(self, number: int) -> Codes:
        return self.codes[self.offsets[number] : self.offsets[number + 1]]


def joined(reads: Sequence[Codes]) -> Reads:
    """Reads in one array."""
    offsets = np.cumsum([0, *map(len, reads)])
    return Reads(np.concatenate([*reads, np.zeros(0, np.uint8)]), offsets.astype(np.int64))


def _templates(
    records: Reads, lengths: NDArray[np.int64], shortest: int, rng: np.random.Generator
) -> list[Codes]:
    """Pieces of these lengths from either strand; records that are shorter give what they have.

    Records below ``shortest`` give nothing, and pieces with many gap codes are drawn again.
    """
    sizes = np.diff(records.offsets)
    weights = np.where(sizes >= shortest, sizes, 0)
    ends = np.cumsum(weights)
    found: list[Codes] = []
    for length in lengths.tolist():
        while True:
            record = int(np.searchsorted(ends, rng.integers(ends[-1]), side="right"))
            own = min(length, int(sizes[record]))
            start = int(records.offsets[record] + rng.integers(sizes[record] - own + 1))
            piece = records.codes[start : start + own]
            if np.count_nonzero(piece == GAP) <= _MOST_GAPS * own:
                break
        found.append(reverse_complement(piece) if rng.random() < 0.5 else piece)
    return found


def _substituted(codes: Codes, at: NDArray[np.bool_], rng: np.random.Generator) -> None:
    """Replace bases by others, in place."""
    where = np.flatnonzero(at & (codes != GAP))
    codes[where] = (codes[where] + rng.integers(1, 4, where.size, dtype=np.uint8)) & 3


def illumina_pairs(
    records: Reads, count: int, seed: int, length: int, first: float = 0.001, last: float = 0.01
) -> tuple[Reads, Reads]:
    """R1 and R2 of fragments about 2.3 times as long as a read.

    first, last: the share of errors at the first and the last base; R2 has half as many again.
    """
    rng = np.random.default_rng(seed)
    sizes = np.maximum(rng.normal(2.3 * length, 0.3 * length, count), length).astype(np.int64)
    fragments = _templates(records, sizes, length, rng)
    chance = first + (last - first) * np.linspace(0, 1, length) ** 2
    mates = []
    for reads, share in (
        ([one[:length] for one in fragments], 1.0),
        ([reverse_complement(one[-length:]) for one in fragments], 1.5),
    ):
        own = joined(reads)
        _substituted(own.codes, rng.random(own.codes.size) < share * np.tile(chance, count), rng)
        mates.append(own)
    return mates[0], mates[1]


def long_reads(records: Reads, count: int, seed: int, identity: float) -> tuple[Reads]:
    """The only file of reads with a share of ``1 - identity`` of errors."""
    rng = np.random.default_rng(seed)
    sizes = rng.lognormal(np.log(LONG_MEDIAN), LONG_SPREAD, count)
    own = joined(_templates(records, np.maximum(sizes, SHORTEST).astype(np.int64), SHORTEST, rng))
    kind = rng.random(own.codes.size) / (1 - identity)
    _substituted(own.codes, kind < _SUBSTITUTED, rng)
    copies = np.ones(own.codes.size, np.int64)
    copies[(kind >= _SUBSTITUTED) & (kind < _SUBSTITUTED + _DELETED)] = 0
    copies[(kind >= _SUBSTITUTED + _DELETED) & (kind < 1)] = 2
    ends = np.cumsum(copies)
    codes = np.repeat(own.codes, copies)
    inserted = ends[copies == 2] - 1
    codes[inserted] = rng.integers(0, 4, inserted.size, dtype=np.uint8)
    return (Reads(codes, np.append(0, ends)[own.offsets]),)


def write_fastq(path: Path, named: Sequence[tuple[str, Reads]], mate: str = "") -> None:
    """Write the reads of all groups, named GROUP.NUMBER, with ``mate`` after that."""
    with path.open("wb") as file:
        for group, (codes, offsets) in named:
            text = _LETTERS[codes].tobytes()
            places = offsets.tolist()
            for number, (start, end) in enumerate(zip(places, places[1:], strict=False)):
                name = f"@{group}.{number}{mate}\n".encode()
                file.write(name + text[start:end] + b"\n+\n" + b"I" * (end - start) + b"\n")

"""Existing primers: where they lie on alpha, and their least differences from beta."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from streamer.batch.primer.cpu_text import CpuText
from streamer.batch.primer.problem import Alpha, Columns, chunks, joined
from streamer.batch.records import Codes, NamedSequence, records, reverse_complement
from streamer.errors import DataError
from streamer.sequences.source import shown_name
from trie.codes import GAP

MOST_LETTERS = 1000
"""The longest known primer allowed: differences take 16 bits; real primers are far shorter."""


def known_primers(path: str) -> list[NamedSequence]:
    """Read the primers of a file; raise DataError for a sequence too long to be one."""
    found = list(records(path))
    for number, record in enumerate(found, 1):
        if record.codes.size > MOST_LETTERS:
            problem = f"{record.codes.size} letters are no primer, {MOST_LETTERS} are the most"
            raise DataError(problem, file=shown_name(path), record=number, name=record.name)
    return found


def differences(
    primers: list[Codes], beta: Iterable[Codes], threads: int, *, both: bool
) -> Columns:
    """Return the least differences of each primer from any substring of beta: int64[primers].

    This is at most its length, the distance from the empty substring; a gap costs one.
    """
    alpha = Alpha.of(primers)
    least = np.diff(alpha.offsets)
    some = np.flatnonzero(least)
    if some.size == 0:
        return least
    for pieces in chunks(beta, 2 * alpha.longest() + 1, both=both):
        text = CpuText(alpha, joined(pieces), alpha.longest(), threads)
        _, _, found = text.nearest(alpha.offsets[some], alpha.offsets[some + 1])
        least[some] = np.minimum(least[some], found)
    return least


@dataclass(frozen=True, slots=True)
class PrimerPlace:
    """Where a primer lies on a record of alpha: half-open, strand - for its reverse complement."""

    alpha: int
    start: int
    end: int
    strand: str


def places(primer: Codes, records: list[Codes]) -> list[PrimerPlace]:
    """Find every exact occurrence of a primer in the records of alpha, on either strand."""
    found: list[PrimerPlace] = []
    if (primer == GAP).any():  # a gap equals nothing, not even a gap in alpha
        return found
    wanted = {"+": primer.tobytes(), "-": reverse_complement(primer).tobytes()}
    for index, record in enumerate(records):
        text = record.tobytes()
        for strand, letters in wanted.items():
            at = text.find(letters) if letters else -1
            while at >= 0:
                found.append(PrimerPlace(index, at, at + len(letters), strand))
                at = text.find(letters, at + 1)
    return sorted(found, key=lambda place: (place.alpha, place.start, place.strand))

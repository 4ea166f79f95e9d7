"""Existing primers: where they lie on alpha, and their least differences from beta.

Their letters are sets of bases (``asm.pattern_masks``): an ambiguity code matches its bases.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from streamer.batch.asm.pattern_masks import Masks, reverse_complement
from streamer.batch.primer.cpu_text import SET, CpuText
from streamer.batch.primer.problem import Alpha, Columns, chunks, joined
from streamer.batch.records import Codes
from streamer.errors import DataError

MOST_LETTERS = 1000
"""The longest known primer allowed: differences take 16 bits; real primers are far shorter."""


def check_primers(primers: Sequence[Masks], names: Sequence[str], source: str) -> None:
    """Raise DataError for a sequence too long to be a primer."""
    for number, (primer, name) in enumerate(zip(primers, names, strict=True), 1):
        if primer.size > MOST_LETTERS:
            raise DataError(
                f"{primer.size} letters are no primer, {MOST_LETTERS} are the most",
                file=source,
                record=number,
                name=name,
            )


def differences(
    primers: Sequence[Masks], beta: Iterable[Codes], threads: int, *, both: bool
) -> Columns:
    """Return the least differences of each primer from any substring of beta: int64[primers].

    This is at most its length, the distance from the empty substring; a gap costs one.
    """
    alpha = Alpha.of([primer | SET for primer in primers])
    least = np.diff(alpha.offsets)
    some = np.flatnonzero(least)
    if some.size == 0:
        return least
    for pieces in chunks(beta, 2 * alpha.longest() + 1, both=both):
        text = CpuText(alpha, joined(pieces), alpha.longest(), threads)
        _, _, nearest = text.nearest(alpha.offsets[some], alpha.offsets[some + 1])
        least[some] = np.minimum(least[some], nearest)
    return least


@dataclass(frozen=True, slots=True)
class PrimerPlace:
    """Where a primer lies on a record of alpha: half-open, strand - for its reverse complement."""

    alpha: int
    start: int
    end: int
    strand: str


def places(primer: Masks, records: Sequence[Codes]) -> list[PrimerPlace]:
    """Find every exact occurrence of a primer in the records of alpha, on either strand."""
    listed: list[PrimerPlace] = []
    wanted = {"+": _expression(primer), "-": _expression(reverse_complement(primer))}
    for index, record in enumerate(records if primer.size else ()):
        text = record.tobytes()
        for strand, expression in wanted.items():
            match = expression.search(text)
            while match is not None:
                listed.append(PrimerPlace(index, *match.span(), strand))
                match = expression.search(text, match.start() + 1)
    return sorted(listed, key=lambda place: (place.alpha, place.start, place.strand))


def _expression(primer: Masks) -> re.Pattern[bytes]:
    """Return an expression for base codes that the letters match."""
    bases = [bytes(code for code in range(4) if base >> code & 1) for base in primer.tolist()]
    return re.compile(b"".join(base if len(base) == 1 else b"[" + base + b"]" for base in bases))

"""Choose primers that can be ordered: length, GC, melting temperature, hairpins, pairs.

An interval of alpha has at least k differences from all of beta if and only if it contains its
start's shortest solution, because longer intervals only differ more. So every length from the
shortest on is a candidate. Thermodynamics (SantaLucia 1998) are primer3's, at its default
concentrations.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamer.batch.records import reverse_complement
from streamer.errors import StreamerError
from trie.codes import GAP, decode

COLUMNS = (
    "alpha", "start", "end", "length", "strand", "gc", "tm", "hairpin_tm", "dimer_tm", "sequence",
)  # fmt: skip
PAIR_COLUMNS = (*COLUMNS, "pair", "product", "pair_dimer_tm")


@dataclass(frozen=True, slots=True)
class Range:
    """A closed range."""

    low: float
    high: float

    def holds(self, value: float) -> bool:
        """Return whether a value lies in it."""
        return self.low <= value <= self.high


@dataclass(frozen=True, slots=True)
class PrimerLimits:
    """Limits of a primer: length in bases, GC in percent, temperatures in degrees Celsius."""

    length: Range = field(default_factory=lambda: Range(18, 27))
    gc: Range = field(default_factory=lambda: Range(30, 70))
    tm: Range = field(default_factory=lambda: Range(55, 65))
    hairpin_tm: float = 47.0
    dimer_tm: float = 47.0
    product: Range = field(default_factory=lambda: Range(100, 1000))
    tm_difference: float = 3.0
    pairs: int = 0  # pairs to choose for each record; 0: single primers


@dataclass(frozen=True, slots=True)
class Primer:
    """A primer on alpha[start:end]; strand - is the reverse complement. Temperatures in Celsius."""

    start: int
    end: int
    strand: str
    sequence: str
    gc: float
    tm: float
    hairpin_tm: float
    dimer_tm: float


def primer3() -> Any:
    """Return primer3's thermodynamics; raise StreamerError if it is not installed."""
    try:
        from primer3.thermoanalysis import ThermoAnalysis
    except ImportError:
        raise StreamerError(
            "the design of primers needs primer3-py: pip install '.[primer]' in a clone"
        ) from None
    return ThermoAnalysis()


def intervals(
    codes: NDArray[np.uint8], shortest: NDArray[np.int64], limits: PrimerLimits
) -> Iterator[tuple[int, int]]:
    """Yield each gapless interval of the wanted length that contains its start's shortest solution.

    ``shortest`` int64[m] is the end of the shortest solution at each start, m + 1 or more for none.
    """
    gaps = np.concatenate([[0], np.cumsum(codes >= GAP)])
    least, most = int(limits.length.low), int(limits.length.high)
    for start in range(codes.size - least + 1):
        first = max(int(shortest[start]), start + least)
        for end in range(first, min(start + most, codes.size) + 1):
            if gaps[end] == gaps[start]:
                yield start, end


def primers(
    codes: NDArray[np.uint8], shortest: NDArray[np.int64], limits: PrimerLimits, strand: str
) -> list[Primer]:
    """Return the best primer of each start (strand +) or end (strand -): closest to mid ``tm``.

    ``codes`` and ``shortest`` as for ``intervals``. Only primers within all limits count.
    """
    thermo = primer3()
    middle = (limits.tm.low + limits.tm.high) / 2
    best: dict[int, tuple[float, int, int, str, float, float]] = {}
    strong = np.concatenate([[0], np.cumsum((codes == 1) | (codes == 2))])
    for start, end in intervals(codes, shortest, limits):
        gc = 100 * float(strong[end] - strong[start]) / (end - start)
        if not limits.gc.holds(gc):
            continue
        part = codes[start:end]
        sequence = letters(part, strand)
        tm = float(thermo.calc_tm(sequence))
        # start on strand +, end on strand -: the 5' end is fixed, the 3' end is chosen
        place = start if strand == "+" else end
        if limits.tm.holds(tm):
            candidate = (abs(tm - middle), start, end, sequence, gc, tm)
            if place not in best or candidate < best[place]:
                best[place] = candidate
    chosen = []
    for _, start, end, sequence, gc, tm in sorted(best.values(), key=itemgetter(1, 2)):
        hairpin = float(thermo.calc_hairpin(sequence).tm)
        dimer = float(thermo.calc_homodimer(sequence).tm)
        if hairpin <= limits.hairpin_tm and dimer <= limits.dimer_tm:
            chosen.append(Primer(start, end, strand, sequence, gc, tm, hairpin, dimer))
    return chosen


def pairs(
    left: Sequence[Primer], right: Sequence[Primer], limits: PrimerLimits
) -> list[tuple[Primer, Primer, float]]:
    """Return the best ``limits.pairs`` pairs with a product of the wanted size, and dimers' Tm.

    The best pairs are closest in melting temperature; no two left primers overlap, nor two right
    ones. Ties go to the first.
    """
    thermo = primer3()
    ends = np.array([primer.end for primer in right], dtype=np.int64)
    order = np.argsort(ends, kind="stable")
    ends = ends[order]
    possible = []
    for i, own in enumerate(left):
        first = np.searchsorted(ends, own.start + limits.product.low)
        last = np.searchsorted(ends, own.start + limits.product.high, side="right")
        for j in order[first:last].tolist():
            difference = abs(own.tm - right[j].tm)
            if right[j].start >= own.end and difference <= limits.tm_difference:
                possible.append((difference, i, j))
    chosen: list[tuple[Primer, Primer, float]] = []
    for _, i, j in sorted(possible):
        if len(chosen) == limits.pairs:
            break
        if any(_overlap(left[i], own) or _overlap(right[j], other) for own, other, _ in chosen):
            continue
        dimer = float(thermo.calc_heterodimer(left[i].sequence, right[j].sequence).tm)
        if dimer <= limits.dimer_tm:
            chosen.append((left[i], right[j], dimer))
    return sorted(chosen, key=lambda pair: (pair[0].start, pair[1].end))


def _overlap(primer: Primer, other: Primer) -> bool:
    return primer.start < other.end and other.start < primer.end


def letters(codes: NDArray[np.uint8], strand: str) -> str:
    """Return the letters of codes or, on strand -, of their reverse complement."""
    return decode(reverse_complement(codes) if strand == "-" else codes).tobytes().decode()

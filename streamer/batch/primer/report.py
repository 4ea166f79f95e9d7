"""The outputs of a run: rows, BED, FASTA, a picture, and the places of known primers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from streamer.batch.asm.pattern_masks import Masks
from streamer.batch.plots import Bar, Track, plot_tracks
from streamer.batch.primer import design, known
from streamer.batch.primer.problem import Alpha
from streamer.batch.records import Codes, NamedSequence
from streamer.output.text_table import Labels, Table, texts
from trie.cpu.threads import usable_cores

if TYPE_CHECKING:
    from streamer.output.output_file import RowsFormat

COLUMNS = ("alpha", "start", "end", "length")
KNOWN_COLUMNS = ("primer", "alpha", "start", "end", "strand", "differences")

DIGITS = {"gc": 1, "tm": 2, "hairpin_tm": 2, "dimer_tm": 2}  # decimals
ROWS_AT_ONCE = 500_000


class PrimerReport:
    """The solutions of one run, and the outputs made from them."""

    def __init__(
        self, records: Sequence[NamedSequence], alpha: Alpha, reach: NDArray[np.int64], k: int,
        limits: design.PrimerLimits | None,
    ) -> None:  # fmt: skip
        self._records = records
        self._k = k
        self._rows = alpha.rows(reach)
        self._names = [record.name for record in records]
        self._bounds = np.searchsorted(self._rows["alpha"], np.arange(len(records) + 1))
        self._known: list[tuple[str, int, list[known.PrimerPlace]]] = []
        self._limits = limits
        self._primers = [] if limits is None else self._designed(limits)

    def _rows_of(self, index: int) -> NDArray[np.void]:
        """Return the solutions of one record."""
        return self._rows[self._bounds[index] : self._bounds[index + 1]]

    def _designed(self, limits: design.PrimerLimits) -> list[tuple[int, dict[str, Any]]]:
        """Return record and row of each primer; names of records may repeat."""
        rows: list[tuple[int, dict[str, Any]]] = []
        for index, record in enumerate(self._records):
            shortest = np.full(record.codes.size, record.codes.size + 1, dtype=np.int64)
            own = self._rows_of(index)
            shortest[own["start"]] = own["end"]
            left = design.primers(record.codes, shortest, limits, "+")
            if not limits.pairs:
                rows += [(index, _row(record.name, primer)) for primer in left]
                continue
            right = design.primers(record.codes, shortest, limits, "-")
            chosen = design.pairs(left, right, limits)
            for number, (forward, other, dimer) in enumerate(chosen, 1):
                for primer in (forward, other):
                    row = _row(record.name, primer) | {"pair": number}
                    row |= {"product": other.end - forward.start, "pair_dimer_tm": round(dimer, 2)}
                    rows.append((index, row))
        return rows

    def place(
        self, names: Sequence[str], primers: Sequence[Masks], beta: Iterable[Codes], *,
        threads: int, both: bool,
    ) -> None:  # fmt: skip
        """Find primers on alpha and count their least differences from beta."""
        counts = known.differences(primers, beta, threads or usable_cores(), both=both)
        texts = [record.codes for record in self._records]
        self._known = [
            (name, count, known.places(primer, texts))
            for name, primer, count in zip(names, primers, counts.tolist(), strict=True)
        ]

    def write(
        self, output: str | None, format_: RowsFormat, *, bed: str | None = None,
        fasta: str | None = None, plot: str | None = None, known_table: str | None = None,
    ) -> None:  # fmt: skip
        """Write the rows, and the requested files."""
        from streamer.output.output_file import write_file
        from streamer.output.rows import RowWriter, open_rows

        with open_rows(output, format_, self._columns()) as writer:
            for table in self._tables():
                writer.write(table)
        if bed is not None:
            write_file(bed, (line.encode() for line in self._bed_lines()))
        if fasta is not None:
            write_file(fasta, (line.encode() for line in self._fasta_lines()))
        if known_table is not None:
            with RowWriter(known_table, "tsv", KNOWN_COLUMNS) as writer:
                writer.write(self._known_rows())
        if plot is not None:
            write_file(plot, [self._picture(plot)])

    def _columns(self) -> Sequence[str]:
        if self._limits is None:
            return COLUMNS
        return design.PAIR_COLUMNS if self._limits.pairs else design.COLUMNS

    def _tables(self) -> Iterable[Table]:
        names = Labels(self._names)
        if self._limits is not None:
            yield Table(
                {name: texts([row[name] for _, row in self._primers]) for name in self._columns()}
            )
            return
        for first in range(0, self._rows.size, ROWS_AT_ONCE):
            rows = self._rows[first : first + ROWS_AT_ONCE]
            columns = {name: rows[name] for name in COLUMNS[1:]}
            yield Table({"alpha": names.gather(rows["alpha"]), **columns})

    def _intervals(self) -> Iterable[tuple[int, int, int, str, str]]:
        """Yield record, start, end, strand and name of each row."""
        if self._limits is None:
            for index, start, end, _ in self._rows.tolist():
                yield index, start, end, "+", f"{self._names[index]}_{start}_{end}"
            return
        for index, row in self._primers:
            side = "LEFT" if row["strand"] == "+" else "RIGHT"
            name = f"{row['alpha']}_{row['start']}_{row['end']}_{side}"
            if "pair" in row:
                name = f"{row['alpha']}_{row['pair']}_{side}"
            yield index, row["start"], row["end"], row["strand"], name

    def _bed_lines(self) -> Iterable[str]:
        for index, start, end, strand, name in self._intervals():
            yield f"{self._names[index]}\t{start}\t{end}\t{name}\t{self._k}\t{strand}\n"

    def _fasta_lines(self) -> Iterable[str]:
        for index, start, end, strand, name in self._intervals():
            yield f">{name}\n{design.letters(self._records[index].codes[start:end], strand)}\n"

    def _known_rows(self) -> Table:
        rows: list[tuple[Any, ...]] = []
        for name, count, places in self._known:
            rows += [
                (name, self._names[place.alpha], place.start, place.end, place.strand, count)
                for place in places
            ] or [(name, None, None, None, None, count)]
        return Table(
            {name: texts([row[i] for row in rows]) for i, name in enumerate(KNOWN_COLUMNS)}
        )

    def _picture(self, path: str) -> bytes:
        tracks = []
        chosen: list[list[Bar]] = [[] for _ in self._records]
        placed: list[list[Bar]] = [[] for _ in self._records]
        for index, row in self._primers:
            pair = str(row.get("pair", ""))
            chosen[index].append(Bar(row["start"], row["end"], row["strand"], pair))
        for _, count, places in self._known:
            for place in places:
                placed[place.alpha].append(Bar(place.start, place.end, place.strand, str(count)))
        for index, record in enumerate(self._records):
            lengths = np.zeros(record.codes.size, dtype=np.int64)
            own = self._rows_of(index)
            lengths[own["start"]] = own["length"]
            tracks.append(Track(record.name, lengths, chosen[index], placed[index]))
        return plot_tracks(tracks, path, k=self._k)


def _row(name: str, primer: design.Primer) -> dict[str, Any]:
    row = asdict(primer) | {"alpha": name, "length": primer.end - primer.start}
    return row | {column: round(row[column], digits) for column, digits in DIGITS.items()}

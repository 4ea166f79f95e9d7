"""Sample sheets of MinKNOW and Illumina: the sample behind each barcode, and which are controls.

MinKNOW's is CSV with the columns flow_cell_id, position_id, sample_id, experiment_id, kit, barcode,
alias and type, of which barcode is needed; the barcode of a run's reads is that name. Illumina's
has sections; samples are in [Data] (v1) or [BCLConvert_Data] (v2) with Sample_ID, Sample_Name,
index and index2. Their barcode is the index, ``ACGTAC+TTGCAA`` if there are two; reads have it in
the tag BC, or the sample's ID or name in the name of their file (``streamer.sequences.context``).
Either kind may have a column type; it names controls.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple

from streamer.errors import PlacedError
from streamer.sequences.context import LabelColumn, ReadContext

Control = Literal["negative", "positive"]

SAMPLE_COLUMNS = ("sample", "alias", "control")
"""The columns that a sheet adds to rows by barcode."""

_CONTROLS: dict[str, Control | None] = {
    "": None,
    "test_sample": None,
    "sample": None,
    "negative_control": "negative",
    "no_template_control": "negative",
    "positive_control": "positive",
}
_BARCODE = re.compile(r"barcode0*([0-9]+)", re.ASCII | re.IGNORECASE)
_INDEX = re.compile(r"[ACGTN]+", re.IGNORECASE)
_SECTION = re.compile(r"\[(.+)\]")
_OF_SAMPLES = ("data", "bclconvert_data")


class SampleSheetError(PlacedError):
    """A fault of a sample sheet: file, line (from 1), column, and what to do."""

    def __init__(
        self, problem: str, file: str, line: int | None = None, column: str | None = None
    ) -> None:
        super().__init__(problem, file, {"line": line, "column": column})


class Sample(NamedTuple):
    """The row of a barcode; None where the sheet says nothing."""

    barcode: str
    sample: str | None = None
    alias: str | None = None
    control: Control | None = None

    @property
    def name(self) -> str:
        """The name that people know it by: its alias, else the sample, else the barcode."""
        return self.alias or self.sample or self.barcode


@dataclass(frozen=True)
class SampleSheet:
    """Samples by barcode, in the order of the sheet.

    others: barcodes by what reads may have instead: aliases, IDs and names, ``ACGT-TGCA``. run: the
    experiment that its lines name, empty if none or several.
    """

    samples: Mapping[str, Sample] = field(default_factory=dict)
    others: Mapping[str, str] = field(default_factory=dict)
    run: str = ""
    header: ClassVar = SAMPLE_COLUMNS

    @classmethod
    def of(cls, rows: Iterable[Sequence[Any]], run: str = "") -> SampleSheet:
        """The sheet of ``rows()``."""
        return cls({row[0]: Sample(*row) for row in rows}, run=run)

    def rows(self) -> list[list[str | None]]:
        """Barcode, sample, alias and control of each."""
        return [list(sample) for sample in self.samples.values()]

    @property
    def negative(self) -> list[str]:
        """The barcodes of negative controls."""
        return [code for code, sample in self.samples.items() if sample.control == "negative"]

    def shown(self, barcode: str | None) -> str:
        """The sample and its barcode, for people."""
        sample = self.samples.get(barcode or "")
        if sample is None or sample.name == barcode:
            return barcode or "none"
        return f"{sample.name} ({barcode})"

    def barcodes(self, context: ReadContext) -> LabelColumn:
        """The barcode of each read, as the sheet writes it."""
        own = context.barcode.of(lambda label: self.others.get(label, label))
        return own | context.sample.of(self.others.get) if self.others else own

    def columns(self, barcode: str | None) -> tuple[str | None, ...]:
        """The values of ``SAMPLE_COLUMNS`` for a barcode; None for one that is not on the sheet."""
        return self.samples.get(barcode or "", Sample(""))[1:]

    @classmethod
    def read(cls, path: str) -> SampleSheet:
        """Read a file; raises SampleSheetError."""
        try:
            with open(path, encoding="utf-8-sig", newline="") as file:
                return cls._parsed(path, file.read().splitlines())
        except OSError as error:
            problem = f"cannot be read: {(error.strerror or str(error)).lower()}"
            raise SampleSheetError(problem, path) from error
        except (UnicodeDecodeError, csv.Error) as error:
            problem = f"not a sample sheet of MinKNOW or Illumina, which is CSV text: {error}"
            raise SampleSheetError(problem, path) from error

    @classmethod
    def _parsed(cls, path: str, lines: list[str]) -> SampleSheet:
        samples: dict[str, Sample] = {}
        others: dict[str, Sample | None] = {}
        runs: set[str] = set()
        for number, row, illumina in _rows(path, lines):
            runs.add(row.get("experiment_id", ""))
            made = (_of_illumina if illumina else _of_minknow)(path, number, row)
            kind = row.get("type", "").lower().replace(" ", "_")
            if kind not in _CONTROLS:
                known = ", ".join(filter(None, _CONTROLS))
                raise SampleSheetError(f"'{kind}', expected {known}", path, number, "type")
            made = made._replace(control=_CONTROLS[kind])
            before = samples.setdefault(made.barcode, made)
            if before != made:
                problem = f"{made.barcode} is {before.name} in an earlier line, {made.name} here"
                raise SampleSheetError(f"{problem}: keep those of one run and lane", path, number)
            for name in (made.alias, made.sample if illumina else None,
                         made.barcode.replace("+", "-")):  # fmt: skip
                if name and (others.setdefault(name, made) or made).sample != made.sample:
                    others[name] = None  # of several samples
        if not samples:
            raise SampleSheetError("has no sample", path)
        return cls(samples, {
            name: made.barcode for name, made in others.items() if made and name not in samples
        }, runs.pop() if len(runs) == 1 else "")  # fmt: skip


def _rows(path: str, lines: list[str]) -> Iterator[tuple[int, dict[str, str], bool]]:
    """Yield line number, cells by lowercase column, and if the sheet is Illumina's, by sample."""
    illumina = any(map(_SECTION.match, lines))
    reading, mark = not illumina, ","
    head: list[str] | None = None
    for number, line in enumerate(lines, 1):
        if section := _SECTION.match(line):
            reading, head = section[1].lower() in _OF_SAMPLES, None
            continue
        if not reading or not line.strip(' ,;\t"'):
            continue
        if head is None:
            mark = max(",;\t", key=line.count)
            head = [cell.strip().lower() for cell in next(csv.reader([line], delimiter=mark))]
            needed = "sample_id" if illumina else "barcode"
            if needed not in head:
                problem = f"no column {needed}, but {', '.join(filter(None, head))[:200]}"
                raise SampleSheetError(problem, path, number)
            continue
        cells = [cell.strip() for cell in next(csv.reader([line], delimiter=mark))]
        if len(cells) > len(head) and any(cells[len(head) :]):
            problem = f"has {len(cells)} cells, the header {len(head)}"
            raise SampleSheetError(problem, path, number)
        if bad := next((cell for cell in cells if not cell.isprintable()), None):
            raise SampleSheetError(f"{bad!a} has unprintable characters", path, number)
        yield number, dict(zip(head, cells, strict=False)), illumina


def _of_minknow(path: str, number: int, row: dict[str, str]) -> Sample:
    match = _BARCODE.fullmatch(row.get("barcode", ""))
    if match is None:
        problem = f"'{row.get('barcode', '')}', expected a name such as barcode01"
        raise SampleSheetError(problem, path, number, "barcode")
    return Sample(f"barcode{int(match[1]):02}", row.get("sample_id") or None,
                  row.get("alias") or None)  # fmt: skip


def _of_illumina(path: str, number: int, row: dict[str, str]) -> Sample:
    if not (sample := row.get("sample_id")):
        raise SampleSheetError("it is empty", path, number, "sample_id")
    index = "+".join(filter(_INDEX.fullmatch, (row.get("index", ""), row.get("index2", ""))))
    return Sample(index.upper() or sample, sample, row.get("sample_name") or None)

"""Whole commands as users run them: seconds, and the peak memory of the process."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.growing_daemon import growing
from benchmarks.inputs import Codes, random_codes
from benchmarks.processes import measured, streamer_command
from benchmarks.suite import Row, Sheet
from trie.codes import decode

K = 31
MANY = 130  # bases of each of many records: 100 k-mers
_SEED = 14
_LINE = 60


def tables(
    device: str, kmers: int = 20_000_000, bases: int = 300_000_000, strain: int = 5_000_000
) -> list[Sheet]:
    """Dictionaries of ``kmers``, texts of ``bases``, genomes of ``strain`` bases; on the CPU."""
    return [
        Sheet("match, by dictionary", dictionaries, kmers),
        Sheet("Daemons whose dictionary grows", growing, kmers),
        Sheet("Long texts", texts, bases),
        Sheet("lcs of two strains", strains, strain),
    ]


def dictionaries(kmers: int) -> Iterator[Row]:
    """Rows of ``match`` with dictionaries of random 31-mers: memory beyond that of the program."""
    bases = random_codes(kmers + K - 1, _SEED)
    with tempfile.TemporaryDirectory() as folder:
        at = Path(folder)
        write_records(at / "small.fa", [bases[:2000]])
        write_records(at / "reads.fa", bases[: 150 * (bases.size // 150)].reshape(-1, 150)[:1000])
        write_records(at / "one.fa", [bases])
        many = kmers // (MANY - K + 1)
        write_records(at / "many.fa", random_codes(many * MANY, _SEED + 1).reshape(many, MANY))
        del bases
        run = ["match", at / "reads.fa", "-k", K, "--device", "cpu", "-d"]
        _measured([*run, at / "small.fa", "--report", "windows"])  # compiles
        for report in ("intervals", "windows"):
            least = _measured([*run, at / "small.fa", "--report", report])["peak GB"]
            for name, options in (
                ("one record", [at / "one.fa"]),
                ("many records", [at / "many.fa"]),
                ("one record, --save", [at / "one.fa", "--save", at / "saved"]),
                ("saved", [at / "saved"]),
            ):
                row: Row = {"dictionary": name, "report": report, "k-mers": kmers}
                row |= _measured([*run, *options, "--report", report])
                row["bytes a k-mer"] = 1e9 * (row["peak GB"] - least) / kmers
                yield row | {"program GB": least}


def texts(bases: int) -> Iterator[Row]:
    """Rows of ``asm``, ``hamming`` and ``primer`` over one record of random bases."""
    with tempfile.TemporaryDirectory() as folder:
        at = Path(folder)
        write_long(at / "text.fa", bases)
        write_records(at / "patterns.fa", random_codes(8 * 24, _SEED + 1).reshape(8, 24))
        write_records(at / "alpha.fa", [random_codes(30_000, _SEED + 2)])
        for run in (
            ["asm", at / "text.fa", "--patterns", at / "patterns.fa", "-k", 3],
            ["hamming", at / "text.fa", "--patterns", at / "patterns.fa", "-k", 4],
            ["primer", at / "alpha.fa", at / "text.fa", "-k", 9],
        ):
            yield {"command": run[0], "bases": bases} | _measured([*run, "--device", "cpu"])


def strains(bases: int) -> Iterator[Row]:
    """Rows of ``lcs`` for a random genome and changed copies of it.

    In a copy a share of the bases is changed (substitutions, insertions and deletions of one base,
    a third each). In the last one a fifth of the segments is replaced by new ones of equal length,
    and four pairs of segments are swapped: as different as strains of one species can be.
    """
    rng = np.random.default_rng(_SEED)
    genome = rng.integers(0, 4, bases, dtype=np.uint8)
    strain = strain_of(genome, rng)
    copies = {
        "0.1 % changed": changed_copy(genome, 0.001, rng),
        "1 % changed": changed_copy(genome, 0.01, rng),
        "2 % changed, a fifth new, segments moved": strain,
    }
    with tempfile.TemporaryDirectory() as folder:
        at = Path(folder)
        write_records(at / "genome.fa", [genome])
        for name, copy in copies.items():
            write_records(at / "copy.fa", [copy])
            run = ["lcs", at / "genome.fa", at / "copy.fa", "--device", "cpu"]
            _measured(run)  # compiles
            for options in ([], ["--sequence", at / "lcs.fa"]):
                row = {"copy": name, "bases": bases, "subsequence": "yes" if options else "no"}
                yield row | _measured([*run, *options])


def _measured(arguments: list[Any]) -> dict[str, float]:
    return measured(streamer_command(*arguments, "--quiet"))


def changed_copy(bases: Codes, rate: float, rng: np.random.Generator) -> Codes:
    """A copy with this share of changes: substitutions, insertions and deletions, a third each."""
    kind = rng.random(bases.size) / (rate / 3)
    copy = np.where(kind < 1, (bases + rng.integers(1, 4, bases.size)) % 4, bases).astype(np.uint8)
    inserted = (kind >= 2) & (kind < 3)
    counts = 1 - ((kind >= 1) & (kind < 2)).astype(np.int64) + inserted
    copy = np.repeat(copy, counts)
    at = (np.cumsum(counts) - 1)[inserted]
    copy[at] = rng.integers(0, 4, at.size)
    return copy


def strain_of(genome: Codes, rng: np.random.Generator) -> Codes:
    """A copy as different as strains of one species can be."""
    segments = np.array_split(changed_copy(genome, 0.02, rng), 200)
    for at in rng.permutation(200)[:40]:
        segments[at] = rng.integers(0, 4, segments[at].size, dtype=np.uint8)
    for one, other in rng.permutation(200)[:8].reshape(4, 2):
        segments[one], segments[other] = segments[other], segments[one]
    return np.concatenate(segments)


def write_records(path: Path, records: Iterable[Codes]) -> None:
    """Records as FASTA."""
    with path.open("wb") as file:
        for number, record in enumerate(records):
            file.write(b">record%d\n%b\n" % (number, decode(record).tobytes()))


def write_long(path: Path, bases: int) -> None:
    """One record in lines of 60 bases."""
    with path.open("wb") as file:
        file.write(b">text\n")
        for number, start in enumerate(range(0, bases, _LINE << 16)):
            size = min(_LINE << 16, bases - start)
            lines = decode(random_codes(size, 100 + number)).tobytes()
            file.writelines(lines[at : at + _LINE] + b"\n" for at in range(0, size, _LINE))

"""How exactly a host is removed: sensitivity and specificity beside other programs.

A folder holds the sequences, found by their names; docs/performance/accuracy.md says which
packages have them. Reads are made here, of every source as many, and go through each program in
one file.
"""

from __future__ import annotations

import gzip
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.host_removers import Job, Remover, found_removers, streamer_remover
from benchmarks.inputs import LETTERS
from benchmarks.simulated_reads import Reads, illumina_pairs, joined, long_reads, write_fastq
from benchmarks.suite import Row, Sheet
from streamer.errors import UsageError
from streamer.sequences.files import read_batches
from trie.codes import encode
from trie.cpu.threads import usable_cores

_LETTERS = np.append(LETTERS, np.uint8(ord("N")))


class Source(NamedTuple):
    """Where reads come from. pattern: of the file's name. part: of its records; a species of MAF.

    host: whether the reads are the host's. indexed: whether it is in the index.
    """

    name: str
    pattern: str
    part: tuple[str, ...] = ()
    host: bool = False
    indexed: bool = False


SOURCES = (
    Source("human X", "hs37chrXtrunc.fa.gz", host=True, indexed=True),
    Source("human 22", "*chr22*.maf.gz", ("Hsap",), host=True, indexed=True),
    Source("chimpanzee 22", "*chr22*.maf.gz", ("Ptro",), host=True),
    Source("E. coli", "ecoli_K12*.fa.gz"),
    Source("markers of microbes", "markers.fasta", ("gi|",)),
    Source("P. falciparum", "genome_1.fa.gz"),
    Source("lambda", "lambda_NC_001416.fa.gz"),
    Source("SARS-CoV-2", "sarscov2_MN908947*.fa.gz"),
    Source("markers of viruses", "markers.fasta", ("GeneID:", "NC_")),
)


class Kind(NamedTuple):
    """A kind of reads. make: the files of each, from records, a number of reads and a seed."""

    name: str
    make: Callable[[Reads, int, int], tuple[Reads, ...]]
    long: bool = False


KINDS = (
    Kind("pairs, 150", partial(illumina_pairs, length=150)),
    Kind("pairs, 250", partial(illumina_pairs, length=250)),
    Kind("Nanopore, 99 %", partial(long_reads, identity=0.99), long=True),
    Kind("Nanopore, 95 %", partial(long_reads, identity=0.95), long=True),
)


def records_of(source: Source, folders: Sequence[Path]) -> Reads:
    """The records of a source as codes; those of an alignment joined to one."""
    found = sorted(path for folder in folders for path in folder.rglob(source.pattern))
    if not found:
        raise UsageError(
            f"no {source.pattern}, for {source.name}, in {', '.join(map(str, folders))}"
        )
    if ".maf" in found[0].name:
        text = bytearray()
        with gzip.open(found[0], "rb") as lines:
            for line in lines:
                if line.startswith(b"s " + source.part[0].encode()):
                    text += line.split()[6].replace(b"-", b"")
        return joined([encode(bytes(text))])
    records = []
    for batch in read_batches([str(found[0])]):
        records += [
            batch.bases[batch.offsets[at] : batch.offsets[at + 1]].copy()
            for at, name in enumerate(batch.names)
            if name.startswith(source.part or ("",))
        ]
    return joined(records)


def _write_fasta(path: Path, records: Sequence[Reads]) -> Path:
    with path.open("wb") as file:
        for number, (codes, offsets) in enumerate(records):
            text = _LETTERS[codes].tobytes()
            for at, (start, end) in enumerate(zip(offsets, offsets[1:], strict=False)):
                file.write(b">r%d_%d\n" % (number, at) + text[start:end] + b"\n")
    return path


def _shares(kept: set[str], count: int) -> Row:
    """For each source the share of its reads that was removed, or kept, as it should be."""
    left = Counter(name.partition(".")[0] for name in kept)
    row: Row = {}
    for number, source in enumerate(SOURCES):
        stays = left[str(number)] / count
        row[source.name] = f"{1 - stays if source.host else stays:.5f}"
    return row


class Made:
    """What all tables share: the records, host and microbes as FASTA, the index of each program."""

    def __init__(self, folders: Sequence[Path], at: Path) -> None:
        self.at = at
        self.records = {source.name: records_of(source, folders) for source in SOURCES}
        indexed = [self.records[source.name] for source in SOURCES if source.indexed]
        self._host = _write_fasta(at / "host.fa", indexed)
        others = [self.records[source.name] for source in SOURCES if not source.host]
        self.less = _write_fasta(at / "less.fa", others)
        self._indexes: dict[str, Path] = {}

    def index(self, remover: Remover, threads: int) -> Path:
        """The index of a program, built when it is first asked for."""
        if remover.name not in self._indexes:
            self._indexes[remover.name] = remover.build(self._host, threads)
        return self._indexes[remover.name]


def rows(
    kind: Kind, count: int, seed: int, removers: Sequence[Remover], threads: int, made: Made
) -> Iterator[Row]:
    """A row for each program: sensitivity for sources of the host, specificity for the others."""
    with tempfile.TemporaryDirectory(dir=made.at) as at:
        named = [
            (str(number), kind.make(made.records[source.name], count, number + len(SOURCES) * seed))
            for number, source in enumerate(SOURCES)
        ]
        files = [Path(at, "r1.fq"), Path(at, "r2.fq")][: len(named[0][1])]
        for mate, path in enumerate(files):
            mark = f"/{mate + 1}" if len(files) == 2 else ""
            write_fastq(path, [(name, reads[mate]) for name, reads in named], mark)
        for remover in removers:
            with tempfile.TemporaryDirectory(dir=at) as out:
                job = Job(made.index(remover, threads), files, kind.long, threads, Path(out))
                yield {"program": remover.name} | _shares(remover.kept(job), count)


def tables(
    device: str,
    folders: Sequence[Path],
    reads: int,
    peers: Path | None,
    threads: int,
    seed: int = 0,
) -> Iterator[Sheet]:
    """A table for each kind of reads: ``reads`` pairs of each source, or a quarter as many."""
    threads = threads or usable_cores()
    with tempfile.TemporaryDirectory() as at:
        made = Made(folders, Path(at))
        others = found_removers(peers)
        for kind in KINDS:
            preset = "host-long" if kind.long else "host-short"
            own = [
                streamer_remover("streamer, a window"),
                streamer_remover(f"streamer, {preset}", "--preset", preset),
                streamer_remover("the same, less microbes", "--preset", preset, less=made.less),
            ]
            count = reads // 4 if kind.long else reads
            yield Sheet(kind.name, rows, kind, count, seed, [*own, *others], threads, made)

"""From a compressed FASTQ file to a report: the time of each part and of the whole."""

from __future__ import annotations

import gzip
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
from xopen import xopen

from benchmarks import peers
from benchmarks.inputs import LETTERS, Codes, random_letters
from benchmarks.suite import Row
from benchmarks.timing import least_seconds
from streamer.dictionary.targets import Dictionary
from streamer.matching.matcher import StreamMatcher
from streamer.matching.reports import READ_COLUMNS, ReportTables, reads
from streamer.matching.result import BatchResult
from streamer.output.rows import RowWriter
from streamer.sequences.files import read_batches
from streamer.sequences.read_batch import ReadBatch
from trie.cpu.threads import prefetched

K = 21
READ_LENGTH = 150
BLOCK = 10_000  # reads that are generated at once


def rows(paths: list[str] | None, threads: int, bases: int) -> Iterator[Row]:
    """Part, seconds and bases_per_second of ``--report reads`` over FASTQ.gz files.

    Without files: random 150-base reads, compressed at level 6, half of them from a random genome
    of 5 M bases that is the dictionary. The parts are timed one after the other; the whole runs
    them as ``streamer match`` does, with decompression and parsing on threads ahead of matching.
    """
    # qualities in few bins, as current machines write them
    genome = random_letters(5_000_000, 7)
    offsets = np.array([0, genome.size], dtype=np.int64)
    batch = ReadBatch.from_letters(["genome"], offsets, genome)
    known = Dictionary.from_batches([batch], K, "canonical")
    with tempfile.TemporaryDirectory() as folder:
        if paths is None:
            paths = [str(Path(folder) / "reads.fq.gz")]
            _write_reads(paths[0], genome, bases)
        batches = list(read_batches(paths))
        total = sum(batch.bases.size for batch in batches)
        for part, run in _parts(paths, batches, known, threads, str(Path(folder) / "rows.tsv")):
            seconds = least_seconds(run, 1, warm=False)
            yield {"part": part, "seconds": seconds, "bases_per_second": total / seconds}


def _write_reads(path: str, genome: Codes, bases: int) -> None:
    rng = np.random.default_rng(7)
    # qualities in the few bins that today's machines write
    bins = np.frombuffer(b"#,:FFFFFFFF", dtype=np.uint8)
    with gzip.open(path, "wb", compresslevel=6) as file:
        for block in range(0, bases // READ_LENGTH, BLOCK):
            starts = rng.integers(0, genome.size - READ_LENGTH, BLOCK)
            made = genome[starts[:, None] + np.arange(READ_LENGTH)]
            made[::2] = LETTERS[rng.integers(0, 4, (BLOCK // 2, READ_LENGTH))]
            quality = bins[rng.integers(0, bins.size, made.shape)]
            file.write(
                b"".join(
                    b"@read%d\n%b\n+\n%b\n" % (block + i, row.tobytes(), q.tobytes())
                    for i, (row, q) in enumerate(zip(made, quality, strict=True))
                )
            )


def _parts(
    paths: list[str], batches: list[ReadBatch], known: Dictionary, threads: int, output: str
) -> Iterator[tuple[str, Callable[[], object]]]:
    tables = ReportTables(known.targets)

    def decompress() -> None:
        for path in paths:
            with xopen(path, "rb", threads=1) as file:
                while file.read(1 << 20):
                    pass

    def encode() -> None:
        for _ in read_batches(paths):
            pass

    def match(batches: Iterable[ReadBatch]) -> Iterator[BatchResult]:
        with closing(StreamMatcher.of(known, mode="frozen", threads=threads)) as matcher:
            for batch in batches:
                yield from matcher.match([batch])

    def write(results: Iterable[BatchResult]) -> None:
        with RowWriter(output, "tsv", READ_COLUMNS) as writer:
            for result in results:
                columns = reads(result, known.targets)
                writer.write(tables.table(columns, result.batch.names))

    results: list[BatchResult] = []
    next(match(batches))  # compiles
    yield "decompress", decompress
    if (parse := peers.dnaio(paths)) is not None:
        yield "decompress + parse (dnaio)", parse
    yield "decompress + parse + codes", encode
    yield f"match ({threads} threads)", lambda: results.extend(match(batches))
    yield "report and write", lambda: write(results)
    yield "the whole, overlapped", lambda: write(match(prefetched(read_batches(paths))))

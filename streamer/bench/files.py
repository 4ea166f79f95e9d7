"""From a compressed FASTQ file to a report: how long each part takes, and the whole."""

from __future__ import annotations

import gzip
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import dnaio
import numpy as np
from xopen import xopen

from streamer.dictionary.targets import Dictionary
from streamer.matching import Matcher
from streamer.matching.report_tables import ReportTables
from streamer.matching.reports import READ_COLUMNS, reads
from streamer.output.rows import RowWriter
from streamer.sequences.files import read_batches
from streamer.sequences.prefetch import prefetched
from streamer.sequences.read_batch import ReadBatch

K = 21
READ_LENGTH = 150


def read_file_to_report(
    paths: list[str] | None, threads: int, *, bases: int = 150_000_000
) -> list[dict[str, Any]]:
    """Rows: part, seconds, bases_per_second, of ``--report reads`` over FASTQ.gz files.

    Without files: random 150-base reads, half of them from a random genome of 5 M bases that is
    the dictionary, compressed at level 6. The parts are timed one after the other; the whole runs
    them as ``streamer match`` does, decompression and parsing on threads ahead of the matching.
    """
    rng = np.random.default_rng(7)
    genome = np.frombuffer(b"ACGT", dtype=np.uint8)[rng.integers(0, 4, 5_000_000)]
    with tempfile.TemporaryDirectory() as folder:
        if paths is None:
            paths = [str(Path(folder) / "reads.fq.gz")]
            _write_reads(paths[0], genome, bases, rng)
        known = Dictionary.from_batches(
            [
                ReadBatch.from_letters(
                    ["genome"], np.array([0, genome.size], dtype=np.int64), genome
                )
            ],
            K,
            "canonical",
        )
        return list(_rows(paths, known, threads, str(Path(folder) / "rows.tsv")))


def _write_reads(path: str, genome: Any, bases: int, rng: np.random.Generator) -> None:
    letters = np.frombuffer(b"ACGT", dtype=np.uint8)
    with gzip.open(path, "wb", compresslevel=6) as file:
        for block in range(0, bases // READ_LENGTH, 10_000):
            starts = rng.integers(0, genome.size - READ_LENGTH, 10_000)
            made = genome[starts[:, None] + np.arange(READ_LENGTH)]
            made[::2] = letters[rng.integers(0, 4, (5_000, READ_LENGTH))]
            # qualities in the few bins that today's machines write
            quality = np.frombuffer(b"#,:FFFFFFFF", dtype=np.uint8)[rng.integers(0, 11, made.shape)]
            file.write(
                b"".join(
                    b"@read%d\n%b\n+\n%b\n" % (block + i, row.tobytes(), q.tobytes())
                    for i, (row, q) in enumerate(zip(made, quality, strict=True))
                )
            )


def _rows(
    paths: list[str], known: Dictionary, threads: int, output: str
) -> Iterator[dict[str, Any]]:
    batches = [batch for path in paths for batch in read_batches([path])]
    bases = sum(batch.bases.size for batch in batches)
    tables = ReportTables(known.targets)

    def row(part: str, seconds: float) -> dict[str, Any]:
        return {"part": part, "seconds": seconds, "bases_per_second": bases / seconds}

    with _timer() as timer:
        for path in paths:
            with xopen(path, "rb", threads=1) as file:
                while file.read(1 << 20):
                    pass
    yield row("decompress", timer.seconds)
    with _timer() as timer:
        for path in paths:
            with dnaio.open(path, open_threads=1) as records:
                for _ in records:
                    pass
    yield row("decompress + parse (dnaio)", timer.seconds)
    with _timer() as timer:
        for _ in read_batches(paths):
            pass
    yield row("decompress + parse + codes", timer.seconds)
    with closing(Matcher(known, mode="frozen", threads=threads)) as matcher:
        matcher.match(batches[0])
        with _timer() as timer:
            results = [matcher.match(batch) for batch in batches]
        yield row(f"match ({threads} threads)", timer.seconds)
        with _timer() as timer, RowWriter(output, "tsv", READ_COLUMNS) as writer:
            for result in results:
                columns = reads(result, known.targets)
                writer.write(tables.table(columns, result.batch.names))
        yield row("report and write", timer.seconds)
    with closing(Matcher(known, mode="frozen", threads=threads)) as matcher:
        with _timer() as timer, RowWriter(output, "tsv", READ_COLUMNS) as writer:
            for batch in prefetched(read_batches(paths)):
                columns = reads(matcher.match(batch), known.targets)
                writer.write(tables.table(columns, batch.names))
        yield row("the whole, overlapped", timer.seconds)


class _Seconds:
    seconds = 0.0


@contextmanager
def _timer() -> Iterator[_Seconds]:
    elapsed = _Seconds()
    started = time.perf_counter()
    yield elapsed
    elapsed.seconds = time.perf_counter() - started

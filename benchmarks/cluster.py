"""Jobs and streams on a cluster of this machine, against one process with as many threads.

    seconds a base = shared + own / workers

Both are fitted to the measurements: ``shared`` is the time that the calling process takes for each
base (reading, sending, joining), ``own`` is the work of one worker. 1 / shared is the highest rate
that any number of workers can reach (docs/scaling.md).
"""

from __future__ import annotations

import gzip
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.cluster_shards import shards
from benchmarks.inputs import LETTERS, READ, batch_of, cut, half_hit, random_codes
from benchmarks.suite import Row, Sheet
from streamer.batch.asm import find
from streamer.batch.asm.blocks import of_pieces
from streamer.batch.asm.pattern_masks import masks_of, searches
from streamer.batch.choice import Choice
from streamer.cluster.batch_tasks import asm_lines, piece_symbols
from streamer.cluster.cluster_matcher import ClusterMatcher
from streamer.cluster.connecting import LOCAL, Cluster, connected
from streamer.cluster.match_tasks import match_lines, task_bases
from streamer.dictionary.targets import Dictionary
from streamer.matching.matcher import StreamMatcher
from streamer.matching.spec import MatchSpec
from streamer.output.text_table import Labels
from streamer.sequences.files import read_pieces, work_on_batches
from streamer.sequences.read_batch import ReadBatch
from trie.cpu.forks import CAN_FORK

K = 21
PATTERNS, EDITS = 100, 3
PARTS = 16  # small FASTQ.gz files
STREAM_BATCH = 1 << 24  # bases that a busy daemon matches together


def tables(
    device: str,
    workers: tuple[int, ...] = (1, 2),
    bases: int = 200_000_000,
    kmers: int = 100_000_000,
) -> list[Sheet]:
    """Streams of ``bases`` bases and texts three times as long, for each number of workers.

    kmers: of a dictionary in as many shards.
    """
    return [
        Sheet("Jobs on a cluster, M bases a second", jobs, workers, 3 * bases, section="jobs"),
        Sheet("Streams on a cluster, M bases a second", streams, workers, bases, section="streams"),
        Sheet("A dictionary in shards, memory", shards, workers, kmers, section="shards"),
    ]


def seconds(run: Callable[[], object]) -> float:
    """Seconds of the second of two runs, since the first one starts workers and loads kernels."""
    run()
    begun = time.perf_counter()
    run()
    return time.perf_counter() - begun


def _row(name: str, count: int, bases: int, alone: float, there: float) -> Row:
    return {
        "what": name, "workers": count, "one process": bases / alone / 1e6,
        "cluster": bases / there / 1e6, "ratio": alone / there,
    }  # fmt: skip


def model(name: str, rows: Iterable[Row]) -> Row:
    """The two times for each base, fitted to the rows of a cluster, and the highest rate."""
    counts, rates = np.array([(row["workers"], row["cluster"] * 1e6) for row in rows]).T
    terms = np.stack([np.ones_like(counts), 1 / counts], axis=1)
    shared, own = np.linalg.lstsq(terms * rates[:, np.newaxis], np.ones_like(rates), rcond=None)[0]
    if shared <= 0 or own <= 0:
        # these rows cannot separate the two: assign everything to one of them
        nearly = float(np.mean(1 / rates)), float(np.mean(counts / rates))
        shared, own = (nearly[0], 0.0) if own <= 0 else (0.0, nearly[1])
    return {
        "what": f"{name}: shared {shared * 1e9:.3g} ns, own {own * 1e9:.3g} ns a base",
        "workers": None, "one process": None, "cluster": 1e-6 / shared if shared else None,
        "ratio": None,
    }  # fmt: skip


def jobs(workers: tuple[int, ...], bases: int) -> Iterator[Row]:
    """``asm`` with many patterns, and ``match`` of reads from one and many files, with rows."""
    with tempfile.TemporaryDirectory() as folder:
        text, reads = Path(folder) / "text.fa", Path(folder) / "reads.fq"
        parts = [str(Path(folder) / f"part_{number}.fq.gz") for number in range(PARTS)]
        codes = random_codes(bases, 1)
        # seconds of work, so that the start of tasks hardly counts
        text.write_bytes(b">text\n" + LETTERS[codes[: bases // 2]].tobytes() + b"\n")
        qualities = b"I" * READ
        with reads.open("wb") as file, ExitStack() as stack:
            files = [stack.enter_context(gzip.open(part, "wb", 1)) for part in parts]
            for number, start in enumerate(range(0, bases - READ, READ)):
                letters = LETTERS[codes[start:][:READ]].tobytes()
                record = b"@r%d\n%s\n+\n%s\n" % (number, letters, qualities)
                file.write(record)
                files[number % PARTS].write(record)
        found: dict[str, list[Row]] = {}
        for count in workers:
            with connected(LOCAL, count) as cluster:
                for name, row in (
                    ("asm", _asm(cluster, str(text), bases // 2, count)),
                    ("match", _match(cluster, [str(reads)], codes, bases, count)),
                    ("match, FASTQ.gz", _match(cluster, parts, codes, bases, count)),
                ):
                    found.setdefault(name, []).append(row)
                    yield row
        yield from (model(name, rows) for name, rows in found.items())


def _asm(cluster: Cluster, text: str, bases: int, count: int) -> Row:
    codes = random_codes(24 * PATTERNS, 2).reshape(PATTERNS, 24)
    wanted = searches([masks_of(LETTERS[one].tobytes(), iupac=False) for one in codes], EDITS)
    names = [f"p{number}" for number in range(PATTERNS)]
    choice, labels = Choice("bit-parallel", "cpu"), Labels(names)
    size = piece_symbols(1e-9 * len(wanted), bases, count)

    def alone() -> None:
        texts = of_pieces(read_pieces(text, wanted.reach))
        for _, hits in find(texts, wanted, choice, threads=count):
            for table in hits.tables(["text"], labels):
                sum(map(len, table.formatted("tsv")))

    def there() -> None:
        pieces = read_pieces(text, wanted.reach, size=size)
        sum(map(len, asm_lines(cluster, pieces, wanted, choice, names, "tsv")))

    return _row(f"asm, {PATTERNS} patterns", count, bases, seconds(alone), seconds(there))


def _match(cluster: Cluster, reads: list[str], codes: Any, bases: int, count: int) -> Row:
    from streamer.matching.reports import REPORTS
    from streamer.matching.running_report import RowAnswer
    from trie.cpu.team import Team

    dictionary, spec = _dictionary(codes, count)
    matcher = StreamMatcher(dictionary, spec)
    answer = RowAnswer(REPORTS["intervals"], matcher.dictionary.targets, K)

    def lines(batch: ReadBatch) -> int:
        tables = answer.after(matcher.match([batch], in_stream=False)[0])
        return sum(len(data) for table in tables for data in table.formatted("tsv"))

    def alone() -> None:
        with Team(count) as team:
            works = work_on_batches(reads, lines, team=team, forks=CAN_FORK)
            sum(team.results(works, pulls="parse"))

    def there() -> None:
        size = task_bases(spec, bases, count, depths=False)
        sum(
            lines.size
            for lines in match_lines(
                cluster, matcher, dictionary, spec, "intervals", "tsv", reads, size
            )
        )

    name = f"match, intervals, {len(reads)} file{'s' * (len(reads) > 1)}"
    return _row(name, count, bases, seconds(alone), seconds(there))


def _dictionary(codes: Any, threads: int, **asked: Any) -> tuple[Dictionary, MatchSpec]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "targets.fa"
        path.write_bytes(b">g\n" + LETTERS[codes[: codes.size // 20]].tobytes() + b"\n")
        spec = MatchSpec.of(k=K, sources=(str(path),), threads=threads, **asked)
        return Dictionary.from_files(spec.sources, K, spec.strands), spec


def streams(workers: tuple[int, ...], bases: int) -> Iterator[Row]:
    """A matcher here and one on a cluster, used as in a busy daemon: frozen, in shards, growing."""
    codes = random_codes(bases, 3)
    found: dict[str, list[Row]] = {}
    for count in workers:
        with connected(LOCAL, count) as cluster:
            for name, shards, fresh, asked in (
                ("frozen", 1, 0.5, {}),
                ("frozen, 2 shards", 2, 0.5, {}),
                ("growing, 1 % new", 1, 0.01, {"mode": "grow"}),
                ("growing, 50 % new", 1, 0.5, {"mode": "grow"}),
            ):
                if count % shards:
                    continue
                row = _stream(cluster, codes, bases, count, name, shards, fresh, asked)
                found.setdefault(name, []).append(row)
                yield row
    yield from (model(name, rows) for name, rows in found.items())


def _batches(known: Any, count: int, fresh: float) -> Iterator[ReadBatch]:
    """Batches in which that share of the reads is random, the others known."""
    rng = np.random.default_rng(4)
    for number in range(count):
        batch = half_hit(known, STREAM_BATCH, number)
        if fresh < 0.5:
            rows = batch.bases.reshape(-1, READ).copy()
            here = rng.random(len(rows)) >= fresh
            starts = rng.integers(0, known.size - READ, int(here.sum()))
            rows[here] = np.lib.stride_tricks.sliding_window_view(known, READ)[starts]
            batch = batch_of(rows.reshape(-1), cut(rows.size, READ))
        yield batch


def _stream(
    cluster: Cluster, codes: Any, bases: int, count: int, name: str, shards: int, fresh: float,
    asked: dict[str, str],
) -> Row:  # fmt: skip
    dictionary, spec = _dictionary(codes, count, **asked)
    # a busy daemon has the next batch when it needs it
    batches = list(_batches(codes[: codes.size // 20], max(1, bases // STREAM_BATCH) + 1, fresh))

    there = ClusterMatcher(
        dictionary, spec, cluster, workers=count // shards, shards=shards, say=lambda line: None
    )
    with closing(StreamMatcher(dictionary, spec)) as alone, closing(there):
        seconds = _by_turns((alone, there), batches, count)
    share = bases / (STREAM_BATCH * (len(batches) - 1))
    return _row(name, count, bases, *(share * seconds))


def _by_turns(
    matchers: tuple[StreamMatcher, ClusterMatcher], batches: Sequence[ReadBatch], count: int
) -> NDArray[np.float64]:
    """Seconds of each for all batches but the first, which the two match in turns.

    A shared machine is at times half as fast as at others, which would distort a ratio of runs.
    """
    for matcher in matchers:
        matcher.match([batches[0]])
    # workers that load take cores from the others
    while matchers[1].workers < count:
        matchers[1].match([batches[0]])
    seconds = np.zeros(2)
    for number, batch in enumerate(batches[1:]):
        for which in (0, 1) if number % 2 == 0 else (1, 0):
            begun = time.perf_counter()
            matchers[which].match([batch])
            seconds[which] += time.perf_counter() - begun
    return seconds

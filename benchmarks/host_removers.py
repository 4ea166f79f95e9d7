"""Programs that remove a host's reads: an index of the host, then the names of the reads kept.

deacon and cleanifier are those of PyPI, in an environment of their own; deacon's package has no
builder of an index, so ``deacon_index`` writes it. minimap2 is called as hostile does.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.deacon_index import K, minimizers, write_deacon_index
from benchmarks.file_peers import Peer, build_kraken2
from benchmarks.processes import streamer_command
from streamer.sequences.files import read_batches

_FILTER = """
import sys, deacon
index, threads, out, first, *last = sys.argv[1:]
deacon.Index(index).filter(
    first, input2=last[0] if last else None, deplete=True, output=out, threads=int(threads)
)
"""


class Job(NamedTuple):
    """What a program has to do. reads: one file, or R1 and R2. host: the index of its builder."""

    host: Path
    reads: Sequence[Path]
    long: bool
    threads: int
    out: Path
    """An empty folder."""


class Remover(NamedTuple):
    """A program. build: an index of a FASTA file, beside it; kept: the names of reads it keeps."""

    name: str
    build: Callable[[Path, int], Path]
    kept: Callable[[Job], set[str]]


def _names(paths: Sequence[Path]) -> set[str]:
    """The names of FASTQ records, without the number of a mate."""
    found: set[str] = set()
    for path in paths:
        with path.open("rb") as file:
            found.update(
                line[1:].split()[0].decode().removesuffix("/1").removesuffix("/2")
                for number, line in enumerate(file)
                if number % 4 == 0
            )
    return found


def _run(command: Sequence[object], **options: object) -> None:
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, **options)  # type: ignore[call-overload]
    if done.returncode:
        raise SystemExit(f"{command[0]}: exit code {done.returncode}\n{done.stderr[-2000:]}")


def streamer_remover(name: str, *options: str, less: Path | None = None) -> Remover:
    """This program with some options. less: the index lacks the k-mers of this file."""

    def build(host: Path, threads: int) -> Path:
        path = host.with_suffix(".less.idx" if less else ".own.idx")
        if not path.exists():
            words = ["--target-by", "file", *(("--subtract", less) if less else ()), "-o", path]
            _run(streamer_command("index", host, "-k", K, *words))
        return path

    def kept(job: Job) -> set[str]:
        out = job.out / "kept.fq"
        words = ["--deplete", "-q", "--threads", job.threads, "-o", out, "--no-interleaved"]
        if len(job.reads) == 2:
            words[-1:] = ["--pairs", "--output2", job.out / "kept2.fq"]
        _run(streamer_command("filter", *job.reads, "-d", job.host, *words, *options))
        return _names([out])

    return Remover(name, build, kept)


def _deacon_index(host: Path) -> Path:
    path = host.with_suffix(".deacon.idx")
    found = [
        minimizers(batch.bases[start:end])
        for batch in read_batches([str(host)])
        for start, end in zip(batch.offsets[:-1], batch.offsets[1:], strict=True)
    ]
    write_deacon_index(path, np.concatenate(found))
    return path


def deacon_peer(peers: Path, host: Path, threads: int) -> Peer:
    """deacon of an environment, with an index of a FASTA file, made beside it."""
    python, index = peers / "bin" / "python", _deacon_index(host)
    return Peer("deacon", [str(python), "-c", _FILTER, str(index), str(threads), os.devnull])


def _deacon(python: Path) -> Remover:
    def kept(job: Job) -> set[str]:
        out = job.out / "kept.fq"
        _run([python, "-c", _FILTER, job.host, job.threads, out, *job.reads])
        return _names([out])

    return Remover("deacon", lambda host, _: _deacon_index(host), kept)


def _cleanifier(program: Path) -> Remover:
    def build(host: Path, threads: int) -> Path:
        path = host.with_suffix(".cleanifier")
        kmers = host.stat().st_size
        words = ["-k", K, "--subtables", 3, "--threads-read", 1, "--threads-split", 1]
        _run([program, "index", "--index", path, "--files", host, "-n", kmers, *words])
        return path

    def kept(job: Job) -> set[str]:
        prefix = job.out / "kept"
        mates = ["--pairs", job.reads[1]] if len(job.reads) == 2 else []
        words = ["--out", prefix, "--compression", "none", "--threads", job.threads]
        words += ["--buffersize", 22]  # The default, 2^16 bytes, ends the run at a longer read.
        _run([program, "filter", "--fastq", job.reads[0], *mates, "--index", job.host, *words])
        return _names(sorted(job.out.iterdir())[:1])

    return Remover("cleanifier", build, kept)


def _kraken2_kept(job: Job) -> set[str]:
    out = job.out / "table"
    words = ["--paired"] if len(job.reads) == 2 else []
    _run(
        [
            "kraken2",
            "--db",
            job.host,
            "--threads",
            job.threads,
            "--output",
            out,
            *words,
            *job.reads,
        ]
    )
    rows = (line.split("\t", 2) for line in out.read_text().splitlines())
    return {name.removesuffix("/1") for state, name, _ in rows if state == "U"}


def _minimap2_kept(job: Job) -> set[str]:
    """As in hostile: pairs stay if neither read is aligned."""
    preset = "map-ont" if job.long else "sr"
    out = job.out / "aligned.sam"
    words = ["-ax", preset, "--secondary", "no", "-t", job.threads, "-o", out]
    _run(["minimap2", *words, job.host, *job.reads])
    kept: set[str] = set()
    removed: set[str] = set()
    with out.open() as file:
        for line in file:
            if not line.startswith("@"):
                name, flag, _ = line.split("\t", 2)
                (kept if int(flag) & 4 else removed).add(name)
    return kept - removed


def found_removers(peers: Path | None) -> list[Remover]:
    """The installed peers; deacon and cleanifier in the environment ``peers``."""
    found = []
    if peers is not None and (python := peers / "bin" / "python").exists():
        found.append(_deacon(python))
        if (program := peers / "bin" / "cleanifier").exists():
            found.append(_cleanifier(program))
    if shutil.which("kraken2") and shutil.which("kraken2-build"):
        found.append(
            Remover(
                "kraken2",
                lambda host, threads: build_kraken2(host, host.parent, threads),
                _kraken2_kept,
            )
        )
    if shutil.which("minimap2"):
        found.append(Remover("minimap2", lambda host, _: host, _minimap2_kept))
    return found

"""``streamer warm-up``: compile all kernels for this machine, in parallel, before they are needed.

Worker processes run small jobs of every command: a kernel is compiled for the types of its
arguments, so the surest way to compile what commands need is to run them. Jobs that take long to
compile come first. A record beside the compiled kernels lists their files, so that a second run has
nothing to do. ``tests/streamer/cli/test_warm_up.py`` finds kernels that no job reaches.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import multiprocessing
import os
import random
import signal
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from streamer.cli.choices import QuietOption, say
from streamer.errors import StreamerError
from streamer.matching.spec import CUDA_KERNELS, KERNELS, Device
from trie.cpu import compiling

Job = tuple[str, ...]
"""The arguments of a command; or ``serve`` and settings, for a daemon and its clients."""

SERVE = "serve"
SAVED = "grown.kmers"
_K = ("-k", "21")
_DICTIONARY = ("-d", "ref.fa")
_SAVED = ("-k", "20", "--strands", "both")
_DAEMON = ("dictionary.k=21", 'dictionary.sources=["ref.fa"]', "matching.device=cpu")
_TOPICS = ("match", "mismatch", "read", "word", "delta", "near", "ltb", "decision")
_POLL_SECONDS = 0.01
_ANSWER_SECONDS = 300.0
_LONG = 700_000  # bases; longer inputs are shared by threads and use other kernels
_TALL = "tall.fa"  # as many bases as make a GPU take its kernel for many rows
_SEED = 1


def write_files(folder: Path) -> None:
    """Write the files that jobs read."""
    from streamer.output.output_file import END_BLOCK, packed_blocks  # imports numba

    rng = random.Random(_SEED)
    reference = "".join(rng.choices("ACGT", k=6000))
    reads = []
    for number in range(60):
        start = rng.randrange(5700)
        bases = list(reference[start : start + rng.choice((20, 150, 300))])
        bases[rng.randrange(len(bases))] = rng.choice("ACGTN")
        reads.append((f"r{number} ch={number} barcode=barcode0{number % 3}", "".join(bases)))
    fastq = [f"@{name}\n{bases}\n+\n{'I' * len(bases)}\n" for name, bases in reads]
    pattern = [reference[100 * i : 100 * i + 24] for i in range(24)]
    genome = reference + "".join(rng.choices("ACGT", k=_LONG))
    tagged = [(f"{name}\tch:i:7\tst:Z:2026-01-01T00:00:00Z\tRG:Z:run_barcode01", bases)
              for name, bases in reads]  # fmt: skip
    halves = (("one", reference[:3000]), ("two", reference[2000:] + "N" + reference[:40]))
    for file, text in {
        "ref.fa": _fasta(halves),
        "other.fa": _fasta([("other", reference[:900] + reference[1000:2500])]),
        "alpha.fa": _fasta([("alpha", reference[500:900])]),
        "patterns.fa": _fasta((f"p{i}", bases) for i, bases in enumerate(pattern)),
        "genome.fa": _fasta([("genome", genome)]),
        "foreign.fa": _fasta([("foreign", "".join(rng.choices("ACGT", k=3000)))]),
        "near.fa": _fasta([("near", genome[50_000:80_000] + genome[90_000:120_000])]),
        "long.fa": _fasta([("long", reference[300:380])]),
        "reads.fa": _fasta(tagged),
        "reads.fq": "".join(fastq),
        # R1 and R2 with the same bases would be refused
        "mates.fq": "".join(f"@{n}\n{b[::-1]}\n+\n{'I' * len(b)}\n" for n, b in reads),
    }.items():
        (folder / file).write_text(text)
    (folder / "reads.fq.gz").write_bytes(gzip.compress("".join(fastq).encode()))
    (folder / "reads.bam").write_bytes(packed_blocks(_bam(reads)) + END_BLOCK)
    (folder / "reads.sam").write_text(_sam(reads))


def _fasta(records: object) -> str:
    return "".join(f">{name}\n{bases}\n" for name, bases in records)  # type: ignore[attr-defined]


def _bam(reads: list[tuple[str, str]]) -> bytes:
    """Unaligned reads, before compression."""
    parts = [struct.pack("<4sii", b"BAM\1", 0, 0)]
    for name, bases in reads:
        title = name.split()[0].encode() + b"\0"
        codes = ["=ACMGRSVTWYHKDBN".index(base) for base in bases] + [0]
        packed = bytes(16 * a + b for a, b in zip(codes[:-1:2], codes[1::2], strict=False))
        fixed = struct.pack("<iiBBHHHiiii", -1, -1, len(title), 0, 0, 0, 4, len(bases), -1, -1, 0)
        record = fixed + title + packed + b"\xff" * len(bases)
        parts += [struct.pack("<i", len(record)), record]
    return b"".join(parts)


def _sam(reads: list[tuple[str, str]]) -> str:
    """Reads with context; every other one is aligned."""
    lines = ["@RG\tID:run_barcode01\tSM:barcode01"]
    for number, (name, bases) in enumerate(reads):
        place = f"16\tone\t1\t9\t{len(bases)}M" if number % 2 else "4\t*\t0\t0\t*"
        tags = f"ch:i:{number}\tst:Z:2026-01-01T00:00:00Z\tRG:Z:run_barcode01"
        lines.append(f"{name.split()[0]}\t{place}\t*\t0\t0\t{bases}\t*\t{tags}")
    return "\n".join(lines) + "\n"


def jobs(device: str) -> list[Job]:
    """All jobs of a device, cpu or cuda."""
    return [(*job, "--device", device) for job in (*_match(device), *_batch(device))] + (
        _of_cpu() if device == "cpu" else [(SERVE, "--set", "matching.device=cuda")]
    )


def _match(device: str) -> Iterator[Job]:
    exact = ("match", "reads.fq", *_K)
    frozen = (*exact, *_DICTIONARY)
    yield (*frozen, "--report", "reads")
    yield (*frozen, "--report", "reads", "--threads", "3")
    for threads in ("2", "3"):
        yield ("match", "reads.fq.gz", *_K, *_DICTIONARY, "--report", "reads", "--threads", threads)
    yield ("match", "reads.fq", *_DICTIONARY, "-k", "11", "--report", "windows")
    for k in ("11", "21"):  # one target, which a GPU need not find
        yield ("match", "reads.fq", "-d", "other.fa", "-k", k, "--report", "reads")
    yield (*exact, "--seed", "900", "--report", "reads")
    yield (*frozen, "--distance", "1")
    yield (*frozen, "--distance", "2", "--report", "best", "--strands", "forward")
    yield (*frozen, "--distance", "1", "--semantics", "ltb")
    for report in ("intervals", "targets", "coverage"):
        yield (*frozen, "--report", report)
    yield (*frozen, "--report", "targets", "--by", "barcode", "--strands", "both")
    yield (*frozen, "--mode", "grow", "--report", "targets")
    yield (*frozen, "--mode", "grow", "--report", "windows", "--strands", "both")
    for k in ("1", "3", "12", "15", "16", "31"):
        yield ("match", "reads.fa", *_DICTIONARY, "-k", k, "--format", "jsonl")
        yield ("match", "reads.bam", "-k", k, "--seed", "900", "--strands", "forward")
    for semantics, kernels in KERNELS.items():
        for kernel in kernels:
            if device == "cuda" or kernel not in CUDA_KERNELS:
                near = () if semantics == "exact" else ("-D", "1", "--semantics", semantics)
                yield (*frozen, *near, "--kernel", kernel)
    for report in ("reads", "windows"):
        yield (*frozen, "--mode", "grow", "--kernel", "walk", "--report", report)
    yield ("match", "reads.fq", *_K, "--seed", "900", "-D", "1", "--strands", "both")
    yield (*frozen, "--mode", "grow", "--semantics", "ltb", "-D", "2")
    yield ("match", "reads.fa", *_K, *_DICTIONARY, "--report", "targets", "--by", "barcode")
    yield ("match", "reads.bam", *_K, *_DICTIONARY, "--report", "targets", "--by", "barcode")
    yield ("match", "reads.sam", *_K, *_DICTIONARY, "--report", "targets", "--by", "barcode")
    yield (*frozen, "--mode", "grow", "-D", "1")
    yield ("match", "near.fa", *_K, "--seed", "900", "-D", "1")
    for k in ("11", "21", "31"):
        yield ("match", "genome.fa", "--seed", "600000", "-k", k, "--report", "windows")
    yield ("match", "genome.fa", "-d", "genome.fa", *_K, "--kernel", "walk", "--report", "windows")
    yield ("match", "reads.fq", "-k", "12", "--seed", "900", "--save", "short.kmers")
    yield ("match", "reads.fq", *_SAVED, "--seed", "900", "--save", SAVED)


def _batch(device: str) -> Iterator[Job]:
    from streamer.batch import asm, hamming, lcs, primer

    def methods(known: object) -> Iterator[str]:
        for name, where in known.items():  # type: ignore[attr-defined]
            if device in where:
                yield name

    for method in methods(asm.METHODS):
        for file in ("patterns.fa", "long.fa"):
            for report in asm.REPORTS:
                yield ("asm", "ref.fa", "--patterns", file, "-k", "3", "--report", report,
                       "--method", method)  # fmt: skip
    for method in methods(hamming.METHODS):
        for file in ("patterns.fa", "long.fa"):
            yield ("hamming", "ref.fa", "--patterns", file, "-k", "3", "--method", method)
    for method in methods(primer.METHODS):
        for k in ("2", "12"):
            yield ("primer", "alpha.fa", "other.fa", "-k", k, "--method", method)
    for k in ("2", "6"):
        yield ("primer", "foreign.fa", "genome.fa", "-k", k)
    yield ("asm", "near.fa", "--pattern", "ACGTACGTACGT", "-k", "6")
    if device == "cuda":
        yield ("lcs", _TALL, "genome.fa", "--method", "systolic")
    for method in ("adaptive", "systolic"):
        yield ("lcs", "near.fa", "genome.fa", "--method", method, "--sequence", "/dev/null")
    for method in methods(lcs.METHODS):
        yield ("lcs", "long.fa", "other.fa", "--method", method)
        yield ("lcs", "alpha.fa", "other.fa", "--method", method, "--sequence", "/dev/null")
    yield ("lcs", "reads.fa", "reads.fq", "--text", "--blocks", "/dev/null")


def _of_cpu() -> list[Job]:
    filter_ = ("filter", *_K, *_DICTIONARY, "--device", "cpu")
    return [
        (*filter_, "reads.fq", "--keep"),
        (*filter_, "reads.fa", "--deplete"),
        (*filter_, "reads.fq", "mates.fq", "--pairs", "--keep", "--summary", "/dev/null"),
        (*filter_, "reads.fq", "mates.fq", "--pairs", "--keep", "--pair-rule", "together",
         "--rename"),
        (SERVE,),
        (SERVE, "--set", "dictionary.mode=grow"),
        (SERVE, "--set", 'decision.enrich=["one"]'),
        (SERVE, "--set", "journal.directory=journal", "--set", "journal.durability=os"),
        (SERVE, "--set", "matching.distance=1", "--set", "dictionary.strands=both"),
        (SERVE, "--set", "matching.distance=1", "--set", "matching.semantics=ltb",
         "--set", "dictionary.strands=forward"),
    ]  # fmt: skip


def run_job(job: Job) -> int:
    """Run a job in the folder of ``write_files``; returns its exit code."""
    from streamer.cli.app import main

    if job[0] == SERVE:
        return _serve(job[1:])
    if _TALL in job:
        from gpu.lcs import tall_rows

        rows, text = tall_rows(), Path("genome.fa").read_text()[:7:-1]
        Path(_TALL).write_text(_fasta([("tall", (text * (1 + rows // _LONG))[:rows])]))
    code = main([job[0], "--threads", "2", *job[1:], "--quiet"])
    if SAVED in job and not code:
        code = main(["match", "reads.fq", *_SAVED, "-d", SAVED, "--quiet"])
    return code


def _serve(settings: Job) -> int:
    """Run a daemon, with clients that send and print; returns the exit code of the first."""
    from streamer.cli import daemon_options
    from streamer.cli.app import main
    from streamer.client import Control
    from streamer.daemon import config, logs
    from streamer.daemon.service import Service

    logs.configure("error", "json")
    # compiling blocks everything else in this process
    daemon_options.ANSWER_SECONDS = _ANSWER_SECONDS
    names = ("ingest", "feed", "control", "sync")
    with tempfile.TemporaryDirectory() as sockets:
        at = {name: f"ipc://{sockets}/{name}" for name in names}
        keys = [setting for setting in settings if setting != "--set"]
        keys += [f"{name}.endpoint={endpoint}" for name, endpoint in at.items()]
        service = Service(config.load(None, [*_DAEMON, *keys]))
        service.start()
        watch = ["watch", "--from", at["feed"], "--quiet"]
        watch += [word for topic in _TOPICS for word in ("--topic", topic)]
        threads = [threading.Thread(target=work) for work in (service.wait, lambda: main(watch))]
        for thread in threads:
            thread.start()
        try:
            with Control(at["control"], answer_seconds=_ANSWER_SECONDS) as control:
                while threads[1].is_alive() and not control.status()["topics"]:
                    time.sleep(_POLL_SECONDS)
            sent = ["send", "reads.fq", "reads.sam", "--timeout", str(_ANSWER_SECONDS)]
            return main([*sent, "--to", at["ingest"], "--quiet"])
        finally:
            service.drain("warm-up")
            for thread in threads:
                thread.join()


@dataclass(frozen=True, slots=True)
class Compiled:
    """The outcome of a job. files: those of the cache. problem: why it failed or stored nothing."""

    code: int
    compiled: int
    files: frozenset[str]
    problem: str | None


def warm_up(
    device: Annotated[
        Device, typer.Option(help="cpu, cuda (the CPU too), or all that works here.")
    ] = "auto",
    threads: Annotated[
        int, typer.Option(min=0, help="Processes that compile; 0 is one for each core.")
    ] = 0,
    ship: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Compile for all CPUs of the levels x86-64-v3 and v4 instead, for a package.",
        ),
    ] = None,
    quiet: QuietOption = False,
) -> None:
    """Compile all kernels for this machine, in parallel; later runs of all commands start at once.

    Needed once after each installation, unless the package has compiled kernels. Without it, each
    command compiles what it needs when it first runs.
    """
    from streamer.device_choice import choose_device, cuda_problem
    from trie.cpu.jit import source_digest
    from trie.cpu.threads import usable_cores

    if ship is not None:
        _ship(ship, threads or usable_cores(), quiet)
        return
    if device == "cuda":
        choose_device("cuda")
    devices = ["cpu"] if device == "cpu" or cuda_problem() else ["cpu", "cuda"]
    folder, problem = compiling.kernel_folder()
    if folder is None:
        raise StreamerError(problem)
    record = folder / "warm-up.json"
    key = [source_digest(), *devices]
    count = _recorded(record, key)
    if count:
        _report(quiet, f"all {count} kernels are compiled, in {folder}")
        _calibrated(devices, folder, quiet)
        return
    began = time.monotonic()
    files: set[str] = set()
    compiled = 0
    problems: list[str] = []
    listed = [job for name in devices for job in jobs(name)]
    for job, outcome in _outcomes(listed, threads or usable_cores(), quiet):
        files |= outcome.files
        compiled += outcome.compiled
        if outcome.problem is not None:
            problems.append(outcome.problem)
        elif outcome.code:
            problems.append(f"`streamer {' '.join(job)}` ended with exit code {outcome.code}")
    if problems:
        raise StreamerError(f"{problems[0]}; what is missing is compiled when it is first needed")
    with contextlib.suppress(OSError):
        record.write_text(json.dumps({"key": key, "files": sorted(files)}))
    seconds = time.monotonic() - began
    _report(quiet, f"{compiled} kernels compiled in {seconds:.0f} s, {len(files)} are in {folder}")
    _calibrated(devices, folder, quiet)


def _calibrated(devices: list[str], folder: Path, quiet: bool) -> None:
    """Measure how fast this machine is where ``auto`` has a choice, unless that was done."""
    from streamer.device_choice import rates

    if len(devices) > 1 and not rates().measured:
        from streamer.cli.calibration import calibrate

        try:
            line = calibrate(devices, folder)
        except (OSError, RuntimeError, subprocess.SubprocessError) as error:
            line = f"how fast this machine is could not be measured: {error}"
        _report(quiet, line)


def _ship(folder: Path, processes: int, quiet: bool) -> None:
    """Compile all kernels of the CPU for each level of x86-64 that this machine has."""
    levels = compiling.cpu_levels()
    for level, features in compiling.LEVELS.items():
        if level not in levels:
            _report(quiet, f"{level}: this machine cannot run it, so it cannot be compiled here")
            continue
        into = folder / level
        into.mkdir(parents=True, exist_ok=True)
        settings = {
            "NUMBA_CPU_NAME": level,
            "NUMBA_CPU_FEATURES": features,
            compiling.SHIP: str(into.resolve()),
        }
        # of the processes that compile
        os.environ.update(settings)
        for job, outcome in _outcomes(jobs("cpu"), processes, quiet):
            if outcome.code or outcome.problem:
                why = outcome.problem or f"exit code {outcome.code}"
                raise StreamerError(f"{level}: `streamer {' '.join(job)}`: {why}")
        (into / compiling.MADE_FOR).write_text(compiling.made_for())
        sizes = [file.stat().st_size for file in into.rglob("*.nb*")]
        _report(quiet, f"{level}: {len(sizes)} files, {sum(sizes) / 1e6:.0f} MB, in {into}")


def _report(quiet: bool, line: str) -> None:
    if not quiet:
        say(line)


def _recorded(record: Path, key: list[str]) -> int:
    """How many kernels an earlier run has compiled; 0 if any has changed or is missing."""
    try:
        recorded = json.loads(record.read_text())
        if recorded["key"] == key and all(os.path.exists(file) for file in recorded["files"]):
            return len(recorded["files"])
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return 0


def _outcomes(listed: list[Job], processes: int, quiet: bool) -> Iterator[tuple[Job, Compiled]]:
    """Each job with its outcome, as they end."""
    from streamer.cli.streams import progress

    with (
        tempfile.TemporaryDirectory(prefix="kmer-streamer-") as folder,
        progress("compiling", len(listed), quiet=quiet, unit="share") as show,
        _pool(folder, min(processes, len(listed))) as pool,
    ):
        write_files(Path(folder))
        running: dict[Future[Compiled], Job] = {pool.submit(_run, job): job for job in listed}
        plain = not quiet and not os.isatty(2)
        try:
            for done, future in enumerate(as_completed(running), start=1):
                yield running[future], future.result()
                show(done)
                if plain and (10 * done // len(listed) > 10 * (done - 1) // len(listed)):
                    say(f"compiling: {100 * done // len(listed)} %")
        except BrokenProcessPool:
            raise StreamerError(
                "a process that compiles was ended; is memory short? try fewer --threads"
            ) from None


@contextlib.contextmanager
def _pool(folder: str, processes: int) -> Iterator[ProcessPoolExecutor]:
    """Processes that run jobs; an error or an interrupt ends them, too."""
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(processes, context, _begin, (folder,))
    try:
        yield pool
    except BaseException:
        for process in multiprocessing.active_children():
            process.kill()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _begin(folder: str) -> None:
    """Prepare a process for jobs in a folder: they print nothing and compile concurrently."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.chdir(folder)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1):
        os.dup2(nowhere, stream)
    os.dup2(os.open("errors", os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
    compiling.current = compiling.SharedCompiling(folder)


def _run(job: Job) -> Compiled:
    shared = compiling.current
    assert shared is not None
    before = shared.compiled
    code = run_job(job)
    return Compiled(code, shared.compiled - before, frozenset(shared.files), shared.problem)

"""``streamer warm-up``: compile all kernels for this machine, in parallel, before they are needed.

Worker processes run small jobs of every command (``warm_up_jobs``). A record beside the compiled
kernels lists their files, so that a second run has nothing to do.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from streamer.cli.choices import QuietOption, say
from streamer.cli.warm_up_jobs import Job, jobs, run_job, write_files
from streamer.matching.spec import Device
from trie.cpu import shared_compiling


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
    quiet: QuietOption = False,
) -> None:
    """Compile all kernels for this machine, in parallel; later runs of all commands start at once.

    Needed once after each installation. Without it, each command compiles what it needs when it
    first runs.
    """
    from streamer.device_choice import choose_device, cuda_problem
    from streamer.errors import StreamerError
    from trie.cpu.jit import source_digest
    from trie.cpu.kernel_folder import kernel_folder
    from trie.cpu.threads import usable_cores

    if device == "cuda":
        choose_device("cuda")
    devices = ["cpu"] if device == "cpu" or cuda_problem() else ["cpu", "cuda"]
    folder, problem = kernel_folder()
    if folder is None:
        raise StreamerError(problem)
    record = folder / "warm-up.json"
    key = [source_digest(), *devices]
    count = _recorded(record, key)
    if count:
        _report(quiet, f"all {count} kernels are compiled, in {folder}")
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
        message = f"{problems[0]}; what is missing is compiled when it is first needed"
        raise StreamerError(message)
    with contextlib.suppress(OSError):
        record.write_text(json.dumps({"key": key, "files": sorted(files)}))
    seconds = time.monotonic() - began
    _report(quiet, f"{compiled} kernels compiled in {seconds:.0f} s, {len(files)} are in {folder}")


def _report(quiet: bool, line: str) -> None:
    if not quiet:
        say(line)


def _recorded(record: Path, key: list[str]) -> int:
    """How many kernels an earlier run has compiled; 0 if any has changed or is missing."""
    try:
        found = json.loads(record.read_text())
        if found["key"] == key and all(os.path.exists(file) for file in found["files"]):
            return len(found["files"])
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return 0


def _outcomes(listed: list[Job], processes: int, quiet: bool) -> Iterator[tuple[Job, Compiled]]:
    """Each job with its outcome, as they end."""
    from streamer.cli.progress import progress
    from streamer.errors import StreamerError

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
            message = "a process that compiles was ended; is memory short? try fewer --threads"
            raise StreamerError(message) from None


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
    import signal

    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.chdir(folder)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1):
        os.dup2(nowhere, stream)
    os.dup2(os.open("errors", os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
    shared_compiling.current = shared_compiling.SharedCompiling(folder)


def _run(job: Job) -> Compiled:
    shared = shared_compiling.current
    assert shared is not None
    before = shared.compiled
    code = run_job(job)
    return Compiled(code, shared.compiled - before, frozenset(shared.files), shared.problem)

"""From files to answers: whole commands, each a process, beside other programs if installed.

The files are made here (``read_files``). ``--profile`` shows what limits a command.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from benchmarks.file_peers import found_peers
from benchmarks.inputs import Codes, random_codes
from benchmarks.processes import measured, streamer_command
from benchmarks.read_files import FORMATS, write_reads
from benchmarks.serving import serving
from benchmarks.suite import Row, Sheet
from trie.codes import decode

K = 31
LENGTHS = (150, 10_000)
_GENOME_BASES = 5_000_000
_SEED = 7

_COMMANDS = {
    **{name: ["match", "--report", name] for name in ("reads", "intervals", "targets")},
    "filter": ["filter", "--keep"],
}
_COMPARED = ("fq", "fq.gz")
_PEERS = ("kraken2", "bbduk", "deacon")

Run = Callable[[], dict[str, float]]


def tables(
    device: str, bases: int = 1_000_000_000, threads: int = 0, repeats: int = 2
) -> list[Sheet]:
    """Files of ``bases`` bases; commands with this many threads, 0 for every core."""
    given = device, bases, threads
    return [
        Sheet("Whole commands", whole, *given, repeats, section="commands"),
        Sheet("Where the time went", stages, *given, section="profile"),
    ]


def whole(device: str, bases: int, threads: int, repeats: int) -> Iterator[Row]:
    """The best of ``repeats`` runs; the commands of a file take turns."""
    with ExitStack() as stack:
        at = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        genome = _write_genome(at / "genome.fa")
        peers = found_peers(at / "genome.fa", K, threads)
        daemon = [f"dictionary.k={K}", f'dictionary.sources=["{at / "genome.fa"}"]']
        endpoints, _ = stack.enter_context(serving(at, daemon))
        for length in LENGTHS:
            for suffix in FORMATS:
                reads = at / f"reads.{suffix}"
                write_reads(reads, genome, bases, length, _SEED)
                runs: dict[str, Run] = {
                    name: partial(measured, _command(name, reads, device, threads, "--quiet"))
                    for name in _taking(_COMMANDS, suffix)
                }
                sent = streamer_command("send", reads, "--to", endpoints["ingest"], "--quiet")
                runs["send"] = partial(measured, sent)
                if suffix in _COMPARED:
                    runs |= {peer.name: partial(peer.run, reads) for peer in peers}
                yield from _rows(runs, reads.name, length, bases, repeats)
                reads.unlink()


def _taking(names: Iterable[str], suffix: str) -> list[str]:
    """The commands that accept such files: ``filter`` does not accept alignments."""
    return [name for name in names if (name, suffix) != ("filter", "bam")]


def _rows(runs: dict[str, Run], file: str, length: int, bases: int, repeats: int) -> Iterator[Row]:
    best: dict[str, dict[str, float]] = {}
    for _ in range(max(repeats, 1)):
        for name, run in runs.items():
            found = run()
            if name not in best or found["seconds"] < best[name]["seconds"]:
                best[name] = found
    for name, found in best.items():
        row: Row = {"file": file, "read length": length, "command": name}
        row |= found | {"bases/s": bases / found["seconds"]}
        for peer in _PEERS:
            ours = peer in best and name not in _PEERS
            row[f"x {peer}"] = best[peer]["seconds"] / found["seconds"] if ours else None
        yield row


def stages(device: str, bases: int, threads: int) -> Iterator[Row]:
    """The tables of ``--profile``: seconds of all threads in each stage, and of waiting."""
    with tempfile.TemporaryDirectory() as folder:
        at = Path(folder)
        genome = _write_genome(at / "genome.fa")
        for length in LENGTHS:
            for suffix in FORMATS:
                reads = at / f"reads.{suffix}"
                write_reads(reads, genome, bases, length, _SEED)
                for name in _taking(("reads", "filter"), suffix):
                    command = _command(name, reads, device, threads, "--profile")
                    with (at / "profile").open("w+b") as errors:
                        measured(command, errors=errors)
                        errors.seek(0)
                        lines = errors.read().decode().splitlines()
                    given = {"file": reads.name, "read length": length, "command": name}
                    yield from (given | row for row in _profile(lines))
                reads.unlink()


def _profile(lines: list[str]) -> Iterator[Row]:
    """The rows of a profile; the last one says what limited the command."""
    at = next(i for i, line in enumerate(lines) if " busy s " in line)
    end = next(i for i, line in enumerate(lines) if " bases in " in line)
    for line in lines[at + 1 : end]:
        _, stage, busy, input_, output, *_, rate = line.split()
        yield {
            "stage": stage, "busy s": float(busy), "input s": float(input_),
            "output s": float(output), "bases/s": 1e6 * float(rate.replace(",", "")),
        }  # fmt: skip
    _, _, bound = lines[end].rpartition(": ")
    yield {"stage": bound, "busy s": None, "input s": None, "output s": None, "bases/s": None}


def _command(name: str, reads: Path, device: str, threads: int, *more: str) -> list[str]:
    """A command of this program; its rows or records go to standard output, which is dropped."""
    command, *options = _COMMANDS[name]
    dictionary = ["-d", reads.parent / "genome.fa", "-k", K]
    where = ["--device", device, "--threads", threads]
    return streamer_command(command, reads, *dictionary, *options, *where, *more)


def _write_genome(path: Path) -> Codes:
    """A FASTA file of one record, and its codes."""
    genome = random_codes(_GENOME_BASES, _SEED)
    path.write_bytes(b">genome\n" + decode(genome).tobytes() + b"\n")
    return genome

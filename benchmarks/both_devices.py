"""Whole commands on the CPU and on a GPU, each a process, beside what ``--device auto`` says.

For each the wall seconds on either device, those that ``auto`` predicts, and what it takes. The
answers of the two devices are compared. Random data, made with a seed.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from xopen import xopen

from benchmarks.commands import changed_copy, strain_of, write_long, write_records
from benchmarks.inputs import LETTERS, Codes, random_codes
from benchmarks.processes import streamer_command
from benchmarks.suite import Row, Sheet
from trie.cpu.threads import usable_cores

_READ = 150
_BLOCK = 100_000  # reads that are made at once
_QUALITIES = np.frombuffer(b"#,:FFFFF", np.uint8)
_PREDICTED = re.compile(r"about (\S+) s, (?:with a GPU|on the CPU) (\S+) s")
_SEED = 21


def tables(device: str, bases: int) -> list[Sheet]:
    """Reads and texts of ``bases``, or parts of it."""
    return [Sheet("Commands on the CPU and on a GPU", rows, bases)]


def rows(bases: int) -> Iterator[Row]:
    """Rows of all jobs."""
    with tempfile.TemporaryDirectory() as folder:
        at = Path(folder)
        listed = _jobs(_files(at, bases))
        # kernels are compiled, files are in memory
        with ThreadPoolExecutor(max(1, usable_cores() // 2)) as pool:
            list(pool.map(_compile, [(*job, d) for _, *job in _small(at) for d in ("cpu", "cuda")]))
        for name, *job in listed:
            times, answers = {}, set()
            for device in ("cpu", "cuda"):
                times[device], answer = _run([*job, "--device", device])
                answers.add(answer)
            chosen, cpu, cuda = _asked(job)
            wrong = times[chosen] > 1.2 * min(times.values())
            yield {
                "command": name, "CPU": times["cpu"], "CUDA": times["cuda"],
                "predicted CPU": cpu, "predicted CUDA": cuda, "auto takes": chosen,
                "": "slower" if wrong else "",
                "answers": "equal" if len(answers) == 1 else "DIFFER",
            }  # fmt: skip


def _files(at: Path, total: int) -> Path:
    """Write the inputs of the jobs, and small ones of the same names in ``small``."""
    for folder, bases in ((at, total), (at / "small", 200_000)):
        folder.mkdir(exist_ok=True)
        strain = min(4_639_675, bases)
        genome = random_codes(strain, _SEED)
        rng = np.random.default_rng(_SEED)
        panel = random_codes(min(bases, 1_000_000), _SEED + 1).reshape(100, -1)
        write_records(folder / "genome.fa", [genome])
        write_records(folder / "panel.fa", panel)
        write_records(folder / "barcodes.fa", random_codes(96 * 24, _SEED + 2).reshape(96, 24))
        for number in (1, 96, 960):
            patterns = random_codes(number * 24, _SEED + 3).reshape(number, 24)
            write_records(folder / f"patterns{number}.fa", patterns)
        write_records(folder / "virus.fa", [random_codes(29_903, _SEED + 4)])
        write_records(folder / "yeast.fa", [random_codes(min(12_157_105, bases), _SEED + 5)])
        write_records(folder / "strain.fa", [strain_of(genome, rng)])
        for name, rate in (("near", 0.001), ("far", 0.01)):
            write_records(folder / f"{name}.fa", [changed_copy(genome, rate, rng)])
        write_long(folder / "text.fa", bases)
        _reads(folder / "reads.fq", genome, bases, _READ, 0.01, rng, every=2)
        for name, size, length, errors in (
            ("panel", bases // 10, _READ, 0.05),
            ("long", min(2_300_000, bases), 5_000, 0.08),
            ("nanopore", bases // 10, 5_000, 0.08),
        ):
            _reads(folder / f"{name}.fq", panel.ravel(), size, length, errors, rng, every=20)
        for name in ("reads", "nanopore"):
            data = (folder / f"{name}.fq").read_bytes()
            with xopen(folder / f"{name}.fq.gz", "wb", compresslevel=1, threads=8) as file:
                file.write(data)
    return at


def _reads(
    path: Path, text: Codes, bases: int, length: int, errors: float, rng: Any, *, every: int
) -> None:
    """Reads of one length as FASTQ, one of ``every`` from the text, with that share of changes."""

    head = len(b"@r00000000\n")
    with path.open("wb") as file:
        for first in range(0, max(1, bases // length), _BLOCK):
            number = min(_BLOCK, max(1, bases // length) - first)
            made = rng.integers(0, 4, (number, length), np.uint8)
            starts = rng.integers(0, text.size - length, len(made[::every]))
            made[::every] = text[starts[:, None] + np.arange(length)]
            spots = rng.integers(0, made.size, int(made.size * errors))
            made.ravel()[spots] ^= np.uint8(1)
            rows = np.empty((number, head + 2 * length + 4), np.uint8)
            digits = (first + np.arange(number))[:, None] // 10 ** np.arange(7, -1, -1) % 10
            rows[:, :2] = np.frombuffer(b"@r", np.uint8)
            rows[:, 2:10] = digits + ord("0")
            rows[:, 10] = ord("\n")
            rows[:, head : head + length] = LETTERS[made]
            rows[:, head + length : head + length + 3] = np.frombuffer(b"\n+\n", np.uint8)
            rows[:, head + length + 3 : -1] = _QUALITIES[rng.integers(0, 8, made.shape, np.uint8)]
            rows[:, -1] = ord("\n")
            file.write(rows.data)


def _jobs(at: Path) -> list[list[Any]]:
    """The names of the jobs and their arguments."""
    exact = ["-d", at / "genome.fa", "-k", 31, "--report", "reads"]
    codes = ["-d", at / "barcodes.fa", "-k", 24, "--report", "best", "-D"]
    panel = ["-d", at / "panel.fa", "-k", 21, "--report", "best", "-D"]
    return [
        ["exact, FASTQ", "match", at / "reads.fq", *exact],
        ["exact, FASTQ.gz", "match", at / "reads.fq.gz", *exact],
        ["D=1, 96 barcodes, FASTQ", "match", at / "reads.fq", *codes, 1],
        ["D=1, 96 barcodes, FASTQ.gz", "match", at / "reads.fq.gz", *codes, 1],
        ["D=2, 96 barcodes, FASTQ.gz", "match", at / "reads.fq.gz", *codes, 2],
        ["D=3, 96 barcodes, FASTQ", "match", at / "reads.fq", *codes, 3],
        ["D=2, 96 barcodes, Nanopore .gz", "match", at / "nanopore.fq.gz", *codes, 2],
        ["D=1, panel", "match", at / "panel.fq", *panel, 1],
        ["D=2, panel", "match", at / "panel.fq", *panel, 2],
        ["D=3, panel, Nanopore", "match", at / "long.fq", *panel, 3],
        ["ltb D=2, 96 barcodes", "match", at / "panel.fq", "-d", at / "barcodes.fa", "-k", 24,
         "-D", 2, "--semantics", "ltb"],
        ["grow", "match", at / "panel.fq", "-d", at / "panel.fa", "-k", 21, "--mode", "grow",
         "--report", "reads"],
        *(
            [f"asm, {n} patterns", "asm", at / "text.fa", "--patterns", at / f"patterns{n}.fa",
             "-k", 3]
            for n in (1, 96, 960)
        ),
        ["hamming, 96 patterns", "hamming", at / "text.fa", "--patterns", at / "patterns96.fa",
         "-k", 3],
        ["primer, virus x yeast, k=6", "primer", at / "virus.fa", at / "yeast.fa", "-k", 6],
        ["primer, virus x bacterium, k=4", "primer", at / "virus.fa", at / "genome.fa", "-k", 4],
        ["lcs, two strains", "lcs", at / "strain.fa", at / "genome.fa"],
        ["lcs, 1 % changed", "lcs", at / "far.fa", at / "genome.fa"],
        ["lcs, 0.1 % changed", "lcs", at / "near.fa", at / "genome.fa"],
    ]  # fmt: skip


def _small(at: Path) -> list[list[Any]]:
    return _jobs(at / "small")


def _compile(job: tuple[Any, ...]) -> None:
    *arguments, device = job
    _run([*arguments, "--device", device])


def _run(arguments: list[Any]) -> tuple[float, str]:
    """Wall seconds of a command, and a digest of its rows."""
    began = time.perf_counter()
    digest = hashlib.blake2b()
    with subprocess.Popen(streamer_command(*arguments, "--quiet"), stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        while block := os.read(child.stdout.fileno(), 1 << 20):
            digest.update(block)
    if child.returncode:
        raise subprocess.CalledProcessError(child.returncode, list(map(str, arguments)))
    return time.perf_counter() - began, digest.hexdigest()


def _asked(job: list[Any]) -> tuple[str, float | None, float | None]:
    """What ``auto`` takes, with its predictions for the CPU and for a GPU."""
    with subprocess.Popen(
        streamer_command(*job, "--device", "auto"),
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    ) as child:  # fmt: skip
        assert child.stderr is not None
        for line in child.stderr:
            if found := _PREDICTED.search(line):
                child.kill()
                own, other = map(float, found.groups())
                return ("cpu", own, other) if "with a GPU" in line else ("cuda", other, own)
    return "cuda", None, None

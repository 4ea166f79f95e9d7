"""Shared by the tests of jobs: a daemon's configuration with files, and jobs that take long."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

from streamer.client import Control
from tests import forked
from tests.daemon_kit import random_dna, settings, write_fasta
from tests.waiting import until

LONG = ["lcs", "--method=dp", "long_a.fa", "long_b.fa"]
"""Enough cells for some minutes."""

PATTERN = "ACGTTGCAGGATCC"


def job_folder(folder: Path) -> str:
    """A folder with ``data`` for jobs, and a configuration that lets them read it."""
    rng = random.Random(19)
    data = folder / "data"
    data.mkdir()
    write_fasta(data / "long_a.fa", [("a", random_dna(rng, 4000) * 100)])
    write_fasta(data / "long_b.fa", [("b", random_dna(rng, 4000) * 100)])
    one = random_dna(rng, 1000)
    other = "".join(rng.choice("ACGT") if rng.random() < 0.1 else base for base in one)
    write_fasta(data / "one.fa", [("one", one)])
    write_fasta(data / "other.fa", [("other", other)])
    texts = [(f"text{i}", one[:i] + PATTERN + other[i : 3 * i]) for i in range(0, 900, 7)]
    write_fasta(data / "texts.fa", texts)
    write_fasta(data / "patterns.fa", [("p1", PATTERN), ("p2", one[50:64])])
    write_fasta(folder / "outside.fa", [("secret", one)])
    path = settings(folder, "k = 11\nmode = 'grow'")
    with open(path, "a") as file:
        file.write(
            '[journal]\ndirectory = "journal"\ndurability = "fsync"\n'
            '[jobs]\ndirectories = ["data"]\nresults = "results"\n'
            "nice = 1\n"  # at 19 they would wait for all other tests
        )
    return path


def wait_for_job(control: Control, id_: str, *states: str) -> dict[str, Any]:
    """The job once it is in one of these states."""
    until(lambda: control.job(id_)["state"] in states, f"job {id_}: {states}")
    return control.job(id_)


def processes_of_jobs(results: Path) -> list[int]:
    """All processes on this machine that write into this folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
            words = [*map(os.fsencode, forked.COMMANDS.get(int(process.name), ()))] or words
        except OSError:
            continue
        if b"streamer.cli.job_child" in words and any(
            word.startswith(os.fsencode(results)) for word in words
        ):
            found.append(int(process.name))
    return found

"""Batch jobs of a soak, one after the other, some cancelled; each command has a fixed result."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.daemon_kit import random_dna, write_fasta

LINES = (
    ("asm", "-k", "3", "--patterns", "patterns.fa", "texts.fa"),
    ("hamming", "-k", "3", "--patterns", "patterns.fa", "texts.fa"),
    ("primer", "-k", "4", "one.fa", "other.fa"),
    ("lcs", "one.fa", "other.fa"),
)
CANCELLED = 0.25
"""The share of jobs to cancel, unless they have ended by then."""

_ENDED = ("done", "failed", "cancelled", "interrupted")

Request = tuple[str, dict[str, Any]]


def write_inputs(folder: Path, rng: random.Random) -> None:
    """The files of ``LINES``, in a new folder."""
    folder.mkdir()
    one, other = random_dna(rng, 2_000), random_dna(rng, 20_000)
    write_fasta(folder / "one.fa", [("one", one)])
    write_fasta(folder / "other.fa", [("other", other)])
    write_fasta(folder / "texts.fa", [(f"t{i}", random_dna(rng, 20_000)) for i in range(200)])
    write_fasta(folder / "patterns.fa", [(f"p{i}", random_dna(rng, 24)) for i in range(20)])


class SoakJobs:
    """Makes requests to control and processes the replies, without I/O.

    ended: jobs by their last state.
    """

    def __init__(self, folder: Path, rng: random.Random) -> None:
        self.ended = Counter[str]()
        self._folder, self._rng = str(folder), rng
        self._submitted = 0
        self._id = ""
        self._asked = self._cancel = False
        self._sizes: dict[str, int] = {}

    @property
    def active(self) -> bool:
        """Whether a job waits or runs."""
        return bool(self._id) or self._asked

    def submit(self) -> Request:
        """The request for the next job; call it while none is active."""
        line = list(LINES[self._submitted % len(LINES)])
        self._submitted += 1
        self._asked = True
        self._cancel = self._rng.random() < CANCELLED
        return "submit", {"line": line, "folder": self._folder}

    def follow(self) -> Request | None:
        """A request about the active job, None while a reply is due."""
        if self._asked or not self._id:
            return None
        self._asked = True
        command = "cancel" if self._cancel else "job"
        self._cancel = False
        return command, {"job": self._id}

    def hear(self, command: str, reply: Mapping[str, Any]) -> None:
        """Process a reply; AssertionError if the job did not go as it should."""
        self._asked = False
        if command == "cancel" and reply.get("reason") == "conflict":
            return  # the job ended first
        assert reply["ok"], f"{command} was refused: {reply}"
        job = reply["job"]
        self._id = job["id"]
        if job["state"] not in _ENDED:
            return
        self._id = ""
        self.ended[job["state"]] += 1
        assert job["state"] in ("done", "cancelled"), f"a job did not end well: {job}"
        if job["state"] == "done":
            before = self._sizes.setdefault(job["command"], job["bytes"])
            assert job["bytes"] == before > 0, f"a job has another result than before: {job}"

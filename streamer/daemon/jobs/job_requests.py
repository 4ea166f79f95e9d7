"""The fields of requests about jobs, and whose jobs a client may ask about."""

from __future__ import annotations

import os

from streamer.daemon.core.jobs import Job
from streamer.daemon.core.rights import Rights
from streamer.protocol.header import Header, Reason, WireError, integer

ALL_JOBS = "all-jobs"
"""The command that a key's ``control`` must allow to see jobs of others."""

MAX_LINE_BYTES = 16_384
MAX_KEY_BYTES = 64
MAX_FOLDER_BYTES = 4096
"""PATH_MAX of Linux, which includes the NUL at the end."""


def sees(rights: Rights, job: Job) -> bool:
    """Whether a client may ask about a job: its own, or any with ALL_JOBS."""
    return job.owner.key == rights.key or rights.may_order(ALL_JOBS)


def limit_of(rights: Rights, job: Job) -> int:
    """The limit on the jobs of the owner, as far as the requesting client knows it."""
    return rights.limits.jobs if job.owner.key == rights.key else 0


def line_of(request: Header) -> tuple[str, ...]:
    """The command and its arguments; WireError if they are malformed."""
    line = request.get("line")
    if not isinstance(line, list) or not line or not all(isinstance(word, str) for word in line):
        problem = "field 'line' must be an array of strings: a command and its arguments"
        raise WireError(Reason.MALFORMED, problem)
    # plus a blank between words, as in a shell
    if sum(1 + len(word.encode(errors="replace")) for word in line) - 1 > MAX_LINE_BYTES:
        problem = f"the command line has more than {MAX_LINE_BYTES} bytes: use files"
        raise WireError(Reason.TOO_LARGE, problem)
    if any("\0" in word for word in line):
        raise WireError(Reason.MALFORMED, "the command line holds a NUL")
    return tuple(line)


def key_of(request: Header) -> str:
    """The key that the client made up for what it asks for, or empty.

    WireError if it is malformed.
    """
    key = request.get("key", "")
    if not isinstance(key, str) or len(key.encode(errors="replace")) > MAX_KEY_BYTES:
        problem = f"field 'key' must be a text of at most {MAX_KEY_BYTES} bytes"
        raise WireError(Reason.MALFORMED, problem)
    return key


def attempt_of(request: Header) -> int | None:
    """The number of the run that a client asks for, if it does; WireError if it is malformed."""
    return integer(request, "attempt") if "attempt" in request else None


def folder_of(request: Header) -> str:
    """The folder where relative paths start, or empty; WireError if it is malformed."""
    folder = request.get("folder", "")
    if not isinstance(folder, str) or (folder and not os.path.isabs(folder)):
        raise WireError(Reason.MALFORMED, "field 'folder' must be an absolute path")
    if len(folder.encode(errors="replace")) >= MAX_FOLDER_BYTES:
        problem = f"field 'folder' has {MAX_FOLDER_BYTES} bytes or more"
        raise WireError(Reason.TOO_LARGE, problem)
    return folder

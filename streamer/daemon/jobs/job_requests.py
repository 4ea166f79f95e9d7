"""The fields of requests about jobs, and whose jobs a client may ask about.

What a job may read: regular files below the folders of ``jobs.directories``.
"""

import os
import stat
from collections.abc import Callable, Sequence
from typing import NamedTuple

from streamer.daemon.core.jobs import Job
from streamer.daemon.core.rights import Rights
from streamer.protocol.wire import Header, Reason, WireError, integer, malformed

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
        raise malformed("field 'line' must be an array of strings: a command and its arguments")
    # plus a blank between words, as in a shell
    if sum(1 + len(word.encode(errors="replace")) for word in line) - 1 > MAX_LINE_BYTES:
        raise WireError(
            Reason.TOO_LARGE, f"the command line has more than {MAX_LINE_BYTES} bytes: use files"
        )
    if any("\0" in word for word in line):
        raise malformed("the command line holds a NUL")
    return tuple(line)


def key_of(request: Header) -> str:
    """The key that the client made up for what it asks for, or empty.

    WireError if it is malformed.
    """
    key = request.get("key", "")
    if not isinstance(key, str) or len(key.encode(errors="replace")) > MAX_KEY_BYTES:
        raise malformed(f"field 'key' must be a text of at most {MAX_KEY_BYTES} bytes")
    return key


def attempt_of(request: Header) -> int | None:
    """The number of the run that a client asks for, if it does; WireError if it is malformed."""
    return integer(request, "attempt") if "attempt" in request else None


def folder_of(request: Header) -> str:
    """The folder where relative paths start, or empty; WireError if it is malformed."""
    folder = request.get("folder", "")
    if not isinstance(folder, str) or (folder and not os.path.isabs(folder)):
        raise malformed("field 'folder' must be an absolute path")
    if len(folder.encode(errors="replace")) >= MAX_FOLDER_BYTES:
        raise WireError(Reason.TOO_LARGE, f"field 'folder' has {MAX_FOLDER_BYTES} bytes or more")
    return folder


class ParsedLine(NamedTuple):
    """A command line that its command accepts.

    arguments: its arguments, rebuilt from the parsed ones, with inputs as ``placed`` returns them.
    Only these are run, so what runs is what was checked. inputs: the files that it reads, as given.
    """

    arguments: Sequence[str]
    inputs: Sequence[str]
    device: str


Parse = Callable[[Sequence[str], str], ParsedLine]
"""Checks a command and its arguments, given the folder where relative paths start.

StreamerError if no job can be made of them.
"""


def start_of(folder: str) -> str:
    """The prefix that ``placed`` adds to a relative path; empty without a folder."""
    return os.path.join(folder, ".", "") if folder else ""


def placed(path: str, folder: str) -> str:
    """The path of a file; without the prefix ``start_of(folder)`` it is the path as given."""
    return path if os.path.isabs(path) else start_of(folder) + path


def check_inputs(
    inputs: Sequence[str], folder: str, directories: Sequence[str], private: Sequence[str]
) -> None:
    """WireError for the first input that a job may not read.

    folder: where relative paths start. private: the daemon's own folders and files, which no job
    may read. Nothing is revealed about files outside of ``directories``, not even that they exist.
    """
    allowed = [os.path.realpath(directory) for directory in directories]
    own = [os.path.realpath(path) for path in private]
    for name in inputs:
        if name == "-":
            raise WireError(Reason.DENIED, "a job has no standard input: name a file")
        try:
            _check(placed(name, folder), allowed, own)
        except OSError as error:
            raise WireError(
                Reason.SOURCES, f"{name}: cannot be read: {(error.strerror or str(error)).lower()}"
            ) from None
        except ValueError:
            raise malformed(f"{name!r} is not a path") from None
        except WireError as error:
            raise error.about(name) from None


def _check(path: str, allowed: Sequence[str], own: Sequence[str]) -> None:
    if not os.path.isabs(path):
        raise WireError(Reason.SOURCES, "is a relative path, but no folder is given")
    real = os.path.realpath(path)
    depth = _depth(real, allowed)
    if not depth:
        raise WireError(Reason.DENIED, "is not below jobs.directories, or a link leads out of them")
    # the innermost folder decides: jobs may read a folder of theirs within one of the daemon
    if _depth(real, own) >= depth:
        raise WireError(Reason.DENIED, "belongs to the daemon: to its results, journal or keys")
    if not stat.S_ISREG(os.stat(real).st_mode):
        raise WireError(Reason.SOURCES, "is not a regular file")
    if not os.access(real, os.R_OK):
        raise WireError(Reason.SOURCES, "is not readable by the daemon")


def _depth(real: str, folders: Sequence[str]) -> int:
    """The length of the innermost folder that contains a path, in characters; 0 if none does."""
    around = [folder for folder in folders if os.path.commonpath([real, folder]) == folder]
    return max(map(len, around), default=0)

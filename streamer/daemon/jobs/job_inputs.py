"""What a job may read: regular files below the folders of ``jobs.directories``."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence
from typing import NamedTuple

from streamer.protocol.header import Reason, WireError


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


def placed(given: str, folder: str) -> str:
    """The path of a file; without the prefix ``start_of(folder)`` it is the path as given."""
    return given if os.path.isabs(given) else start_of(folder) + given


def check_inputs(
    inputs: Sequence[str], folder: str, directories: Sequence[str], private: Sequence[str]
) -> None:
    """WireError for the first input that a job may not read.

    folder: where relative paths start. private: the daemon's own folders and files, which no job
    may read. Nothing is revealed about files outside of ``directories``, not even that they exist.
    """
    allowed = [os.path.realpath(directory) for directory in directories]
    own = [os.path.realpath(path) for path in private]
    for given in inputs:
        if given == "-":
            raise WireError(Reason.DENIED, "a job has no standard input: name a file")
        try:
            _check(placed(given, folder), allowed, own)
        except OSError as error:
            problem = f"{given}: cannot be read: {(error.strerror or str(error)).lower()}"
            raise WireError(Reason.SOURCES, problem) from None
        except ValueError:
            raise WireError(Reason.MALFORMED, f"{given!r} is not a path") from None
        except WireError as error:
            raise error.about(given) from None


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

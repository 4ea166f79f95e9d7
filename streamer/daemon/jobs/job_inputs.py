"""What a job may read: regular files below the folders of ``jobs.directories``."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence
from typing import NamedTuple

from streamer.protocol.header import Reason, WireError


class ParsedLine(NamedTuple):
    """A command line that its command takes.

    arguments: its arguments, written anew from what was parsed, with inputs as ``placed`` places
    them. Only these are run: whatever else is done to a line, it means what was checked. inputs:
    the files that it reads, as given.
    """

    arguments: Sequence[str]
    inputs: Sequence[str]
    device: str


Parse = Callable[[Sequence[str], str], ParsedLine]
"""Checks a command and its arguments, and the folder that relative paths start from.

StreamerError if no job can be made of them.
"""


def start_of(folder: str) -> str:
    """What stands before a relative path once it is ``placed``; empty without a folder."""
    return os.path.join(folder, ".", "") if folder else ""


def placed(given: str, folder: str) -> str:
    """Where a file is; ``start_of(folder)`` removed gives the path as given."""
    return given if os.path.isabs(given) else start_of(folder) + given


def check_inputs(
    inputs: Sequence[str], folder: str, directories: Sequence[str], private: Sequence[str]
) -> None:
    """Fail unless all may be read; WireError for the first that may not.

    folder: that relative paths start from. private: the daemon's own folders and files, which no
    job reads. Of files outside of ``directories`` nothing is told, not even whether they are there.
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
            raise WireError(Reason.MALFORMED, f"{given!r} is no path") from None
        except WireError as error:
            raise error.about(given) from None


def _check(path: str, allowed: Sequence[str], own: Sequence[str]) -> None:
    if not os.path.isabs(path):
        raise WireError(Reason.SOURCES, "is a relative path, and no folder that it starts from")
    real = os.path.realpath(path)
    depth = _depth(real, allowed)
    if not depth:
        raise WireError(Reason.DENIED, "is not below jobs.directories, or a link leads out of them")
    # the innermost folder decides: of one for jobs within one of the daemon jobs may read
    if _depth(real, own) >= depth:
        raise WireError(Reason.DENIED, "is the daemon's own: of its results, journal or keys")
    if not stat.S_ISREG(os.stat(real).st_mode):
        raise WireError(Reason.SOURCES, "is no regular file")
    if not os.access(real, os.R_OK):
        raise WireError(Reason.SOURCES, "is not readable for the daemon")


def _depth(real: str, folders: Sequence[str]) -> int:
    """Characters of the innermost of the folders that a path is in, 0 if it is in none."""
    around = [folder for folder in folders if os.path.commonpath([real, folder]) == folder]
    return max(map(len, around), default=0)

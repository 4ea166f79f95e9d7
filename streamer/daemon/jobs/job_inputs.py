"""What a job may read: regular files below the folders of ``jobs.directories``."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence
from typing import NamedTuple

from streamer.protocol.header import Reason, WireError


class ParsedLine(NamedTuple):
    """A command line that its command takes. inputs: the files that it reads, as given."""

    inputs: Sequence[str]
    device: str


Parse = Callable[[Sequence[str]], ParsedLine]
"""Checks a command and its arguments; StreamerError if no job can be made of them."""


def check_inputs(inputs: Sequence[str], folder: str, directories: Sequence[str]) -> None:
    """Fail unless all may be read; WireError for the first that may not.

    folder: that relative paths start from. Of what lies elsewhere nothing is told, not even whether
    it is there.
    """
    allowed = [os.path.realpath(directory) for directory in directories]
    for given in inputs:
        if given == "-":
            raise WireError(Reason.DENIED, "a job has no standard input: name a file")
        path = os.path.join(folder, given)
        try:
            _check(path, allowed)
        except OSError as error:
            problem = f"{given}: cannot be read: {(error.strerror or str(error)).lower()}"
            raise WireError(Reason.SOURCES, problem) from None
        except ValueError:
            raise WireError(Reason.MALFORMED, f"{given!r} is no path") from None
        except WireError as error:
            raise error.about(given) from None


def _check(path: str, allowed: Sequence[str]) -> None:
    if not os.path.isabs(path):
        raise WireError(Reason.SOURCES, "is a relative path, and no folder that it starts from")
    real = os.path.realpath(path)
    if not any(os.path.commonpath([real, directory]) == directory for directory in allowed):
        raise WireError(Reason.DENIED, "is not below jobs.directories, or a link leads out of them")
    if not stat.S_ISREG(os.stat(real).st_mode):
        raise WireError(Reason.SOURCES, "is no regular file")
    if not os.access(real, os.R_OK):
        raise WireError(Reason.SOURCES, "is not readable for the daemon")

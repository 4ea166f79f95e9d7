"""Errors with one-line messages for the user, and the exit codes of the command line."""

import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

EXIT_DATA = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
EXIT_PIPE = 141


class StreamerError(Exception):
    """An error whose text is one line for the user: what, where, and what to do."""

    exit_code = EXIT_DATA

    def lines(self) -> list[str]:
        """Return the message, one line per fault."""
        return [str(self)]


class ReportedError(StreamerError):
    """Ends a command with the exit code of an error that has been logged."""

    def __init__(self, error: StreamerError) -> None:
        self.exit_code = error.exit_code
        super().__init__(str(error))

    def lines(self) -> list[str]:
        """Return no lines."""
        return []


class UsageError(StreamerError):
    """An option that is unknown, out of range, or in conflict with another."""

    exit_code = EXIT_USAGE


def check_choice(option: str, value: str, choices: Iterable[str]) -> None:
    """UsageError for a value of an option that is none of its choices."""
    names = list(choices)
    if value not in names:
        raise UsageError(f"unknown {option} '{value}'; there are {', '.join(names)}")


class SnapshotTooLargeError(StreamerError):
    """A dictionary whose trie has more nodes than a snapshot can number."""


class ReaderGoneError(StreamerError):
    """The output pipe has lost its reader: there is nothing to report or to do."""

    exit_code = EXIT_PIPE


class PlacedError(StreamerError):
    """A problem at a place in a file. place: its parts, from large to small; None if unknown."""

    def __init__(self, problem: str, file: str, place: Mapping[str, object]) -> None:
        self.problem, self.file = problem, file
        known = ", ".join(f"{what} {where}" for what, where in place.items() if where is not None)
        super().__init__(": ".join(filter(None, [file, known, problem])))


class DataError(PlacedError):
    """Invalid content of a file, with its place: file, record (from 1, and name), position."""

    def __init__(
        self,
        problem: str,
        *,
        file: str,
        record: int | None = None,
        name: str | None = None,
        position: int | None = None,
    ) -> None:
        self.record, self.name, self.position = record, name, position
        shown = f"{record} ({name})" if name and record is not None else record
        super().__init__(problem, file, {"record": shown, "position": position})

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle it with its place, to be raised in another process."""
        place = {key: vars(self)[key] for key in ("file", "record", "name", "position")}
        return partial(DataError, self.problem, **place), ()


class ConfigError(StreamerError):
    """All faults of a configuration, each as (place, key path or "", what is wrong).

    place: ``FILE:LINE``, ``--set table.key=value``, or the file if no line can be named.
    """

    def __init__(self, faults: list[tuple[str, str, str]]) -> None:
        self.faults = faults
        super().__init__("; ".join(self.lines()))

    def lines(self) -> list[str]:
        """Return one line per fault."""
        return [
            printable(f"{place}: {key}: {what}" if key else f"{place}: {what}")
            for place, key, what in self.faults
        ]


def printable(line: str) -> str:
    """Return a line or a name with unprintable characters escaped."""
    if line.isprintable():
        return line
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in line)


def _to_stderr(line: str) -> None:
    print(f"streamer: warning: {printable(line)}", file=sys.stderr)


on_warning: Callable[[str], object] = _to_stderr
"""Takes each warning; the daemon sends them to its log."""

_warned: set[str] = set()


def warn(line: str, once: str | None = None) -> None:
    """Report what is odd about an input that can be read, once for each ``once`` (or line)."""
    if (once or line) not in _warned:
        _warned.add(once or line)
        on_warning(line)


def start_warnings() -> None:
    """Send warnings to standard error, also those that were reported before."""
    global on_warning
    on_warning = _to_stderr
    _warned.clear()

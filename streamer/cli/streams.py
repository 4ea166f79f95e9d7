"""The standard streams of a process whose readers may go, and the signals that end it."""

from __future__ import annotations

import codecs
import io
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TextIO

from streamer.errors import EXIT_DATA, ReaderGoneError
from trie.new_file import remove_unfinished

# how a stream writes what its encoding lacks, such as a name that another client has given
_ESCAPED = "streamer.escaped"


class _Results(io.FileIO):
    """Standard output: ReaderGoneError for a pipe that nobody reads, names in other errors.

    What calls us gives BrokenPipeError an exit code of its own: typer and rich end with 1. After
    an error the rest is dropped, so that the interpreter does not fail again when it flushes.
    """

    _failed = False

    def write(self, data: Any) -> int:
        if self._failed:
            return len(data)
        try:
            return super().write(data)
        except BrokenPipeError:
            self._failed = True
            raise ReaderGoneError from None
        except OSError as error:
            self._failed = True
            error.filename = "standard output"
            raise


class _Messages(io.FileIO):
    """Standard error whose messages are lost where they cannot be written: the work goes on."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError:
            return len(data)


def open_streams() -> None:
    """Set up standard streams for this process; those that the caller has closed too.

    A closed stream fails when it is used, and only then.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            # the wrong way round for input and output; messages are lost
            flags = (os.O_WRONLY, os.O_RDONLY, os.O_WRONLY)[number]
            os.dup2(os.open(os.devnull, flags), number)
            setattr(sys, name, open(number, "w" if number > 0 else "r", closefd=False))
    codecs.register_error(_ESCAPED, _escaped)
    sys.stdout = _text(_Results(sys.stdout.fileno(), "w", closefd=False), sys.stdout)


def lose_messages() -> None:
    """From now on a message that cannot be written to standard error is dropped."""
    if sys.stderr is sys.__stderr__ and sys.stderr is not None:
        sys.stderr = _text(_Messages(sys.stderr.fileno(), "w", closefd=False), sys.stderr)


def flush_streams(code: int) -> int:
    """Write what is still buffered; the exit code, which is that of the work if it failed."""
    try:
        sys.stdout.flush()
    except ReaderGoneError as error:
        code = code or error.exit_code
    except OSError as error:
        print(f"streamer: error: {error.filename}: {error.strerror}", file=sys.stderr)
        code = code or EXIT_DATA
    try:
        sys.stderr.flush()
    except OSError:
        # the interpreter must not try again
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
    return code


def clean_up_on_signals() -> None:
    """SIGTERM and SIGHUP remove unfinished files, and then end the process as they always do."""

    def end(number: int, frame: FrameType | None) -> None:
        remove_unfinished()
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        # the caller may ignore it, as nohup does
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, end)


@contextmanager
def signals_noted() -> Iterator[list[int]]:
    """The first signal to end the process meanwhile is only noted: the caller stops, and saves.

    It is raised again at the end of the context. A second one ends the process at once.
    """
    noted: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        # the only one that gets signals
        yield noted
        return

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def note(number: int, frame: FrameType | None) -> None:
        restore()
        noted.append(number)

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    # SIG_IGN stays
    before = {n: handler for n in numbers if (handler := signal.getsignal(n)) is not signal.SIG_IGN}
    for number in before:
        signal.signal(number, note)
    try:
        yield noted
    finally:
        restore()
    if noted:
        signal.raise_signal(noted[0])


def _escaped(error: UnicodeError) -> tuple[str | bytes, int]:
    """What to write for what an encoding lacks: bytes of a name as they are, else an escape."""
    try:
        return codecs.lookup_error("surrogateescape")(error)
    except UnicodeError:
        return codecs.lookup_error("backslashreplace")(error)


def _text(raw: io.FileIO, like: TextIO) -> io.TextIOWrapper:
    """A text stream over ``raw`` with the encoding and buffering of another."""
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=like.encoding,
        errors=_ESCAPED if like.errors in ("strict", "surrogateescape") else like.errors,
        line_buffering=getattr(like, "line_buffering", False),
    )

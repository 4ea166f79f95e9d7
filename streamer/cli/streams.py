"""The standard streams of a process whose readers may go away, its signals, and progress bars."""

from __future__ import annotations

import codecs
import io
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Any, Literal, TextIO

from streamer.errors import EXIT_DATA, ReaderGoneError, printable
from trie.new_file import remove_unfinished

# how a stream writes characters that its encoding lacks, such as those in another client's name
_ESCAPED = "streamer.escaped"


class _Results(io.FileIO):
    """Standard output: raises ReaderGoneError if nobody reads the pipe, adds names to other errors.

    BrokenPipeError would not do, since typer and rich end with exit code 1 for it. After an error
    the rest is dropped, so that the interpreter does not fail again when it flushes.
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
    """Standard error; messages that cannot be written are lost, and the work continues."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError:
            return len(data)


def open_streams() -> None:
    """Set up the standard streams of this process, including those that the caller has closed.

    A closed stream fails only when it is used.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            # opened in the wrong direction, so that using it fails; messages are lost
            flags = (os.O_WRONLY, os.O_RDONLY, os.O_WRONLY)[number]
            os.dup2(os.open(os.devnull, flags), number)
            setattr(sys, name, open(number, "w" if number > 0 else "r", closefd=False))
    codecs.register_error(_ESCAPED, _escaped)
    sys.stdout = _text(_Results(sys.stdout.fileno(), "w", closefd=False), sys.stdout)


def lose_messages() -> None:
    """From now on, drop messages that cannot be written to standard error."""
    if sys.stderr is sys.__stderr__ and sys.stderr is not None:
        sys.stderr = _text(_Messages(sys.stderr.fileno(), "w", closefd=False), sys.stderr)


def flush_streams(code: int) -> int:
    """Write what is still buffered; returns the exit code, ``code`` if the work failed."""
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
        # the interpreter must not try to flush again
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
    return code


def clean_up_on_signals() -> None:
    """Have SIGTERM and SIGHUP remove unfinished files before they end the process as usual."""

    def end(number: int, frame: FrameType | None) -> None:
        remove_unfinished()
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        # keep it ignored if the caller did so, as nohup does
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, end)


@contextmanager
def signals_noted() -> Iterator[list[int]]:
    """In this context, only note the first signal that would end the process: the caller saves.

    The signal is raised again at the end of the context. A second one ends the process at once.
    """
    noted: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        # only the main thread gets signals
        yield noted
        return

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def note(number: int, frame: FrameType | None) -> None:
        restore()
        noted.append(number)

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    # ignored signals stay ignored
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
    """Replace characters that an encoding lacks: bytes of a name as they are, else an escape."""
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


SHOW_AFTER_SECONDS = 2.0

follow: Callable[[int, int | None], None] | None = None
"""In a job's process, takes the work done and the total in place of a bar."""


@contextmanager
def progress(
    label: str, total: int | None, *, quiet: bool, unit: Literal["bytes", "share"] = "bytes"
) -> Iterator[Callable[[int], None]]:
    """A function that takes the work done so far (of ``total``) and shows it, as bytes or a share.

    Nothing is shown unless standard error is a terminal and two seconds have passed.
    """
    if follow is not None:
        yield partial(_report, follow, total)
        return
    if quiet or not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        *(
            (DownloadColumn(), TransferSpeedColumn())
            if unit == "bytes"
            else (TaskProgressColumn(),)
        ),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    task = bar.add_task(printable(label), total=total)
    started = time.monotonic()

    def show(done: int) -> None:
        if not bar.live.is_started and time.monotonic() - started > SHOW_AFTER_SECONDS:
            bar.start()
        bar.update(task, completed=done)

    try:
        yield show
    finally:
        if bar.live.is_started:
            bar.stop()


def _report(follow: Callable[[int, int | None], None], total: int | None, done: int) -> None:
    follow(done, total)

"""The daemon's log on standard error: lines for people on a terminal, JSON lines otherwise.

The log never blocks the work: in a daemon's process standard error is a stream that drops what
cannot be written (``unfailing``), whether the log or something else writes it.
"""

import io
import logging
import os
import select
import sys
import threading
import time
import warnings
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, TextIO

import structlog
from structlog.typing import EventDict

from streamer import errors

Level = Literal["debug", "info", "warning", "error"]
Format = Literal["auto", "console", "json"]


def configure(level: Level = "info", format_: Format = "auto") -> bool:
    """Set up structlog for this process; ``auto`` is ``console`` on a terminal.

    Python's warnings become log lines. Returns whether the format is that for people.
    """
    human = format_ == "console" or (format_ == "auto" and sys.stderr.isatty())
    stamp = structlog.processors.TimeStamper(
        fmt="%H:%M:%S" if human else "iso", utc=not human, key="timestamp"
    )
    renderer = (
        structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
        if human
        else structlog.processors.JSONRenderer()
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            stamp,
            structlog.processors.format_exc_info,
            *([_printable] if human else []),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        # looked up for each line, because sys.stderr changes
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),
        cache_logger_on_first_use=False,
    )
    warnings.showwarning = _log_warning
    errors.on_warning = structlog.get_logger("streamer").warning
    return human


def _printable(logger: object, method: str, event: EventDict) -> EventDict:
    """Escape control characters: names of files and reads may hold any, and JSON escapes them."""
    return {
        key: errors.printable(value) if isinstance(value, str) and key != "exception" else value
        for key, value in event.items()
    }


def error(text: str) -> None:
    """Log why the process ends."""
    structlog.get_logger("streamer").error(text)


def _log_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    where = f"{filename}:{lineno}"
    structlog.get_logger("streamer").warning(str(message), kind=category.__name__, where=where)


MOST_WAITING = 1 << 20
"""Bytes of lines that may wait for a reader of the log."""

# when the daemon ends: the number of checks without progress on the last lines before they are
# given up, and the most checks. Checks, not seconds: if processes wait for a CPU, so does the
# reader of the log
_END_LOOKS, _LOOK_SECONDS, _END_SECONDS = 100, 0.01, 10.0


class LogStream(io.TextIOBase):
    """A stream in place of ``target`` whose ``write`` neither fails nor waits.

    Whole lines go through a bounded queue to a thread, the only one that a pipe without a reader, a
    stopped terminal or a slow disk blocks. Polling for room is not enough, because another process
    may fill a shared pipe first, and O_NONBLOCK would change the pipe for every process that shares
    it. Lines without room, or that cannot be written, are dropped and counted.
    """

    def __init__(self, target: TextIO) -> None:
        self.dropped = 0
        self.waiting = 0
        # whether the thread is writing a line
        self.writing = False
        self._target = target
        self._unreported = 0
        self._torn = False
        self._written = 0
        self._begun = threading.local()
        # lines, each with the number of lines dropped before it
        self._lines: deque[tuple[bytes, int]] = deque()
        self._changed = threading.Condition()
        self._ending = False
        self._thread = threading.Thread(target=self._run, name="log", daemon=True)
        self._thread.start()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """That of the target."""
        return self._target.encoding or "utf-8"

    def writable(self) -> bool:
        """True."""
        return True

    def isatty(self) -> bool:
        """Whether the target is a terminal."""
        return self._target.isatty()

    def fileno(self) -> int:
        """The target's descriptor; direct writes to it may wait and fail."""
        return self._target.fileno()

    def write(self, text: str) -> int:
        """Accept text; a line is queued once it is complete."""
        whole, newline, rest = (getattr(self._begun, "text", "") + text).rpartition("\n")
        self._begun.text = rest
        if newline:
            data = (whole + newline).encode(self.encoding, "backslashreplace")
            with self._changed:
                if self.waiting + len(data) > MOST_WAITING:
                    self._unreported += self._drop(data)
                else:
                    self._lines.append((data, self._unreported))
                    self._unreported = 0
                    self.waiting += len(data)
                    self._changed.notify()
        return len(text)

    def finish(self) -> None:
        """Write the waiting lines, as long as somebody reads them."""
        with self._changed:
            self._ending = True
            self._changed.notify()
        deadline = time.monotonic() + _END_SECONDS
        looks, before = 0, -1
        while self._thread.is_alive() and looks < _END_LOOKS and time.monotonic() < deadline:
            self._thread.join(_LOOK_SECONDS)
            looks, before = (looks + 1 if self._written == before else 0), self._written

    def _run(self) -> None:
        missed = 0
        while True:
            with self._changed:
                while not self._lines:
                    if self._ending:
                        return
                    self._changed.wait()
                data, before = self._lines.popleft()
                self.writing = True
            missed += before
            try:
                self._put((_notice(missed) if missed else b"") + data)
                missed = 0
            except (OSError, ValueError):
                missed += self._drop(data)
            with self._changed:
                self.waiting -= len(data)
                self.writing = False

    def _drop(self, data: bytes) -> int:
        lines = data.count(b"\n")
        with self._changed:
            self.dropped += lines
        return lines

    def _put(self, data: bytes) -> None:
        """Write all of it; OSError or ValueError if the stream is broken or closed."""
        try:
            number = self._target.fileno()
        except io.UnsupportedOperation:
            self._target.write(data.decode(self.encoding))
            self._target.flush()
            return
        rest = memoryview(b"\n" + data if self._torn else data)
        # the rest of a failed line must not become the start of the next one
        begun = False
        try:
            while rest:
                try:
                    count = os.write(number, rest)
                    rest = rest[count:]
                    self._written += count
                    begun, self._torn = True, False
                except BlockingIOError:
                    # another process has made it non-blocking
                    ready = select.poll()
                    ready.register(number, select.POLLOUT)
                    ready.poll()
        except OSError:
            self._torn = self._torn or begun
            raise


def _notice(lines: int) -> bytes:
    """The line that reports dropped lines, in the log's format."""
    event: Any = {"event": "log lines were dropped", "lines": lines}
    for processor in structlog.get_config()["processors"]:
        event = processor(None, "warning", event)
    return f"{event}\n".encode()


_current: LogStream | None = None


@contextmanager
def unfailing() -> Iterator[None]:
    """In this context, writing to standard error neither fails nor blocks this process."""
    global _current
    target = sys.stderr
    if isinstance(target, LogStream):
        yield
        return
    before, _current = _current, LogStream(target)
    stream = _current
    sys.stderr = stream
    try:
        yield
    finally:
        sys.stderr = target
        stream.finish()
        _current = before


def finish() -> None:
    """Write the waiting lines before the process is ended; nothing may be logged afterwards."""
    if _current is not None:
        _current.finish()


def dropped() -> int:
    """How many lines of the log were dropped since the daemon began."""
    return _current.dropped if _current is not None else 0

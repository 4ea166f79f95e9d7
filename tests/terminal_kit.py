"""A terminal for a process under test, and the text in an SVG screenshot of a page."""

from __future__ import annotations

import fcntl
import html
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tests.data_files import ROOT
from tests.forked import Forked
from tests.waiting import DEADLINE, until

_TEXT = re.compile(r'<text class="[^"]*" x="([\d.]+)" y="([\d.]+)"[^>]*>([^<]*)</text>')
_CELL = 12.2  # units of such a picture


def text_of(svg: str) -> str:
    """The lines of a page, without trailing blanks, from ``App.export_screenshot``."""
    rows: dict[float, dict[int, str]] = {}
    for x, y, text in _TEXT.findall(svg):
        shown = html.unescape(text).replace("\xa0", " ").strip("\n")
        rows.setdefault(float(y), {})[round(float(x) / _CELL)] = shown
    lines = []
    for y in sorted(rows):
        line = ""
        for x, shown in sorted(rows[y].items()):
            line = line.ljust(x) + shown
        lines.append(line.rstrip())
    return "\n".join(lines) + "\n"


class Terminal:
    """The other end of a process's terminal; ``output``: all that the process has written.

    It is read continuously, as by a real terminal, since a process without a reader blocks.
    """

    def __init__(self, child: subprocess.Popen[bytes], end: int) -> None:
        self.child, self._end, self.output = child, end, ""
        self._seen = 0
        self._process = os.pidfd_open(child.pid)
        self._reading = threading.Thread(target=self._read)
        self._reading.start()

    def _read(self) -> None:
        while True:
            ready, _, _ = select.select([self._end, self._process], [], [])
            if self._end not in ready:
                return
            self.output += os.read(self._end, 1 << 16).decode(errors="replace")

    def press(self, keys: str) -> None:
        """Type; ``until`` then only considers output after this."""
        self._seen = len(self.output)
        os.write(self._end, keys.encode())

    def until(self, word: str) -> None:
        """Return once the process has written this since the last key."""
        until(
            lambda: word in self.output[self._seen :] or not self._reading.is_alive(),
            f"{word!r} on the terminal",
        )
        assert word in self.output[self._seen :], self.output[self._seen :]

    def ended(self) -> int:
        """The exit code of the process, once all its output was read."""
        self._reading.join(DEADLINE)
        assert not self._reading.is_alive(), f"the process hangs: {self.output[-2000:]!r}"
        return self.child.wait(DEADLINE)

    def close(self) -> None:
        """End the process."""
        if self.child.poll() is None:
            self.child.kill()
        self._reading.join()
        self.child.wait()
        os.close(self._process)

    @property
    def is_cooked(self) -> bool:
        """Whether the terminal has its original settings again."""
        return bool(termios.tcgetattr(self._end)[3] & termios.ECHO)


@contextmanager
def terminal(
    arguments: Sequence[str], width: int = 80, height: int = 24, **environment: str
) -> Iterator[Terminal]:
    """``streamer`` with these arguments on a terminal of this size; it is always ended."""
    here, there = pty.openpty()
    fcntl.ioctl(there, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
    # its controlling one, so that keys become signals
    child = Forked(
        [sys.executable, "-m", "streamer", *arguments],
        stdin=there, stdout=there, stderr=there, start_new_session=True, terminal=True, cwd=ROOT,
        env=os.environ | {"TERM": "xterm-256color", "COLORTERM": "truecolor"} | environment,
    )  # fmt: skip
    made = Terminal(child, here)
    try:
        yield made
    finally:
        made.close()
        # kept open until here, so that its settings can still be read
        os.close(there)
        os.close(here)

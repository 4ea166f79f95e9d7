"""The process of a job: its output, its progress, how it ended.

The last lines of its standard error give the reason of a failure. Its progress comes on a pipe, as
lines with a number from 0 to 1.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Sequence

_KEPT_BYTES = 4096
_REASON_CHARACTERS = 500
_AT_ONCE = 1 << 16


class JobProcess:
    """A process that runs ``line``, a command of this program with absolute paths.

    shown_from: a prefix to remove from the names of inputs in messages and rows. device_bytes: the
    GPU memory it may use, 0: no GPU. most_bytes: the most bytes of a file that it writes. It
    ends with the thread that started it. OSError if it cannot be started.
    """

    def __init__(
        self, line: Sequence[str], *, shown_from: str, device_bytes: int, most_bytes: int
    ) -> None:
        self._progress, report = os.pipe()
        # -P: nothing of the working directory is imported
        launcher = [sys.executable, "-P", "-m", "streamer.cli.job_child", str(os.getpid())]
        launcher += [str(report), str(device_bytes), str(most_bytes), shown_from]
        try:
            self._child = subprocess.Popen(
                [*launcher, *line],
                # numba reads settings, which may name code, from the working directory: use root's
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=(report,),
                start_new_session=True,
            )
        except BaseException:
            os.close(self._progress)
            raise
        finally:
            os.close(report)
        assert self._child.stderr is not None
        self._errors = self._child.stderr.fileno()
        for pipe in (self._errors, self._progress):
            os.set_blocking(pipe, False)
        try:
            self._end = os.pidfd_open(self._child.pid)
        except OSError:
            # no descriptor is left: a process that nobody could end must not continue
            self._child.kill()
            self._child.wait()
            self._child.stderr.close()
            os.close(self._progress)
            raise
        self._said = self._numbers = b""
        self.share = 0.0

    @property
    def pid(self) -> int:
        """Its number."""
        return self._child.pid

    def descriptors(self) -> tuple[int, ...]:
        """Descriptors that become readable when ``poll`` has something to do."""
        return self._end, self._progress, self._errors

    def poll(self) -> bool:
        """Read its output and progress (``share``); returns whether it has ended."""
        ended = self._child.poll() is not None
        self._said = (self._said + _all(self._errors))[-_KEPT_BYTES:]
        *whole, self._numbers = (self._numbers + _all(self._progress)).split(b"\n")
        if whole:
            with contextlib.suppress(ValueError):
                self.share = float(whole[-1])
        return ended

    def interrupt(self) -> None:
        """Ask it to end."""
        self._signal(signal.SIGINT)

    def kill(self) -> None:
        """End it."""
        self._signal(signal.SIGKILL)

    def reason(self) -> str:
        """Why it failed, as one line, empty if it did not; call this once it has ended."""
        code = self._child.returncode
        if code == 0:
            return ""
        if code < 0:
            named = -code in set(signal.Signals)
            name = signal.Signals(-code).name if named else f"signal {-code}"
            return f"its process was ended by {name}" + (
                ": perhaps there was no memory left" if -code == signal.SIGKILL else ""
            )
        lines = self._said.decode(errors="replace").splitlines()
        last = next((line for line in reversed(lines) if line.strip()), f"exit code {code}")
        return last.removeprefix("streamer: ").removeprefix("error: ")[:_REASON_CHARACTERS]

    def close(self) -> None:
        """Close the pipes; a process that has not ended is killed."""
        if self._child.poll() is None:
            self.kill()
        self._child.wait()
        assert self._child.stderr is not None
        self._child.stderr.close()
        os.close(self._progress)
        os.close(self._end)

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._end, number)


def _all(pipe: int) -> bytes:
    """The content of a pipe, up to a short limit."""
    try:
        return os.read(pipe, _AT_ONCE)
    except BlockingIOError:
        return b""

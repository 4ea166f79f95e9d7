"""Child processes of the daemon: how they start, are watched and restarted, and end."""

import contextlib
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

import structlog

from streamer.daemon.worker import Mailbox, Worker

# for a process to end by itself
_END_SECONDS = 3.0


class Child:
    """``python -m MODULE`` with arguments, in a session of its own.

    ended: a descriptor that is readable once it has ended. OSError if it cannot be started.
    """

    def __init__(
        self,
        module: str,
        *arguments: str,
        cwd: str | None = None,
        stdin: int = subprocess.DEVNULL,
        stderr: int | None = None,
        pass_fds: Sequence[int] = (),
    ) -> None:
        # -P: nothing of the working directory is imported
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", module, *arguments],
            cwd=cwd,
            stdin=stdin,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            pass_fds=pass_fds,
            start_new_session=True,
        )
        try:
            self.ended = os.pidfd_open(self.process.pid)
        except OSError:
            # no descriptor is left: a process that nobody could end must not continue
            self.process.kill()
            self._close()
            raise

    def end(self, seconds: float, number: int = 0) -> bool:
        """Close its input, send it a signal, wait, then kill it; whether it ended by itself."""
        if self.process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.close()
        if number:
            self.process.send_signal(number)
        by_itself = True
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            by_itself = False
            self.process.kill()
        self._close()
        os.close(self.ended)
        return by_itself

    def _close(self) -> None:
        with self.process:
            pass


class ChildWorker(Worker):
    """Keeps a process running until asked to stop; one that ends is started again after a pause.

    what: the process, in the log. pauses: the first and the longest pause in seconds; each is twice
    the one before, unless the process was healthy for ``healthy_seconds``. end_signal: ends it.
    """

    def __init__(
        self,
        name: str,
        notify: Callable[[], None],
        what: str,
        pauses: tuple[float, float],
        healthy_seconds: float,
        end_signal: int = 0,
    ) -> None:
        super().__init__(name, notify)
        self._what = what
        self._first, self._longest = pauses
        self._healthy_seconds = healthy_seconds
        self._end_signal = end_signal
        self._log = structlog.get_logger(name)
        self._child: Child | None = None
        self._wake: Mailbox[None] = Mailbox()

    @property
    def process(self) -> int | None:
        """The PID of the process, None while there is none."""
        child = self._child
        return None if child is None else child.process.pid

    def start_child(self) -> Child:
        """Start the process; OSError if it cannot be started."""
        raise NotImplementedError

    def attend(self, child: Child) -> None:
        """Return once the process has ended or this thread must end."""
        waiting = select.poll()
        waiting.register(self._wake.fileno(), select.POLLIN)
        waiting.register(child.ended, select.POLLIN)
        while child.process.poll() is None and not self.stopping.is_set():
            waiting.poll()
            self._wake.take()

    def is_over(self, code: int | None) -> bool:
        """Whether no other process is started after one with this exit code."""
        return False

    def stop(self) -> None:
        """Ask the thread to end now."""
        super().stop()
        self._wake.wake()

    def close(self) -> None:
        """Free what a worker holds that has ended or was never started."""
        self._wake.close()

    def work(self) -> None:
        """Keep a process running until asked to stop."""
        pause = self._first
        self.ready.set()
        try:
            while not self.stopping.is_set():
                begun = time.monotonic()
                code = self._run()
                if self.stopping.is_set() or self.is_over(code):
                    return
                if time.monotonic() - begun > self._healthy_seconds:
                    pause = self._first
                message = f"{self._what} ended: another is started"
                self._log.warning(message, exit=code, seconds=pause)
                self.stopping.wait(pause)
                pause = min(2 * pause, self._longest)
        finally:
            self.close()

    def _run(self) -> int | None:
        """Run one process; returns its exit code, None if it could not be started."""
        try:
            self._child = child = self.start_child()
        except OSError as error:
            self._log.error(f"{self._what} cannot be started", problem=str(error))
            return None
        self._log.debug(f"{self._what} started", process=child.process.pid)
        try:
            self.attend(child)
        finally:
            if not child.end(_END_SECONDS, self._end_signal):
                self._log.warning(f"{self._what} did not end", process=child.process.pid)
            self._child = None
        return child.process.returncode

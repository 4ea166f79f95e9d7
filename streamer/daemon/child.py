"""Child processes of the daemon: how they start, are watched and restarted, and end.

**web** serves the live page (``streamer.web``). It is a client of the daemon like any other, so
nothing that it meets on the network can harm the daemon. While it is restarted, connections wait in
the listening socket, which belongs to the daemon. It reads its task, including the token, from its
standard input, which nobody else can read, and ends when that input ends.

**watch** runs ``streamer send --watch`` on the folder of ``[watch]``, as a user would start it, and
sends over the ingest socket. Its ledger and its mark make each record count once, however the
process ends.
"""

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

import structlog

from streamer.daemon.config.tables import read_token
from streamer.daemon.daemon_status import DaemonStatus
from streamer.daemon.listener import http_socket
from streamer.daemon.process import UNBEGUN_ENDS, WebTask, in_memory
from streamer.daemon.worker import Mailbox, Worker
from streamer.errors import StreamerError
from streamer.protocol.endpoints import reachable
from streamer.protocol.keys import ClientKeys
from streamer.sequences.record_limit import MOST_BASES
from streamer.watching import PASSED_OVER
from streamer.watching.ledger import ledger_of

# for a process to end by itself, and for acknowledgements of what a watcher has sent
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

    _end_seconds = _END_SECONDS
    _afterwards = "another is started"

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

    def await_need(self) -> None:
        """Return once a process is needed or this thread must end."""

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
                message = f"{self._what} ended: {self._afterwards}"
                self._log.warning(message, exit=code, seconds=pause)
                self.stopping.wait(pause)
                pause = min(2 * pause, self._longest)
        finally:
            self.close()

    def _run(self) -> int | None:
        """Run one process; returns its exit code, None if it could not be started."""
        self.await_need()
        if self.stopping.is_set():
            return None
        try:
            self._child = child = self.start_child()
        except OSError as error:
            self._log.error(f"{self._what} cannot be started", problem=str(error))
            return None
        self._log.debug(f"{self._what} started", process=child.process.pid)
        try:
            self.attend(child)
        finally:
            if not child.end(self._end_seconds, self._end_signal):
                self._log.warning(f"{self._what} did not end", process=child.process.pid)
            self._child = None
        return child.process.returncode


_WAITING = 128
# seconds between two starts: at first, and at most if it dies again and again
_WEB_PAUSES = 0.5, 30.0
_WEB_HEALTHY_SECONDS = 60.0


class WebWorker(ChildWorker):
    """Listens at the configured address from construction; StreamerError if it cannot listen there.

    endpoint: the address as bound, with its real port. keys: those of the process.
    """

    def __init__(
        self, status: DaemonStatus, notify: Callable[[], None], keys: ClientKeys | None = None
    ) -> None:
        super().__init__("web", notify, "process", _WEB_PAUSES, _WEB_HEALTHY_SECONDS, UNBEGUN_ENDS)
        self._keys = keys
        self._status = status
        self._token = _token(status)
        self._socket = http_socket("web.endpoint", status.config.web.endpoint, _WAITING)
        host = status.config.web.endpoint.rpartition(":")[0]
        self.endpoint = f"{host}:{self._socket.getsockname()[1]}"

    def close(self) -> None:
        """Close the sockets of a worker that has ended or was never started."""
        self._socket.close()
        super().close()

    def start_child(self) -> Child:
        """Start the process and write its task."""
        task = self._task().to_json().encode() + b"\n"
        child = Child("streamer.web", stdin=subprocess.PIPE, pass_fds=(self._socket.fileno(),))
        assert child.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            child.process.stdin.write(task)
            child.process.stdin.flush()
        return child

    def _task(self) -> WebTask:
        status = self._status
        config = status.config
        return WebTask(
            endpoint=self.endpoint,
            listener=self._socket.fileno(),
            feed=reachable(status.endpoints["feed"]),
            control=reachable(status.endpoints["control"]),
            keys=None if self._keys is None else self._keys._asdict(),
            token=self._token,
            hosts=config.web.hosts,
            level=config.log.level,
            format=config.log.format,
        )


def _token(status: DaemonStatus) -> str:
    web = status.config.web
    if not web.token_file:
        return web.token
    try:
        return read_token(web.token_file)
    except ValueError as error:
        raise StreamerError(f"web.token_file: {error}") from None


# seconds between two starts: at first, and at most if it fails again and again
_WATCH_PAUSES = 1.0, 60.0


class WatchWorker(ChildWorker):
    """Starts the watcher, restarts it if it fails, and ends it; its output goes to the log.

    endpoint: that of ingest. keys: those of the watcher. bound_as: the endpoint as configured.
    """

    def __init__(
        self,
        status: DaemonStatus,
        endpoint: str,
        notify: Callable[[], None],
        keys: ClientKeys | None,
        bound_as: str,
    ) -> None:
        super().__init__("watch", notify, "the watcher", _WATCH_PAUSES, _WATCH_PAUSES[1])
        self._status = status
        table = status.config.watch
        self._keys = None if keys is None else in_memory(keys.text())
        if not table.ledger and bound_as.endswith((":*", ":0")):
            # the default ledger depends on the endpoint, which may change with each start
            ledger = ledger_of(table.directory, table.name, bound_as)
            table = table.model_copy(update={"ledger": ledger})
        self._table = table
        self._endpoint = endpoint

    def is_over(self, code: int | None) -> bool:
        """Whether the run is over."""
        if code == 0:
            self._log.info("the run is over", directory=self._table.directory)
        return code == 0

    def close(self) -> None:
        """Close the pipe and the keys."""
        super().close()
        if self._keys is not None:
            os.close(self._keys)

    def start_child(self) -> Child:
        """Start the watcher."""
        table = self._table
        most = self._status.config.ingest.max_record_bases
        command = ["--max-record", str(most)] if most != MOST_BASES else []
        command += ["send", "--watch", table.directory, "--to", self._endpoint]
        command += ["--settle", str(table.settle)]
        # no file has an empty name, so without a pattern the run never ends
        command += [f"--until={pattern}" for pattern in table.until or [""]]
        command += ["--name", table.name] if table.name else []
        command += ["--ledger", table.ledger] if table.ledger else []
        command += ["--keys", f"/dev/fd/{self._keys}"] if self._keys is not None else []
        return Child(
            "streamer.cli.daemon_child",
            str(os.getpid()),
            *command,
            stderr=subprocess.PIPE,
            pass_fds=() if self._keys is None else (self._keys,),
        )

    def attend(self, child: Child) -> None:
        """Copy its lines to the log until it ends or must end."""
        assert child.process.stderr is not None
        lines = child.process.stderr.fileno()
        os.set_blocking(lines, False)
        waiting = select.poll()
        waiting.register(lines, select.POLLIN)
        waiting.register(self._wake.fileno(), select.POLLIN)
        text, ends = b"", 0.0
        while True:
            waiting.poll(200 if ends else None)
            self._wake.take()
            try:
                said = os.read(lines, 1 << 16)
            except BlockingIOError:
                said = None
            if said == b"":
                return
            *whole, text = (text + (said or b"")).split(b"\n")
            for line in whole:
                self._relay(line.decode(errors="replace"))
            if self.stopping.is_set():
                now = time.monotonic()
                if not ends:
                    child.process.send_signal(signal.SIGTERM)
                    ends = now + _END_SECONDS
                elif now > ends:
                    return

    def _relay(self, line: str) -> None:
        """Log a line of the watcher as one of the daemon's, and count reads passed over."""
        line = line.removeprefix("streamer: ")
        fault = line.startswith("error: ")
        self._status.passed_over += fault and line.endswith(PASSED_OVER)
        (self._log.warning if fault else self._log.info)(line.removeprefix("error: "))

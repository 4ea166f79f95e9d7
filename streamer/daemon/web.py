"""The thread of the live page: listens, and keeps a process running that serves the page.

The process (``streamer.web``) is a client of the daemon like any other, so nothing that it meets on
the network can harm the daemon. If it dies it is restarted; meanwhile connections wait in the
listening socket. It reads its task, including the token, from its standard input, which nobody
else can read, and ends when that input ends.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable

import structlog

from streamer.daemon.config.tables import read_token
from streamer.daemon.daemon_status import DaemonStatus
from streamer.daemon.web_task import UNBEGUN_ENDS, WebTask
from streamer.daemon.worker import POLL_MILLISECONDS, Mailbox, Worker
from streamer.errors import StreamerError
from streamer.protocol.endpoints import EndpointError, reachable, split_http_address
from streamer.protocol.keys import ClientKeys

KEY = "web.endpoint"

_WAITING = 128
# between two starts: at first, and at most if it dies again and again
_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.5, 30.0
# a process that lived this long was healthy
_WELL_SECONDS = 60.0
# for its pages to show the end
_END_SECONDS = 3.0

log = structlog.get_logger("web")


class WebWorker(Worker):
    """Listens at the configured address from construction; StreamerError if it cannot listen there.

    endpoint: the address as bound, with its real port. keys: those of the process.
    """

    def __init__(
        self, status: DaemonStatus, notify: Callable[[], None], keys: ClientKeys | None = None
    ) -> None:
        super().__init__("web", notify)
        self._keys = keys
        self._status = status
        self._child: subprocess.Popen[bytes] | None = None
        self._token = _token(status)
        self._socket = _listening(status.config.web.endpoint)
        host = status.config.web.endpoint.rpartition(":")[0]
        self.endpoint = f"{host}:{self._socket.getsockname()[1]}"
        self._wake: Mailbox[None] = Mailbox()

    @property
    def process(self) -> int | None:
        """The PID of the process, None while there is none."""
        child = self._child
        return None if child is None else child.pid

    def stop(self) -> None:
        """Ask the thread to end now."""
        super().stop()
        self._wake.wake()

    def close(self) -> None:
        """Close the sockets of a worker that has ended or was never started."""
        self._socket.close()
        self._wake.close()

    def work(self) -> None:
        """Keep a process running until asked to stop."""
        pause = _PAUSE_SECONDS
        self.ready.set()
        try:
            while not self.stopping.is_set():
                begun = time.monotonic()
                self._start()
                self._wait_for_its_end()
                if self.stopping.is_set():
                    break
                lived = time.monotonic() - begun
                pause = _PAUSE_SECONDS if lived > _WELL_SECONDS else pause
                code = None if self._child is None else self._child.returncode
                log.warning("process ended: another is started", exit=code, seconds=pause)
                self._forget_child()
                self.stopping.wait(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
        finally:
            self._end_child()
            self._socket.close()

    def _start(self) -> None:
        task = self._task().to_json().encode() + b"\n"
        try:
            # -P: nothing of the working directory is imported
            self._child = child = subprocess.Popen(
                [sys.executable, "-P", "-m", "streamer.web"],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                pass_fds=(self._socket.fileno(),),
                start_new_session=True,
            )
        except OSError as error:
            log.error("process cannot be started", problem=str(error))
            return
        assert child.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            child.stdin.write(task)
            child.stdin.flush()
        log.debug("process started", process=child.pid)

    def _task(self) -> WebTask:
        status = self._status
        config = status.config
        human = config.log.format != "json" and sys.stderr.isatty()
        return WebTask(
            endpoint=self.endpoint,
            listener=self._socket.fileno(),
            feed=reachable(status.endpoints["feed"]),
            control=reachable(status.endpoints["control"]),
            keys=None if self._keys is None else self._keys._asdict(),
            token=self._token,
            hosts=config.web.hosts,
            panel=config.panel.fields(),
            level=config.log.level,
            format="console" if human or config.log.format == "console" else "json",
        )

    def _wait_for_its_end(self) -> None:
        """Return once the process has ended or this thread must end."""
        while self._child is not None and self._child.poll() is None:
            if self.stopping.is_set():
                return
            waiting = select.poll()
            waiting.register(self._wake.fileno(), select.POLLIN)
            with contextlib.suppress(OSError):
                descriptor = os.pidfd_open(self._child.pid)
                waiting.register(descriptor, select.POLLIN)
                waiting.poll(POLL_MILLISECONDS)
                os.close(descriptor)
            self._wake.take()

    def _forget_child(self) -> None:
        """Close the standard input of the process, which ends it if it is alive."""
        child, self._child = self._child, None
        if child is not None and child.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                child.stdin.close()

    def _end_child(self) -> None:
        child = self._child
        if child is None:
            return
        self._forget_child()
        child.send_signal(UNBEGUN_ENDS)
        try:
            child.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            log.warning("process did not end", process=child.pid)
            child.kill()
            child.wait()


def _token(status: DaemonStatus) -> str:
    web = status.config.web
    if not web.token_file:
        return web.token
    try:
        return read_token(web.token_file)
    except ValueError as error:
        raise StreamerError(f"web.token_file: {error}") from None


def _listening(address: str) -> socket.socket:
    """A socket that listens at HOST:PORT; EndpointError if it cannot listen there."""
    try:
        found = socket.getaddrinfo(*split_http_address(address), type=socket.SOCK_STREAM)
        family, _, _, _, place = found[0]
        made = socket.socket(family, socket.SOCK_STREAM)
        try:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind(place)
            made.listen(_WAITING)
        except BaseException:
            made.close()
            raise
    except (OSError, UnicodeError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise EndpointError(KEY, address, why.lower()) from None
    return made

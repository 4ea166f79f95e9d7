"""The sync thread: listens, and starts the process that serves once a client connects.

A daemon whose sync is not used does not pay for the process. If the process dies, connections wait
in the listening socket, and the next one starts another process; clients repeat their pulls.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import sys
import termios
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import structlog
import zmq

from streamer.daemon.child import Child
from streamer.daemon.core.watchdog import StageLook
from streamer.daemon.daemon_status import DaemonStatus
from streamer.daemon.listener import Listener
from streamer.daemon.process import cpu_seconds, in_memory, state_of
from streamer.daemon.socket_worker import SocketWorker
from streamer.daemon.sync_process import ENDING, SyncTask
from streamer.daemon.worker import POLL_MILLISECONDS, Mailbox
from streamer.protocol.endpoints import EndpointError

if TYPE_CHECKING:
    from streamer.daemon.security.gatekeeper import Gatekeeper

# to let the sync process of a killed daemon notice that and end
_CLAIM_SECONDS, _RETRY_SECONDS = 5.0, 0.02
# between two starts
_PAUSE_SECONDS = 1.0
# for messages in flight, and for a process that has just started, on busy cores, to serve them
_END_SECONDS = 6.0
# between two requests for a sign of life
_ASK_SECONDS = 1.0

log = structlog.get_logger("sync")


class SyncWorker(SocketWorker):
    """Starts, watches and ends the process that replays the journal.

    Call ``committed`` after every commit.
    """

    def __init__(
        self,
        status: DaemonStatus,
        context: zmq.Context[zmq.Socket[bytes]],
        notify: Callable[[], None],
        gate: Gatekeeper | None = None,
    ) -> None:
        # the process has its own gatekeeper, which begins with the keys of this one
        super().__init__("sync", status, context, notify, gate)
        self._wake: Mailbox[None] = Mailbox()
        self._child: Child | None = None
        self._lock = threading.Lock()
        # the end of the pipe that notifies the process of commits
        self._pipe: int | None = None
        # bytes written to pipes so far: a live process reads them
        self._said = 0
        self._asked = 0.0
        # CPU seconds of processes that have ended, and of the current one when last checked
        self._cpu_before = self._cpu = 0.0
        self._begun = -_PAUSE_SECONDS

    @property
    def process(self) -> int | None:
        """The PID of the process, None while there is none."""
        child = self._child
        return None if child is None else child.process.pid

    def committed(self) -> None:
        """There are new records. From any thread; never waits."""
        with self._lock, contextlib.suppress(BlockingIOError, BrokenPipeError):
            if self._pipe is not None:
                self._said += os.write(self._pipe, b"\0")

    def queued(self) -> int:
        """Notifications that the process has not read."""
        with self._lock:
            return 0 if self._pipe is None else _unread(self._pipe)

    def busy_seconds(self) -> float:
        """CPU seconds that the processes have used so far, as of a moment ago."""
        return self._cpu_before + self._cpu

    def look(self) -> StageLook:
        """The state of the stage for the watchdog: a live process reads its notifications."""
        with self._lock:
            said, queued = self._said, 0 if self._pipe is None else _unread(self._pipe)
        process = self.process
        waits_for = "" if process is None else f"process {process}, which {state_of(process)}"
        return StageLook(said - queued, queued > 0, waits_for)

    def stop(self) -> None:
        """Ask the thread to end now."""
        super().stop()
        self._wake.wake()

    def work(self) -> None:
        """Listen and serve until asked to stop."""
        listener = self._listen_patiently()
        self.ready.set()
        try:
            while not self.stopping.is_set():
                if self._child is None:
                    self._wait_for_somebody(listener)
                elif self._wait_for_its_end():
                    self._reap(listener)
                else:
                    # note how busy it was, and ask it now and then for a sign of life
                    self._cpu = cpu_seconds(self._child.process.pid)
                    now = time.monotonic()
                    if now - self._asked >= _ASK_SECONDS:
                        self._asked = now
                        self.committed()
        finally:
            self._end_child()
            listener.remove()
            self._wake.close()

    def _listen_patiently(self) -> Listener:
        """Listen, once the sync process of a killed daemon, if any, has released the endpoint."""
        deadline = time.monotonic() + _CLAIM_SECONDS
        while True:
            try:
                return self.listen()
            except EndpointError:
                if time.monotonic() > deadline or self.stopping.wait(_RETRY_SECONDS):
                    raise

    def _wait_for_somebody(self, listener: Listener) -> None:
        waiting = select.poll()
        waiting.register(self._wake.fileno(), select.POLLIN)
        # a process that ends at once is not restarted at once
        if time.monotonic() - self._begun >= _PAUSE_SECONDS:
            waiting.register(listener.fileno(), select.POLLIN)
        found = dict(waiting.poll(POLL_MILLISECONDS))
        self._wake.take()
        if listener.fileno() in found and not self.stopping.is_set():
            self._start(listener)

    def _start(self, listener: Listener) -> None:
        self._begun = time.monotonic()
        # the signal handling of the process, not of this one
        inherited: list[int] = []
        writer = held = -1
        try:
            reader, writer = os.pipe()
            inherited.append(reader)
            os.set_blocking(writer, False)
            if self.gate is not None:
                held = in_memory(self.gate.held.to_json())
                inherited.append(held)
            task = self._task(listener.fileno(), reader, held)
            arguments = str(os.getpid()), task.to_json()
            descriptors = task.listener, *inherited
            self._child = Child("streamer.daemon.sync_process", *arguments, pass_fds=descriptors)
        except OSError as error:
            if writer >= 0:
                os.close(writer)
            log.error("process cannot be started", problem=str(error))
            return
        finally:
            for descriptor in inherited:
                os.close(descriptor)
        with self._lock:
            self._pipe = writer
        log.debug("process started", process=self.process)

    def _task(self, listener: int, wake: int, held: int) -> SyncTask:
        config = self._status.config
        return SyncTask(
            endpoint=self.endpoint,
            listener=listener,
            wake=wake,
            directory=config.journal.directory,
            level=config.log.level,
            format="json" if config.log.format == "json" or not sys.stderr.isatty() else "console",
            connections=config.sync.connections,
            pulls=config.sync.pulls,
            pull_bytes=config.sync.pull_bytes,
            memory_bytes=config.sync.memory_bytes,
            keys=config.security.keys,
            held=held,
        )

    def _wait_for_its_end(self) -> bool:
        assert self._child is not None
        waiting = select.poll()
        waiting.register(self._wake.fileno(), select.POLLIN)
        waiting.register(self._child.ended, select.POLLIN)
        waiting.poll(POLL_MILLISECONDS)
        self._wake.take()
        return self._child.process.poll() is not None

    def _reap(self, listener: Listener) -> None:
        assert self._child is not None
        self._close_pipe()
        self._cpu_before, self._cpu = self._cpu_before + self._cpu, 0.0
        self._child.end(0.0)
        code = self._child.process.returncode
        log.warning("process ended: the next client starts another", exit=code)
        self._child = None
        listener.reopen()

    def _close_pipe(self) -> None:
        with self._lock:
            if self._pipe is not None:
                os.close(self._pipe)
                self._pipe = None

    def _end_child(self) -> None:
        if self._child is None:
            return
        with self._lock, contextlib.suppress(OSError):
            if self._pipe is not None:
                os.write(self._pipe, ENDING)
        self._close_pipe()
        if not self._child.end(_END_SECONDS):
            log.warning("process did not end", process=self.process)
        self._child = None


def _unread(pipe: int) -> int:
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)

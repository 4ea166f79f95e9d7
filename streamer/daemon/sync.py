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

from streamer.daemon.child import Child, ChildWorker
from streamer.daemon.core.watchdog import StageLook
from streamer.daemon.daemon_status import DaemonStatus
from streamer.daemon.listener import Listener
from streamer.daemon.process import SyncTask, cpu_seconds, in_memory, state_of
from streamer.daemon.socket_worker import listen
from streamer.daemon.sync_process import ENDING
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
_ASK_MILLISECONDS = 1000


class SyncWorker(ChildWorker):
    """Starts, watches and ends the process that replays the journal.

    Call ``committed`` after every commit. endpoint: as bound.
    """

    _end_seconds = _END_SECONDS
    _afterwards = "the next client starts another"

    def __init__(
        self, status: DaemonStatus, notify: Callable[[], None], gate: Gatekeeper | None = None
    ) -> None:
        super().__init__("sync", notify, "process", (_PAUSE_SECONDS, _PAUSE_SECONDS), 0.0)
        self.endpoint: str = status.config.sync.endpoint
        self._config = status.config
        # the process has its own gatekeeper, which begins with the keys of this one
        self._gate = gate
        self._lock = threading.Lock()
        # the end of the pipe that notifies the process of commits
        self._pipe: int | None = None
        # bytes written to pipes so far: a live process reads them
        self._said = 0
        # CPU seconds of processes that have ended, and of the current one when last checked
        self._cpu_before = self._cpu = 0.0

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

    def work(self) -> None:
        """Listen and serve until asked to stop."""
        self._listener = listener = self._listen_patiently()
        self.endpoint = listener.endpoint
        try:
            super().work()
        finally:
            listener.remove()

    def _listen_patiently(self) -> Listener:
        """Listen, once the sync process of a killed daemon, if any, has released the endpoint."""
        deadline = time.monotonic() + _CLAIM_SECONDS
        while True:
            try:
                return listen("sync.endpoint", self.endpoint)
            except EndpointError:
                if time.monotonic() > deadline or self.stopping.wait(_RETRY_SECONDS):
                    raise

    def await_need(self) -> None:
        """Return once a client connects or this thread must end."""
        waiting = select.poll()
        waiting.register(self._wake.fileno(), select.POLLIN)
        waiting.register(self._listener.fileno(), select.POLLIN)
        while not self.stopping.is_set():
            ready = dict(waiting.poll())
            self._wake.take()
            if self._listener.fileno() in ready:
                return

    def start_child(self) -> Child:
        """Start the process."""
        reader, writer = os.pipe()
        inherited = [reader]
        try:
            os.set_blocking(writer, False)
            keys = -1
            if self._gate is not None:
                keys = in_memory(self._gate.contents.to_json())
                inherited.append(keys)
            arguments = str(os.getpid()), self._task(reader, keys).to_json()
            descriptors = self._listener.fileno(), *inherited
            child = Child("streamer.daemon.sync_process", *arguments, pass_fds=descriptors)
        except OSError:
            os.close(writer)
            raise
        finally:
            for descriptor in inherited:
                os.close(descriptor)
        with self._lock:
            self._pipe = writer
        return child

    def _task(self, wake: int, contents: int) -> SyncTask:
        config, sync = self._config, self._config.sync
        return SyncTask(
            endpoint=self.endpoint,
            listener=self._listener.fileno(),
            level=config.log.level,
            format=config.log.format,
            wake=wake,
            directory=config.journal.directory,
            limits=(sync.connections, sync.pulls, sync.pull_bytes, sync.memory_bytes),
            keys=config.security.keys,
            contents=contents,
        )

    def attend(self, child: Child) -> None:
        """Note how busy the process is, and ask it now and then for a sign of life."""
        waiting = select.poll()
        waiting.register(self._wake.fileno(), select.POLLIN)
        waiting.register(child.ended, select.POLLIN)
        while child.process.poll() is None and not self.stopping.is_set():
            self._cpu = cpu_seconds(child.process.pid) or self._cpu
            self.committed()
            waiting.poll(_ASK_MILLISECONDS)
            self._wake.take()
        self._cpu_before, self._cpu = self._cpu_before + self._cpu, 0.0
        with self._lock:
            pipe, self._pipe = self._pipe, None
        assert pipe is not None
        if self.stopping.is_set():
            with contextlib.suppress(OSError):
                os.write(pipe, ENDING)
        else:
            self._listener.reopen()
        os.close(pipe)


def _unread(pipe: int) -> int:
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)

"""The watch thread: keeps a ``streamer send --watch`` running on the folder of ``[watch]``.

It is a separate process, as a user would start it, and sends over the ingest socket. Its ledger and
its mark make each record count once, however the process ends.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import structlog

from streamer.daemon.config.tables import WatchTable
from streamer.daemon.process import in_memory
from streamer.daemon.worker import Mailbox, Worker
from streamer.protocol.keys import ClientKeys
from streamer.watching.ledger import ledger_of

# between two starts; doubled after each failure, up to the longest
_PAUSE_SECONDS, _LONGEST_SECONDS = 1.0, 60.0
# to wait for acknowledgements of what was sent
_END_SECONDS = 3.0

log = structlog.get_logger("watch")


class WatchWorker(Worker):
    """Starts the watcher, restarts it if it fails, and ends it; its output goes to the log.

    endpoint: that of ingest. keys: those of the watcher. bound_as: the endpoint as configured.
    """

    def __init__(
        self,
        table: WatchTable,
        endpoint: str,
        notify: Callable[[], None],
        keys: ClientKeys | None,
        bound_as: str,
    ) -> None:
        super().__init__("watch", notify)
        self._keys = None if keys is None else in_memory(keys.text())
        if not table.ledger and bound_as.endswith((":*", ":0")):
            # the default ledger depends on the endpoint, which may change with each start
            ledger = ledger_of(table.directory, table.name, bound_as)
            table = table.model_copy(update={"ledger": ledger})
        self._table = table
        self._endpoint = endpoint
        self._wake: Mailbox[None] = Mailbox()

    def stop(self) -> None:
        """Ask the watcher to send what it has read and the thread to end."""
        super().stop()
        self._wake.wake()

    def work(self) -> None:
        """Watch until the run is over or the daemon stops."""
        try:
            self._watch()
        finally:
            self._wake.close()
            if self._keys is not None:
                os.close(self._keys)

    def _watch(self) -> None:
        pause = _PAUSE_SECONDS
        while not self.stopping.is_set():
            began = time.monotonic()
            code = self._run()
            if self.stopping.is_set():
                return
            if code == 0:
                log.info("the run is over", directory=self._table.directory)
                return
            lasted = time.monotonic() - began
            pause = _PAUSE_SECONDS if lasted > _LONGEST_SECONDS else pause
            log.warning("the watcher ended: starts again", exit=code, seconds=pause)
            self.stopping.wait(pause)
            pause = min(2 * pause, _LONGEST_SECONDS)

    def _run(self) -> int:
        """Run the watcher once; returns its exit code."""
        table = self._table
        # -P: nothing of the working directory is imported
        launcher = [sys.executable, "-P", "-m", "streamer.cli.daemon_child", str(os.getpid())]
        command = ["send", "--watch", table.directory, "--to", self._endpoint]
        command += ["--settle", str(table.settle)]
        # no file has an empty name, so without a pattern the run never ends
        command += [f"--until={pattern}" for pattern in table.until or [""]]
        command += ["--name", table.name] if table.name else []
        command += ["--ledger", table.ledger] if table.ledger else []
        command += ["--keys", f"/dev/fd/{self._keys}"] if self._keys is not None else []
        try:
            child = subprocess.Popen(
                [*launcher, *command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=() if self._keys is None else (self._keys,),
                start_new_session=True,
            )
        except OSError as error:
            log.error("the watcher cannot be started", problem=str(error))
            return 1
        log.debug("watcher started", process=child.pid)
        with child:
            try:
                self._relay(child)
            finally:
                self._end(child)
        return child.returncode

    def _relay(self, child: subprocess.Popen[bytes]) -> None:
        """Copy its lines to the log until it ends or must end."""
        assert child.stderr is not None
        lines = child.stderr.fileno()
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
                _log(line.decode(errors="replace"))
            if self.stopping.is_set():
                now = time.monotonic()
                if not ends:
                    child.send_signal(signal.SIGTERM)
                    ends = now + _END_SECONDS
                elif now > ends:
                    return

    @staticmethod
    def _end(child: subprocess.Popen[bytes]) -> None:
        try:
            child.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()


def _log(line: str) -> None:
    """Log a line of the watcher as one of the daemon's."""
    line = line.removeprefix("streamer: ")
    fault = line.startswith("error: ")
    (log.warning if fault else log.info)(line.removeprefix("error: "))

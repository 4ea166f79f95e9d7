"""The watch thread: keeps a ``streamer send --watch`` running on the folder of ``[watch]``.

A process of its own, as a user would start one: it sends over the ingest socket, and its ledger and
its mark let each record count once, however it ends.
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
from streamer.daemon.mailbox import Mailbox
from streamer.daemon.process import in_memory
from streamer.daemon.worker import Worker
from streamer.protocol.keys import ClientKeys
from streamer.watching.ledger import ledger_of

# between two starts, doubled up to the longest while it keeps failing
_PAUSE_SECONDS, _LONGEST_SECONDS = 1.0, 60.0
# for the acknowledgements of what it has sent
_END_SECONDS = 3.0

log = structlog.get_logger("watch")


class WatchWorker(Worker):
    """Starts the watcher, again if it fails, and ends it; what it says goes to the log.

    endpoint: that of ingest. keys: of the watcher. bound_as: the endpoint as it is configured.
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
            # by default it belongs to the endpoint, which is another one after each start
            ledger = ledger_of(table.directory, table.name, bound_as)
            table = table.model_copy(update={"ledger": ledger})
        self._table = table
        self._endpoint = endpoint
        self._wake: Mailbox[None] = Mailbox()

    def stop(self) -> None:
        """Ask the watcher to send what it has read, and the thread to end."""
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
        """One life of the watcher; its exit code."""
        table = self._table
        # -P: nothing of the working directory is imported
        launcher = [sys.executable, "-P", "-m", "streamer.cli.daemon_child", str(os.getpid())]
        command = ["send", "--watch", table.directory, "--to", self._endpoint]
        command += ["--settle", str(table.settle)]
        # no file has an empty name: without patterns the run never ends
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
        """Its lines to the log, until it has ended or is to end."""
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
    """A line of the watcher, as one of the daemon."""
    line = line.removeprefix("streamer: ")
    fault = line.startswith("error: ")
    (log.warning if fault else log.info)(line.removeprefix("error: "))

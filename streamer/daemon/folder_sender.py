"""The watch thread: keeps a ``streamer send --watch`` running on the folder of ``[watch]``.

It is a separate process, as a user would start it, and sends over the ingest socket. Its ledger and
its mark make each record count once, however the process ends.
"""

import os
import select
import signal
import subprocess
import time
from collections.abc import Callable

import structlog

from streamer.daemon.child import Child, ChildWorker
from streamer.daemon.daemon_status import DaemonStatus
from streamer.daemon.process import in_memory
from streamer.protocol.keys import ClientKeys
from streamer.sequences.record_limit import MOST_BASES
from streamer.watching import PASSED_OVER
from streamer.watching.ledger import ledger_of

# seconds between two starts: at first, and at most if it fails again and again
_PAUSES = 1.0, 60.0
# to wait for acknowledgements of what was sent
_END_SECONDS = 3.0

log = structlog.get_logger("watch")


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
        super().__init__("watch", notify, "the watcher", _PAUSES, _PAUSES[1])
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
            log.info("the run is over", directory=self._table.directory)
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
        (log.warning if fault else log.info)(line.removeprefix("error: "))

"""The thread of the live page: listens, and keeps a process running that serves the page.

The process (``streamer.web``) is a client of the daemon like any other, so nothing that it meets on
the network can harm the daemon. If it dies it is restarted; meanwhile connections wait in the
listening socket. It reads its task, including the token, from its standard input, which nobody
else can read, and ends when that input ends.
"""

import contextlib
import subprocess
import sys
from collections.abc import Callable

from streamer.daemon.child import Child, ChildWorker
from streamer.daemon.config.tables import read_token
from streamer.daemon.daemon_status import DaemonStatus
from streamer.daemon.listener import http_socket
from streamer.daemon.web_task import UNBEGUN_ENDS, WebTask
from streamer.errors import StreamerError
from streamer.protocol.endpoints import reachable
from streamer.protocol.keys import ClientKeys

_WAITING = 128
# seconds between two starts: at first, and at most if it dies again and again
_PAUSES = 0.5, 30.0
_HEALTHY_SECONDS = 60.0


class WebWorker(ChildWorker):
    """Listens at the configured address from construction; StreamerError if it cannot listen there.

    endpoint: the address as bound, with its real port. keys: those of the process.
    """

    def __init__(
        self, status: DaemonStatus, notify: Callable[[], None], keys: ClientKeys | None = None
    ) -> None:
        super().__init__("web", notify, "process", _PAUSES, _HEALTHY_SECONDS, UNBEGUN_ENDS)
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
            samples=[] if status.sheet is None else status.sheet.rows(),
            level=config.log.level,
            format="console" if human or config.log.format == "console" else "json",
        )


def _token(status: DaemonStatus) -> str:
    web = status.config.web
    if not web.token_file:
        return web.token
    try:
        return read_token(web.token_file)
    except ValueError as error:
        raise StreamerError(f"web.token_file: {error}") from None

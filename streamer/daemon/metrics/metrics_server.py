"""The HTTP server of the metrics: a thread of the daemon that cannot bring the daemon down.

Each connection has a thread, the number of connections is limited, and a connection that takes too
long is ended, so a scraper that reads slowly or sends nothing blocks nobody.
"""

import contextlib
import gzip
import socket
import threading
import time
from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer, ThreadingMixIn
from typing import Any

import structlog

from streamer import __version__
from streamer.daemon.daemon_status import DaemonStatus
from streamer.daemon.listener import http_socket
from streamer.daemon.metrics.scrape import Scrape
from streamer.daemon.watched_stages import MeasuredStage
from streamer.protocol.endpoints import Hosts

PATH = "/metrics"

_MOST_CONNECTIONS = 16
# for a request and its answer together
_CONNECTION_SECONDS = 10.0
_LOOK_SECONDS = 0.2
_JOIN_SECONDS = 2.0

log = structlog.get_logger("metrics")


class MetricsServer(ThreadingMixIn, TCPServer):
    """Listens at the configured address from construction; EndpointError if it cannot be bound.

    endpoint: the address as bound, with its real port.
    """

    daemon_threads = True
    block_on_close = False

    def __init__(self, status: DaemonStatus, stages: Mapping[str, MeasuredStage]) -> None:
        address = status.config.metrics.endpoint
        self.scrape = Scrape(status, stages)
        self.hosts = Hosts(address, status.config.metrics.hosts)
        self._begun: dict[Any, float] = {}
        self._lock = threading.Lock()
        listening = http_socket("metrics.endpoint", address, _MOST_CONNECTIONS)
        super().__init__(listening.getsockname(), _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listening
        self.endpoint = f"{address.rpartition(':')[0]}:{listening.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve, name="metrics", daemon=True)

    def start(self) -> None:
        """Begin to answer requests."""
        self._thread.start()

    def stop(self) -> None:
        """Stop answering, and end all connections."""
        if self._thread.is_alive():
            self.shutdown()
            self._thread.join(_JOIN_SECONDS)
        self.server_close()
        self._end_connections(0.0)

    def _serve(self) -> None:
        try:
            self.serve_forever(_LOOK_SECONDS)
        except Exception as error:
            log.error("the metrics are not served any more", problem=str(error))

    # ---- hooks of socketserver -----------------------------------------------------------------

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Whether there is room for one more connection."""
        with self._lock:
            if len(self._begun) >= _MOST_CONNECTIONS:
                return False
            self._begun[request] = time.monotonic()
            return True

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread, if another can be started."""
        try:
            super().process_request(request, client_address)
        except RuntimeError:
            self.shutdown_request(request)

    def shutdown_request(self, request: Any) -> None:
        """Forget a connection that has ended."""
        with self._lock:
            self._begun.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """End connections that take too long."""
        self._end_connections(_CONNECTION_SECONDS)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log a broken connection or a failed scrape; nothing else depends on it."""
        log.debug("connection ended", exc_info=True)

    def _end_connections(self, seconds: float) -> None:
        before = time.monotonic() - seconds
        with self._lock:
            for request in [request for request, begun in self._begun.items() if begun <= before]:
                del self._begun[request]
                with contextlib.suppress(OSError):
                    request.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    server: MetricsServer
    server_version = f"streamer/{__version__}"
    sys_version = ""
    timeout = _CONNECTION_SECONDS

    def do_GET(self) -> None:
        """Answer with the metrics, or with their path."""
        if not self.server.hosts.allow(self.headers.get("Host", "")):
            problem = b"the metrics are not called by that name: add it to metrics.hosts\n"
            self._answer(HTTPStatus.MISDIRECTED_REQUEST, problem, "text/plain")
            return
        if self.path.partition("?")[0] != PATH:
            self._answer(HTTPStatus.NOT_FOUND, f"metrics are at {PATH}\n".encode(), "text/plain")
            return
        try:
            body, kind = self.server.scrape.text(self.headers.get("Accept", ""))
        except Exception as error:
            log.error("a scrape failed", problem=f"{type(error).__name__}: {error}")
            self._answer(HTTPStatus.INTERNAL_SERVER_ERROR, b"the scrape failed\n", "text/plain")
            return
        self._answer(HTTPStatus.OK, body, kind)

    do_HEAD = do_GET

    def _answer(self, status: HTTPStatus, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        if "gzip" in self.headers.get("Accept-Encoding", ""):
            body = gzip.compress(body, compresslevel=1)
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Do not log scrapes."""

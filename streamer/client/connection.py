"""The base of all clients: one connected socket, and how it is closed."""

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Self

import zmq

from streamer.client.client_errors import DaemonError, KeysRefusedError
from streamer.protocol.endpoints import is_ipv6
from streamer.protocol.keys import ClientKeys
from streamer.protocol.transport.curve import Handshake, Handshakes, connect_with
from streamer.protocol.wire import Buffer

Context = zmq.Context[zmq.Socket[bytes]]

Keys = ClientKeys | str | os.PathLike[str] | None
"""The keys of a client, or the file or folder that holds them (KeysError if it does not)."""

# between two checks whether the daemon admits this client
_LOOK_SECONDS = 0.2


class Connection:
    """A client with a socket connected to ``endpoint``; DaemonError if that is not an endpoint.

    answer_seconds: how long the daemon may be silent. context: by default its own. keys: those to
    show to the daemon; KeysRefusedError if it does not admit them.
    """

    def __init__(
        self,
        endpoint: str,
        answer_seconds: float,
        context: Context | None,
        kind: int,
        options: dict[int, int],
        keys: Keys = None,
    ) -> None:
        self.endpoint = endpoint
        self.keys = keys if keys is None or isinstance(keys, ClientKeys) else ClientKeys.read(keys)
        self._answer_seconds = answer_seconds
        self._own_context = context is None
        self._context: Context = context or zmq.Context()
        self._socket = self._context.socket(kind)
        defaults = {zmq.LINGER: 0, zmq.RECONNECT_IVL: 50, zmq.RECONNECT_IVL_MAX: 1000}
        for option, value in (defaults | options).items():
            self._socket.setsockopt(option, value)
        if is_ipv6(endpoint):
            self._socket.setsockopt(zmq.IPV6, 1)
        if self.keys is not None:
            connect_with(self._socket, self.keys)
        self._handshakes = Handshakes(self._socket)
        self._outcome: Handshake | None = None
        try:
            self._socket.connect(endpoint)
        except zmq.ZMQError as error:
            self.close()
            raise DaemonError(endpoint, f"is not an endpoint: {error}") from None

    def _check_admitted(self) -> None:
        """KeysRefusedError if the daemon has refused this client; called while waiting."""
        # libzmq does not retry after a refusal
        self._outcome = outcome = self._handshakes.take() or self._outcome
        if outcome not in (None, Handshake.ADMITTED):
            raise KeysRefusedError(self.endpoint, self._not_admitted(outcome))

    def _not_admitted(self, outcome: Handshake | None) -> str:
        keys = self.keys
        if keys is None:
            return "not admitted: the daemon needs a key (--keys FILE)"
        if outcome == Handshake.MISMATCH:
            return "the daemon has no keys: connect without one"
        if outcome == Handshake.REFUSED:
            return (
                f"not admitted: the key '{keys.name}' ({keys.public}) has no right on this socket"
            )
        return f"not admitted: the daemon's key is not {keys.server}, or it has none"

    def _post(self, message: Sequence[Buffer]) -> None:
        """Send a message, or drop it if the socket would block: without room, or once refused."""
        with suppress(zmq.Again):
            self._socket.send_multipart(message, zmq.NOBLOCK)

    def _poll(self, seconds: float) -> bool:
        """Wait for a message; returns whether one came. Errors as in ``_check_admitted``."""
        deadline = time.monotonic() + seconds
        while True:
            remaining = max(0.0, deadline - time.monotonic())
            if self._socket.poll(int(min(remaining, _LOOK_SECONDS) * 1000) + 1):
                return True
            self._check_admitted()
            if not remaining:
                return False

    def close(self) -> None:
        """Close the connection."""
        if not self._socket.closed:
            self._handshakes.close()
        self._socket.close()
        if self._own_context:
            self._context.term()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._finish()
        finally:
            self.close()

    def _finish(self) -> None:
        """Called at the end of a ``with`` block, unless an error ends it."""

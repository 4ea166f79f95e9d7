"""What the clients have in common: one connected socket, and its end."""

from __future__ import annotations

from typing import Self

import zmq

from streamer.client.client_errors import DaemonError

Context = zmq.Context[zmq.Socket[bytes]]


class Connection:
    """A client with a socket connected to ``endpoint``; DaemonError if that is no endpoint.

    answer_seconds: how long the daemon may be silent. context: by default one of its own.
    """

    def __init__(
        self,
        endpoint: str,
        answer_seconds: float,
        context: Context | None,
        kind: int,
        options: dict[int, int],
    ) -> None:
        self.endpoint = endpoint
        self._answer_seconds = answer_seconds
        self._own_context = context is None
        self._context: Context = context or zmq.Context()
        self._socket = self._context.socket(kind)
        defaults = {zmq.LINGER: 0, zmq.RECONNECT_IVL: 50, zmq.RECONNECT_IVL_MAX: 1000}
        for option, value in (defaults | options).items():
            self._socket.setsockopt(option, value)
        try:
            self._socket.connect(endpoint)
        except zmq.ZMQError as error:
            self.close()
            raise DaemonError(endpoint, f"is not an endpoint: {error}") from None

    def close(self) -> None:
        """Close the connection."""
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
        """What a ``with`` statement does at its end, unless an error ends it."""

"""A connected socket and, where none was given, a context of its own."""

from __future__ import annotations

import zmq

from streamer.client.errors import DaemonError

Context = zmq.Context[zmq.Socket[bytes]]


class Connection:
    """``socket``, connected to ``endpoint``; DaemonError if that is no endpoint."""

    def __init__(
        self, kind: int, endpoint: str, options: dict[int, int], context: Context | None
    ) -> None:
        self._own_context = context is None
        self._context: Context = context or zmq.Context()
        self.socket = self._context.socket(kind)
        defaults = {zmq.LINGER: 0, zmq.RECONNECT_IVL: 50, zmq.RECONNECT_IVL_MAX: 1000}
        for option, value in (defaults | options).items():
            self.socket.setsockopt(option, value)
        try:
            self.socket.connect(endpoint)
        except zmq.ZMQError as error:
            self.close()
            raise DaemonError(endpoint, f"is no endpoint: {error}") from None

    def close(self) -> None:
        """Close the socket, and the context if it is its own."""
        self.socket.close()
        if self._own_context:
            self._context.term()

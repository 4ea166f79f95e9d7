"""The control thread: replies to requests, also while the engine is busy."""

from __future__ import annotations

from collections.abc import Callable

import structlog
import zmq

from streamer.daemon.board import Board
from streamer.daemon.worker import POLL_MILLISECONDS, SocketWorker
from streamer.protocol.header import (
    MAX_HEADER_BYTES,
    PROTOCOL,
    Header,
    Reason,
    WireError,
    answer,
    shown,
    unpack,
    unseal,
)

COMMANDS = ("status", "drain")

log = structlog.get_logger("control")


class ControlWorker(SocketWorker):
    """Replies to ``status`` and ``drain``; a REQ socket's empty first frame is returned."""

    def __init__(
        self,
        board: Board,
        context: zmq.Context[zmq.Socket[bytes]],
        notify: Callable[[], None],
        drain: Callable[[str], None],
    ) -> None:
        super().__init__("control", board, context, notify)
        self._drain = drain

    def work(self) -> None:
        """Reply until asked to stop."""
        socket = self.bind(
            zmq.ROUTER,
            {zmq.MAXMSGSIZE: MAX_HEADER_BYTES, zmq.SNDHWM: 1000, zmq.RCVHWM: 1000},
        )
        try:
            while not self.stopping.is_set():
                if socket.poll(POLL_MILLISECONDS):
                    self._answer(socket)
        finally:
            self.release(socket)

    def _answer(self, socket: zmq.Socket[bytes]) -> None:
        route, *frames = socket.recv_multipart()
        envelope = [route]
        if frames and not frames[0]:
            envelope.append(frames.pop(0))
        reply: Header = {"v": PROTOCOL}
        try:
            request = unpack(unseal(frames)[0])
            if len(frames) != 2:
                problem = f"a request is a header and its checksum, not {len(frames)} frames"
                raise WireError(Reason.MALFORMED, problem)
            if "id" in request:
                reply["id"] = request["id"]
            reply |= {"type": "reply", "ok": True} | self._obey(request.get("command"))
        except WireError as error:
            reply |= {"type": "reply", "ok": False} | error.fields()
        socket.send_multipart([*envelope, *answer(reply)], zmq.NOBLOCK)

    def _obey(self, command: object) -> Header:
        match command:
            case "status":
                return {"status": self._board.fields()}
            case "drain":
                self._drain("command on the control socket")
                return {}
        problem = f"unknown command {shown(command)} (known: {', '.join(COMMANDS)})"
        raise WireError(Reason.MALFORMED, problem)

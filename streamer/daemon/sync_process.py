"""The sync process: reads committed records of the journal and sends them to clients that pull.

The daemon starts it (``streamer.daemon.sync``) and holds one end of a pipe: a byte means that
records were committed, the end of the pipe that the daemon has ended; then this process ends, too.
It never writes to the journal, and it yields the CPU to the daemon.
"""

from __future__ import annotations

import contextlib
import gc
import math
import os
import signal
import socket
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import structlog
import zmq

from streamer.daemon import logs
from streamer.daemon.connections import Connections
from streamer.daemon.core.rights import Rights
from streamer.daemon.core.sync import Pace, Route, SyncLimits
from streamer.daemon.listener import Listener
from streamer.daemon.process import SyncTask, core_seconds, give_way, raise_limit
from streamer.daemon.replay import HandedOver, ReplayedJournal, SyncReplay
from streamer.daemon.security.known_peers import KnownPeers
from streamer.daemon.socket_worker import bind
from streamer.errors import StreamerError
from streamer.journal.reader import JournalReader
from streamer.journal.record import JournalError
from streamer.protocol.transport.curve import Sender, receive_signed
from streamer.protocol.wire import MAX_HEADER_BYTES, Buffer, WireError, size_of
from trie.cpu.machine import end_with

if TYPE_CHECKING:
    from streamer.daemon.security.gatekeeper import Gatekeeper

NICE = 10

ENDING = b"e"
"""The daemon is about to end; what is committed is still sent."""

# after that the process ends when it has been idle for the first time, or after the second
_QUIET_SECONDS, _ENDING_SECONDS = 0.3, 2.0

# messages that may wait for one connection: this stops clients that give credit for what they
# have not read
_WAITING_MESSAGES = 512
# requests between two bursts of replay
_REQUESTS = 256
_IDLE_MILLISECONDS = 100
# libzmq does not report when a connection has room again: it is tried less and less often
_RETRY_MILLISECONDS = 1, 16
# computed once, since pyzmq would combine its flags for each frame
_MORE, _LAST = int(zmq.SNDMORE | zmq.NOBLOCK), int(zmq.NOBLOCK)
# up to this size, copying a message takes less time than a notification that it was sent
_COPIED_BYTES = 1 << 18

log = structlog.get_logger("sync")


class Server:
    """Serves pulls on a ROUTER socket until the pipe ``wake`` ends."""

    def __init__(
        self,
        sock: zmq.Socket[bytes],
        wake: int,
        journal: ReplayedJournal,
        limits: SyncLimits,
        peers: KnownPeers,
    ):
        self._socket = sock
        self._peers = peers
        self._wake = wake
        self._replay = SyncReplay(journal, limits, time.monotonic, self._hand_over, _log_damage)
        self._pace = Pace()
        self._head = 0
        self._cores = core_seconds()
        # connections that are ended after one answer
        self._unknown: set[Route] = set()

    def serve(self) -> None:
        """Serve; returns once the daemon has ended."""
        poller = zmq.Poller()
        poller.register(self._socket, zmq.POLLIN)
        poller.register(self._wake, zmq.POLLIN)
        os.set_blocking(self._wake, False)
        replay, wait = self._replay, 0
        retry = least = _RETRY_MILLISECONDS[0]
        last, quiet = math.inf, 0.0
        while True:
            events = dict(poller.poll(wait))
            if self._wake in events:
                said = os.read(self._wake, 1 << 16)
                if not said:
                    return
                if ENDING in said:
                    poller.unregister(self._wake)
                    quiet = time.monotonic()
                    last = quiet + _ENDING_SECONDS
            # before the journal is checked: they may be about what has just been committed
            requests = self._requests() if self._socket in events else []
            if events:
                self._see()
            for route in self._peers.sweep(time.monotonic()):
                replay.give_up(route)
            self._hear(requests)
            busy = replay.turn()
            replay.core.tick(time.monotonic())
            retry = least if replay.send() else min(2 * retry, _RETRY_MILLISECONDS[1])
            if busy:
                self._pause()
            now = time.monotonic()
            if busy or self._socket in events:
                quiet = now
            if now > last or (last < math.inf and now - quiet > _QUIET_SECONDS):
                return
            wait = 0 if busy else retry if replay.waits else _IDLE_MILLISECONDS

    def _see(self) -> None:
        head = self._replay.see()
        if head > self._head:
            self._head = head
            self._pace.committed(time.monotonic())

    def _pause(self) -> None:
        """Pause after a burst if other threads need the CPU."""
        (ran, waited), before = core_seconds(), self._cores
        self._cores = ran, waited
        time.sleep(self._pace.pause(time.monotonic(), ran - before[0], waited - before[1]))

    def _requests(self) -> list[tuple[Sender, list[bytes]]]:
        """Some of the messages that have come, each with the key of its sender."""
        requests: list[tuple[Sender, list[bytes]]] = []
        with contextlib.suppress(zmq.Again):
            while len(requests) < _REQUESTS:
                requests.append(receive_signed(self._socket, signed=self._peers.guarded))
        return requests

    def _hear(self, requests: Sequence[tuple[Sender, list[bytes]]]) -> None:
        for sender, message in requests:
            route, *frames = message
            rights: Rights | WireError | None
            try:
                rights = self._peers.rights(route, sender)
            except WireError as error:
                rights = error
                self._unknown.add(route)
            for gone in self._peers.replaced():
                self._replay.give_up(gone)
            if rights is not None:
                self._replay.core.hear(route, frames, time.monotonic(), rights)

    def _hand_over(self, route: Route, frames: Sequence[Buffer]) -> HandedOver:
        if self._peers.reached(route) is None and route not in self._unknown:
            return HandedOver.GONE
        self._unknown.discard(route)
        try:
            send, copy = self._socket.send, size_of(frames) < _COPIED_BYTES
            send(route, _MORE)
            for frame in frames[:-1]:
                send(frame, _MORE, copy=copy)
            send(frames[-1], _LAST)
        except zmq.Again:
            return HandedOver.FULL
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
            return HandedOver.GONE
        return HandedOver.SENT


def _log_damage(error: JournalError, ends: bool) -> None:
    what = "request ended: what it asks for cannot be read" if ends else "damaged record"
    log.error(what, problem=str(error))


def main() -> None:
    """The body of the process; its arguments: the daemon's PID, and a SyncTask."""
    # this process may get no core for long, and the next daemon needs the endpoint
    end_with(int(sys.argv[1]))
    # the daemon ends this process at its own end
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    give_way(NICE)
    # frames and headers come by the thousand and form no cycles
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)
    task = SyncTask.from_json(sys.argv[2])
    logs.configure(task.level, task.format)
    try:
        run(task)
    except StreamerError as error:
        log.error(str(error))
        sys.exit(1)


def run(task: SyncTask) -> None:
    """Serve until the daemon ends; StreamerError if the journal cannot be read."""
    journal = ReplayedJournal(JournalReader(task.directory))
    listener = Listener(task.endpoint, socket.socket(fileno=task.listener))
    connections = Connections(lambda: None, [listener], raise_limit())
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    gate = _gatekeeper(task, context)
    options: dict[int, int] = {
        zmq.ROUTER_MANDATORY: 1,
        # a client that reconnects with its routing id takes over from its old connection; with
        # keys nobody does, since that may be another client's connection
        zmq.ROUTER_HANDOVER: int(gate is None),
        zmq.SNDHWM: _WAITING_MESSAGES,
        zmq.MAXMSGSIZE: 2 * MAX_HEADER_BYTES,
    }
    try:
        with bind(context, zmq.ROUTER, options, listener, "sync", gate) as sock:
            connections.start()
            peers = KnownPeers(gate, "sync", strict=True)
            Server(sock, task.wake, journal, SyncLimits(*task.limits), peers).serve()
    finally:
        connections.stop()
        if gate is not None:
            gate.end()
        context.term()
        journal.close()


def _gatekeeper(task: SyncTask, context: zmq.Context[zmq.Socket[bytes]]) -> Gatekeeper | None:
    """The gatekeeper of this process, None without keys; if it fails, the process ends."""
    if not task.keys:
        return None
    # imported late: the code that reads the permissions takes time to import
    from streamer.daemon.security.gatekeeper import Gatekeeper
    from streamer.daemon.security.key_folder import KeyFolder

    with open(task.contents, encoding="utf-8") as file:
        file.seek(0)
        folder = KeyFolder.from_json(file.read())

    def ended() -> None:
        if gate.error is not None and gate.ready.is_set():
            log.error("the gatekeeper failed", why=str(gate.error))
            os._exit(1)

    gate = Gatekeeper(task.keys, context, ended, folder)
    gate.begin()
    return gate


if __name__ == "__main__":
    main()

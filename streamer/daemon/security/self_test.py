"""The self-test at start: a client with a wrong key or without a key must fail to authenticate.

If one of its security options is missing, libzmq silently ignores the others and admits anybody. So
each socket is tested before its first message is received.
"""

from __future__ import annotations

import zmq

from streamer.errors import StreamerError
from streamer.protocol.endpoints import is_ipv6, reachable
from streamer.protocol.keys import ClientKeys
from streamer.protocol.transport.curve import connect_with, new_pair
from streamer.protocol.transport.handshakes import Handshake, Handshakes

_SECONDS = 10.0


def wrong_keys(server: str) -> ClientKeys:
    """A key that nobody knows, for a daemon with this public key."""
    return ClientKeys("self-test", *new_pair(), server)


def check_door(name: str, endpoint: str, wrong: ClientKeys) -> None:
    """StreamerError unless the socket ``name`` at ``endpoint`` refuses a wrong key and no key."""
    # without a key, the connection may end before the reason arrives
    keyless = (Handshake.MISMATCH, Handshake.BROKEN)
    for keys, wanted in ((wrong, (Handshake.REFUSED,)), (None, keyless)):
        outcome = _outcome(endpoint, zmq.SUB if name == "feed" else zmq.DEALER, keys)
        if outcome not in wanted:
            said = "not refused in time" if outcome is None else outcome.value
            which = "without a key" if keys is None else "with a wrong key"
            problem = (
                f"security self-test: a client {which} on {name} was {said}: nothing is served"
            )
            raise StreamerError(problem)


def _outcome(endpoint: str, kind: int, keys: ClientKeys | None) -> Handshake | None:
    # like another process: share nothing with this one
    target = reachable(endpoint)
    with zmq.Context() as context, context.socket(kind) as socket:
        socket.linger = 0
        if is_ipv6(target):
            socket.setsockopt(zmq.IPV6, 1)
        if keys is not None:
            connect_with(socket, keys)
        handshakes = Handshakes(socket)
        try:
            socket.connect(target)
            outcome = None
            # an event may be inconclusive
            while outcome is None and handshakes.monitor.poll(int(_SECONDS * 1000)):
                outcome = handshakes.take()
            return outcome
        finally:
            handshakes.close()

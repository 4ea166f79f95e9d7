"""The gatekeeper's thread: tells libzmq who may connect (ZAP, RFC 27), and follows the key folder.

libzmq asks about every connection before it accepts a message from it. A question names a domain,
that is a socket, and a key: a key without any right on that socket is refused.

If one of its security options is missing, libzmq silently ignores the others and admits anybody. So
each socket is tested before its first message is received: a client with a wrong key or without a
key must fail to authenticate.
"""

import time
from collections.abc import Callable

import structlog
import zmq

from streamer.daemon.core.rights import Rights
from streamer.daemon.security.key_folder import KeyFolder, state_of
from streamer.daemon.worker import Worker
from streamer.errors import StreamerError
from streamer.protocol.endpoints import is_ipv6, reachable
from streamer.protocol.keys import ClientKeys
from streamer.protocol.transport.curve import Handshake, Handshakes, connect_with, key_of, new_pair

_SECONDS = 10.0


def check_listener(name: str, endpoint: str, wrong: ClientKeys) -> None:
    """StreamerError unless the socket ``name`` at ``endpoint`` refuses a wrong key and no key."""
    # without a key, the connection may end before the reason arrives
    keyless = (Handshake.MISMATCH, Handshake.BROKEN)
    for keys, wanted in ((wrong, (Handshake.REFUSED,)), (None, keyless)):
        outcome = _outcome(endpoint, zmq.SUB if name == "feed" else zmq.DEALER, keys)
        if outcome not in wanted:
            said = "not refused in time" if outcome is None else outcome.value
            which = "without a key" if keys is None else "with a wrong key"
            raise StreamerError(
                f"security self-test: a client {which} on {name} was {said}: nothing is served"
            )


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


_ENDPOINT = "inproc://zeromq.zap.01"
_VERSION = b"1.0"
_ADMITTED, _REFUSED = (b"200", b"OK"), (b"400", b"refused")
# between two checks of the folder; a change is read once two checks have seen it
_LOOK_SECONDS = 0.4
_REPORT_SECONDS = 10.0

log = structlog.get_logger("security")


class Gatekeeper(Worker):
    """Admits those who have a right in the folder of keys; KeysError if it cannot be used.

    contents: the keys in force; at first those given, or else those in the folder. version: rises
    whenever they change. refused: connections refused so far. server: the daemon's key.
    """

    def __init__(
        self,
        folder: str,
        context: zmq.Context[zmq.Socket[bytes]],
        notify: Callable[[], None],
        known: KeyFolder | None = None,
    ) -> None:
        super().__init__("security", notify)
        self.contents = known or KeyFolder.read(folder)
        self.server = self.contents.server
        self.version = 0
        self.refused = 0
        self._folder = folder
        self._seen = self.contents.state
        # why the folder could not be read
        self._fault = ""
        self._zmq = context
        # keys of the daemon's own clients
        self._own: dict[str, Rights] = {}
        # keys of the self-test
        self._wrong: set[str] = set()
        self._looked = time.monotonic()
        self._reported = -_REPORT_SECONDS

    def counts(self) -> dict[str, int]:
        """Return how many keys are known, and how many attempts were refused."""
        return {"keys": self.keys, "refused": self.refused}

    @property
    def keys(self) -> int:
        """How many keys are in the folder."""
        return len(self.contents.rights)

    def rights(self, user: str, domain: str) -> Rights | None:
        """The rights of the owner of a public key, None if it has none on this socket."""
        rights = self._own.get(user) or self.contents.rights.get(user)
        return rights if rights is not None and rights.may_enter(domain) else None

    def issue(self, rights: Rights) -> ClientKeys:
        """A new key for a client that the daemon starts; it exists only in memory."""
        pair = new_pair()
        self._own[pair.public] = rights._replace(key=pair.public)
        return ClientKeys(rights.name, *pair, self.server.public)

    def test(self, name: str, endpoint: str) -> None:
        """Self-test the socket ``name``; StreamerError unless it refuses wrong keys."""
        # a key that nobody knows
        wrong = ClientKeys("self-test", *new_pair(), self.server.public)
        self._wrong.add(wrong.public)
        check_listener(name, endpoint, wrong)

    def begin(self) -> None:
        """Start, and return once the thread answers; StreamerError if it cannot."""
        self.start()
        self.ready.wait()
        if self.error is not None:
            raise StreamerError(f"the gatekeeper cannot start: {self.error}") from self.error

    def end(self) -> None:
        """Stop, and return once the thread has ended; its sockets then admit nobody."""
        self.stop()
        self.join()

    def work(self) -> None:
        """Answer until asked to stop."""
        socket = self._zmq.socket(zmq.REP)
        socket.linger = 0
        try:
            socket.bind(_ENDPOINT)
            self.ready.set()
            while not self.stopping.is_set():
                if socket.poll(int(_LOOK_SECONDS * 1000)):
                    socket.send_multipart(self._answer(socket.recv_multipart()))
                self._follow()
        finally:
            socket.close()

    def _answer(self, request: list[bytes]) -> list[bytes]:
        """The reply to one question; a malformed question is refused."""
        number = request[1] if len(request) > 1 else b""
        status, user, metadata = _REFUSED, b"", b""
        if len(request) == 7 and request[0] == _VERSION and len(request[6]) == 32:
            domain, address, mechanism = (request[i].decode(errors="replace") for i in (2, 3, 5))
            key = key_of(request[6])
            if mechanism == "CURVE" and self.rights(key, domain) is not None:
                status, user = _ADMITTED, key.encode()
            else:
                self._report(domain, address, key)
        return [_VERSION, number, *status, user, metadata]

    def _report(self, domain: str, address: str, key: str) -> None:
        if key in self._wrong:
            return
        self.refused += 1
        now = time.monotonic()
        if now - self._reported > _REPORT_SECONDS:
            self._reported = now
            rights = self.contents.rights.get(key)
            who = {"key": key} if rights is None else {"name": rights.name}
            log.warning("connection refused", socket=domain, address=address, **who)

    def _follow(self) -> None:
        """Read the folder again if it has changed; if it cannot be used, nothing changes."""
        now = time.monotonic()
        if now - self._looked < _LOOK_SECONDS:
            return
        self._looked = now
        state, before = state_of(self._folder), self._seen
        self._seen = state
        # do not read a file while it is being written
        if state == self.contents.state or state != before:
            return
        try:
            folder = KeyFolder.read(self._folder)
        except StreamerError as error:
            # some errors, such as a lack of descriptors, leave no trace in the folder: try again
            if str(error) != self._fault:
                self._fault = str(error)
                log.error("the keys stay as they were", why=self._fault)
            return
        self._fault = ""
        if folder.server != self.server:
            log.error("the daemon's own key changes only at its start", folder=self._folder)
        # assigned in one step, since another thread may be reading it
        self.contents = folder._replace(server=self.server)
        self.version += 1
        log.info("keys read again", keys=self.keys)

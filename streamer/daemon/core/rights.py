"""Who may do what: the rights of a key, and its limits. Decisions only.

Whether a client has a key at all is settled before its first message (``daemon/security``).
"""

from fnmatch import fnmatchcase
from typing import NamedTuple

from streamer.protocol.schema import FEED
from streamer.protocol.wire import Reason, WireError

# a subscriber needs these to know whether the daemon is alive
ALWAYS_WATCHED = ("beat", "status")


class KeyLimits(NamedTuple):
    """The limits of one key, 0 for none.

    bytes_per_second: of accepted batches. waiting_bytes: of its batches in the daemon. connections:
    per socket. subscriptions: over all its connections. jobs: that wait or run.
    """

    bytes_per_second: int = 0
    waiting_bytes: int = 0
    connections: int = 0
    subscriptions: int = 0
    jobs: int = 0


class Rights(NamedTuple):
    """The rights of a key. name: its name. key: its public part, empty if the daemon needs no keys.

    send: patterns of producers' names. watch: patterns of topics. control: patterns of commands.
    sync: whether it may replay past messages on the topics that it may watch.
    """

    name: str
    key: str = ""
    send: tuple[str, ...] = ()
    watch: tuple[str, ...] = ()
    sync: bool = False
    control: tuple[str, ...] = ()
    limits: KeyLimits = KeyLimits()

    def may_enter(self, domain: str) -> bool:
        """Whether the key may do anything on this socket."""
        sync = self.sync and self.watch
        needs = {"ingest": self.send, "feed": self.watch, "sync": sync, "control": self.control}
        return bool(needs.get(domain))

    def may_send(self, producer: str) -> bool:
        """Whether the key may send batches as this producer."""
        return _any(self.send, producer)

    def may_watch(self, topic: str) -> bool:
        """Whether the key may receive messages on a topic, named without its dot."""
        return topic in ALWAYS_WATCHED or _any(self.watch, topic)

    def may_order(self, command: str) -> bool:
        """Whether control accepts this command from it."""
        return _any(self.control, command)

    def may_subscribe(self, prefix: str) -> bool:
        """Whether the key may watch every topic that begins with this prefix."""
        return all(self.may_watch(topic.name) for topic in FEED if topic.wire.startswith(prefix))

    def denial(self, what: str) -> WireError:
        """The error for a forbidden action, such as "send as 'a'"."""
        return WireError(Reason.DENIED, f"the key '{self.name}' may not {what}")


def _any(patterns: tuple[str, ...], name: str) -> bool:
    # "*" and "?" are wildcards, brackets are literal; "*" alone, the usual one, needs no pattern
    return "*" in patterns or any(
        fnmatchcase(name, pattern.replace("[", "[[]")) for pattern in patterns
    )


EVERYTHING = Rights("", "", ("*",), ("*",), True, ("*",))
"""The rights of every client if the daemon needs no keys."""

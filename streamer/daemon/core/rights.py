"""Who may do what: the rights of a key, and its limits. Decisions only.

Whether a client has a key at all is settled before its first message (``daemon/security``).
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import NamedTuple

from streamer.protocol.header import Reason, WireError
from streamer.protocol.schema import FEED

DOMAINS = ("ingest", "feed", "sync", "control")
"""The sockets, each an authentication domain of its own."""

# what a subscriber needs to know whether the daemon is there
ALWAYS_WATCHED = ("beat", "status")


class KeyLimits(NamedTuple):
    """Of one key, 0: none. bytes_per_second: of batches that are accepted. waiting_bytes: of its
    batches in the daemon. connections: of each socket. subscriptions: of all its connections. jobs:
    that wait or run.
    """

    bytes_per_second: int = 0
    waiting_bytes: int = 0
    connections: int = 0
    subscriptions: int = 0
    jobs: int = 0


class Rights(NamedTuple):
    """What a key may do. name: of the key. key: its public part, empty where none are asked for.

    send: patterns of producers' names. watch: patterns of topics. control: patterns of commands.
    sync: whether it may ask for what was said before, on the topics that it may watch.
    """

    name: str
    key: str = ""
    send: tuple[str, ...] = ()
    watch: tuple[str, ...] = ()
    sync: bool = False
    control: tuple[str, ...] = ()
    limits: KeyLimits = KeyLimits()

    def may_enter(self, domain: str) -> bool:
        """Whether anything on this socket is allowed."""
        match domain:
            case "ingest":
                return bool(self.send)
            case "feed":
                return bool(self.watch)
            case "sync":
                return self.sync and bool(self.watch)
            case "control":
                return bool(self.control)
        return False

    def may_send(self, producer: str) -> bool:
        """Whether batches of this producer may come."""
        return _any(self.send, producer)

    def may_watch(self, topic: str) -> bool:
        """Whether messages on a topic, without its dot, may go out."""
        return topic in ALWAYS_WATCHED or _any(self.watch, topic)

    def may_order(self, command: str) -> bool:
        """Whether control obeys."""
        return _any(self.control, command)

    def may_subscribe(self, prefix: str) -> bool:
        """Whether every topic that begins so may be watched."""
        return all(self.may_watch(topic.name) for topic in FEED if topic.wire.startswith(prefix))

    def denial(self, what: str) -> WireError:
        """The error for what is not allowed, as in "send as 'a'"."""
        return WireError(Reason.DENIED, f"the key '{self.name}' may not {what}")


def _any(patterns: tuple[str, ...], name: str) -> bool:
    # "*" and "?" are wildcards, brackets stand for themselves
    return any(fnmatchcase(name, pattern.replace("[", "[[]")) for pattern in patterns)


EVERYTHING = Rights("", "", ("*",), ("*",), True, ("*",))
"""Of clients of a daemon that asks for no keys."""

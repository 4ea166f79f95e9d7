"""Shared by the tests of the ingest state machine: a core with a peer, and its messages."""

from __future__ import annotations

from typing import Any

from streamer.daemon.core.ingest import IngestCore, Settings
from streamer.daemon.core.life import RUNNING
from streamer.daemon.core.producers import ProducerState
from streamer.protocol.header import PROTOCOL, Header

NOW = 1_700_000_000_000
SETTINGS = Settings("0123456789abcdef", 3, "fsync", 1000, 400)


class Peer:
    """A core, with its input and output."""

    def __init__(
        self, durability: str = "fsync", settings: Settings = SETTINGS, **options: Any
    ) -> None:
        self.core = IngestCore(settings._replace(durability=durability), **options)
        self.core.tick(0, NOW)
        self.core.life(RUNNING)
        self.accepted: list[Any] = []

    def send(self, header: Header, size: int = 10, content: int = 1, route: bytes = b"r") -> Any:
        """Send a message; returns the immediate answer, None if it is an acknowledgement."""
        offer = self.core.message(route, header, size, content)
        if offer is not None:
            self.accepted.append(self.core.accept(offer, None, b""))
        return self.core._answers[-1][1] if self.core._answers else None

    def hello(self, epoch: int = 1, route: bytes = b"r", **more: Any) -> Any:
        return self.send(hello(epoch, **more), route=route)

    def answers(self, route: bytes = b"r") -> list[Header]:
        return [answer for to, answer in self.core.answers() if to == route]

    def producer(self, name: str = "p") -> ProducerState:
        found = self.core.producers.find(name)
        assert found is not None
        return found


def hello(epoch: int = 1, name: str = "p", **more: Any) -> Header:
    return {"v": PROTOCOL, "type": "hello", "producer": name, "epoch": epoch} | more


def batch(seq: int, epoch: int = 1, name: str = "p", **more: Any) -> Header:
    return hello(epoch, name) | {"type": "batch", "seq": seq} | more


def reason(answer: Header | None) -> str:
    assert answer is not None
    assert answer["type"] == "refused"
    return str(answer["reason"])

"""Fuzzed messages to all sockets of a daemon and to its clients, besides honest ones.

A world is a daemon with clients for some hundred messages; afterwards the honest clients must have
everything. The same messages to a world with the same seed have the same effect.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from tests.fuzz.client_side import ClientSide
from tests.fuzz.control_side import ControlSide, FeedSide, SyncSide
from tests.fuzz.ingest_side import IngestSide
from tests.fuzz.mutation import Message, Mutator, decoded, encoded, seeds

_MESSAGES = 1000
"""The number of messages of a world."""

_SHARES = {"ingest": 8, "control": 3, "sync": 3, "feed": 1, "answer": 3, "message": 2, "replay": 2}


class World:
    """A daemon and its clients."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.ingest = IngestSide(self.rng)
        self.control = ControlSide()
        self.sync = SyncSide(self.rng)
        clients = ClientSide(self.rng)
        self._takes: dict[str, Callable[[Sequence[bytes]], str]] = {
            "ingest": self.ingest.take,
            "control": self.control.take,
            "sync": self.sync.take,
            "feed": FeedSide(self.rng).take,
            "answer": clients.answer,
            "message": clients.message,
            "replay": clients.replay,
        }

    def take(self, socket: str, frames: Sequence[bytes]) -> str:
        """Take a message; returns its outcome."""
        became = self._takes[socket](frames)
        if self.rng.random() < 0.04:
            self.ingest.go_on()
            self.control.go_on()
            self.sync.go_on()
        return became

    def end(self) -> None:
        """Check that honest clients lost nothing."""
        self.ingest.end()
        self.sync.end()

    def close(self) -> None:
        """Close what is open."""
        self.ingest.close()
        self.control.close()


class Wire:
    """The target: takes inputs one after the other. became: the number of inputs by outcome."""

    name = "wire"

    def __init__(self) -> None:
        self.became = Counter[str]()
        self.trail: list[bytes | Message] = []
        self.seed = 0
        self._world: World | None = None

    def begin(self, seed: int) -> None:
        """Use this seed for the next world."""
        self.seed = seed
        self.trail.clear()
        if self._world is not None:
            self._world.close()
        self._world = World(seed)

    def one(self, data: bytes) -> None:
        """Take an input."""
        self.take(decoded(data))

    def take(self, message: Message) -> None:
        """Take a message."""
        if self._world is None:
            self.begin(self.seed)
        assert self._world is not None
        self.trail.append(message)
        became = self._world.take(*message)
        self.became[f"{message.socket} {became}"] += 1
        if len(self.trail) >= _MESSAGES:
            self.finish()

    def finish(self) -> None:
        """End the world."""
        if self._world is not None:
            self._world.end()
            self._world.close()
            self._world = None
            self.trail.clear()
            self.seed += 1

    def close(self) -> None:
        """Close the world without checks."""
        if self._world is not None:
            self._world.close()
            self._world = None

    def left(self) -> list[bytes]:
        """The inputs since the world began."""
        return [encoded(one) if isinstance(one, Message) else one for one in self.trail]

    def seeds(self) -> list[bytes]:
        """Inputs to begin with."""
        return [encoded(message) for message in seeds()]

    def maker(self, corpus: Sequence[bytes]) -> Callable[[random.Random], None]:
        """A function that makes and takes the next message, from seeds and the corpus."""
        mutator = Mutator([*seeds(), *map(decoded, corpus)], self._aim)
        sockets = [socket for socket, share in _SHARES.items() for _ in range(share)]

        def step(rng: random.Random) -> None:
            socket = sockets[int(rng.random() * len(sockets))]
            self.take(Message(socket, mutator.make(rng, socket)))

        return step

    def _aim(self, socket: str, fields: dict[Any, Any], rng: random.Random) -> dict[str, Any]:
        if socket != "ingest" or self._world is None:
            return {}
        return self._world.ingest.aim(fields, rng)

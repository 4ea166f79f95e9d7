"""Subscriptions without sockets: only prefixes of topics are stored, and they are counted."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

from streamer.daemon.core.feed import MAX_IGNORED, Subscriptions
from tests.fuzz import page


class FeedSide:
    """How a daemon's feed handles messages of subscribers."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.held = Subscriptions()
        self.wanted = set[tuple[bytes, int]]()
        self.ignored = Counter[int]()

    def take(self, frames: Sequence[bytes]) -> str:
        """Take a fuzzed subscription, or the end of one."""
        frame = frames[0] if frames else b""
        kind, prefix = frame[:1], frame[1:]
        known = page.begins_a_topic(prefix)
        connection = self.rng.randrange(3)
        if kind == b"\1":
            stays = self.held.add(prefix, connection)
            if known:
                self.wanted.add((prefix, connection))
            else:
                self.ignored[connection] += 1
            assert stays == (known or self.ignored[connection] <= MAX_IGNORED)
        elif kind == b"\0":
            self.held.remove(prefix, connection)
            self.wanted.discard((prefix, connection))
        kept = {prefix.encode(): count for prefix, count in self.held.prefixes.items()}
        assert kept == Counter(prefix for prefix, _ in self.wanted)
        assert self.held.ignored == self.ignored.total()
        wires = [
            topic for topic in page.TOPICS if any(f"{topic}.".encode().startswith(p) for p in kept)
        ]
        assert self.held.topics == frozenset(wires)
        return "kept" if known else "ignored"

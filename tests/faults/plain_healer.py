"""A subscriber in plain pyzmq and msgpack that heals itself, from docs/protocol.md alone."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import msgpack
import zmq

from tests.faults.plain_client import Header, unseal
from tests.faults.plain_sync import PlainPuller

Key = tuple[str, int]
Message = tuple[Header, list[bytes]]

LOST = 0.01
"""The share of messages that are dropped or delayed, half of them each."""

_LATE = 3


class PlainHealer:
    """Follows the feed on some topics from the first record on, over restarts of the daemon.

    It loses messages of the feed on purpose, and pulls what is missing when ``heal`` is called.
    order: keys in the order in which messages were applied. messages: their contents without time
    and epoch, including those that wait for missing ones.
    """

    def __init__(
        self,
        context: zmq.Context[Any],
        feed: str,
        sync: str,
        topics: Sequence[str],
        rng: random.Random,
    ) -> None:
        self._context, self._sync, self._topics, self._rng = context, sync, topics, rng
        self.socket = context.socket(zmq.SUB)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.setsockopt(zmq.RECONNECT_IVL, 5)
        for topic in (*topics, "status", "beat"):
            self.socket.subscribe(f"{topic}.")
        self.socket.connect(feed)
        self.messages: dict[Key, Message] = {}
        self.order: list[Key] = []
        self.last = dict.fromkeys(topics, 0)
        self.missing = 0
        """Something is missing up to this record; 0: nothing is."""
        self.lost = self.pulled = 0
        self.ended = False
        self._stream = ""
        self._epoch = self._top = 0
        self._late: list[tuple[int, list[bytes]]] = []
        self._kept: list[Key] = []
        self._puller: PlainPuller | None = None
        self._taken = self._passed = 0

    def close(self) -> None:
        self.leave_sync()
        self.socket.close()

    def step(self, *, faults: bool = True) -> None:
        """Process what has come."""
        while self.socket.poll(0):
            frames = self.socket.recv_multipart()
            chance = self._rng.random() if faults else 1.0
            if chance < LOST / 2:
                self.lost += 1
            elif chance < LOST:
                self.lost += 1
                self._late.append((self._rng.randint(1, _LATE), frames))
            else:
                self._hear(frames)
                self._let_go(0 if faults else _LATE)

    def _let_go(self, more: int) -> None:
        waiting, self._late = self._late, []
        for count, frames in waiting:
            if count - 1 - more > 0:
                self._late.append((count - 1, frames))
            else:
                self._hear(frames)

    def _hear(self, frames: list[bytes]) -> None:
        wire, first, *rest = unseal(frames)
        header = msgpack.unpackb(first)
        topic = wire.decode().removesuffix(".")
        signal = topic in ("beat", "status")
        if header["epoch"] < self._epoch:
            return
        assert self._stream in ("", header["stream"]), "another stream: everything is lost"
        if header["epoch"] > self._epoch:
            assert header["at"] >= self._top + (not signal), "lost: numbers come again"
        self._stream, self._epoch = header["stream"], header["epoch"]
        self._top = max(self._top, header["at"])
        if signal:
            self._see(header)
            self.ended = topic == "status" and header["status"]["state"] == "ended"
            return
        key = topic, header["at"]
        self._know(key, (_content(header), rest))
        if not self.missing and header["prev"] > self.last[topic]:
            self.missing = header["prev"]
        if self.missing:
            self._kept.append(key)
        else:
            self._apply(key)

    def _see(self, signal: Header) -> None:
        heads = {topic: signal["heads"].get(f"{topic}.", 0) for topic in self._topics}
        behind = [at for topic, at in heads.items() if at > self.last[topic]]
        if behind:
            self.missing = max(self.missing, *behind)
        elif not self.missing:
            self._reach(signal["at"])

    def _know(self, key: Key, message: Message) -> None:
        assert self.messages.setdefault(key, message) == message, f"{key} was said differently"

    def _apply(self, key: Key) -> None:
        """Apply a message, unless it was applied before."""
        topic, at = key
        if at <= self.last[topic]:
            return
        prev = self.messages[key][0]["prev"]
        assert prev <= self.last[topic], f"{key}: {prev} is missing and was not noticed"
        self.last[topic] = at
        self.order.append(key)

    def _reach(self, at: int) -> None:
        """Nothing more will come up to this record."""
        self.last = {topic: max(last, at) for topic, last in self.last.items()}

    # ---- what is missing ------------------------------------------------------------------------

    def leave_sync(self) -> None:
        """Forget a pull: the daemon that serves it has ended."""
        if self._puller is not None:
            self._puller.close()
            self._puller = None

    def heal(self) -> None:
        """Pull what is missing, in portions."""
        if not self.missing:
            return
        if self._puller is not None and self._puller.silent:
            self.leave_sync()
        if self._puller is None:
            after = max(self._passed, min(self.last.values()))
            self._puller = PlainPuller(
                self._context, self._sync, self._topics, stream=self._stream, after=after
            )
            self._taken = 0
        puller = self._puller
        while puller.step():
            for key in puller.order[self._taken :]:
                self._know(key, puller.messages[key])
                self._apply(key)
                # everything before it has come, on all topics
                self._passed = max(self._passed, key[1] - 1)
                self.pulled += 1
            self._taken = len(puller.order)
        bad = [answer for answer in puller.answers if answer["type"] in ("lost", "reset")]
        assert not bad, f"{self.last}: sync answered {bad}"
        if puller.order or puller.heads:
            self._reach(puller.at)
        if puller.at >= self.missing:
            self.leave_sync()
            self.missing = 0
            kept, self._kept = self._kept, []
            for key in kept:
                if self.messages[key][0]["prev"] > self.last[key[0]]:
                    self.missing = max(self.missing, self.messages[key][0]["prev"])
                if self.missing:
                    self._kept.append(key)
                else:
                    self._apply(key)


def _content(header: Header) -> Header:
    return {k: v for k, v in header.items() if k not in ("epoch", "time")}

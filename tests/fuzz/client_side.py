"""What clients accept from a daemon: messages as in docs/protocol.md, or damage that is counted.

Damage never ends a subscriber, and a producer fails with a client error of one line.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from typing import Any

from streamer.client.client_errors import DaemonError, RefusedError
from streamer.client.core.producer import Batch, ProducerCore
from streamer.client.core.subscriber import (
    Cursor,
    FetchCore,
    HealingCore,
    Positions,
    PullCore,
    SubscriberCore,
)
from streamer.client.message_tables import tables
from streamer.client.messages import RecordMessage
from streamer.protocol.schema import TOPICS
from streamer.protocol.wire import WireError, unpack, unseal
from tests.fuzz import page
from tests.fuzz.mutation import EPOCH, STREAM

_HELD = 3
_LASTS = 40
_SHOWN, _HEALED = 0.1, 0.3
_PULLED = ["match", "read"]


class ClientSide:
    """A producer, subscribers and a puller, each replaced by a new one now and then."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.now = 1.0
        self._begin_producer()
        self._begin_subscribers()

    def _begin_producer(self) -> None:
        core = self.producer = ProducerCore("ingest", "p", EPOCH, 5.0)
        for number in range(_HELD):
            core.add(Batch([b"names", b"", b""], 5, number, 1, None))
        core.went_out(core.hello(), self.now)

    def _begin_subscribers(self) -> None:
        topics = [*TOPICS]
        self.subscriber = SubscriberCore(topics, 5.0)
        self.healing = HealingCore(topics, 5.0, Cursor(STREAM, 3))
        self.pull = PullCore(_PULLED, count(1), Cursor(STREAM, 0))
        self.pull.begin(self.now)
        self.fetch = FetchCore(2)
        self._left = _LASTS

    # ---- answers to a producer -------------------------------------------------------------------

    def answer(self, frames: Sequence[bytes]) -> str:
        """Take an answer of ingest; returns "taken", or how it fails."""
        core = self.producer
        try:
            fields, _ = page.opened(frames)
        except page.Faulty:
            fields = None
        try:
            header = unpack(unseal(frames)[0])
            assert fields is not None, "taken, but no header of the page"
            core.hear(header, self.now)
            while (message := core.batch()) is not None:
                core.went_out(message, self.now)
            result = "taken"
        except WireError as error:
            result = "damage"
            assert "\n" not in str(error)
        except DaemonError as error:
            result = type(error).__name__
            str(error)
        account = core.account
        assert 0 <= account.durable <= account.total <= _HELD
        assert type(core.state) is str and type(core.mark) is bytes
        if result not in ("taken", "damage") or self.rng.random() < 0.03:
            self._begin_producer()
        return result

    # ---- messages of the feed --------------------------------------------------------------------

    def message(self, frames: Sequence[bytes]) -> str:
        """Take a message of the feed; returns its topic, "" if it is ignored, or "damage"."""
        try:
            wanted: str | None = page.topic_of(frames)
        except page.Faulty:
            wanted = "damage"
        except page.Unsure:
            wanted = None
        core = self.subscriber
        before = core.damaged
        core.take(frames)
        if self.rng.random() < _HEALED:
            self.healing.take(frames)
        damaged = core.damaged > before
        assert wanted is None or damaged == (wanted == "damage"), (wanted, core.damage)
        if core.denial is not None:
            str(RefusedError("feed", core.denial))
            core.denial = None
        while (said := core.next()) is not None:
            # notices about gaps and epochs have none
            if hasattr(said, "stamp"):
                assert not damaged
                self._show(said)
        self._go_on()
        return wanted or "ignored"

    # ---- answers of sync -------------------------------------------------------------------------

    def replay(self, frames: Sequence[bytes]) -> str:
        """Take an answer of sync, as a pull and as a fetch of a state."""
        pull, before = self.pull, self.pull.damaged
        pull.received = Positions(_PULLED, Cursor(STREAM, 0))
        events = [*pull.take(frames, self.now)]
        event = events[-1] if events else None
        self.healing.answer(frames, self.now)
        if isinstance(event, RecordMessage):
            self._show(event)
            with suppress(page.Unsure):
                assert page.body(page.opened(frames)[1]), "a message of no topic"
        elif event is not None:
            page.opened(frames)
        if not pull.active or pull.damaged > before + 5:
            pull.begin(self.now)
            pull._number = 1
        with suppress(WireError):
            state = self.fetch.take(frames)
            if state is not None:
                self.fetch = FetchCore(2)
        self.healing.tick(self.now)
        self._go_on()
        return type(event).__name__

    def _show(self, message: Any) -> None:
        """Make the rows as ``streamer watch`` does; this takes longer than everything else."""
        if self.rng.random() < _SHOWN:
            for table in tables(message):
                table.records()

    def _go_on(self) -> None:
        self.healing.pull.requests.clear()
        self.pull.requests.clear()
        self.fetch.requests.clear()
        while self.healing.next() is not None:
            pass
        self._left -= 1
        if not self._left:
            self._begin_subscribers()

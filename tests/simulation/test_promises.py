"""The checks of the simulation fail where they must."""

from __future__ import annotations

import random

import pytest

from streamer.client.core.subscriber import Cursor
from streamer.client.messages import Reset
from tests.simulation.machine_disk import MachineDisk
from tests.simulation.model_journal import OwnedJournal
from tests.simulation.promises import Promises, Violation
from tests.simulation.subscriber_host import Heard

TRUTH = {"read": {at: b"%d" % at for at in range(2, 8)}}


def heard(*had: int, **fields: object) -> Heard:
    """A subscriber that has these messages."""
    found = Heard("h", ("read",), {"read": {at: b"%d" % at for at in had}})
    for name, value in fields.items():
        setattr(found, name, value)
    return found


@pytest.mark.parametrize(
    "fine",
    [
        heard(2, 3, 4, 5, 6, 7, start=0),
        heard(5, 6, 7, start=4),
        # it only follows the feed: missing messages before its first one are no gap
        heard(4, 5, 6, 7),
        heard(4, 7, gaps=[("read", 4, 6)]),
        heard(2, 3, over=True),
        heard(2, 6, 7, start=0, resets=[(2, 5)]),
    ],
)
def test_what_was_noticed_is_no_fault(fine):
    Promises(grows=True)._check_heard(fine, TRUTH)


@pytest.mark.parametrize(
    ("wrong", "kind"),
    [
        (heard(2, 3, 5, 6, 7, start=0), "gap"),
        (heard(2, 3, 4, 5, 6, start=0), "gap"),
        (heard(2, 4), "gap"),
        (heard(2, 4, over=True), "gap"),
        (heard(2, 3, 4, 7, start=0, gaps=[("match", 4, 6)]), "gap"),
        # the journal has it, and the subscriber could have asked
        (heard(2, 3, 4, 7, start=0, gaps=[("read", 4, 6)]), "gap"),
        (heard(2, 3, 4, 5, 6, 7, 9, start=0), "divergent"),
        (heard(start=0, messages={"read": {2: b"another"}}), "divergent"),
    ],
)
def test_what_was_not_noticed_is_a_fault(wrong, kind):
    with pytest.raises(Violation, match=kind):
        Promises(grows=True)._check_heard(wrong, TRUTH)


def test_clients_remember_what_they_were_told():
    promises = Promises(grows=True)
    promises.durable("p", 3)
    promises.durable("p", 2)
    promises.resumed("p", 3)
    with pytest.raises(Violation, match="lost: p is at batch 2, but 3 were durable"):
        promises.resumed("p", 2)
    promises.session(1, {"session": 4})
    promises.session(3, {"session": 6})
    promises.session(2, {"session": 5})
    with pytest.raises(Violation, match="epoch: start 4"):
        promises.session(4, {"session": 6})
    with pytest.raises(Violation, match="wrong"):
        promises.session(1, {"session": 5})
    promises.follows("h", "read", {2: b""}, 3)
    with pytest.raises(Violation, match="twice"):
        promises.follows("h", "read", {2: b"", 3: b""}, 2)
    with pytest.raises(Violation, match="order"):
        promises.follows("h", "read", {3: b""}, 2)
    with pytest.raises(Violation, match="memory"):
        promises.memory(101, 100)
    with pytest.raises(Violation, match="wrong: record 5"):
        promises.reported(5)


def test_a_reset_needs_a_reason():
    promises = Promises(grows=True)
    journal = OwnedJournal(MachineDisk(random.Random(1)), random.Random(1), synced=True)
    for _ in journal.opening(accept_loss=False):
        pass
    promises.recovered(journal)
    journal.committed.oldest = 6
    promises.reset("h", Cursor("s", 3), Reset("too-old", "s", 5))
    for cursor, reset in (
        (Cursor("s", 3), Reset("stream", "s", 5)),
        (Cursor("s", 3), Reset("too-old", "s", 6)),
        (Cursor("s", 7), Reset("too-old", "s", 5)),
    ):
        with pytest.raises(Violation, match="was reset"):
            promises.reset("h", cursor, reset)

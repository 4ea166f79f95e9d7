"""The models of the simulation: time, sockets, disk and journal behave as documented."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from streamer.daemon.replay import HandedOver
from streamer.journal.record import (
    Begun,
    JournalDamage,
    JournalError,
    JournalFailed,
    JournalFull,
    Key,
    Record,
    Snapshot,
)
from tests.simulation.clock import EventClock, Pause, Process, Thread
from tests.simulation.machine_disk import MachineDisk
from tests.simulation.model_journal import OwnedJournal
from tests.simulation.network import Dealer, Endpoint, Noise, Path, Router

# ---- time ------------------------------------------------------------------------------------


def counting(clock: EventClock) -> tuple[Process, list[float], Thread]:
    """A process that takes a step a second."""
    process, seen = Process(clock, "p"), []

    def steps() -> Iterator[float]:
        while True:
            seen.append(clock.now)
            yield Pause(1.0)

    return process, seen, Thread(process, steps())


def test_a_process_is_killed_between_two_steps():
    for survived in range(4):
        clock, then = EventClock(1), []
        process, seen, _ = counting(clock)
        process.doom(survived, lambda then=then: then.append(len(seen)))  # noqa: B023
        clock.run(9.5)
        assert seen == [float(second) for second in range(survived)]
        assert then == [survived]
        assert not process.alive


def test_a_process_stands_still_and_goes_on():
    clock = EventClock(1)
    process, seen, thread = counting(clock)
    clock.run(1.5)
    process.stall(3.0)
    thread.wake()
    clock.run(5.0)
    assert seen == [0.0, 1.0, 4.5]


# ---- sockets ---------------------------------------------------------------------------------


class Wire:
    """A client and a server."""

    def __init__(self, seed: int, immediate: bool = True) -> None:
        self.clock = EventClock(seed)
        self.path = Path(self.clock, Noise(latency=0.01))
        self.endpoint = Endpoint()
        self.server = Process(self.clock, "server")
        self.router = Router(self.server, self.endpoint, lambda: None, life=1, room=20)
        client = Process(self.clock, "client")
        self.dealer = Dealer(client, self.path, self.endpoint, lambda: None, immediate=immediate)

    def came(self) -> list[int]:
        return [int(frames[0]) for _, frames in self.router.inbox]


def test_messages_arrive_in_order_and_once():
    wire = Wire(3)
    for number in range(50):
        assert wire.dealer.send([b"%d" % number])
    wire.clock.run(60.0)
    assert wire.came() == [*range(50)]
    (route,) = wire.router.connections
    sent = [wire.router.send(route, [b"x"]) for _ in range(30)]
    assert sent == [HandedOver.SENT] * 20 + [HandedOver.FULL] * 10
    assert wire.router.send(b"nobody", [b"x"]) is HandedOver.GONE


def test_a_connection_that_ends_loses_the_end_of_what_was_on_its_way():
    lengths = set()
    for seed in range(20):
        wire = Wire(seed)
        for number in range(5):
            wire.dealer.send([b"%d" % number])
        (before,) = wire.router.connections
        wire.path.break_connections()
        assert not wire.dealer.send([b"9"])
        wire.clock.run(60.0)
        assert wire.came() == [*range(len(wire.came()))]
        lengths.add(len(wire.came()))
        (after,) = wire.router.connections
        assert before != after
    assert len(lengths) > 2


def test_what_is_queued_for_a_server_that_is_away_goes_out_later():
    wire = Wire(1, immediate=False)
    wire.server.kill("now")
    assert wire.dealer.send([b"1"])
    other = Process(wire.clock, "other")
    wire.router = Router(other, wire.endpoint, lambda: None, life=2)
    wire.clock.run(60.0)
    assert wire.came() == [1]


def test_nothing_passes_a_parted_network():
    wire = Wire(1)
    wire.path.part()
    wire.dealer.send([b"1"])
    wire.clock.run(60.0)
    assert wire.came() == []
    wire.path.heal()
    wire.clock.run(61.0)
    assert wire.came() == [1]


# ---- disk and journal ------------------------------------------------------------------------


def opened(disk: MachineDisk, *, accept_loss: bool = False, synced: bool = True) -> OwnedJournal:
    journal = OwnedJournal(disk, random.Random(1), synced=synced)
    for _ in journal.opening(accept_loss=accept_loss):
        pass
    return journal


def record(at: int) -> Record:
    key = Key("p", 1, at, at, b"%d" % at)
    frames = b"x" * 700, b"%d" % at
    return Record(at, "batch", b"meta", frames, key, at, about=at - 1 or None)


def done(steps: Iterator[object]) -> int:
    return sum(1 for _ in steps)


@pytest.mark.parametrize("ending", ["kill", "power"])
def test_a_group_is_there_or_not_whenever_it_ends(ending):
    """What was stored before is there in any case."""
    heads = set()
    for stop in range(40):
        for seed in range(5):
            disk = MachineDisk(random.Random(seed))
            journal = opened(disk)
            done(journal.appending([record(1), Begun("q", 7, 0)]))
            steps = journal.appending([record(2), record(3)])
            finished = done(step for step, _ in zip(steps, range(stop), strict=False)) < stop
            if ending == "power":
                disk.cut_power()
            again = opened(disk)
            assert again.head in ((3,) if finished else (1, 3))
            assert again.epoch == 2
            assert [*again.records(0)] == [record(at) for at in range(1, again.head + 1)]
            last = {known.producer: known[1:4] for known in again.producers()}
            assert last == {"p": (1, again.head, b"%d" % again.head), "q": (7, 0, b"")}
            heads.add((again.head, finished))
    assert {(1, False), (3, True)} <= heads


def test_a_full_disk_stores_nothing_until_there_is_room():
    disk = MachineDisk(random.Random(1))
    journal = opened(disk)
    done(journal.appending([record(1)]))
    disk.full = True
    for steps in (
        journal.appending([record(2)]),
        journal.storing(Snapshot(1, b"", (b"state",))),
    ):
        with pytest.raises(JournalFull):
            done(steps)
    disk.full = False
    done(journal.appending([record(2)]))
    assert [*opened(disk).records(0)] == [record(1), record(2)]


def test_a_failed_sync_may_lose_what_was_written_and_nothing_else():
    lost = set()
    for seed in range(30):
        disk = MachineDisk(random.Random(seed))
        journal = opened(disk)
        done(journal.appending([record(1)]))
        disk.failing = True
        with pytest.raises(JournalFailed):
            done(journal.appending([record(2)]))
        lost.add(len(disk.files["data"]))
        assert [*opened(disk).records(0)] == [record(1)]
    assert len(lost) > 1


def test_a_flipped_bit_is_found_and_given_up():
    disk = MachineDisk(random.Random(1))
    journal = opened(disk)
    done(journal.appending([record(at) for at in range(1, 5)]))
    done(journal.storing(Snapshot(1, b"", (b"state",))))
    row = journal.committed.rows[3]
    disk.flip("data", row.offset + 5, 2)
    with pytest.raises(JournalDamage, match="record 3"):
        opened(disk)
    again = opened(disk, accept_loss=True)
    lost = replace(record(3), frames=(), key=None, lost=True)
    assert [*again.history(0, 4)] == [record(1), record(2), lost, record(4)]
    assert [*again.about(2)] == [lost]
    # and it stays so
    assert [*opened(disk).records(0)] == [record(1), record(2), record(4)]


def test_damage_that_recovery_does_not_need_is_no_hindrance():
    disk = MachineDisk(random.Random(1))
    journal = opened(disk)
    done(journal.appending([record(at) for at in range(1, 5)]))
    done(journal.storing(Snapshot(3, b"m", (b"state",))))
    disk.flip("data", 5, 2)
    again = opened(disk)
    assert again.snapshot() == Snapshot(3, b"m", (b"state",))
    with pytest.raises(JournalDamage, match="record 1"):
        [*again.records(0)]
    done(again.expiring(1))
    assert again.oldest == 4
    with pytest.raises(JournalError, match="record 2 is no longer kept"):
        [*again.records(1)]

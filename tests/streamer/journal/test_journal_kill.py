"""A writer is killed at any moment: what it had said it stored is there, and nothing is twice."""

from __future__ import annotations

import multiprocessing
import random
import signal

import pytest

from streamer.journal.reader import JournalReader
from streamer.journal.store import Journal
from tests.streamer.journal.kit import groups, last_of_each, open_small, verify
from tests.waiting import DEADLINE

SPAWN = multiprocessing.get_context("spawn")


def _write(directory, durability, told) -> None:
    """Append for ever what the seed says; say each head that was stored."""
    journal = open_small(directory, durability=durability, keep_bytes=50_000)
    told.send(journal.head)
    chance = random.Random(journal.epoch)
    while True:
        (group,) = groups(1, chance, journal.head + 1)
        told.send(group)
        journal.append(group)
        journal.checkpoint()
        told.send(journal.head)
        if chance.random() < 0.2:
            journal.put_snapshot(journal.head, b"%d" % journal.head, (bytes(journal.head),))
        if chance.random() < 0.3:
            journal.expire(0)


@pytest.mark.whole
@pytest.mark.parametrize("durability", ["os", "fsync"])
def test_journal_of_killed_writers(tmp_path, durability):
    chance = random.Random(5)
    known = []
    for epoch in range(1, 6):
        told, other = SPAWN.Pipe()
        child = SPAWN.Process(target=_write, args=(tmp_path, durability, other))
        child.start()
        other.close()
        heads, offered = [], []
        for _ in range(chance.randrange(3, 150)):
            assert told.poll(DEADLINE)
            said = told.recv()
            heads.append(said) if isinstance(said, int) else offered.append(said)
        child.kill()
        child.join()
        assert child.exitcode == -signal.SIGKILL
        while True:  # what it had said before it was killed
            try:
                said = told.recv()
            except (EOFError, OSError):  # or within a message
                break
            heads.append(said) if isinstance(said, int) else offered.append(said)
        assert heads[0] == len(known)
        known += [one for group in offered for one in group]

        reader = JournalReader(tmp_path)  # before there is an owner again
        assert reader.head in (heads[-1], len(known))
        kept = list(reader.records(reader.oldest - 1))
        assert kept == known[reader.oldest - 1 : reader.head]
        reader.close()

        journal = open_small(tmp_path, durability=durability)
        assert journal.epoch == 2 * epoch
        assert journal.head in (heads[-1], len(known))  # of the last group all or nothing
        known = known[: journal.head]
        assert list(journal.records(journal.oldest - 1)) == known[journal.oldest - 1 :]
        assert {tuple(row) for row in journal.producers()} == last_of_each(known)
        snapshot = journal.snapshot()
        if snapshot is not None:
            assert snapshot.frames == (bytes(snapshot.at),)
        assert journal.oldest - 1 <= (snapshot.at if snapshot else 0)
        assert verify(journal) == []
        journal.close()
    assert len(known) > 100


@pytest.mark.whole
def test_journal_of_a_killed_owner_is_free(tmp_path):
    """Nothing is left that keeps the next one out."""
    told, other = SPAWN.Pipe()
    child = SPAWN.Process(target=_write, args=(tmp_path, "os", other))
    child.start()
    assert told.poll(DEADLINE)
    child.kill()
    child.join()
    journal = open_small(tmp_path)
    assert isinstance(journal, Journal)
    assert journal.epoch == 2
    journal.close()

"""Between threads and the journal: replay, the journal that others read, mailboxes."""

from __future__ import annotations

import select
import threading
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from streamer.daemon.core.sync import Stored, SyncLimits
from streamer.daemon.replay import MOST_HELD, HandedOver, ReplayedJournal, SyncReplay
from streamer.daemon.worker import Inbox, Mailbox
from streamer.journal.reader import JournalReader
from streamer.journal.record import JournalExpired
from tests.daemon_kit import asked, parsed
from tests.stored_batches import Batches
from tests.streamer.journal.kit import Unreadable, open_small
from tests.sync_records import STREAM

LIMITS = SyncLimits(4, 4, 1 << 22, 1 << 25)
RECORDS = 2 * MOST_HELD


class Journal:
    """Records with a message of a few bytes each, or more."""

    def __init__(self, size):
        self._size = size

    def look(self):
        return Stored(STREAM, 1, 1, RECORDS, {"read": RECORDS})

    def after(self, at):
        return SmallRecord(at + 1, self._size) if at < RECORDS else None


class SmallRecord:
    def __init__(self, at, size):
        self.at, self.prev, self.size = at, {"read": at - 1}, size

    def message(self, topic):
        return [b"read.", bytes(self.size), self.at.to_bytes(8, "little")]


def replayed(has_room, size=0, turns=50):
    """The answers that a connection gets; has_room: at the n-th try, from 0."""
    tries, got = [], []

    def hand_over(route, frames):
        tries.append(route)
        if not has_room(len(tries) - 1):
            return HandedOver.FULL
        got.append(parsed(frames))
        return HandedOver.SENT

    replay = SyncReplay(Journal(size), LIMITS, lambda: 1.0, hand_over, lambda *_: None)
    replay.see()
    request = {"type": "pull", "id": 1, "after": 0, "stream": STREAM, "topics": ["read"]}
    replay.core.hear(b"it", asked(request | {"credit": 1 << 22}), 1.0)
    for _ in range(turns):
        replay.turn()
        replay.send()
    return [int.from_bytes(body[-1], "little") for head, body in got if head["type"] == "message"]


def test_what_waits_for_room_comes_in_order():
    assert replayed(lambda n: True) == [*range(1, RECORDS + 1)]
    some = replayed(lambda n: n % 3 == 2, size=600, turns=3 * RECORDS)
    assert some == [*range(1, RECORDS + 1)]


def test_nothing_comes_behind_what_was_forgotten():
    """There is room again as soon as too much waits."""
    got = replayed(lambda n: n != 5)
    assert got == [*range(1, len(got) + 1)]
    assert len(got) < RECORDS - MOST_HELD


def open_data_files(directory: Path) -> tuple[list[str], list[str]]:
    """Those this process has open: that are there, and that are deleted."""
    targets = [path.readlink() for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
    own = [str(target) for target in targets if str(target).startswith(f"{directory}/records-")]
    there = [target for target in own if not target.endswith(" (deleted)")]
    return there, [target for target in own if target.endswith(" (deleted)")]


def test_files_of_expired_records_are_closed(tmp_path):
    batches = Batches()
    with closing(open_small(tmp_path, keep_bytes=1)) as journal:
        for _ in range(60):
            journal.append([batches.record(rows=400)])
        with closing(ReplayedJournal(JournalReader(tmp_path))) as replayed:
            assert replayed.look().oldest == 1
            for at in (0, 10, 20, 30, 59):
                assert replayed.after(at).at == at + 1
            writing = 1  # the journal's own
            there, deleted = open_data_files(tmp_path)
            assert len(there) > writing + 2
            assert not deleted
            journal.put_snapshot(50, b"s", (b"state",))
            while journal.expire(0):
                pass
            assert replayed.look().oldest == 51
            assert not open_data_files(tmp_path)[1]
            # who reads on where records are kept goes on, others learn that they are not
            assert replayed.after(60) is None
            assert replayed.after(50).at == 51
            with pytest.raises(JournalExpired):
                replayed.after(42)


def said_of_a_pull(replay, after, stream):
    """The answer to a pull, in short."""
    request = {"type": "pull", "id": 1, "after": after, "stream": stream, "topics": ["read"]}
    replay.core.hear(b"it", asked(request | {"credit": 1 << 20}), 1.0)
    replay.core.gone(b"it")
    header, _ = parsed(replay.core.out.pop()[1])
    return header["type"], header.get("reason")


def test_a_right_place_is_not_of_the_future_while_the_index_cannot_be_read(tmp_path, monkeypatch):
    batches = Batches()
    with closing(open_small(tmp_path)) as journal:
        journal.append([batches.record()])
        with closing(ReplayedJournal(JournalReader(tmp_path))) as replayed:
            replay = SyncReplay(replayed, LIMITS, lambda: 1.0, lambda *_: None, lambda *_: None)
            assert replay.see() == 1
            journal.append([batches.record()])
            with monkeypatch.context() as patched:
                errors = {"credit": apsw.NoMemError("out of memory")}
                errors["damaged"] = apsw.CorruptError("malformed")
                for reason, error in errors.items():
                    patched.setattr(replayed._reader._index, "_db", Unreadable(error))
                    replay.see()
                    assert said_of_a_pull(replay, 2, journal.stream) == ("refused", reason)
                    assert said_of_a_pull(replay, 1, journal.stream) == ("reached", None)
            assert replay.see() == 2
            assert said_of_a_pull(replay, 2, journal.stream) == ("reached", None)
            assert said_of_a_pull(replay, 3, journal.stream) == ("reset", "future")


LONG = 60.0
KINDS = pytest.mark.parametrize("kind", [Inbox, Mailbox])


def sleep_until_woken(box):
    """Wait as the thread that reads the box does."""
    if isinstance(box, Mailbox):
        found = select.select([box.fileno()], [], [], LONG)[0]
        assert found
    else:
        box.wait(LONG)


@KINDS
def test_all_items_arrive_in_each_sender_s_order(kind):
    """Four threads put while the reader takes; it always sleeps before it looks."""
    box, senders, count = kind(), 4, 20_000
    threads = [
        threading.Thread(target=lambda who=who: [box.put((who, i)) for i in range(count)])
        for who in range(senders)
    ]
    for thread in threads:
        thread.start()
    taken = []
    while len(taken) < senders * count:
        sleep_until_woken(box)
        taken += box.take()
    for who in range(senders):
        assert [i for sender, i in taken if sender == who] == list(range(count))
    assert (box.waiting, box.length) == (False, 0)
    for thread in threads:
        thread.join()
    box.close()


@KINDS
def test_a_wake_without_an_item(kind):
    """However often it is woken, the reader sleeps again after it has looked once."""
    box = kind()
    for _ in range(3):
        box.wake()
        box.wake()
        sleep_until_woken(box)
        assert box.take() == []
        if isinstance(box, Mailbox):
            assert not select.select([box.fileno()], [], [], 0)[0]
    box.close()


@KINDS
def test_items_of_a_sleeping_reader_wait(kind):
    """What is put before the reader waits is there at once."""
    box = kind()
    box.put(1)
    box.put(2)
    assert (box.waiting, box.length) == (True, 2)
    sleep_until_woken(box)
    assert box.take() == [1, 2]
    box.close()


def test_an_inbox_waits_no_longer_than_asked():
    """Without a wake the wait ends by itself."""
    box = Inbox()
    box.wait(0)
    box.wait(0.001)
    assert box.take() == []

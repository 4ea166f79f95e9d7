"""Nothing put into a mailbox is lost, and its reader is woken, by items and without."""

from __future__ import annotations

import select
import threading

import pytest

from streamer.daemon.worker import Inbox, Mailbox

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

"""A daemon with a journal: what was acknowledged outlives it, and it goes on where it ended."""

from __future__ import annotations

import errno
import json
import math
import os
import random
import signal
import threading
from contextlib import closing, contextmanager

import apsw
import pytest

from streamer.client import Control, Producer
from streamer.daemon import config
from streamer.daemon.core import producers
from streamer.daemon.core.log import Replay
from streamer.daemon.journal import open_journal
from streamer.errors import StreamerError
from streamer.journal.disk import Disk
from streamer.journal.reader import JournalReader
from streamer.journal.record import JournalFailed, JournalUnread, Record
from streamer.journal.record_index import Index
from streamer.journal.store import Journal
from tests.daemon_kit import (
    DEADLINE,
    GENOME,
    GOOD,
    Raw,
    Running,
    drained,
    list_batch,
    process,
    reads_of,
    running,
    settings,
    wait_for_line,
)
from tests.waiting import until

pytestmark = pytest.mark.whole

JOURNAL = ["--set", "journal.durability=fsync", "--set", "journal.directory=journal"]


@pytest.fixture
def path(tmp_path):
    return settings(tmp_path, "k = 11")


@contextmanager
def daemon(path, *more):
    """A daemon with a journal beside its configuration: (process, endpoints)."""
    with process(["run", "--config", path, *JOURNAL, *more]) as child:
        endpoints = json.loads(wait_for_line(child, '"listening"'))
        wait_for_line(child, '"ready"')
        yield child, endpoints


def end(child, number=signal.SIGTERM):
    child.send_signal(number)
    status = child.wait(DEADLINE)
    assert status == (0 if number == signal.SIGTERM else -number)


def send(endpoints, reads, name="lab"):
    with Producer(endpoints["ingest"], name=name) as producer:
        producer.send(reads)
        producer.flush(matched=True)


def test_names_that_are_not_used_are_forgotten(path, monkeypatch):
    """By the daemon and its journal; who comes back after that is new."""
    monkeypatch.setattr(producers, "_LOOK_SECONDS", 0.0)
    monkeypatch.setattr(producers, "_AGAIN_SECONDS", 0.0)
    monkeypatch.setattr(producers, "_IDLE_SECONDS", 0.0)
    journal = ["journal.durability=os", "journal.directory=journal"]
    with running(path, journal) as made, Raw(made.endpoints["ingest"]) as raw:
        raw.open(epoch=9)
        raw.send(*list_batch(1, [["r", "ACGTTGCAAC"]], epoch=9))
        raw.accepted(1, durable=1, epoch=9)
        with Raw(made.endpoints["ingest"]) as other:
            other.send({"v": 2, "type": "hello", "producer": "passing", "epoch": 9})
            other.receive_type("welcome")
            names = made.service._journal.producers
            until(lambda: [row.producer for row in names()] == ["raw"], "the name is forgotten")
            until(lambda: made.service.status.producers == 1, "by ingest, too")
            other.send({"v": 2, "type": "hello", "producer": "passing", "epoch": 2})
            assert other.receive_type("welcome")["epoch"] == 2


def test_a_journal_in_use_or_of_another_dictionary_is_refused(path, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    second = settings(other, "k = 11")

    def refused(path, *more):
        given = config.load(path, ["journal.durability=fsync", *more])
        with pytest.raises(StreamerError) as caught:
            open_journal(given, accept_loss=False)
        return str(caught.value)

    at = f"journal.directory={tmp_path}/journal"
    with running(path, JOURNAL[1::2]):
        assert str(tmp_path / "journal") in refused(second, at)
    said = refused(path, at, "dictionary.k=13")
    assert "k=11" in said
    assert "k=13" in said


def test_a_failed_sync_ends_the_daemon(path, monkeypatch):
    """What the kernel may have dropped is not said, and not tried again."""
    made = Running(path, ["journal.durability=fsync", "journal.directory=journal"])
    with Raw(made.endpoints["ingest"]) as raw:
        raw.open()
        tries = []

        def failing(self, fd):
            tries.append(fd)
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        monkeypatch.setattr(Disk, "sync", failing)
        raw.send(*list_batch(1, [["r", "ACGT" * 9]]))
        while (answer := raw.receive())["state"] != "failed":
            assert answer["durable"] == 0
        assert answer["durable"] == 0
    made.join()
    assert isinstance(made.error, JournalFailed)
    assert len(tries) == 1


def test_a_snapshot_is_put_off_where_means_are_short(path, tmp_path, monkeypatch):
    tries, start = [], threading.Thread.start

    def failing(error):
        def fail(thread, *_, **__):
            if isinstance(thread, threading.Thread) and thread.name != "snapshot":
                return start(thread)
            tries.append(thread)
            raise error

        return fail

    with running(path, ["journal.durability=os", "journal.directory=journal"]) as made:
        core = made.service._recorder._core
        core._snapshot_after = Replay()
        with (
            monkeypatch.context() as patch,
            Producer(made.endpoints["ingest"]) as producer,
            closing(JournalReader(tmp_path / "journal")) as reader,
        ):
            for place, lacking in (
                ("threading.Thread.start", RuntimeError("can't start new thread")),
                ("streamer.daemon.journal.put_snapshot", MemoryError()),
                ("streamer.daemon.journal.put_snapshot", JournalUnread("try again")),
            ):
                tries.clear()
                patch.setattr(place, failing(lacking))
                core._snapshot = 0
                producer.send([("r", "ACGT" * 9)])
                producer.flush()
                until(lambda: tries and core._beside is None, "a try to store a snapshot")
                assert reader.snapshot() is None
                patch.undo()
            core._snapshot = 0
            until(reader.snapshot, "a snapshot")


def test_old_records_that_cannot_be_read_now_are_deleted_later(path, monkeypatch):
    """One of the lookups at old records fails, of the size and of silent producers, too."""
    tries, forgotten = [], []
    works = {name: getattr(Journal, name) for name in ("expire", "usage", "forget")}

    def failing(name):
        def fail(*given):
            tries.append(name)
            if tries.count(name) == 1:
                raise JournalUnread("cannot be read: try again")
            return works[name](*given)

        return fail

    with running(path, ["journal.durability=os", "journal.directory=journal"]) as made:
        recorder = made.service._recorder
        monkeypatch.setattr("streamer.daemon.core.log.LOOK_SECONDS", 0.01)
        for name in works:
            monkeypatch.setattr(Journal, name, failing(name))
        recorder._forgotten = forgotten.append
        # has no record, so that it can be forgotten
        recorder.inbox.put([("silent", 1)])
        until(recorder._journal.producers, "it is known")
        recorder.forget(["silent"])
        recorder._core._look = 0
        until(lambda: forgotten, "it is forgotten")
    assert forgotten == [["silent"]]
    assert min(map(tries.count, works)) > 1


def test_no_batch_waits_for_a_checkpoint(path, monkeypatch):
    """Milliseconds of the disk that no answer needs come behind it."""
    stored, go_on = threading.Event(), threading.Event()
    append, checkpoint = Journal.append, Journal.checkpoint

    def appending(self, entries):
        append(self, entries)
        if any(isinstance(entry, Record) and entry.key is not None for entry in entries):
            stored.set()

    def slow(self):
        # what was stored before the batch, such as its producer's epoch, does not hold it up
        if stored.is_set():
            assert go_on.wait(DEADLINE)
        checkpoint(self)

    with running(path, ["journal.durability=fsync", "journal.directory=journal"]) as made:
        monkeypatch.setattr(Journal, "append", appending)
        monkeypatch.setattr(Journal, "checkpoint", slow)
        with Raw(made.endpoints["ingest"]) as raw:
            raw.open()
            raw.send(*list_batch(1, [["r", "ACGT" * 9]]))
            try:
                raw.accepted(1, durable=1)
            finally:
                go_on.set()
        assert stored.is_set()


def damage(journal):
    """Flip a bit of the bytes of a record with a batch."""
    (file,) = journal.glob("records-*")
    with closing(Index(journal)) as index:
        row = next(row for row in index.records(0, index.state().head) if row.producer)
    stored = bytearray(file.read_bytes())
    stored[row.offset] ^= 4
    file.write_bytes(stored)


def test_damage_that_a_snapshot_finds_ends_only_the_snapshots(path, tmp_path, capfd):
    """The daemon has in memory what the damaged record brought."""
    with running(path, ["dictionary.mode=grow", *JOURNAL[1::2]]) as made:
        core = made.service._recorder._core
        send(made.endpoints, reads_of(GENOME, random.Random(1), 300))
        damage(tmp_path / "journal")
        core._snapshot_after = Replay()
        with Raw(made.endpoints["ingest"]) as raw:
            raw.open()
            raw.send(*list_batch(1, [["r", "ACGT" * 9]]))
            raw.accepted(1, durable=1)
            until(lambda: core._snapshot == math.inf or made.error, "the last try")
            assert made.error is None
            raw.send(*list_batch(2, [["r", "ACGT" * 9]]))
            raw.accepted(2, durable=2)
    said = capfd.readouterr().err
    assert said.count("damaged: no more snapshots are stored") == 1
    assert "records-00000001" in said


@pytest.mark.parametrize("what", ["put", "has_records_of"])
def test_damage_that_is_found_while_records_are_deleted_ends_nothing_else(
    path, monkeypatch, capfd, what
):
    tries, works = [], getattr(Index, what)

    def damaged(*given):
        if what == "put" and given[1][-1].oldest == 1:
            return works(*given)
        tries.append(what)
        if len(tries) < 3:
            raise apsw.CorruptError("database disk image is malformed")
        return works(*given)

    def found(*given):
        with given[0]._writing() if what == "put" else given[0]._reading():
            return damaged(*given)

    monkeypatch.setattr(Index, what, found)
    monkeypatch.setattr("streamer.daemon.core.log.LOOK_SECONDS", 0.01)
    with running(path, [*JOURNAL[1::2], "journal.keep_bytes=1"]) as made:
        recorder = made.service._recorder
        recorder._core._snapshot_after = Replay()
        recorder.inbox.put([("silent", 1)])
        until(recorder._journal.producers, "it is known")
        with Raw(made.endpoints["ingest"]) as raw:
            raw.open()
            raw.send(*list_batch(1, [["r", "ACGT" * 9]]))
            raw.accepted(1, durable=1)
            recorder._core._snapshot = recorder._core._look = 0

            def done():
                recorder.forget(["silent"])
                names = {row.producer for row in recorder._journal.producers()}
                return recorder._journal.oldest > 1 and "silent" not in names

            until(lambda: made.error or done(), "record and name are gone")
            assert made.error is None
            raw.send(*list_batch(2, [["r", "ACGT" * 9]]))
            raw.accepted(2, durable=2)
        assert len(tries) > 2
    said = capfd.readouterr().err
    assert said.count("damaged: not all old records can be deleted") == 1
    assert "index.sqlite" in said


def test_a_journal_without_descriptors_holds_producers_back_until_there_are_some(
    path, monkeypatch, capfd
):
    create = Disk.create

    def none_left(disk, file, size):
        """After the first file, in which only the start has room."""
        if file.name.startswith("records-"):
            if file.name[-1] != "1":
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), str(file))
            size = 1 << 14
        return create(disk, file, size)

    monkeypatch.setattr(Disk, "create", none_left)
    made = Running(path, JOURNAL[1::2])
    with drained(made), Control(made.endpoints["control"]) as control:
        until(lambda: control.status()["state"] == "full", "it takes nothing")
        assert control.status()["queue"]["batches"] == 0
        monkeypatch.undo()
        until(lambda: control.status()["state"] == "running", "it goes on")
        with Raw(made.endpoints["ingest"]) as raw:
            raw.open()
            raw.send(*GOOD)
            raw.accepted(1, durable=1)
    assert "records-00000002: Too many open files" in capfd.readouterr().err

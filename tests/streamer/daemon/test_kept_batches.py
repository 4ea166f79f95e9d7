"""A revision where the journal keeps only some batches, and where it cannot be read."""

from __future__ import annotations

import errno
import os
import random
import threading
from types import SimpleNamespace

import msgpack
import pytest

from streamer.client import RefusedError
from streamer.daemon.core.revision import Revision
from streamer.daemon.kept_batches import KeptBatches
from streamer.daemon.stored_messages import BATCH
from streamer.journal.data_files import DataReader
from streamer.journal.record import JournalDamage, Record
from streamer.journal.record_index import Index
from tests.daemon_kit import write_fasta
from tests.faults.plain_client import PlainFold
from tests.reload_kit import (
    answers,
    batches_of,
    folded,
    reloadable,
    send,
    settle,
    sources_of,
    stored,
)


def journal(oldest: int, batches: dict[int, int], head: int = 9) -> SimpleNamespace:
    """Of records that say nothing but for batches, by record the number of each."""
    records = []
    for at in range(oldest, head + 1):
        meta = {"about": {"batch": batches.get(at)}, "counts": {}, "topics": []}
        kind = BATCH if at in batches else "other"
        records.append(Record(at, kind, msgpack.packb(meta), (), None, 0))

    def some(after, until=head):
        return (record for record in records if after < record.at <= until)

    return SimpleNamespace(oldest=oldest, head=head, records=some, outlines=some)


@pytest.mark.parametrize(
    ("kept", "first"),
    [
        (journal(1, {2: 0, 3: 1, 9: 5}), 0),
        (journal(3, {2: 0, 3: 1, 9: 5}), 1),
        # all batches before the new dictionary have gone: nothing of theirs was matched again
        (journal(5, {2: 0, 3: 1, 9: 5}), 5),
        (journal(5, {2: 0, 3: 1}), 5),
    ],
)
def test_a_revision_is_settled_from_the_first_batch_that_is_kept(kept, first):
    revision = Revision(version=4, before=8, batch=5, after=7)
    matcher = SimpleNamespace(version=4)
    step = KeptBatches(kept).revise(revision, (7, 7), 10, matcher, None)
    (settled,) = step.control_records
    assert settled.contents["settled"].fields == {"version": 4, "from_batch": first}


@pytest.mark.whole
def test_kept_batches_that_cannot_be_read_now_are_revised_later(tmp_path, monkeypatch, capfd):
    """Each is, and counted once, whichever read failed; a reload that must read is refused."""
    rng = random.Random(14)
    sources = sources_of(rng)
    batches = batches_of(rng, 12)
    file_of, failed = DataReader._file, []

    def file_or_not(reader, file):
        if threading.current_thread().name == "engine" and rng.random() < 0.4:
            failed.append(file)
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return file_of(reader, file)

    monkeypatch.setattr("streamer.daemon.kept_batches._BASES", 1)
    monkeypatch.setattr("streamer.daemon.engine._TRY_SECONDS", 0.01)
    with reloadable(tmp_path, sources_of(rng), overrides=["answers.targets=true"]) as (
        daemon,
        control,
    ):
        send(daemon, batches)
        write_fasta(tmp_path / "ref.fa", sources)
        with monkeypatch.context() as patched:
            patched.setattr(DataReader, "_file", file_or_not)
            refused = 0
            while True:
                try:
                    assert control.reload()["batches"] == 12
                    break
                except RefusedError as error:
                    assert "cannot be read" in str(error)  # noqa: PT017
                    refused += 1
            settle(control)
        assert len(failed) > refused
        _, rows = control.targets()
    want = answers(batches, sources)
    assert folded(stored(tmp_path)).answers() == want
    assert sum(row[1] for row in rows) == sum(map(len, batches))
    said = capfd.readouterr().err
    assert 0 < said.count("matched again later") <= len(failed)


@pytest.mark.whole
def test_damage_of_the_index_that_is_of_no_record_ends_no_revision(tmp_path, monkeypatch, capfd):
    """It is reported with its place; batches whose revisions it hides are revised anew."""
    rng = random.Random(15)
    first, second = sources_of(rng), sources_of(rng)
    batches = batches_of(rng, 12)
    query, hidden = Index._query, []

    def damaged(index, sql, values=()):
        rows = query(index, sql, values)
        if threading.current_thread().name != "engine" or "FROM records" not in sql:
            return rows
        if "about = ?" in sql and len(rows) > 0:
            hidden.append(values)
            raise JournalDamage(
                "cannot be read: database disk image is malformed", file=str(index.path)
            )
        return rows

    with reloadable(tmp_path, sources_of(rng)) as (daemon, control):
        send(daemon, batches)
        write_fasta(tmp_path / "ref.fa", first)
        control.reload()
        settle(control)
        with monkeypatch.context() as patched:
            patched.setattr(Index, "_query", damaged)
            write_fasta(tmp_path / "ref.fa", second)
            assert control.reload()["batches"] == len(batches)
            settle(control)
    fold = PlainFold()
    for message in stored(tmp_path):
        fold.take(*message)
    assert fold.answers() == answers(batches, second)
    said = capfd.readouterr().err
    assert len(hidden) == said.count("all results of its batch are replaced") > 0
    assert "index.sqlite: cannot be read: database disk image is malformed" in said

"""What a daemon goes on from where stored k-mers, records or numbers were given up."""

from __future__ import annotations

import json
import signal
from collections import defaultdict
from contextlib import closing

import numpy as np
import pytest

from streamer.client import Subscriber
from streamer.daemon import restore as restored_start
from streamer.daemon.core.log import LogCore, Replay, Task
from streamer.daemon.publish import dictionary_record
from streamer.daemon.restore import fingerprint, identity, put_snapshot, restore
from streamer.dictionary.targets import Dictionary
from streamer.journal.data_files import HEADER_BYTES, Sizes
from streamer.journal.record import JournalFull
from streamer.journal.record_index import Index
from streamer.journal.store import Journal
from tests.daemon_kit import DEADLINE, GENOME, process, settings, wait_for_line
from tests.streamer.daemon.test_daemon_journal import JOURNAL, daemon, end, send
from tests.streamer.daemon.test_restore import CASES, K, dictionary, published, reads

SMALL = Sizes(file_bytes=1 << 20)  # what is damaged is searched through
GROWING = {name: case for name, case in CASES.items() if name != "ltb"}


@pytest.fixture(params=GROWING.values(), ids=GROWING)
def made(request, tmp_path):
    """Publications of nine batches, and a function that opens a journal of them."""
    publications, matcher, stored = published(request.param)
    matcher.close()

    def opened(**options):
        meaning = identity(matcher.spec)
        return closing(Journal(tmp_path / "journal", meaning, "os", sizes=SMALL, **options))

    with opened() as journal:
        journal.append([dictionary(stored)])
        for publication in publications:
            journal.append([publication.record(9)])
    return publications, opened, tmp_path / "journal"


def forget(directory, at):
    """Damage the description of a record, and lose the index."""
    with closing(Index(directory)) as index:
        (row,) = index.records(at - 1, at)
    with (directory / "records-00000001").open("r+b") as file:
        file.seek(row.offset - HEADER_BYTES + 30)
        file.write(b"?")
    for path in directory.glob("index.sqlite*"):
        path.unlink()


def damage_bytes_of(directory, at):
    """Change a byte of a record's frames; the index knows all else."""
    with closing(Index(directory)) as index:
        (row,) = index.records(at - 1, at)
    offset, size = row.offset, row.size
    with (directory / "records-00000001").open("r+b") as file:
        file.seek(offset + size - 1)
        last = file.read(1)
        file.seek(offset + size - 1)
        file.write(bytes([last[0] ^ 1]))


def numbers(restored):
    """All that goes on with numbers; the version is the caller's to compare."""
    fields = "at", "number", "position", "fingerprint", "heads", "counts"
    return {name: getattr(restored, name) for name in fields}


def brought(publications, ats):
    """k-mers that the batches of these records brought, and those learned."""
    some = [p.matched.result for p in publications if p.matched.at in ats]
    empty = [np.zeros(0, np.uint64)]
    return [
        np.concatenate(empty + [getattr(result, name) for result in some])
        for name in ("new_kmers", "learned")
    ]


def assert_start(restored, publications, ats):
    parts = restored.grown, restored.learned
    for found, right in zip(parts, brought(publications, ats), strict=True):
        assert np.array_equal(np.concatenate([np.zeros(0, np.uint64), *found]), right)


ALL = range(2, 11)


@pytest.mark.whole
@pytest.mark.parametrize("damaged", [(10,), (9, 10), (4,), (1,)])
def test_numbers_go_on_behind_records_that_were_given_up(made, damaged):
    publications, opened, directory = made
    with opened() as journal:
        whole = restore(journal)
        stream = journal.stream
    for at in damaged:
        damage_bytes_of(directory, at)
    with opened(accept_loss=True) as journal:
        assert journal.stream == stream
        found = restore(journal)
        assert numbers(found) == numbers(whole)
        kept = set(ALL) - set(damaged)
        assert_start(found, publications, kept)
        lost = sum(codes.size for codes in brought(publications, damaged)[:1])
        assert (found.loss.kmers, found.loss.unknown) == (lost, False)
        # a version is one dictionary
        assert found.version == whole.version + bool(lost)
        put_snapshot(journal)
    with opened() as journal:
        again = restore(journal)
        assert numbers(again) == numbers(whole)
        assert (again.version, bool(again.loss)) == (found.version, False)


def test_a_record_of_which_nothing_is_known(made):
    publications, opened, directory = made
    with opened() as journal:
        whole = restore(journal)
    forget(directory, 6)
    with opened(accept_loss=True) as journal:
        found = restore(journal)
        assert found.number == whole.number
        assert_start(found, publications, set(ALL) - {6})
        assert str(found.loss) == "unknown"
        assert found.version == whole.version + 1


@pytest.mark.parametrize("snapshot", [False, True])
def test_k_mers_of_sources_are_counted(tmp_path, snapshot):
    """A growing dictionary keeps those of all its sources for ever."""
    rng = np.random.default_rng(4)
    sources = [Dictionary.from_batches([reads(rng, 3)], K, "forward") for _ in range(2)]
    control_records = [
        dictionary_record(at, at, fingerprint(source), source, 0, source.codes, grows=True)
        for at, source in enumerate(sources, 1)
    ]

    def opened(**options):
        return closing(Journal(tmp_path / "journal", b"mode=grow", "os", sizes=SMALL, **options))

    with opened() as journal:
        journal.append([control_record.record(5) for control_record in control_records])
        if snapshot:
            put_snapshot(journal)
    damage_bytes_of(tmp_path / "journal", 1)
    if snapshot:
        path = tmp_path / "journal" / "snapshot-00000001"
        path.write_bytes(path.read_bytes()[:-1] + b"?")
    first, second = (source.codes for source in sources)
    with opened(accept_loss=True) as journal:
        found = restore(journal)
    (left,) = found.sourced
    assert np.array_equal(left, second)
    lost = np.setdiff1d(first, second).size if snapshot else first.size
    assert (found.loss.kmers, found.loss.unknown) == (lost, False)


@pytest.mark.whole
@pytest.mark.parametrize("expired", [False, True])
def test_a_snapshot_that_was_given_up(made, expired):
    """Records make up for it as far as they are kept."""
    publications, opened, directory = made
    with opened() as journal:
        put_snapshot(journal)
        whole = restore(journal)
    if expired:
        # up to record 5
        with opened(keep_hours=1) as journal:
            journal._commit(journal._state._replace(oldest=6))
    path = directory / "snapshot-00000001"
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    with opened(accept_loss=True) as journal:
        found = restore(journal)
        kept = range(6, 11) if expired else ALL
        assert_start(found, publications, kept)
        assert numbers(found) == numbers(whole)
        lost = sum(
            p.matched.result.new_kmers.size for p in publications if p.matched.at not in kept
        )
        assert (found.loss.kmers, found.loss.unknown) == (lost, False)
        assert found.version == whole.version + bool(found.loss)


@pytest.mark.whole
def test_the_state_is_stored_once_there_is_room(made, monkeypatch):
    """What was given up is said at each start until then."""
    _, opened, directory = made
    for at in (2, 3, 4):
        damage_bytes_of(directory, at)

    def full(journal):
        raise JournalFull

    with opened(accept_loss=True) as journal, monkeypatch.context() as patch:
        patch.setattr(restored_start, "put_snapshot", full)
        restored = restored_start.restored_of(journal)
        assert LogCore(list, Replay(*restored.replayed)).task(0) == Task.SNAPSHOT
    with opened() as journal:
        restored = restored_start.restored_of(journal)
        assert restored.loss
        assert LogCore(list, Replay(*restored.replayed)).task(0) != Task.SNAPSHOT
    with opened() as journal:
        assert not restored_start.restored_of(journal).loss


@pytest.mark.whole
@pytest.mark.parametrize("known", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_no_batch_number_comes_again_in_a_stream(tmp_path, known):
    """A daemon that gives up the last record goes on behind it, or in another stream."""
    path = settings(tmp_path, "k = 11")
    said = defaultdict(list)

    def feed_one(endpoints, read, sequence):
        with Subscriber(endpoints["feed"], ["read", "delta"]) as feed:
            assert feed.wait_for_daemon(DEADLINE)
            send(endpoints, [(f"r{sequence}", read)])
            for message in (feed.receive(DEADLINE), feed.receive(DEADLINE)):
                stamp, origin = message.stamp, message.origin
                place = stamp.topic, stamp.at, origin.batch, origin.base, origin.version
                said[stamp.stream].append(place)

    with daemon(path) as (child, endpoints):
        for i in range(3):
            feed_one(endpoints, GENOME[100 * i : 100 * i + 100], i)
        end(child, signal.SIGKILL)
    if known:
        damage_bytes_of(tmp_path / "journal", 4)
    else:
        with daemon(path) as (child, _):  # a group after it
            end(child, signal.SIGKILL)
        forget(tmp_path / "journal", 4)
    with process(["run", "--config", path, *JOURNAL]) as child:
        line = wait_for_line(child, '"level": "error"')
        assert ("records-00000001" if known else "index.sqlite") in line
        assert "--accept-loss" in line
        assert child.wait(DEADLINE) == 1
    with process(["run", "--config", path, *JOURNAL, "--accept-loss"]) as child:
        line = json.loads(wait_for_line(child, "k-mers were given up"))
        assert line["kmers"] == ("90" if known else "unknown")
        endpoints = json.loads(wait_for_line(child, '"listening"'))
        wait_for_line(child, '"ready"')
        feed_one(endpoints, GENOME[200:300], 3)
        end(child)
    assert len(said) == (1 if known else 2)
    for places in said.values():
        for topic in ("delta", "read"):
            of_topic = [place[1:] for place in places if place[0] == topic]
            # records, batches, positions and versions
            for column in zip(*of_topic, strict=True):
                assert len(set(column)) == len(column)
    if known:
        assert [place[2] for place in places] == [0, 0, 1, 1, 2, 2, 3, 3]
    # it is said once
    with daemon(path) as (child, _):
        end(child)
        assert "given up" not in child.stderr.read()

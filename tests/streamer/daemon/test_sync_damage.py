"""What cannot be read ends the request that needs it; memory is bounded for all together."""

from __future__ import annotations

import random
from pathlib import Path

import apsw
import msgpack
import pytest

from tests.faults.plain_client import unseal
from tests.stored_batches import STORED
from tests.streamer.daemon.test_sync import serving, snapshot_meta
from tests.waiting import DEADLINE, until

pytestmark = pytest.mark.whole


@pytest.fixture
def served(tmp_path):
    with serving(tmp_path) as made:
        yield made


def change(served, sql):
    """Change the index behind its owner's back."""
    db = apsw.Connection(str(served.folder / "journal" / "index.sqlite"))
    db.execute(sql)
    db.close()


def flip(path, offset=3):
    content = bytearray(path.read_bytes())
    content[offset] ^= 4
    path.write_bytes(content)


def begin_fetch(puller, number, credit):
    """Ask for the stored state under a number of its own, beside the pull."""
    puller.ask(id=number, type="snapshot", credit=credit)


def answer(puller, number):
    """The next answer to a request; what it brings is given back as credit."""
    while True:
        assert puller.socket.poll(DEADLINE * 1000)
        head, *frames = unseal(puller.socket.recv_multipart())
        header = msgpack.unpackb(head)
        if header.get("id") == number:
            return header, sum(map(len, frames))


def answers(puller, number):
    """All that is said about a request for the state; credit is given for each part."""
    said = []
    while not said or said[-1].get("part", 1) < said[-1].get("parts", 1):
        header, size = answer(puller, number)
        said.append(header)
        puller.ask(id=number, type="credit", bytes=size)
    return said


def pulls_on(served, puller, after=0):
    """A pull that began before goes on, in the same process."""
    process = served.worker.process
    served.commit(10)
    served.reach(puller)
    served.expect(puller, after)
    assert served.worker.process == process is not None


def test_a_damaged_snapshot_ends_only_the_request_for_it(served):
    served.commit(30)
    puller = served.puller()
    served.reach(puller)
    process = served.worker.process
    served.journal.put_snapshot(20, snapshot_meta(20), (bytes(3 << 20), b""))
    path = served.folder / "journal" / "snapshot-00000001"
    flip(path, 2 << 20)
    asking = served.puller(after=30, stream=served.journal.stream)
    begin_fetch(asking, 7, 1 << 20)
    (refused,) = answers(asking, 7)
    assert (refused["type"], refused["reason"]) == ("refused", "damaged")
    assert str(path) in refused["message"]
    pulls_on(served, puller)
    assert served.worker.process == process
    # the next snapshot is whole
    served.journal.put_snapshot(40, snapshot_meta(40), (bytes(3 << 20), b""))
    begin_fetch(asking, 8, 1 << 20)
    assert [one.get("part") for one in answers(asking, 8)] == [1, 2, 3]


@pytest.mark.parametrize("expired", [False, True])
def test_a_snapshot_that_was_given_up_is_told_from_a_damaged_one(served, expired):
    """Until there is another one; records make up for it if all of them are kept."""
    journal = served.journal
    served.commit(30)
    journal.put_snapshot(20, snapshot_meta(20), (bytes(80), b""))
    state = journal._state._replace(oldest=21) if expired else journal._state
    journal._commit(state, [journal._snapshot._replace(file=0)])
    asking = served.puller(after=30, stream=journal.stream)
    begin_fetch(asking, 7, 1000)
    (said,) = answers(asking, 7)
    if expired:
        assert (said["type"], said["reason"]) == ("refused", "damaged")
        assert "try again" in said["message"]
    else:
        assert (said["type"], said["at"], said["kmers"]) == ("snapshot", 0, 0)
    journal.put_snapshot(30, snapshot_meta(30), (bytes(80), b""))
    begin_fetch(asking, 8, 1000)
    assert [one["at"] for one in answers(asking, 8)] == [30]


def test_a_snapshot_that_is_damaged_while_it_is_sent(served):
    """What was sent of it is of no use, and the client is told."""
    served.commit(5)
    served.journal.put_snapshot(5, snapshot_meta(5), (random.Random(1).randbytes(4 << 20), b""))
    puller = served.puller(after=5, stream=served.journal.stream)
    begin_fetch(puller, 7, 1)
    first, size = answer(puller, 7)
    assert first["part"] == 1
    path = served.folder / "journal" / "snapshot-00000001"
    with path.open("r+b") as file:
        file.seek(3 << 20)
        file.write(b"ouch")
    puller.ask(id=7, type="credit", bytes=size)
    said = answers(puller, 7)
    assert [one.get("part") for one in said] == [2, 3, None]
    assert (said[-1]["reason"], str(path) in said[-1]["message"]) == ("damaged", True)
    pulls_on(served, served.puller())


@pytest.mark.parametrize("table", ["state", "snapshots"])
def test_a_damaged_row_ends_only_what_needs_it(served, table):
    served.commit(30)
    served.journal.put_snapshot(20, snapshot_meta(20), (bytes(80), b""))
    puller = served.puller(after=30, stream=served.journal.stream)
    until(lambda: not puller.step(10) and puller.answers, "an answer")
    process = served.worker.process
    change(served, f"UPDATE {table} SET checksum = checksum + 1")
    asking = served.puller(after=30, stream=served.journal.stream)
    if table == "snapshots":
        begin_fetch(asking, 7, 1000)
    else:
        # who is behind needs to know what is still kept
        asking.ask(id=7, type="pull", after=3, stream=asking.stream, topics=STORED, credit=1000)
        assert answer(asking, 7)[0]["type"] == "pulling"
    refused, _ = answer(asking, 7)
    assert (refused["type"], refused["reason"]) == ("refused", "damaged")
    assert "index.sqlite" in refused["message"]
    # the owner writes the state anew with each commit
    pulls_on(served, puller, after=30)
    assert served.worker.process == process


def test_a_process_starts_beside_a_damaged_snapshot(served):
    """Its row and its file are of no use; records are."""
    served.commit(30)
    served.journal.put_snapshot(20, snapshot_meta(20), (bytes(80), b""))
    flip(served.folder / "journal" / "snapshot-00000001")
    change(served, "UPDATE snapshots SET checksum = checksum + 1")
    puller = served.puller()
    served.reach(puller)
    served.expect(puller)
    pulls_on(served, puller)


def test_several_requests_for_a_snapshot_share_their_memory(served):
    """Whoever does not read holds a part of it."""
    served.commit(5)
    size = 48 << 20
    served.journal.put_snapshot(5, snapshot_meta(5), (bytes(size), b""))
    pullers = [served.puller(after=5, stream=served.journal.stream) for _ in range(8)]
    for puller in pullers:
        begin_fetch(puller, 7, 1 << 20)
    for puller in pullers:
        until(lambda puller=puller: not puller.step(10) and puller.answers, "an answer")
    begin_fetch(pullers[0], 8, 1 << 20)
    assert len(answers(pullers[0], 8)) == size >> 20
    status = Path(f"/proc/{served.worker.process}/status").read_text()
    most = int(status.split("VmHWM:")[1].split()[0]) << 10
    assert most < 150e6

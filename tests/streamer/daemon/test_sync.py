"""The process of sync over a journal that another process writes: plain clients get all of it."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import apsw
import msgpack
import pytest
import zmq

from streamer.daemon import config, logs, sync_process
from streamer.daemon.core.sync import SyncLimits
from streamer.daemon.replay import ReplayedJournal
from streamer.daemon.security.known_peers import KnownPeers
from streamer.daemon.sync import SyncWorker
from streamer.journal.data_files import Sizes
from streamer.journal.reader import JournalReader
from streamer.journal.store import Journal
from tests.faults.plain_client import PlainPuller, seal, unseal
from tests.stored_batches import STORED, Batches, said
from tests.waiting import DEADLINE, until

pytestmark = [pytest.mark.whole, pytest.mark.usefixtures("forked_children")]

SMALL = Sizes(file_bytes=1 << 16, page_bytes=512, checkpoint_rows=12)


class Served:
    """A journal, and the thread and process that serve it."""

    def __init__(self, folder: Path, endpoint: str, overrides: list[str], keep_bytes: int) -> None:
        self.folder = folder
        self.journal = Journal(
            folder / "journal", b"k=11", "os", keep_bytes=keep_bytes, sizes=SMALL
        )
        self.batches = Batches()
        self.records = []
        loaded = config.load(
            None,
            [f"journal.directory={folder}/journal", f"sync.endpoint={endpoint}", *overrides],
            check_files=False,
        )
        self.worker = SyncWorker(SimpleNamespace(config=loaded), lambda: None)
        self.context = zmq.Context()
        self.pullers: list[PlainPuller] = []

    def commit(self, count: int, rows: int = 20, at_once: int = 5) -> None:
        while count:
            made = self.batches.records(min(count, at_once), rows)
            self.journal.append(made)
            self.journal.checkpoint()
            self.records += made
            self.worker.committed()
            count -= len(made)

    def puller(self, topics=STORED, **options) -> PlainPuller:
        puller = PlainPuller(self.context, self.worker.endpoint, topics, **options)
        self.pullers.append(puller)
        return puller

    def reach(self, puller: PlainPuller, at: int | None = None) -> None:
        """Read until everything is there."""
        at = len(self.records) if at is None else at
        until(lambda: not puller.step(10) and puller.at >= at, f"record {at}")

    def expect(self, puller: PlainPuller, after: int = 0, topics=STORED) -> None:
        want = said(self.records[after:], topics)
        assert {key: frames for key, (_, frames) in puller.messages.items()} == want
        assert puller.order == list(want)


@contextmanager
def serving(
    folder: Path, *overrides: str, endpoint: str = "", keep_bytes: int = 0
) -> Iterator[Served]:
    logs.configure("warning", "json")
    served = Served(folder, endpoint or f"ipc://{folder}/sync", list(overrides), keep_bytes)
    served.worker.start()
    assert served.worker.ready.wait(DEADLINE)
    assert served.worker.error is None
    try:
        yield served
    finally:
        for puller in served.pullers:
            puller.close()
        served.context.term()
        served.worker.stop()
        served.worker.join(DEADLINE)
        served.journal.close()
    assert served.worker.error is None
    assert served.worker.process is None


@pytest.fixture
def served(tmp_path):
    with serving(tmp_path) as made:
        yield made


def test_a_plain_client_pulls_everything(served):
    served.commit(200)
    puller = served.puller()
    served.reach(puller)
    served.expect(puller)
    assert puller.heads == {f"{topic}.": at for topic, at in served.batches.heads.items()}
    assert puller.stream == served.journal.stream
    # an open pull goes on by itself
    served.commit(50)
    served.reach(puller)
    served.expect(puller)


def test_a_pull_over_tcp(tmp_path):
    with serving(tmp_path, endpoint="tcp://127.0.0.1:*") as served:
        served.commit(3)
        puller = served.puller(until=2)
        served.reach(puller, 2)
        assert {at for _, at in puller.order} == {1, 2}


def test_nobody_who_does_not_pull_has_a_process(served, monkeypatch):
    looks, wake = [], served.worker._wake
    take = wake.take
    monkeypatch.setattr(wake, "take", lambda: looks.append(take()))
    for count in (1, 2, 3):
        served.commit(1)
        wake.wake()
        until(lambda count=count: len(looks) >= count, "another look for clients")
    assert served.worker.process is None


def test_a_client_that_lies_about_credit_ends_up_with_its_connection(served):
    """It gives credit and reads nothing: what waits for it is bounded, and others are served."""
    served.commit(600, rows=5000, at_once=20)
    liar = served.puller(["read"], window=1 << 30)
    for _ in range(400):
        liar.ask(type="credit", bytes=1 << 30)
    healthy = served.puller(["delta"])
    served.reach(healthy)
    served.expect(healthy, topics=["delta"])
    pages = int(Path(f"/proc/{served.worker.process}/statm").read_text().split()[1])
    # of 170 MB that it may have
    assert pages * os.sysconf("SC_PAGE_SIZE") < 150e6


def test_the_process_dies_and_is_started_again(served):
    served.commit(100)
    puller = served.puller()
    served.reach(puller)
    first = served.worker.process
    os.kill(first, signal.SIGKILL)
    served.commit(50)
    until(lambda: served.worker.process not in (None, first), "another process")
    puller.pull()
    served.reach(puller)
    served.expect(puller)


@pytest.mark.parametrize("stopped", [False, True])
def test_the_process_ends_with_a_daemon_that_is_killed(tmp_path, stopped):
    """And the next daemon gets the endpoint, even if the process gets no core."""
    code = f"""
import sys, time, zmq
from pathlib import Path
from tests.streamer.daemon.test_sync import serving
with serving(Path({str(tmp_path)!r})) as served:
    served.commit(3)
    served.reach(served.puller())
    print(served.worker.process, flush=True)
    time.sleep(600)
"""
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=os.getcwd()
    )
    try:
        process = int(child.stdout.readline())
        if stopped:
            os.kill(process, signal.SIGSTOP)
    finally:
        child.kill()
        child.wait()
        child.stdout.close()
    with serving(tmp_path) as served:
        assert served.journal.head == 3
        until(lambda: not Path(f"/proc/{process}").exists(), "the end of the process")
        puller = served.puller()
        served.reach(puller, 3)
        assert len({at for _, at in puller.order}) == 3


def snapshot_meta(at: int) -> bytes:
    import msgpack

    heads = {"read": at}
    meta = {"number": at, "position": 5, "version": 9, "fingerprint": 1, "heads": heads}
    return msgpack.packb(meta | {"counts": {"reads": 77}})


def test_a_routing_id_can_be_used_again(served):
    """By a client that comes again before its first connection is known to have ended."""
    served.commit(6)
    sockets = []
    try:
        for number in (1, 2, 3):
            socket = served.context.socket(zmq.DEALER)
            sockets.append(socket)
            socket.routing_id = b"same"
            socket.connect(served.worker.endpoint)
            request = msgpack.packb({"v": 2, "type": "heads", "id": number})
            socket.send_multipart(seal([request]))
            assert socket.poll(DEADLINE * 1000), f"no answer to connection {number}"
            answer = msgpack.unpackb(unseal(socket.recv_multipart())[0])
            assert (answer["type"], answer["id"], answer["head"]) == ("heads", number, 6)
    finally:
        for socket in sockets:
            socket.close(linger=0)


def test_a_request_about_what_is_committed_as_it_comes(tmp_path, monkeypatch):
    """The process may get no core between its look at the journal and at what has come."""
    journal = Journal(tmp_path / "journal", b"k=11", "os", sizes=SMALL)
    batches, take = Batches(), sync_process.receive_signed

    def received(sock, **how):
        request = take(sock, **how)
        journal.append(batches.records(1, 20))
        return request

    monkeypatch.setattr(sync_process, "receive_signed", received)
    replayed = ReplayedJournal(JournalReader(tmp_path / "journal"))
    wake, ends = os.pipe()
    with zmq.Context() as context, context.socket(zmq.ROUTER) as sock:
        endpoint = f"ipc://{tmp_path}/sync"
        sock.bind(endpoint)
        limits = SyncLimits(connections=8, pulls=4, pull_bytes=1 << 20, memory_bytes=1 << 20)
        server = sync_process.Server(sock, wake, replayed, limits, KnownPeers(None, "sync"))
        thread = threading.Thread(target=server.serve)
        thread.start()
        puller = PlainPuller(context, endpoint, STORED, stream=journal.stream, after=1)
        until(lambda: puller.step(10) and puller.answers, "an answer")
        puller.close()
        os.close(ends)
        thread.join(DEADLINE)
    assert puller.answers[0]["type"] == "pulling"
    os.close(wake)
    replayed.close()
    journal.close()


def test_the_process_gives_way_to_others(served):
    """Also where Linux shares the CPU among sessions, and a nice value counts within one only."""
    served.commit(6)
    puller = served.puller()
    until(lambda: puller.step(10) and puller.answers, "an answer")
    process = served.worker.process
    own = os.getpriority(os.PRIO_PROCESS, 0)
    assert os.getpriority(os.PRIO_PROCESS, process) == min(own + 10, 19)
    group = Path(f"/proc/{process}/autogroup")
    if group.exists():
        assert group.read_text().endswith("nice 10\n")


def test_what_the_process_imports():
    code = (
        "import sys, streamer.daemon.sync_process\n"
        "print(*{name.split('.')[0] for name in sys.modules})\n"
        "print(*[name for name in sys.modules if name.startswith('streamer.')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    top, own = (set(line.split()) for line in done.stdout.splitlines())
    assert not top & {"numba", "llvmlite", "pydantic", "typer", "gpu"}
    assert not {name for name in own if name.startswith(("streamer.matching", "streamer.cli"))}


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

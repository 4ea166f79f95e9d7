"""Decisions and context of reads: on the feed and on request, against the definition."""

from __future__ import annotations

import random
from contextlib import closing
from itertools import product

import msgpack
import numpy as np
import pytest

from streamer.client import Control, Producer, ReadDecisions, RefusedError, Subscriber
from streamer.client.message_tables import columns_of, table
from streamer.client.messages import ReadSummaries, Upgrade
from streamer.client.sync import Sync
from streamer.daemon import config, read_decisions
from streamer.daemon.engine import make_matcher
from streamer.errors import StreamerError
from streamer.matching.matcher import load_dictionary
from streamer.output.rows import RowWriter
from streamer.protocol.schema import ACTIONS
from streamer.sequences.context import LabelColumn, ReadContext
from streamer.sequences.read_batch import ReadBatch
from tests.daemon_kit import Raw, controlled, random_dna, running, settings, write_fasta
from tests.reference.targets import decisions
from tests.reload_kit import GENOME, configured, settle
from tests.waiting import DEADLINE

pytestmark = pytest.mark.whole

K = 11
_TURNED = str.maketrans("ACGT", "TGCA")


def sources_of(rng):
    """Three targets; the second one holds a part of the first."""
    texts = [random_dna(rng, 400) for _ in range(3)]
    texts[1] += texts[0][:100]
    return list(zip(("virus", "host", "other"), texts, strict=True))


def configured_with_sources(folder, seed, dictionary=""):
    """A configuration whose dictionary has three targets, these, and their source of chance."""
    rng = random.Random(seed)
    records = sources_of(rng)
    write_fasta(folder / "ref.fa", records)
    return settings(folder, f'k = {K}\nsources = ["ref.fa"]\n{dictionary}'), records, rng


def reads_of(rng, records, count=60):
    made = []
    for number in range(count):
        text = rng.choice([*(text for _, text in records), random_dna(rng, 400)])
        at = rng.randrange(len(text) - 50)
        letters = (
            random_dna(rng, rng.choice((0, 0, 30, 200))) + text[at : at + rng.randrange(20, 300)]
        )
        letters = letters.replace("AC", "AN") if rng.random() < 0.1 else letters
        turned = letters.translate(_TURNED)[::-1]
        made.append((f"r{number}", rng.choice((letters, turned))))
    return [*made, ("empty", ""), ("short", "ACGT")]


def test_a_reply_that_names_many_targets(tmp_path):
    """Only the header of what is sent to the daemon has a limit."""
    rng = random.Random(5)
    records = [(f"gene{n}-{'x' * 90}", random_dna(rng, 60)) for n in range(1000)]
    write_fasta(tmp_path / "ref.fa", records)
    path = settings(tmp_path, f'k = {K}\nsources = ["ref.fa"]')
    with controlled(path, [f'decision.enrich=["{records[0][0]}"]']) as (_, control):
        found = control.ask(records)
    assert [row.target for row in found] == [name for name, _ in records]


def listening(daemon):
    feed = Subscriber(daemon.endpoints["feed"], ["decision"])
    assert feed.wait_for_daemon(DEADLINE)
    return feed


def next_rows(feed):
    """The rows of the next message, as ``decisions`` has them."""
    while True:
        message = feed.receive(DEADLINE)
        if isinstance(message, ReadDecisions):
            actions = [ACTIONS[number] for number in message.action]
            targets = [message.labels.get(number) for number in message.target.tolist()]
            counts = (message.matches, message.windows, message.bases)
            assert message.read.tolist() == list(range(len(message.origin.names)))
            return list(zip(actions, targets, *(c.tolist() for c in counts), strict=True))


RULES = [
    ({"enrich": ["virus"]}, {}),
    ({"enrich": ["other", "host"], "give_up": 250}, {"min_windows": 5, "min_fraction": 0.25}),
    ({"deplete": ["host"]}, {"min_windows": 3}),
    ({"deplete": ["virus", "other"], "give_up": 1}, {"min_fraction": 0.5}),
]


DICTIONARIES = ["", 'mode = "grow"', 'strands = "forward"\nseed_bases = 90']


def case_of(folder, rule, dictionary, first):
    """A configuration with its overrides, reads, and what is decided on each by the definition."""
    names, limits = rule
    seed = f"{names} {limits} {dictionary} {first}"
    path, records, rng = configured_with_sources(folder, seed, dictionary)
    reads = reads_of(rng, records)
    keys = {"first_bases": first} | limits | names
    keys["give_up_bases"] = keys.pop("give_up", 0)
    overrides = [f"decision.{key}={value!r}" for key, value in keys.items()]
    strands = "forward" if "forward" in dictionary else "canonical"
    limits = limits | {"strands": strands}
    want = decisions(reads, K, **names, first=first, records=records, **limits)
    assert len({row[0] for row in want}) > 1
    return path, overrides, reads, want


@pytest.mark.parametrize("dictionary", DICTIONARIES)
def test_decisions_equal_the_definition(tmp_path, dictionary):
    for rule, first in product(RULES, (40, 10_000)):
        path, overrides, reads, want = case_of(tmp_path, rule, dictionary, first)
        loaded = config.load(path, [*overrides, "matching.device=cpu"])
        stage, said = read_decisions.DecisionStage(loaded), []
        with closing(make_matcher(loaded, load_dictionary(loaded.spec), loaded.spec)) as matcher:
            stage.use(matcher)
            batch = ReadBatch.from_sequences(*zip(*reads, strict=True))
            stage.ask(batch, lambda fields, frames: said.append((fields, frames)))  # noqa: B023
            stage.answer()
            stage.close()
        ((fields, frames),) = said
        described = zip(fields["columns"], frames, strict=True)
        columns = {name: np.frombuffer(frame, kind) for (name, kind, _), frame in described}
        names = dict(fields["targets"])
        actions = [ACTIONS[number] for number in columns["action"]]
        targets = [names.get(number) for number in columns["target"].tolist()]
        counts = (columns[name].tolist() for name in ("matches", "windows", "bases"))
        assert list(zip(actions, targets, *counts, strict=True)) == want, (rule, first)


@pytest.mark.parametrize(("rule", "dictionary"), [(1, 1), (3, 0)])
def test_feed_and_requests_equal_the_definition(tmp_path, rule, dictionary):
    case = RULES[rule], DICTIONARIES[dictionary], 40
    path, overrides, reads, want = case_of(tmp_path, *case)
    with (
        running(path, overrides) as daemon,
        listening(daemon) as feed,
        Producer(daemon.endpoints["ingest"]) as producer,
        Control(daemon.endpoints["control"]) as control,
    ):
        # not changed by what the stream brings
        for part in (reads[:20], reads[20:], reads):
            producer.send(part)
        producer.flush(matched=True, timeout=DEADLINE)
        assert next_rows(feed) + next_rows(feed) == want
        assert next_rows(feed) == want
        before = control.status()
        asked = [control.ask(part) for part in (reads, reads[:5], [])]
        after = control.status()
        assert after["totals"]["reads"] == before["totals"]["reads"]
        assert after["dictionary"] == before["dictionary"]
    assert [row[1:] for row in asked[0]] == want
    assert [row.read for row in asked[0]] == [name for name, _ in reads]
    assert asked[1:] == [asked[0][:5], []]


def test_a_read_is_asked_about_again_as_it_grows(tmp_path):
    path, records, rng = configured_with_sources(tmp_path, 2)
    letters = random_dna(rng, 100) + records[2][1][50:150]
    overrides = ["decision.enrich=['virus']", "decision.give_up_bases=500"]
    with controlled(path, overrides) as (_, control):
        actions = [control.ask([("r", letters[:n])])[0].action for n in (50, 100, 150, 200)]
        assert actions == ["proceed", "proceed", "unblock", "unblock"]
        assert control.ask([("r", random_dna(rng, 500))])[0].action == "unblock"
        assert control.status()["totals"]["reads"] == 0


def decided(feed):
    """Of the next message: read, channel and action of each row."""
    message = next(m for m in iter(lambda: feed.receive(DEADLINE), None))
    while not isinstance(message, ReadDecisions):
        message = feed.receive(DEADLINE)
    names = [message.origin.names[index] for index in message.read]
    actions = [ACTIONS[number] for number in message.action]
    return list(zip(names, message.channel.tolist(), actions, strict=True))


@pytest.mark.parametrize("mode", ["frozen", "grow"])
def test_a_read_that_grows_is_decided_on_once_and_counted_once(tmp_path, mode):
    path, records, rng = configured_with_sources(tmp_path, 3, f'mode = "{mode}"')
    with open(path, "a") as file:
        file.write('[journal]\ndirectory = "journal"\ndurability = "os"\n')
    on, off = records[0][1][150:390], random_dna(rng, 240)

    def batch(length, *channels):
        names = [f"r{channel}" for channel in channels]
        letters = [(on if channel % 2 else off)[:length] for channel in channels]
        made, count = ReadBatch.from_sequences(names, letters), len(channels)
        none = LabelColumn.same(None, count)
        context = ReadContext(np.array(channels, np.int32), np.zeros(count, "S1"), *3 * [none])
        return ReadBatch(made.names, made.offsets, made.bases, context)

    overrides = ["decision.enrich=['virus']", "decision.give_up_bases=200"]
    with (
        running(path, overrides) as daemon,
        listening(daemon) as feed,
        Producer(daemon.endpoints["ingest"], name="p") as producer,
        Control(daemon.endpoints["control"]) as control,
    ):
        before = control.status()
        producer.send(batch(100, 1, 2), mark=b"here")
        producer.flush(matched=True, timeout=DEADLINE)
        assert decided(feed) == [("r1", 1, "stop_receiving"), ("r2", 2, "proceed")]
        for length, want in (
            (60, [("r3", 3, "stop_receiving"), ("r4", 4, "proceed")]),
            (120, [("r4", 4, "proceed")]),
            (210, [("r4", 4, "unblock")]),
            (240, []),
        ):
            producer.send(batch(length, 3, 4), growing=True)
            assert decided(feed) == want
        producer.flush(matched=True, timeout=DEADLINE)
        status = control.status()
        assert status["totals"]["reads"] == 2
        assert status["totals"]["bases"] == 200
        producer.send(batch(240, 3, 4))
        producer.flush(matched=True, timeout=DEADLINE)
        assert decided(feed) == []
        # another read under the same channel, and a name that comes again
        producer.send(batch(240, 3, 4))
        assert decided(feed) == [("r3", 3, "stop_receiving"), ("r4", 4, "unblock")]
        producer.flush(matched=True, timeout=DEADLINE)
        status = control.status()
        assert status["totals"]["reads"] == 6
        assert status["totals"]["bases"] == 200 + 4 * 240
        assert (status["dictionary"]["kmers"] > before["dictionary"]["kmers"]) == (mode == "grow")
    with (
        running(path, overrides) as daemon,
        Producer(daemon.endpoints["ingest"], name="p") as again,
    ):
        again.connect(timeout=DEADLINE)
        with Control(daemon.endpoints["control"]) as control:
            assert control.status()["totals"]["reads"] == 6


def test_reads_that_keep_being_sent_are_not_forgotten(monkeypatch):
    """However many others are decided on meanwhile; a batch may have a read twice."""
    monkeypatch.setattr(read_decisions, "_DECIDED", 4)
    known = read_decisions._Decided()

    def rows(names, action="unblock", grow=True):
        batch = ReadBatch.from_sequences(names, ["A"] * len(names))
        actions = np.full(len(names), ACTIONS.index(action), np.uint8)
        return known.rows(batch, actions, grow=grow).tolist()

    assert rows(["long", "a", "long"]) == [0, 1]
    for number in range(20):
        assert rows([f"r{number}", "long"]) == [0]
    # decided on as long ago as four others
    assert rows(["a"]) == [0]
    assert rows(["p", "p"], action="proceed") == [0, 1]
    assert rows(["long", "r19", "p"], grow=False) == [2]
    assert rows(["long"], grow=False) == [0]
    assert len(known._reads) <= 4


def test_reads_that_grow_keep_the_mark_and_need_decisions(tmp_path):
    path = settings(tmp_path, f"k = {K}")
    with running(path) as daemon, Producer(daemon.endpoints["ingest"], name="p") as producer:
        producer.send([("r", "ACGT" * 10)], mark=b"here")
        producer.send([("r", "ACGT" * 20)], growing=True)
        with pytest.raises(RefusedError, match="nothing is decided: name targets"):
            producer.flush(timeout=DEADLINE)
    write_fasta(tmp_path / "ref.fa", [("virus", "ACGTTGCAGGATCCA" * 3)])
    path = settings(tmp_path, f'k = {K}\nsources = ["ref.fa"]')
    with running(path, ["decision.enrich=['virus']"]) as daemon:
        with Producer(daemon.endpoints["ingest"], name="p") as producer:
            producer.send([("r", "ACGT" * 10)], mark=b"here")
            producer.send([("r", "ACGT" * 20)], growing=True)
            producer.flush(timeout=DEADLINE)
        with Producer(daemon.endpoints["ingest"], name="p") as producer:
            producer.connect(timeout=DEADLINE)
            assert producer.mark == b"here"


def test_rows_have_the_channel_and_the_barcode(tmp_path, streamer):
    path, records, _ = configured_with_sources(tmp_path, 6)
    fastq, rows = tmp_path / "reads.fq", tmp_path / "rows.tsv"
    letters = records[0][1][150:200]
    heads = ("a ch=12 barcode=barcode04", "b", "c\tch:i:7\tBC:Z:barcode01", "d barcode=barcode04")
    fastq.write_text("".join(f"@{head}\n{letters}\n+\n{'I' * 50}\n" for head in heads))
    with running(path, ["decision.enrich=['virus']"]) as daemon, listening(daemon) as feed:
        code, _, err = streamer("send", fastq, "--to", daemon.endpoints["ingest"])
        assert code == 0, err
        message = next(
            m for m in iter(lambda: feed.receive(DEADLINE), None) if isinstance(m, ReadDecisions)
        )
    with RowWriter(str(rows), "tsv", columns_of(["decision"])) as out:
        out.write(table(message))
    header, *lines = rows.read_text().splitlines()
    assert header.split() == ["#topic", "read", "channel", "barcode", "action", "target",
                              "matches", "windows", "bases", "batch"]  # fmt: skip
    assert [line.split("\t")[1:6] for line in lines] == [
        ["a", "12", "barcode04", "stop_receiving", "virus"],
        ["b", ".", ".", "stop_receiving", "virus"],
        ["c", "7", "barcode01", "stop_receiving", "virus"],
        ["d", ".", "barcode04", "stop_receiving", "virus"],
    ]


def test_a_reload_changes_what_is_decided(tmp_path):
    path, records, _ = configured_with_sources(tmp_path, 3)
    reads = [("r", records[0][1][150:250])]
    with controlled(path, ["decision.deplete=['virus']"]) as (_, control):
        assert control.ask(reads)[0].action == "unblock"
        write_fasta(tmp_path / "ref.fa", [("virus", records[1][1]), ("host", records[0][1])])
        control.reload()
        assert control.ask(reads)[0][1:3] == ("stop_receiving", "host")
        write_fasta(tmp_path / "ref.fa", records[1:])
        with pytest.raises(RefusedError, match="no target called virus"):
            control.reload()
        write_fasta(tmp_path / "ref.fa", [("virus", "ACGTN" * 50), *records[1:]])
        with pytest.raises(RefusedError, match=r"deplete: can never match, .*: virus"):
            control.reload()
        assert control.ask(reads)[0][1:3] == ("stop_receiving", "host")


def test_what_cannot_be_decided_is_refused(tmp_path):
    path, *_ = configured_with_sources(tmp_path, 4)
    with (
        pytest.raises(
            StreamerError, match=r"decision\.enrich: the dictionary has no target called viruz"
        ),
        running(path, ["decision.enrich=['virus', 'viruz']"]),
    ):
        pass
    with controlled(path) as (daemon, control):
        with pytest.raises(RefusedError, match="nothing is decided") as refused:
            control.ask([("r", "ACGT")])
        assert refused.value.reason == "denied"
    with running(path, ["decision.enrich=['virus']"]) as daemon:
        raw = Raw(daemon.endpoints["control"])
        frames = [msgpack.packb(["a"]), bytes(8) + (4).to_bytes(8, "little"), b"AC-T"]
        asked = {"v": 2, "id": 1, "command": "ask", "form": "columns"}
        for changed, reason in (
            (frames, "base"),
            ([frames[0], frames[1][:8], frames[2]], "malformed"),
            (frames[:1], "malformed"),
        ):
            raw.send(asked, *changed)
            answer = raw.receive()
            assert (answer["ok"], answer["reason"], answer["id"]) == (False, reason, 1)
        raw.send(asked | {"command": "status"}, *frames)
        assert raw.receive()["reason"] == "malformed"
        raw.socket.close()
        raw.context.term()


def test_a_plain_client_asks(tmp_path):
    """With ZeroMQ and msgpack alone, as docs/protocol.md says."""
    path, records, _ = configured_with_sources(tmp_path, 5)
    with running(path, ["decision.enrich=['host']"]) as daemon:
        raw = Raw(daemon.endpoints["control"])
        letters = records[1][1][100:160].encode()
        ends = b"".join(n.to_bytes(8, "little") for n in (0, len(letters), len(letters) + 4))
        header = {"v": 2, "id": 7, "command": "ask", "form": "columns"}
        raw.send(header, msgpack.packb(["a", "b"]), ends, letters + b"ACGT")
        assert raw.socket.poll(DEADLINE * 1000)
        first, *columns, _ = raw.socket.recv_multipart()
        reply = msgpack.unpackb(first)
        assert reply["ok"]
        assert reply["targets"] == [[1, "host"]]
        values = {
            name: [
                int.from_bytes(frame[i : i + len(frame) // rows], "little")
                for i in range(0, len(frame), len(frame) // rows)
            ]
            for (name, _, rows), frame in zip(reply["columns"], columns, strict=True)
        }
        assert values == {
            "read": [0, 1], "channel": [0xFFFFFFFF] * 2, "barcode": [0xFFFFFFFF] * 2,
            "action": [1, 0], "target": [1, 0xFFFFFFFF],
            "matches": [50, 0], "windows": [50, 0], "bases": [60, 4],
        }  # fmt: skip
        raw.socket.close()
        raw.context.term()


def batch_of(rng, number, count, known):
    """A batch and, of each read, its name, channel and barcode."""
    reads = [
        (f"b{number}-{n}", GENOME[(at := rng.randrange(2900)) : at + 60]) for n in range(count)
    ]
    offsets = np.cumsum([0, *(len(letters) for _, letters in reads)])
    batch = ReadBatch.from_letters(
        [name for name, _ in reads], offsets, "".join(x for _, x in reads).encode()
    )
    said = [
        (name, rng.choice([None, 1, 512]), rng.choice([None, "barcode01", "barcode07"]))
        for name, _ in reads
    ]
    if not known:
        return batch, [(name, None, None) for name, *_ in said]
    none = LabelColumn.same(None, count)
    labels = ["unused", "barcode07", "barcode01"]
    context = ReadContext(
        np.array([-1 if channel is None else channel for _, channel, _ in said], np.int32),
        np.zeros(count, "S1"),
        none,
        LabelColumn(
            labels, np.array([-1 if b is None else labels.index(b) for *_, b in said], np.int32)
        ),
        none,
    )
    return ReadBatch(batch.names, batch.offsets, batch.bases, context), said


def rows_of(message):
    """As ``streamer watch`` shows them."""
    assert isinstance(message, ReadSummaries)
    columns = table(message).columns
    assert list(columns)[-3:] == ["channel", "barcode", "batch"]
    barcodes = [message.barcodes.get(number) for number in message.barcode.tolist()]
    channels = [None if channel < 0 else channel for channel in message.channel.tolist()]
    names = [message.origin.names[read] for read in message.read.tolist()]
    return list(zip(names, channels, barcodes, strict=True))


@pytest.mark.parametrize("targets", [1, 2])
def test_rows_of_reads_have_their_context(tmp_path, targets):
    rng = random.Random(targets)
    pieces = [(f"t{n}", GENOME[700 * n : 700 * n + 900]) for n in range(targets)]
    write_fasta(tmp_path / "ref.fa", pieces)
    path = configured(tmp_path)
    made = [batch_of(rng, n, count, n % 2 == 0) for n, count in enumerate((3, 4, 0, 0, 5, 1))]
    want = [said for _, said in made]
    with running(path) as daemon, Subscriber(daemon.endpoints["feed"], ["read"]) as feed:
        daemon.wait_for_subscriptions("read")
        with Producer(daemon.endpoints["ingest"]) as producer:
            for batch, _ in made:
                producer.send(batch)
            producer.flush(matched=True, timeout=DEADLINE)
        assert [rows_of(feed.receive(DEADLINE)) for _ in made] == want
    contexts = {row[0]: row for rows in want for row in rows}
    with controlled(path) as (daemon, control):
        write_fasta(tmp_path / "ref.fa", [("other", GENOME[1500:2900])])
        control.reload()
        settle(control)
        with Sync(daemon.endpoints["sync"], answer_seconds=DEADLINE) as sync:
            stored = list(sync.pull(["read", "retract", "upgrade"]))
    assert [rows_of(m) for m in stored if isinstance(m, ReadSummaries)] == want
    upgraded = [row for m in stored if isinstance(m, Upgrade) for row in rows_of(m.parts["read"])]
    assert upgraded
    assert all(contexts[row[0]] == row for row in upgraded)

"""What a daemon counts by target and barcode, against the definition and ``streamer match``."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest

from streamer.cli.app import main
from streamer.client import Control, Producer, RefusedError, Subscriber
from streamer.daemon.kept_batches import KeptBatches
from streamer.errors import StreamerError
from streamer.sequences.files import read_batches
from tests.daemon_kit import Running, controlled, running, write_fasta
from tests.reference.targets import targets_report
from tests.reload_kit import GENOME, K, batches_of, configured, settle, sources_of
from tests.waiting import DEADLINE, until

pytestmark = pytest.mark.whole

BARCODES = ["barcode04", "barcode12", "unclassified"]


class Run:
    """Files of reads as a sequencer leaves them: a folder a barcode, some reads say another."""

    def __init__(self, folder, seed):
        self.rng = random.Random(seed)
        self.folder = folder / "run"
        self.reads, self.barcodes, self.paths = [], [], []

    def file(self):
        """Another file; its path."""
        rng, number = self.rng, len(self.paths)
        barcode = rng.choice([*BARCODES, "reads"])
        reads = [(f"f{number}-{name}", letters) for batch in batches_of(rng, 2)
                 for name, letters in batch]  # fmt: skip
        lines = []
        for name, letters in reads:
            own = rng.choice(["", " ch=7 barcode=barcode12", "\tch:i:9\tBC:Z:barcode04"])
            said = own.replace("=", ":").rpartition(":")[2] if own else barcode
            self.barcodes.append("." if said == "reads" else said)
            lines.append(f"@{name}{own}\n{letters}\n+\n{'I' * len(letters)}\n")
        self.reads += reads
        path = self.folder / barcode / f"{number}.fastq"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(lines))
        self.paths.append(str(path))
        return str(path)


def table(endpoint, folder, *options):
    out = folder / "targets.tsv"
    assert main(["targets", "--at", endpoint, "-o", str(out), *options]) == 0
    return out.read_text()


def matched(folder, paths, *options):
    out = folder / "match.tsv"
    arguments = ["match", *paths, "-d", str(folder / "ref.fa"), "-k", str(K), "--quiet"]
    assert main([*arguments, "--report", "targets", "-o", str(out), *options]) == 0
    return out.read_text()


def defined(rows):
    return ["\t".join(map(str, row)) for row in rows]


def check(daemon, folder, run, sources):
    """The daemon's rows are those of one match of all files, and of the definition."""
    endpoint = daemon.endpoints["control"]
    by = ["--by", "barcode"]
    found = table(endpoint, folder), table(endpoint, folder, *by)
    assert found == (matched(folder, run.paths), matched(folder, run.paths, *by))
    rows = targets_report(run.reads, K, records=sources)
    assert found[0].splitlines()[1:] == defined(rows)
    rows = targets_report(run.reads, K, records=sources, barcodes=run.barcodes)
    assert found[1].splitlines()[1:] == defined(rows)


def counting(folder, sources, more="", dictionary="", durability="os"):
    write_fasta(folder / "ref.fa", sources)
    path = configured(folder, dictionary, durability)
    Path(path).write_text(Path(path).read_text() + f"[answers]\ntargets = true\n{more}")
    return path


def deliver(daemon, run, count):
    """Send some files and wait for their counts."""
    paths = [run.file() for _ in range(count)]
    with Producer(daemon.endpoints["ingest"]) as producer:
        for batch in read_batches(paths, batch_reads=5, context=True):
            producer.send(batch)
        producer.flush(matched=True, timeout=DEADLINE)


@pytest.mark.parametrize("mode", ["grow", pytest.param("frozen", marks=pytest.mark.slow)])
def test_counts_go_on_over_restarts(tmp_path, mode):
    run = Run(tmp_path, 3)
    sources = sources_of(run.rng)
    path = counting(tmp_path, sources, dictionary=f'mode = "{mode}"')
    for _ in range(2):
        with running(path) as daemon:
            if run.paths:
                check(daemon, tmp_path, run, sources)
            deliver(daemon, run, 4)
            check(daemon, tmp_path, run, sources)


def test_a_reload_counts_all_kept_reads_again(tmp_path):
    run = Run(tmp_path, 5)
    sources = sources_of(run.rng)
    path = counting(tmp_path, sources)
    with controlled(path) as (daemon, control):
        for _ in range(3):
            deliver(daemon, run, 5)
            sources = sources_of(run.rng)
            write_fasta(tmp_path / "ref.fa", sources)
            control.reload()
            deliver(daemon, run, 2)
            settle(control)
            check(daemon, tmp_path, run, sources)
    # a restart that finds other sources, in whose revision nothing is counted twice
    sources = sources_of(run.rng)
    write_fasta(tmp_path / "ref.fa", sources)
    with controlled(path) as (daemon, control):
        settle(control)
        deliver(daemon, run, 2)
        check(daemon, tmp_path, run, sources)


def test_the_feed_brings_what_changes_and_says_once_what_is_enough(tmp_path):
    run = Run(tmp_path, 8)
    sources = [("one", GENOME[:900]), ("two", GENOME[900:1500]), ("far", "ACGT" * 40)]
    panel = '[panel]\ngroups = { both = ["one", "two"], far = ["far"] }\nenough_breadth = 0.5\n'
    panel += "enough_reads = 2\n[feed]\nbeat_seconds = 0.05\n"
    path = counting(tmp_path, sources, panel)
    path = _once(path)
    said_before = set()
    for _ in range(2):
        with running(path) as daemon, Subscriber(daemon.endpoints["feed"], Heard.topics) as feed:
            daemon.wait_for_subscriptions(*Heard.topics)
            deliver(daemon, run, 12)
            with Control(daemon.endpoints["control"]) as control:
                everything = control.targets()[1], control.targets(by="barcode")[1]
            rows = targets_report(run.reads, K, records=sources, barcodes=run.barcodes)
            enough = _enough(rows, {"both": ["one", "two"], "far": ["far"]})
            heard = Heard(feed, *everything, enough - said_before)
            until(heard.all, "the rows, and what is enough")
            assert heard.twice == 0
            assert enough
            said_before |= enough


class Heard:
    """What comes on the feed, until it is what it should be; whether something comes ``twice``."""

    topics = ("targets", "barcodes", "enough")

    def __init__(self, feed, targets, barcodes, enough):
        self.feed, self.enough, self.twice = feed, enough, 0
        # rows that have anything to say
        self.want = {tuple(row[:1]): row for row in targets if any(row[1:4])}
        self.want |= {tuple(row[:2]): row for row in barcodes if any(row[2:5])}
        self.rows, self.said = {}, set()

    def all(self):
        while (message := self.feed.receive(0.05)) is not None:
            for row in message.rows:
                if message.stamp.topic == "enough":
                    key = (row[0] or ".", row[1], row[2])
                    self.twice += key in self.said
                    self.said.add(key)
                else:
                    self.rows[tuple(row[: 1 + (message.stamp.topic == "barcodes")])] = row
        return self.rows == self.want and self.said == self.enough


def _once(path):
    """The configuration with its [feed] in one table."""
    text = Path(path).read_text()
    head, _, tail = text.rpartition("[feed]\n")
    Path(path).write_text(head.replace("[feed]\n", f"[feed]\n{tail}"))
    return path


def _enough(rows, groups):
    """(barcode, group, target) by the definition."""
    found = set()
    by = {}
    for barcode, target, reads, _, _, kmers, seen, *_ in rows:
        by.setdefault(barcode, {})[target] = (reads, kmers, seen)
    for barcode, targets in by.items():
        for group, members in groups.items():
            passed = [
                name
                for name in members
                if targets[name][0] >= 2 and 2 * targets[name][2] >= targets[name][1] > 0
            ]
            found |= {(barcode, None, name) for name in passed}
            if len(passed) == len(members):
                found.add((barcode, group, None))
    return found


def test_the_panel_and_the_memory_of_gpus_on_request_but_no_coverage(tmp_path, monkeypatch):
    from gpu.card import device

    panel = '[panel]\ngroups = { g = ["one"] }\nenough_breadth = 0.5\nenough_reads = 2\n'
    path = counting(tmp_path, [("one", GENOME[:900])], panel)
    with controlled(path) as (daemon, control):
        found = {"groups": {"g": ["one"]}, "breadth": 0.5, "depth": 0.0, "reads": 2}
        assert control.panel() == found
        with pytest.raises(RefusedError, match=r"answers\.coverage = true"):
            control.coverage("one")
        assert control.status()["gpus"] == {}
        # as if GPUs matched
        monkeypatch.setattr(device, "memory_of", lambda number: (10 + number, 100))
        daemon.service.status.cards = (0, 3)
        until(lambda: control.status()["gpus"], "the memory is known")
        assert control.status()["gpus"] == {
            "0": {"used_bytes": 10, "size_bytes": 100},
            "3": {"used_bytes": 13, "size_bytes": 100},
        }
        daemon.service.status.cards = ()


def test_targets_without_a_kmer_are_refused_with_their_key(tmp_path, capsys):
    sources = [("one", GENOME[:900]), ("few", "ACGTN" * 20)]
    for more, key in (
        ('[panel]\ngroups = { g = ["one", "few"] }\n', "panel.groups.g"),
        ("[panel]\nenough_reads = 9\n", "panel"),
        ('[decision]\nenrich = ["few"]\n', "decision.enrich"),
    ):
        path = counting(tmp_path, sources, more)
        assert main(["validate", "--config", path]) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert all(word in line for word in (key, "can never match", "few", "no whole k-mer"))
    with pytest.raises(StreamerError, match=rf"{key}: can never match, .*: few"), running(path):
        pass


def test_unknown_targets_of_a_panel_are_refused_with_their_key(tmp_path):
    panel = '[panel]\ngroups = { g = ["one", "nobody"] }\n'
    path = counting(tmp_path, [("one", GENOME[:900])], panel)
    problem = r"panel\.groups\.g\.1: no target of the dictionary is 'nobody'"
    with pytest.raises(StreamerError, match=problem), running(path):
        pass
    write_fasta(tmp_path / "ref.fa", [("one", GENOME[:900]), ("nobody", GENOME[900:])])
    with controlled(path) as (_, control):
        write_fasta(tmp_path / "ref.fa", [("one", GENOME[:800])])
        with pytest.raises(RefusedError, match=problem):
            control.reload()


def test_barcodes_beyond_the_limit_count_together(tmp_path, capfd):
    """A tag that differs in each read takes no more memory than the limit allows."""
    path = counting(tmp_path, [("one", GENOME[:900])], "barcodes = 3\n")
    letters = [GENOME[at : at + 60] for at in range(0, 600, 30)]
    file = tmp_path / "reads.fq"
    file.write_text(
        "".join(f"@r{n} BC:Z:b{n % 7}\n{text}\n+\n{'I' * 60}\n" for n, text in enumerate(letters))
    )
    found = []
    for life in range(2):
        with running(path) as daemon:
            if not life:
                with Producer(daemon.endpoints["ingest"]) as producer:
                    for batch in read_batches([str(file)], batch_reads=5, context=True):
                        producer.send(batch)
                    producer.flush(matched=True, timeout=DEADLINE)
            rows = table(daemon.endpoints["control"], tmp_path, "--by", "barcode")
            found.append([row.split("\t")[:3] for row in rows.splitlines()[1:]])
    reads = {"b0": 3, "b1": 3, "b2": 3, "other": 11}
    want = [
        [barcode, *row] for barcode, n in reads.items() for row in (["one", str(n)], [".", "0"])
    ]
    assert found == [want, want]
    # once for each life
    assert capfd.readouterr().err.count("more than 3 barcodes: further ones count as other") == 2


def test_a_daemon_that_does_not_count_says_so(tmp_path):
    write_fasta(tmp_path / "ref.fa", [("one", GENOME[:900])])
    with controlled(configured(tmp_path)) as (_, control):
        with pytest.raises(RefusedError, match=r"answers\.targets = true"):
            control.targets()
        assert not {"targets.", "enough."} & set(control.status()["published"])


def test_counts_of_a_daemon_that_starts_are_refused(tmp_path, monkeypatch):
    """Those of the journal's batches are not complete yet."""
    run = Run(tmp_path, 4)
    sources = sources_of(run.rng)
    path = counting(tmp_path, sources)
    with running(path) as daemon:
        deliver(daemon, run, 3)
    asked = threading.Event()
    count = KeptBatches.matched

    def counted_later(*arguments):
        assert asked.wait(DEADLINE)
        return count(*arguments)

    monkeypatch.setattr(KeptBatches, "matched", counted_later)
    daemon = Running(path)
    try:
        with Control(daemon.endpoints["control"]) as control:
            until(lambda: daemon.service.status.tally, "the dictionary to be loaded")
            with pytest.raises(RefusedError, match="still starting"):
                control.targets()
        asked.set()
        daemon.wait_until_open()
        check(daemon, tmp_path, run, sources)
    finally:
        asked.set()
        daemon.service.drain("the test is over")
        daemon.join()


def test_a_barcode_that_comes_between_two_replies_moves_no_rows(tmp_path, monkeypatch):
    sources = [(f"target{n}-{'x' * 150}", GENOME[n : n + 30]) for n in range(700)]
    path = counting(tmp_path, sources, durability="none")
    run = Run(tmp_path, 8)
    with controlled(path) as (daemon, control):
        deliver(daemon, run, 1)
        request, replies = control.request, []

        def requested(command, **fields):
            reply = request(command, **fields)
            replies.append(reply)
            if len(replies) == 1:
                known = set(run.barcodes)
                while known == set(run.barcodes):
                    deliver(daemon, run, 1)
            return reply

        monkeypatch.setattr(control, "request", requested)
        columns, rows = control.targets(by="barcode")
        assert replies[0]["of"] < replies[-1]["of"] == len(rows)
        named = [(barcode, target) for barcode, target, *_ in rows]
        barcodes = [None if name == "." else name for name in sorted(set(run.barcodes))]
        targets = [*[name for name, _ in sources], None]
        assert named == [(barcode, target) for barcode in barcodes for target in targets]
        assert columns[:2] == ["barcode", "target"]


def test_coverage_of_targets_with_any_name_and_fields_of_another_type(tmp_path):
    sources = [("", GENOME[:300]), ("n" * 300, GENOME[300:600])]
    path = counting(tmp_path, sources, "coverage = true\n", durability="none")
    fields = ("targets", "found"), ("targets", "by"), ("status", "subscriptions")
    with controlled(path) as (_, control):
        # whoever sends a field of another type would take the reply for what it has asked for
        for command, field in fields:
            for wrong in (1, "true", [True]):
                with pytest.raises(RefusedError, match=f"field '{field}'") as caught:
                    control.request(command, **{field: wrong})
                assert caught.value.reason == "malformed"
            control.request("panel", **{field: 1})
        for name, letters in sources:
            (row,) = control.coverage(name, 1)
            assert (row.end, row.kmers) == (300, len(letters) - K + 1)
        for name in ("two\nlines", None):
            with pytest.raises(RefusedError, match="target") as caught:
                control.coverage(name)
            assert caught.value.reason == "malformed"
            assert "\n" not in str(caught.value)

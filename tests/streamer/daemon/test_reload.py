"""A reload: new batches use the new dictionary at once, kept ones are matched again."""

from __future__ import annotations

import random
import threading

import pytest

from streamer.client import RefusedError, Retract, Settled, Subscriber
from streamer.daemon import reload
from streamer.daemon.stored_messages import DICTIONARY
from streamer.dictionary import targets
from streamer.errors import StreamerError
from streamer.journal.reader import JournalReader
from tests.daemon_kit import Raw, Running, controlled, random_dna, write_fasta
from tests.reference.exact import dictionary_of
from tests.reload_kit import (
    GENOME,
    K,
    answers,
    batches_of,
    configured,
    folded,
    reloadable,
    send,
    settle,
    sources_of,
    stored,
    totals_of,
)
from tests.waiting import DEADLINE, until

pytestmark = [pytest.mark.whole, pytest.mark.usefixtures("forked_children")]


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_after_settled_the_fold_is_one_match_of_all_kept_reads(tmp_path, seed):
    rng = random.Random(seed)
    sources = sources_of(rng)
    batches = []
    with reloadable(tmp_path, sources) as (daemon, control):
        for version in range(2, 5):
            more = batches_of(rng, 6)
            send(daemon, more)
            batches += more
            sources = sources_of(rng)
            write_fasta(tmp_path / "ref.fa", sources)
            said = control.reload()
            assert (said["version_before"], said["version"]) == (version - 1, version)
            assert said["batches"] == len(batches)
            if rng.random() < 0.7:
                # else the next reload finds this revision under way
                status = settle(control)
                fold = folded(stored(tmp_path))
                assert fold.answers() == answers(batches, sources)
                assert fold.settled[-1] == (version, 0)
                assert status["dictionary"]["version"] == version
        status = settle(control)
    fold = folded(stored(tmp_path))
    want = answers(batches, sources)
    assert fold.answers() == want
    assert fold.settled[-1] == (4, 0)
    assert any(topic == "retract" for topic, *_ in stored(tmp_path))
    for name, count in totals_of(want).items():
        assert fold.totals[name] == status["totals"][name] == count


def test_other_sources_at_a_start_are_a_reload(tmp_path):
    """Also while a revision is under way, and back to what it was before."""
    rng = random.Random(5)
    first, second = sources_of(rng), sources_of(rng)
    batches = batches_of(rng, 8)
    with reloadable(tmp_path, first) as (daemon, _):
        send(daemon, batches)
    for sources in (second, first, first):
        with reloadable(tmp_path, sources) as (daemon, control):
            settle(control)
            fold = folded(stored(tmp_path))
            assert fold.answers() == answers(batches, sources)
            version = control.status()["dictionary"]["version"]
            assert fold.settled[-1] == (version, 0)
    # equal sources go on without a word
    assert [version for version, _ in fold.settled] == [2, 3]


@pytest.mark.parametrize(
    ("dictionary", "overrides"),
    [
        ('strands = "both"', ["matching.distance=1"]),
        ('seed_bases = 900\nmode = "frozen"', []),
    ],
    ids=["near", "seeded"],
)
def test_the_fold_is_that_of_a_daemon_that_began_with_it(tmp_path, dictionary, overrides):
    rng = random.Random(7)
    before, after = sources_of(rng), sources_of(rng)
    # seeds are in no source
    batches = [[("seed", random_dna(rng, 1000))], *batches_of(rng, 7)]
    for name, sources in (("one", before), ("two", after)):
        folder = tmp_path / name
        folder.mkdir()
        with reloadable(folder, sources, dictionary, overrides=overrides) as (daemon, control):
            send(daemon, batches[:4])
            if name == "one":
                write_fasta(folder / "ref.fa", after)
                control.reload()
            send(daemon, batches[4:])
            settle(control)
    one, two = (folded(stored(tmp_path / name)) for name in ("one", "two"))
    assert one.answers() == two.answers()
    assert one.totals == two.totals
    assert one.settled
    assert not two.settled


def test_of_a_large_dictionary_only_what_other_sources_lack_is_stored(tmp_path, monkeypatch):
    """It gains over reloads and restarts, too, and its sources must stay while it is down."""
    monkeypatch.setattr(targets, "LARGE", 50)
    pieces = [[("t", GENOME[at : at + 500])] for at in (0, 300, 900)]
    read = [("grown", GENOME[2000:2300])]
    grows = 'mode = "grow"'
    with reloadable(tmp_path, pieces[0], grows) as (daemon, control):
        send(daemon, [read])
        for piece in pieces[1:]:
            write_fasta(tmp_path / "ref.fa", piece)
            control.reload()
    reader = JournalReader(tmp_path / "journal")
    records = [record for record in reader.records(0) if record.kind == DICTIONARY]
    lacking = [0, 300, 490]
    assert [len(record.frames[1]) // 8 for record in records] == lacking
    known = [piece[0] for piece in pieces] + read
    for _ in range(2):
        with reloadable(tmp_path, pieces[2], grows) as (daemon, control):
            kmers = len(dictionary_of(known, K, "canonical"))
            assert control.status()["dictionary"]["kmers"] == kmers
            with Subscriber(daemon.endpoints["feed"], ["read", "word"]) as feed:
                assert feed.wait_for_daemon(DEADLINE)
                send(daemon, [known])
                message = feed.receive(DEADLINE)
            assert message.mismatches.tolist() == [0] * 4
    write_fasta(tmp_path / "ref.fa", pieces[0])
    daemon = Running(configured(tmp_path, grows))
    daemon.join()
    assert "the sources have changed, and the journal does not hold" in str(daemon.error)


@pytest.mark.parametrize("distance", [1, pytest.param(0, marks=pytest.mark.slow)])
def test_a_growing_dictionary_only_gains(tmp_path, distance):
    """Over reloads and restarts: every k-mer of any source, and of the reads, stays known."""
    overrides = [f"matching.distance={distance}"] if distance else []
    pieces = [[("t", GENOME[at : at + 400])] for at in (0, 700, 1400, 2100)]
    read = GENOME[2600:2900]
    settings = 'mode = "grow"\nstrands = "both"'
    with reloadable(tmp_path, pieces[0], settings, overrides=overrides) as (daemon, control):
        send(daemon, [[("grown", read)]])
        for piece in pieces[1:3]:
            write_fasta(tmp_path / "ref.fa", piece)
            said = control.reload()
            assert said["batches"] == 0
        assert control.status()["revision"] is None
    known = [*(piece[0] for piece in pieces), ("grown", read)]
    for _ in range(2):
        # the second time nothing has changed
        with reloadable(tmp_path, pieces[3], settings, overrides=overrides) as (daemon, control):
            kmers = len(dictionary_of(known, K, "both"))
            assert control.status()["dictionary"]["kmers"] == kmers
            with Subscriber(daemon.endpoints["feed"], ["read"]) as feed:
                assert feed.wait_for_daemon(DEADLINE)
                send(daemon, [known])
                message = feed.receive(DEADLINE)
            assert message.mismatches.tolist() == [0] * 5
            # what earlier sources had has no target
            assert message.best_target[0] == -1
            assert message.labels[int(message.best_target[3])] == "t"
    fold = folded(stored(tmp_path))
    assert not any(topic in ("retract", "upgrade") for topic, *_ in stored(tmp_path))
    # from the next batch on
    assert [batch for _, batch in fold.settled] == [1, 1, 1]
    if distance:
        rows = [row for rows in fold.answers()[1] for row in rows["near"]]
        assert {end for _, end, least, *_ in rows if not least} >= set(range(11, 400))


def test_without_a_journal_the_new_dictionary_counts_from_now_on(tmp_path):
    rng = random.Random(8)
    before, after = sources_of(rng), sources_of(rng)
    read = [("r", GENOME[:300])]
    with reloadable(tmp_path, before, durability="none") as (daemon, control):
        with Subscriber(daemon.endpoints["feed"], ["read", "retract", "settled"]) as feed:
            assert feed.wait_for_daemon(DEADLINE)
            send(daemon, [read, read])
            write_fasta(tmp_path / "ref.fa", after)
            assert control.reload()["batches"] == 0
            send(daemon, [read], "other")
            messages = [feed.receive(DEADLINE) for _ in range(4)]
        assert control.status()["revision"] is None
    assert not any(isinstance(message, Retract) for message in messages)
    *_, settled, last = messages
    assert isinstance(settled, Settled)
    assert (settled.version, settled.from_batch) == (2, 2)
    assert last.origin.version == 2
    want = answers([read], after)[0][0]["read"][0]
    assert (last.length[0], last.windows[0], last.matches[0]) == want[:3]


def test_an_equal_dictionary_changes_nothing(tmp_path):
    sources = sources_of(random.Random(9))
    with reloadable(tmp_path, sources) as (daemon, control):
        send(daemon, batches_of(random.Random(9), 3))
        said = control.reload()
        assert said["version"] == said["version_before"] == 1
        # other letters of the same bases
        write_fasta(tmp_path / "ref.fa", [(name, letters.lower()) for name, letters in sources])
        assert control.reload()["version"] == 1
    assert not folded(stored(tmp_path)).settled


def test_what_cannot_be_loaded_changes_nothing(tmp_path):
    rng = random.Random(10)
    sources = sources_of(rng)
    batches = batches_of(rng, 3)
    with reloadable(tmp_path, sources) as (daemon, control):
        send(daemon, batches)
        ref = tmp_path / "ref.fa"
        for damage, message in [
            (">one\nACGT!ACGT\n", "ref.fa.*position 5"),
            (">one\nACGT\n", "holds no whole 11-mer"),
            ("", "ref.fa"),
            (None, "ref.fa"),
        ]:
            ref.unlink()
            if damage is not None:
                ref.write_text(damage)
            with pytest.raises(RefusedError, match=message) as refused:
                control.reload()
            assert refused.value.reason == "sources"
            assert "\n" not in str(refused.value)
            if damage is None:
                ref.touch()
        status = control.status()
        assert status["dictionary"]["version"] == 1
        send(daemon, batches, "other")
    fold = folded(stored(tmp_path))
    assert not fold.settled
    assert fold.answers() == answers(batches * 2, sources)


def test_a_dictionary_too_large_for_a_snapshot_stays_out(tmp_path, monkeypatch):
    before, after = sources_of(random.Random(20)), sources_of(random.Random(21))
    walks = ["matching.kernel=walk"]
    with reloadable(tmp_path, before, overrides=walks) as (_, control):
        monkeypatch.setattr("trie.snapshots.tree_bitmap.MAX_NODES", 9)
        write_fasta(tmp_path / "ref.fa", after)
        with pytest.raises(RefusedError, match="too large for a snapshot"):
            control.reload()
        assert control.status()["state"] == "running"
        assert control.status()["dictionary"]["version"] == 1
    daemon = Running(tmp_path / "streamer.toml", walks)
    daemon.join()
    assert isinstance(daemon.error, StreamerError)
    assert "too large for a snapshot" in str(daemon.error)


def test_one_reload_at_a_time(tmp_path, monkeypatch):
    """Matching and all else go on while the files are read."""
    load, reading = reload.load_dictionary, []
    done = threading.Event()

    def slowly(*given, **named):
        reading.append(1)
        assert done.wait(DEADLINE)
        return load(*given, **named)

    monkeypatch.setattr(reload, "load_dictionary", slowly)
    rng = random.Random(11)
    before, after = sources_of(rng), sources_of(rng)
    batches = batches_of(rng, 2)
    with (
        reloadable(tmp_path, before) as (daemon, control),
        Raw(daemon.endpoints["control"]) as raw,
    ):
        write_fasta(tmp_path / "ref.fa", after)
        raw.send({"v": 2, "id": "one", "command": "reload"})
        until(lambda: reading, "the files are read")
        with pytest.raises(RefusedError, match="another reload is under way") as refused:
            control.reload()
        assert refused.value.reason == "busy"
        send(daemon, batches)
        raw.send({"v": 2, "id": "two", "command": "status"})
        answer = raw.receive()
        assert (answer["id"], answer["status"]["dictionary"]["version"]) == ("two", 1)
        done.set()
        answer = raw.receive()
        assert (answer["id"], answer["ok"], answer["version"]) == ("one", True, 2)
        settle(control)
        control.reload()
    assert folded(stored(tmp_path)).answers() == answers(batches, after)


def test_a_reload_that_is_asked_for_again_is_not_repeated(tmp_path, monkeypatch):
    """As where the reply was lost; the sources may have changed again meanwhile."""
    load, reading = reload.load_dictionary, []
    monkeypatch.setattr(
        reload, "load_dictionary", lambda *a, **b: reading.append(1) or load(*a, **b)
    )
    sources = [sources_of(random.Random(seed)) for seed in range(3)]
    with (
        reloadable(tmp_path, sources[0]) as (daemon, control),
        Raw(daemon.endpoints["control"]) as raw,
    ):

        def asked(**more):
            raw.send({"v": 2, "id": 1, "command": "reload", **more})
            return raw.receive()

        write_fasta(tmp_path / "ref.fa", sources[1])
        said = asked(key="mine")
        assert (said["version_before"], said["version"]) == (1, 2)
        write_fasta(tmp_path / "ref.fa", sources[2])
        assert asked(key="mine") == said
        assert len(reading) == 1
        (tmp_path / "ref.fa").unlink()
        refused = asked(key="other")
        assert refused["reason"] == "sources"
        write_fasta(tmp_path / "ref.fa", sources[2])
        assert asked(key="other") == refused
        assert asked(key=7)["reason"] == asked(key="x" * 65)["reason"] == "malformed"
        for version in (3, 3):
            assert asked()["version"] == version
        assert len(reading) == 4
        assert control.reload()["version"] == control.reload()["version"] == 3
        assert len(reading) == 6


def test_a_reload_without_a_thread_can_be_asked_for_again(tmp_path, monkeypatch):
    """As where memory or processes are limited: neither for itself, nor for what it calls."""
    problem = "can't start new thread"

    def fail(*_, **__):
        raise RuntimeError(problem)

    with reloadable(tmp_path, [("one", GENOME)]) as (_, control):
        with monkeypatch.context() as patch:
            patch.setattr(reload.threading.Thread, "start", fail)
            with pytest.raises(RefusedError, match=problem) as caught:
                control.reload()
        assert caught.value.reason == "busy"
        with monkeypatch.context() as patch:
            patch.setattr(reload, "load_dictionary", fail)
            with pytest.raises(RefusedError, match=f"RuntimeError: {problem}") as caught:
                control.reload()
        assert caught.value.reason == "sources"
        assert control.reload()["version"] == 1


def test_a_matcher_that_cannot_be_made_leaves_the_one_before(tmp_path, monkeypatch):
    """A growing dictionary's is made by the engine, which goes on."""

    def failing(error):
        def fail(*_, **__):
            raise error

        return fail

    rng = random.Random(14)
    batches = batches_of(rng, 2)
    with (
        reloadable(tmp_path, sources_of(rng), 'mode = "grow"') as (daemon, control),
        Raw(daemon.endpoints["control"]) as raw,
    ):
        write_fasta(tmp_path / "ref.fa", sources_of(rng))
        for error, said in ((RuntimeError("no new thread"), "no new"), (MemoryError(), "out of")):
            with monkeypatch.context() as patch:
                patch.setattr("streamer.daemon.engine.StreamMatcher", failing(error))
                raw.send({"v": 2, "id": 1, "command": "reload"})
                answer = raw.receive()
            assert (answer["ok"], answer["reason"]) == (False, "sources")
            assert said in answer["message"]
        send(daemon, batches)
        assert control.reload()["version"] > 1


def test_a_dictionary_without_sources_cannot_be_reloaded(tmp_path):
    path = configured(tmp_path)
    with (
        controlled(path, ["dictionary.sources=[]"]) as (_, control),
        pytest.raises(RefusedError, match="sources is empty"),
    ):
        control.reload()

"""``streamer send --name X --resume``: after any end, every record is sent exactly once."""

from __future__ import annotations

import gzip
import random
import signal
from functools import partial

import pytest

from streamer.cli.send_files import SendMark
from streamer.client import Producer
from streamer.errors import StreamerError, UsageError
from tests.daemon_kit import collecting, process, running, write_fasta
from tests.waiting import DEADLINE, until

pytestmark = pytest.mark.whole

SEQUENCE = "ACGTACGTACGTACGT"


def named(prefix, count):
    return [(f"{prefix}{i}", SEQUENCE) for i in range(1, count + 1)]


def lines(err):
    return [line.removeprefix("streamer: ") for line in err.splitlines()]


def far_enough(child, names, count):
    return len(names) >= count or child.poll() is not None


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2))])
def test_kills_at_random_moments(path, tmp_path, seed):
    rng = random.Random(seed)
    plain = write_fasta(tmp_path / "a.fa", named("a", 3000))
    packed = tmp_path / "b.fq.gz"
    with gzip.open(packed, "wt") as file:
        file.writelines(f"@{n}\n{s}\n+\n{'I' * len(s)}\n" for n, s in named("b", 3000))
    last = write_fasta(tmp_path / "c.fa", named("c", 1500))
    sent = ["send", plain, packed, last, "--name", "run", "--resume", "--batch-reads", 7]
    kills = 0
    with collecting(path) as (daemon, names):
        while True:
            upto = rng.randrange(200, 3000)
            arguments = [str(word) for word in [*sent, "--to", daemon.endpoints["ingest"]]]
            with process(arguments) as child:
                until(partial(far_enough, child, names, len(names) + upto), "reads, or its end")
                child.send_signal(signal.SIGKILL)
                code = child.wait(DEADLINE)
            if code == 0:
                break
            assert code == -signal.SIGKILL
            kills += 1
    assert names == [name for name, _ in [*named("a", 3000), *named("b", 3000), *named("c", 1500)]]
    assert kills >= 2


def test_a_run_that_is_complete_sends_nothing_and_what_was_added_is_sent(path, tmp_path, streamer):
    reads = write_fasta(tmp_path / "a.fa", named("a", 30))
    more = write_fasta(tmp_path / "b.fa", named("b", 5))
    with collecting(path) as (daemon, names):
        send = ("send", "--to", daemon.endpoints["ingest"], "--name", "x", "--batch-reads", 7)
        code, _, err = streamer(*send, reads, "--resume")
        assert code == 0
        assert lines(err)[0] == "nothing is durable under the name x: begins with the first record"
        code, _, err = streamer(*send, reads, "--resume")
        assert code == 0
        assert lines(err)[0] == f"skips the 30 durable records of {reads}, then goes on"
        assert lines(err)[1].startswith("0 reads, 0 bases acknowledged")
        assert len(names) == 30
        write_fasta(reads, named("a", 33))
        code, _, err = streamer(*send, reads, more, "--resume")
        assert code == 0
        assert lines(err)[0].startswith(f"skips the 30 durable records of {reads} (file 1 of 2)")
        assert lines(err)[1].startswith("8 reads")
        # without --resume all are sent
        assert streamer(*send, more, "-q")[0] == 0
    assert names == [name for name, _ in [*named("a", 33), *named("b", 5), *named("b", 5)]]


def test_standard_input_goes_on_behind_as_many_records(path, tmp_path):
    with collecting(path) as (daemon, names):
        send = ["send", "-", "--to", daemon.endpoints["ingest"], "--name", "x", "--resume"]
        for count in (20, 50):
            data = write_fasta(tmp_path / "reads.fa", named("a", count))
            with open(data) as stdin, process([*send, "-q"], stdin=stdin) as child:
                assert child.wait(DEADLINE) == 0
    assert names == [name for name, _ in named("a", 50)]


def test_how_far_it_came_counts_what_was_skipped(path, tmp_path, streamer):
    reads = write_fasta(tmp_path / "a.fa", [*named("a", 20), ("x", "AC-T")])
    with collecting(path) as (daemon, names):
        send = ("send", reads, "--to", daemon.endpoints["ingest"], "--name", "x", "--resume")
        for sent, last in ((20, ", the last is a20"), (0, "")):
            code, _, err = streamer(*send)
            assert code == 1
            assert lines(err)[1] == (
                f"{sent} of {sent} reads sent are acknowledged{last}; go on from {reads}, record 21"
            )
    assert names == [name for name, _ in named("a", 20)]


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        (named("a", 19), "{}: has 19 records, but 20 are durable: it has changed"),
        ([], "{}: has 0 records, but 20 are durable: it has changed"),
        (
            [*named("a", 19), *named("b", 4)],
            "{}: record 20: is not the last durable one (b1): the file has changed",
        ),
    ],
)
def test_a_file_that_has_changed_is_one_line(path, tmp_path, streamer, changed, problem):
    reads = write_fasta(tmp_path / "a.fa", named("a", 20))
    with collecting(path) as (daemon, names):
        send = ("send", reads, "--to", daemon.endpoints["ingest"], "--name", "x", "--resume")
        assert streamer(*send)[0] == 0
        write_fasta(reads, changed)
        code, _, err = streamer(*send, "-q")
        assert code == 1
        assert [line for line in lines(err) if line.startswith("error")] == [
            "error: " + problem.format(reads)
        ]
        assert len(names) == 20


def test_other_files_and_other_marks_are_one_line(path, tmp_path, streamer):
    one, two = (write_fasta(tmp_path / f"{n}.fa", named(n, 20)) for n in ("a", "b"))
    with collecting(path) as (daemon, names):
        send = ("send", "--to", daemon.endpoints["ingest"], "--name", "x", "-q")
        assert streamer(*send, one, two)[0] == 0
        had = (
            f"error: producer 'x' has come to file 2 ({two}): give the same files in the same order"
        )
        for files, problem in (
            ([one], f"{had}, not 1"),
            ([two, two], f"{had}, not {two} or others before it"),
            ([two, one], f"{had}, not {one} or others before it"),
        ):
            code, _, err = streamer(*send, *files, "--resume")
            assert (code, lines(err)) == (1, [problem])
        with Producer(daemon.endpoints["ingest"], name="x") as producer:
            producer.send([("mine", "ACGT")], mark=b"my own")
        code, _, err = streamer(*send, one, two, "--resume")
        assert code == 1
        assert lines(err)[0].startswith("error: the mark of producer 'x' was not made by")
    assert len(names) == 41


def test_resume_without_a_name_is_a_usage_error(streamer):
    code, _, err = streamer("send", "x.fa", "--resume")
    assert (code, lines(err)) == (
        2,
        ["error: --resume needs --name, that of the run to go on with"],
    )


# ---- marks ---------------------------------------------------------------------------------------


def test_a_mark_is_small_however_long_the_path():
    paths = ["x" * 5000, "é" * 3000, "-"]
    for file, path in enumerate(paths):
        packed = SendMark.at(paths, file, 2**40, path).pack()
        assert len(packed) <= 256
        assert SendMark.unpack(packed, [*paths, "more"], "p").records == 2**40


@pytest.mark.parametrize("mark", [b"\x01", b"\xc1", b"", b"\x92\x01\x02", b"\xa3abc"])
def test_a_mark_of_another_program(mark):
    with pytest.raises(StreamerError, match="was not made by"):
        SendMark.unpack(mark, ["a"], "p")


def test_marks_from_python(path):
    """Of a batch that is split each part has its own, or repeats the one before."""
    reads = [(f"r{i}", "ACGT" * 100) for i in range(20)]
    with running(path, ["ingest.max_batch_bytes=2000"]) as daemon:
        made = []
        forward = daemon.service._ingest._forward
        daemon.service._ingest._forward = lambda item: (made.append(item), forward(item))
        with Producer(daemon.endpoints["ingest"], name="x") as producer:
            producer.connect()
            assert producer.mark == b""
            producer.send(reads[:1], mark=b"first")
            producer.send(reads, mark=b"second")
            producer.send(reads, mark=lambda done: b"%d" % done)
            with pytest.raises(UsageError, match="a mark has at most 256 bytes, not 257"):
                producer.send(reads[:1], mark=bytes(257))
        with Producer(daemon.endpoints["ingest"], name="x") as producer:
            producer.connect()
            assert producer.mark == b"20"
    parts = sum(item.mark == b"first" for item in made)
    assert parts > 2
    assert [item.mark for item in made[:parts]] == [b"first"] * parts
    assert made[parts].mark == b"second"
    done = 0
    for item in made[parts + 1 :]:
        done += len(item.batch)
        assert item.mark == b"%d" % done
    assert done == 20

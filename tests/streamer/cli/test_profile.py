"""``--profile``: the stages of a command, and what bounded it, on standard error."""

from __future__ import annotations

import gzip
import threading
from functools import cache

import pytest

from streamer.cli.profile import profile_lines
from streamer.output.output_file import END_BLOCK
from streamer.sequences.files import read_batches
from tests.data_files import DATA
from tests.streamer.sequences.kit import bgzf_blocks
from trie.cpu.stages import Stages
from trie.cpu.team import Team
from trie.cpu.threads import _Pool

pytestmark = pytest.mark.whole


@pytest.mark.parametrize(
    ("options", "threads"), [([], 2), (["--mode", "grow"], 1), (["--report", "windows"], 2)]
)
def test_rows_are_the_same_with_a_profile(streamer, options, threads):
    run = ["match", DATA / "lambda_sim.fq.gz", "-d", DATA / "lambda.fa.gz", "-k", 21, *options]
    plain = streamer(*run, "-q")
    code, out, err = streamer(*run, "-q", "--threads", threads, "--profile")
    assert (code, out) == plain[:2]
    names = [line.split()[1] for line in err.splitlines()]
    assert names[0] == "stage"
    assert names[1:-1] == ["decompress", "parse", "match", "format", "write"]


def test_a_filter_has_one_too(streamer, tmp_path):
    reads = DATA / "lambda_sim.fq.gz"
    code, _, err = streamer(
        "filter", reads, "-d", DATA / "lambda.fa.gz", "-k", 21, "--keep", "--profile",
        "-o", tmp_path / "kept.fq",
    )  # fmt: skip
    assert code == 0
    assert " bases in " in err.splitlines()[-2] + err.splitlines()[-1]


@pytest.mark.parametrize(
    "command", [["match"], ["match", "--report", "targets"], ["filter", "--keep"]]
)
@pytest.mark.parametrize("threads", [1, 2])
def test_no_more_threads_than_asked_for(streamer, monkeypatch, command, threads):
    alive = []

    class Counted(threading.Thread):
        def run(self):
            alive.append(sum(isinstance(one, Counted) for one in threading.enumerate()))
            super().run()

    monkeypatch.setattr("trie.cpu.threads._pool", cache(lambda name: _Pool(name, 8)))
    monkeypatch.setattr("threading.Thread", Counted)
    found = streamer(
        command[0], DATA / "lambda_nanopore.fq.gz", "-d", DATA / "lambda.fa.gz", "-k", 21,
        *command[1:], "-q", "--threads", threads,
    )  # fmt: skip
    assert found[0] == 0
    assert max(alive, default=0) <= threads - 1


@pytest.mark.parametrize(
    ("busy", "threads", "bound"),
    [
        ({"parse": 1.0, "match": 2.9}, 4, "4 threads 98 % busy, 74 % of it match"),
        ({"decompress": 0.99, "match": 1.0}, 4, "bound by decompress, which is done by one"),
        ({"parse": 0.5, "match": 0.5}, 1, "1 thread 100 % busy, 50 % of it parse"),
        ({"parse": 0.2, "match": 4.0}, 4, "4 threads 100 % busy, 95 % of it match"),
        ({"parse": 0.1, "match": 0.3}, 4, "4 threads 10 % busy, 75 % of it match"),
    ],
)
def test_what_bounded_it(busy, threads, bound):
    stages = Stages("decompress", "parse", "match")
    for name, seconds in busy.items():
        stages.add(name, "busy", seconds)
    stages.count("parse", 5_000_000)
    *table, last = profile_lines(stages, threads, 1.0)
    assert len(table) == 1 + len(busy)
    assert last.startswith(f"5,000,000 bases in 1.000 s, 5 M a second: {bound}")


@pytest.mark.parametrize(
    ("suffix", "threads", "alone"),
    [
        ("fq", 2, "read parse write"),
        ("fq", 4, "write"),
        ("fq.gz", 4, "decompress write"),
        ("bgzf", 4, "read write"),
        ("fa", 4, "read parse write"),
    ],
)
def test_what_several_threads_do_is_not_said_to_be_done_by_one(suffix, threads, alone, tmp_path):
    path = tmp_path / f"reads.{suffix}"
    content = b">r\nACGT\n" if suffix == "fa" else b"@r\nACGT\n+\nIIII\n"
    if suffix == "bgzf":
        content = b"".join((*bgzf_blocks(content), END_BLOCK))
    path.write_bytes(gzip.compress(content) if suffix == "fq.gz" else content)
    with Team(threads, stages=Stages("read", "decompress", "parse", "write")) as team:
        list(team.line(read_batches([str(path)], team=team), len, 2, pulls="parse", works="match"))
    stages = team.stages
    stages.add("write", "busy", 1)
    told = set()
    for name in stages.names:
        if busy := stages.seconds(name, "busy"):
            stages.add(name, "busy", 1000 - busy)
            if "one thread" in profile_lines(stages, 10, 1001)[-1]:
                told.add(name)
            stages.add(name, "busy", busy - 1000)
    assert told == set(alone.split())


def test_a_stage_within_another_one_pauses_it(monkeypatch):
    now = iter(range(100))
    monkeypatch.setattr("trie.cpu.stages.time.perf_counter", lambda: float(next(now)))
    stages = Stages()
    with stages.spent("outer"), stages.spent("inner"):
        pass
    # entered at 1 and 2, left at 3 and 4
    assert stages.seconds("outer", "busy") == 2
    assert stages.seconds("inner", "busy") == 1

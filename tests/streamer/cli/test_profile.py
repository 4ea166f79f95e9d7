"""``--profile``: the stages of a command, and what bounded it, on standard error."""

from __future__ import annotations

import threading
from functools import cache

import pytest

from streamer.cli.profile import profile_lines
from tests.data_files import DATA
from trie.cpu.stages import Stages
from trie.cpu.threads import _Pool


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("options", [[], ["--mode", "grow"], ["--report", "windows"]])
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


def test_a_stage_within_another_one_pauses_it(monkeypatch):
    now = iter(range(100))
    monkeypatch.setattr("trie.cpu.stages.time.perf_counter", lambda: float(next(now)))
    stages = Stages()
    with stages.spent("outer"), stages.spent("inner"):
        pass
    # entered at 1 and 2, left at 3 and 4
    assert stages.seconds("outer", "busy") == 2
    assert stages.seconds("inner", "busy") == 1

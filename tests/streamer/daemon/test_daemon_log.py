"""A log that cannot be written never stops the daemon: lines are dropped, counted and reported."""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import sys
import threading
from contextlib import contextmanager

import pytest
import structlog

from streamer import errors
from streamer.client import Control, ReadSummaries, Subscriber
from streamer.daemon import logs
from tests.daemon_kit import DEADLINE, Raw, list_batch, process, wait_for_line
from tests.waiting import until

pytestmark = pytest.mark.whole


def work_and_end(child, folder, batches=40):
    """Send batches to a daemon, end it with SIGTERM: how many lines it had dropped by then."""
    with (
        Raw(f"ipc://{folder}/ingest") as raw,
        Subscriber(f"ipc://{folder}/feed", ["read", "status"]) as feed,
        Control(f"ipc://{folder}/control") as control,
    ):
        assert feed.wait_for_daemon(DEADLINE)
        raw.open()
        for seq in range(1, batches + 1):
            raw.send(*list_batch(seq, [[f"r{seq}", "ACGT" * 9]]))
        raw.accepted(batches)
        dropped = control.status()["log"]["dropped"]
        child.send_signal(signal.SIGTERM)
        messages = list(feed)
        assert sum(isinstance(m, ReadSummaries) for m in messages) == batches
        assert messages[-1].state == "ended"
        assert child.wait(DEADLINE) == 0
    return dropped


def test_a_reader_that_leaves_loses_lines_and_nothing_else(path, tmp_path):
    with process(["run", "--config", path, "--set", "log.level=debug"]) as child:
        wait_for_line(child, '"listening"')
        child.stderr.close()
        child.stderr = None
        assert work_and_end(child, tmp_path)


@pytest.mark.slow
def test_a_full_disk_from_the_start(path, tmp_path):
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        with process(["run", "--config", path], stderr=full) as child:
            assert work_and_end(child, tmp_path) >= 2
    finally:
        os.close(full)


@contextmanager
def full_pipe():
    """A pipe without room: (reader, writer)."""
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    os.write(writer, b"x" * 4095 + b"\n")
    try:
        yield reader, writer
    finally:
        os.close(reader)
        os.close(writer)


def test_a_pipe_that_nobody_reads_holds_nothing_up(path, tmp_path):
    with (
        full_pipe() as (_, writer),
        process(["run", "--config", path, "--set", "log.level=debug"], stderr=writer) as child,
    ):
        work_and_end(child, tmp_path)


def test_a_daemon_that_fails_ends_although_nobody_reads_why(path, tmp_path):
    setting = f"ingest.endpoint=ipc://{tmp_path}/missing/ingest"
    with (
        full_pipe() as (_, writer),
        process(["run", "--config", path, "--set", setting], stderr=writer) as child,
    ):
        assert child.wait(DEADLINE) == 1


def test_what_is_lost_is_counted_and_reported_once_there_is_room(monkeypatch):
    logs.configure("info", "json")
    with full_pipe() as (reader, writer), open(writer, "w", closefd=False) as target:
        monkeypatch.setattr(sys, "stderr", target)
        with logs.unfailing():
            print("a" * 100, file=sys.stderr)
            until(lambda: not sys.stderr.waiting or sys.stderr.writing, "a write that waits")
            for number in range(30):
                print(f"{number}" + "b" * (logs.MOST_WAITING // 20), file=sys.stderr, flush=True)
            dropped = logs.dropped()
            assert 10 <= dropped <= 12
            found = []

            def read():
                while b"end" not in b"".join(found[-2:]):
                    found.append(os.read(reader, 1 << 16))

            reading = threading.Thread(target=read)
            reading.start()
            until(lambda: not sys.stderr.waiting, "room")
            print("room", file=sys.stderr)
            print("end", file=sys.stderr)
            reading.join(DEADLINE)
            assert logs.dropped() == dropped
        assert sys.stderr is target
    lines = b"".join(found).decode().splitlines()
    assert [line[:3] for line in lines[:3]] == ["xxx", "aaa", "0bb"]
    assert lines[-1] == "end"
    (notice,) = [json.loads(line) for line in lines if line.startswith("{")]
    assert (notice["event"], notice["lines"]) == ("log lines were dropped", dropped)
    assert notice["level"] == "warning"


def test_a_reader_that_is_slow_loses_nothing_at_the_end(monkeypatch):
    """It reads once the writer waits; all of it takes longer than the writer waits for one line."""
    monkeypatch.setattr(logs, "_LOOK_SECONDS", 0.002)
    found = []
    with full_pipe() as (reader, writer), open(writer, "w", closefd=False) as target:
        monkeypatch.setattr(sys, "stderr", target)

        ended = threading.Event()

        def read():
            while not ended.wait(0.03) or b"end" not in b"".join(found[-2:]):
                if not select.select([reader], [], [], 1)[0]:
                    return
                found.append(os.read(reader, 4096))

        reading = threading.Thread(target=read)
        with logs.unfailing():
            for number in range(50):
                print(f"{number} " + "c" * 4000, file=sys.stderr)
            print("end", file=sys.stderr)
            stream = sys.stderr
            reading.start()
        # a process would end now
        assert not stream.waiting
        ended.set()
        reading.join(DEADLINE)
    lines = b"".join(found).decode().splitlines()[1:]
    assert [line.split()[0] for line in lines] == [*map(str, range(50)), "end"]


def test_lines_of_several_threads_stay_whole(monkeypatch):
    reader, writer = os.pipe()
    with open(writer, "w") as target, open(reader) as source:
        monkeypatch.setattr(sys, "stderr", target)

        def say(name):
            for number in range(50):
                print(name, number, name, file=sys.stderr)

        with logs.unfailing():
            threads = [threading.Thread(target=say, args=[name]) for name in "abcd"]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        target.close()
        lines = source.read().splitlines()
    assert sorted(lines) == sorted(f"{n} {i} {n}" for n in "abcd" for i in range(50))
    assert [line for line in lines if line[0] == "a"] == [f"a {i} a" for i in range(50)]


def test_an_error_that_cannot_be_reported_keeps_its_exit_code():
    reader, writer = os.pipe()
    os.close(reader)
    with process(["validate", "--nonsense"], stderr=writer) as child:
        os.close(writer)
        assert child.wait(DEADLINE) == 2


@pytest.mark.parametrize("format_", ["json", "console"])
def test_names_control_no_terminal(format_, capsys):
    logs.configure("info", format_)
    structlog.get_logger("watch").warning("cannot read \x1b]0;x\x07", file="a\x9b2J")
    errors.warn(f"odd {format_} \x1b]0;x\x07")
    said = capsys.readouterr().err
    assert said.count("\n") == 2
    assert not {"\x07", "\x9b", "\x1b]"} & {*said, *map("".join, zip(said, said[1:], strict=False))}

"""The cores of this machine, and the notice that kernels are compiled."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from numba.core import event

from tests.waiting import DEADLINE
from trie.cpu import compiling
from trie.cpu.machine import half_of_cores


@pytest.mark.parametrize(
    ("siblings", "wanted"),
    [
        (["0,4", "1,5", "2,6", "3,7"] * 2, {2, 6, 3, 7}),
        (["0,3", "1,4", "2,5"] * 2, {2, 5}),
        (["0-1", "0-1", "2-3", "2-3"], {2, 3}),
        (["0-1", "0-1"], {1}),
        (["0", "1", "2"], {2}),
        (["0"], {0}),
        (["0,2", None, "0,2", "?"], {3}),
    ],
)
def test_half_of_the_cores_with_all_their_threads(
    siblings: list[str | None], wanted: set[int], tmp_path: Path
) -> None:
    for cpu, text in enumerate(siblings):
        folder = tmp_path / f"cpu{cpu}/topology"
        folder.mkdir(parents=True)
        if text is not None:
            (folder / "thread_siblings_list").write_text(f"{text}\n")
    assert half_of_cores(range(len(siblings)), tmp_path) == wanted


def test_this_machine() -> None:
    cpus = os.sched_getaffinity(0)
    assert half_of_cores(cpus) <= cpus


def begin():
    """What numba announces when it begins to compile."""
    event.broadcast(event.Event("numba:compile", event.EventStatus.START))


def end():
    event.broadcast(event.Event("numba:compile", event.EventStatus.END))


def reports(quiet=False):
    lines, came = [], threading.Event()

    def report(line):
        lines.append(line)
        came.set()

    return lines, came, compiling.compile_notice(quiet=quiet, report=report)


def test_a_short_compilation_is_not_worth_a_line(monkeypatch):
    monkeypatch.setattr(compiling, "NOTICE_SECONDS", float(DEADLINE))
    lines, _, notice = reports()
    with notice:
        for _ in range(3):
            begin()
            end()
    assert lines == []


def test_a_long_one_is_reported_while_it_lasts(monkeypatch):
    monkeypatch.setattr(compiling, "NOTICE_SECONDS", 0.01)
    lines, came, notice = reports()
    with notice:
        begin()
        begin()  # they nest
        assert came.wait(DEADLINE)
        end()
        end()
        begin()
        end()
    assert lines == [compiling.NOTICE]


def test_many_short_ones_add_up(monkeypatch):
    clock = iter(range(100))
    monkeypatch.setattr(compiling, "NOTICE_SECONDS", 2.5)
    monkeypatch.setattr(compiling, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    never = {name: lambda *_: None for name in ("__init__", "start", "cancel")}
    stopped = SimpleNamespace(Timer=type("Timer", (), never), Lock=threading.Lock)
    monkeypatch.setattr(compiling, "threading", stopped)
    lines, _, notice = reports()
    with notice:
        for number in range(4):
            begin()
            end()
            assert len(lines) == (number >= 2)


def test_quiet_reports_nothing(monkeypatch):
    monkeypatch.setattr(compiling, "NOTICE_SECONDS", 0)
    lines, _, notice = reports(quiet=True)
    with notice:
        begin()
        end()
    assert lines == []

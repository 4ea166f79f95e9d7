"""What is known of the machine's CPUs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trie.cpu.machine import by_core


@pytest.mark.parametrize(
    ("siblings", "wanted"),
    [
        (["0,4", "1,5", "2,6", "3,7"] * 2, [0, 4, 1, 5, 2, 6, 3, 7]),
        (["0-1", "0-1", "2-3", "2-3"], [0, 1, 2, 3]),
        (["0", "1", "2"], [0, 1, 2]),
        (["0,2", None, "0,2", "?"], [0, 2, 1, 3]),
    ],
)
def test_threads_of_a_core_follow_each_other(
    siblings: list[str | None], wanted: list[int], tmp_path: Path
) -> None:
    for cpu, text in enumerate(siblings):
        folder = tmp_path / f"cpu{cpu}/topology"
        folder.mkdir(parents=True)
        if text is not None:
            (folder / "thread_siblings_list").write_text(f"{text}\n")
    assert by_core(set(range(len(siblings))), tmp_path) == wanted


def test_this_machine() -> None:
    cpus = os.sched_getaffinity(0)
    assert sorted(by_core(cpus)) == sorted(cpus)

"""What is known of the machine's CPUs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

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

"""A minute of seeds: nothing is lost or duplicated, and planted mistakes are found."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from functools import cache

import pytest

from tests.data_files import ROOT
from tests.simulation.__main__ import replay, simulate
from tests.simulation.daemon_host import DaemonHost
from tests.simulation.mistakes import MISTAKES
from tests.simulation.promises import Violation
from tests.simulation.storm import FAULTS
from tests.simulation.world import RunReport, run

SEEDS = 30
# in the quick lane twice the seeds that the most hidden mistake needs
BLOCKS, MORE = 2, range(2, 8)
# enough seeds for each mistake to show, and for the one that shows first
_ENOUGH, _FEW = 60, 6


@cache
def checked(seed: int) -> RunReport:
    """The report of a seed; a failure says how to reproduce it."""
    try:
        return run(seed)
    except Exception as error:
        error.add_note(f"again: scripts/faults/replay {seed}")
        raise


def test_some_seeds():
    reports = [checked(seed) for seed in range(12)]
    assert sum(report.messages for report in reports) > 100
    assert sum(report.starts for report in reports) > 24


@pytest.mark.whole
@pytest.mark.parametrize(
    "block", [*range(BLOCKS), *(pytest.param(block, marks=pytest.mark.slow) for block in MORE)]
)
def test_seeds(block):
    """Promises hold under any faults, and everything gets done once there are none."""
    reports = [checked(seed) for seed in range(block * SEEDS, (block + 1) * SEEDS)]
    faults = sum((report.faults for report in reports), Counter[str]())
    assert len(faults) > len(FAULTS) // 2
    assert sum(report.records for report in reports) > 10 * SEEDS
    assert sum(report.messages for report in reports) > 10 * SEEDS


def finds(daemon: type[DaemonHost], seed: int) -> bool:
    try:
        run(seed, daemon)
    except Violation:
        return True
    return False


@pytest.mark.whole
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_found(mistake):
    """By a seed that has no fault without the mistake, as ``test_seeds`` says."""
    assert any(finds(MISTAKES[mistake], seed) for seed in range(min(_ENOUGH, BLOCKS * SEEDS)))


def traced(seed: int, hashes: int) -> str:
    """The trace of a seed in another process, with its own hash seed."""
    command = [sys.executable, "-m", "tests.simulation", "replay", str(seed)]
    environment = os.environ | {"PYTHONHASHSEED": str(hashes)}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout


@pytest.mark.whole
def test_a_seed_is_the_same_in_every_process():
    one, other = traced(seed=5, hashes=1), traced(seed=5, hashes=2)
    assert one.count("\n") > 100
    assert one == other
    assert "committed" in one
    assert "killed" in one


@pytest.mark.whole
def test_what_fails_is_said_and_can_be_repeated(capsys):
    assert simulate([str(_FEW), "--mistake", "reuse an epoch"]) == 1
    first, *_, total, faults = capsys.readouterr().out.splitlines()
    seed = first.split(":")[0].removeprefix("seed ")
    assert first.endswith(f"; again: scripts/faults/replay {seed} --mistake 'reuse an epoch'")
    assert total.startswith(f"simulate: {_FEW} seeds, ")
    assert faults.startswith("faults: kill ")
    assert replay([seed, "--mistake", "reuse an epoch"]) == 1
    *_, problem = capsys.readouterr().out.splitlines()
    assert problem in first
    assert replay([seed]) == 0
    assert simulate(["1", "--first", seed]) == 0

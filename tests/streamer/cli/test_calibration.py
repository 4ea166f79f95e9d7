"""The rates that ``auto`` judges by are measured and stored."""

from __future__ import annotations

import json
from typing import get_args

import pytest

from streamer import device_choice
from streamer.cli import calibration
from streamer.device_choice import RATES, Kind
from trie.cpu.compiling import KernelFolder

pytestmark = pytest.mark.whole


def test_every_kind_of_work_is_measured(tmp_path, monkeypatch):
    write = calibration.write_inputs
    # a hundredth of the work, once
    monkeypatch.setattr(calibration, "write_inputs", lambda at, scale: write(at, scale / 100))
    least = calibration._least_seconds
    monkeypatch.setattr(calibration, "_least_seconds", lambda *work, runs: least(*work, runs=1))
    line = calibration.calibrate(["cpu"], tmp_path)
    assert line.startswith("rates of this machine measured: cpu starts in ")
    found = json.loads((tmp_path / RATES).read_text())
    assert set(found["factors"]["cpu"]) == set(get_args(Kind))
    assert all(1 / 4 <= factor <= 4 for factor in found["factors"]["cpu"].values())
    assert 0.1 < found["start"]["cpu"] < 60
    monkeypatch.setattr(device_choice, "kernel_folder", lambda: KernelFolder(tmp_path))
    stored = device_choice.rates.__wrapped__()
    assert stored.measured
    assert stored.start["cpu"] == found["start"]["cpu"]


def test_a_command_that_fails_is_named(tmp_path):
    calibration.write_inputs(tmp_path, 0)
    (tmp_path / "reads.fq").write_text("no reads")
    with pytest.raises(RuntimeError, match=r"streamer match .*: exit code 1"):
        calibration._least_seconds(next(calibration.works(tmp_path, "cpu")), "cpu", runs=1)

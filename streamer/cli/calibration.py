"""Measure how fast this machine is, for ``auto``: commands in a process of their own, by device.

A command is run with a tiny input, which loads what it needs, then with one that takes some tenths
of a second on the machine of docs/performance. The difference over that of ``cost_model`` is the
factor of its kind of work.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from streamer.cli import cost_model
from streamer.device_choice import RATES, Cost, Kind, machine
from streamer.matching.spec import MatchSpec
from trie.codes import decode
from trie.cpu.threads import most_threads, usable_cores

_SEED = 3
_READ = 150
_COPIES = 30  # of the reads, where matching is fast
_ON_TARGET = 20  # a read of so many
_MOST = 4.0  # a factor beyond this is one of the measurement


@dataclass(frozen=True, slots=True)
class Work:
    """A command line for a measurement, without its device, and what the model says of it."""

    kind: Kind
    arguments: list[str]
    cost: Cost


def calibrate(devices: list[str], folder: Path) -> str:
    """Measure these devices and store the rates in the folder; returns a line for the user."""
    threads = min(usable_cores(), most_threads())
    start: dict[str, float] = {}
    factors: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory(prefix="kmer-streamer-") as made:
        for name, scale in (("tiny", 0), ("work", 1)):
            (Path(made) / name).mkdir()
            write_inputs(Path(made) / name, scale)
        for device in devices:
            start[device] = _start_seconds(Path(made) / "tiny", device)
            with multiprocessing.get_context("spawn").Pool(1, _begin) as pool:
                seconds = pool.apply(_seconds, (made, device))
            factors[device] = {}
            for tiny, work in _pairs(made, device):
                expected = work.cost.beyond_start(device, threads)
                expected -= tiny.cost.beyond_start(device, threads)
                factor = seconds[work.kind] / expected
                factors[device][work.kind] = min(max(factor, 1 / _MOST), _MOST)
    facts = {"machine": machine(), "start": start, "factors": factors}
    (folder / RATES).write_text(json.dumps(facts, indent=1))
    return "rates of this machine measured: " + ", ".join(
        f"{device} starts in {start[device]:.1f} s and takes "
        f"{min(factors[device].values()):.2g} to {max(factors[device].values()):.2g} times as long "
        "as the machine of docs/performance"
        for device in devices
    )


def write_inputs(folder: Path, scale: float) -> None:
    """Write the inputs of ``works``, tiny ones with ``scale`` 0."""
    rng = np.random.default_rng(_SEED)

    def some(bases: int) -> NDArray[np.uint8]:
        return rng.integers(0, 4, max(int(scale * bases), 20 * _READ), dtype=np.uint8)

    panel = some(1_000_000)
    for name, bases in (
        ("panel", panel), ("virus", some(29_903)), ("beta", some(1_000_000)),
        ("one", some(1_500_000)), ("other", some(1_500_000)), ("text", some(100_000_000)),
    ):  # fmt: skip
        with (folder / f"{name}.fa").open("wb") as file:
            file.write(b">%b\n%b\n" % (name.encode(), decode(bases).tobytes()))
    for number in (24, 96):
        rows = decode(some(0)[: number * 24]).reshape(number, 24)
        text = b"".join(b">p%d\n%b\n" % (i, row.tobytes()) for i, row in enumerate(rows))
        (folder / f"patterns{number}.fa").write_bytes(text)
    for name, size in (("few", 3_000_000), ("reads", 9_000_000)):
        reads = some(size).reshape(-1, _READ)
        starts = rng.integers(0, panel.size - _READ, len(reads[::_ON_TARGET]))
        reads[::_ON_TARGET] = panel[starts[:, None] + np.arange(_READ)]
        with (folder / f"{name}.fq").open("wb") as file:
            for number, row in enumerate(decode(reads.ravel()).reshape(reads.shape)):
                file.write(b"@r%d\n%b\n+\n%b\n" % (number, row.tobytes(), b"I" * _READ))


def _pairs(folder: str, device: str) -> Iterator[tuple[Work, Work]]:
    """The commands with tiny inputs and with larger ones."""
    tiny, work = (works(Path(folder) / name, device) for name in ("tiny", "work"))
    return zip(tiny, work, strict=True)


def works(folder: Path, device: str) -> Iterator[Work]:
    """A command of each kind."""

    def path(name: str) -> str:
        return str(folder / name)

    panel, codes = path("panel.fa"), path("patterns96.fa")
    near = [path("few.fq")] if device == "cpu" else [path("reads.fq")] * _COPIES
    for reads, known, k, options, asked in (
        ([path("reads.fq")] * _COPIES, panel, 31, ["--report", "reads"], {}),
        ([path("reads.fq")], panel, 21, ["--report", "reads", "--mode", "grow"],
         {"mode": "grow"}),
        (near, panel, 21, ["-D", "2", "--report", "best"], {"distance": 2}),
        ([path("reads.fq")], codes, 24, ["-D", "2", "--semantics", "ltb"],
         {"distance": 2, "semantics": "ltb"}),
    ):  # fmt: skip
        spec = MatchSpec.of(k=k, sources=(known,), **asked)
        cost = cost_model.matching(reads, spec)
        assert cost is not None
        yield Work(cost.kind, ["match", *reads, "-d", known, "-k", str(k), *options], cost)
    text, few = path("text.fa"), path("patterns24.fa")
    searches = (
        ("asm", cost_model.asm(text, cost_model.asm_base([24] * 24, 1))),
        ("hamming", cost_model.hamming(text, cost_model.hamming_base(24, 1))),
    )
    for name, cost in searches:
        assert cost is not None
        yield Work(cost.kind, [name, text, "--patterns", few, "-k", "3"], cost)
    cost = cost_model.primer(path("virus.fa"), path("beta.fa"), 6)
    assert cost is not None
    yield Work("primer", ["primer", path("virus.fa"), path("beta.fa"), "-k", "6"], cost)
    cells = float((folder / "one.fa").stat().st_size) * (folder / "other.fa").stat().st_size
    yield Work("lcs", ["lcs", path("one.fa"), path("other.fa")], cost_model.aligned(cells))


def _start_seconds(folder: Path, device: str) -> float:
    """The least wall seconds of a command with a tiny file."""
    work = next(works(folder, device))
    least = float("inf")
    for _ in range(3):
        began = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "streamer", *work.arguments, "--device", device, "--quiet"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True,
        )  # fmt: skip
        least = min(least, time.perf_counter() - began)
    return least


def _begin() -> None:
    """Have this process print nothing."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)


def _seconds(folder: str, device: str) -> dict[Kind, float]:
    """The seconds of each kind of work beyond those of a tiny input."""
    seconds: dict[Kind, float] = {}
    for tiny, work in _pairs(folder, device):
        # the first run of each may compile
        least, most = (min(_seconds_of(one, device) for _ in range(2)) for one in (tiny, work))
        seconds[work.kind] = max(most - least, 1e-3)
    return seconds


def _seconds_of(work: Work, device: str) -> float:
    """Wall seconds of a command in this process."""
    from streamer.cli.app import main

    began = time.perf_counter()
    code = main([*work.arguments, "--device", device, "--quiet"])
    if code:
        raise RuntimeError(f"`streamer {' '.join(work.arguments)}`: exit code {code}")
    return time.perf_counter() - began

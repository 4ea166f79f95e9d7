"""Measure how fast this machine is, for ``auto``: commands in a process of their own, by device.

A command of each kind takes some tenths of a second on the machine of docs/performance. Its seconds
here, less those of a tiny input, over those of ``cost_model`` are the factor of its kind of work,
but for a second that both get more.
"""

from __future__ import annotations

import json
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
_PATTERNS = 96
_COPIES = 30  # of the reads, where matching is fast
_ON_TARGET = 20  # a read of so many
_PATIENCE = 300.0  # seconds of a command
_UNSURE = 1.0  # seconds that draw a factor to 1: two runs of so little work differ by as much
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
        tiny, large = Path(made) / "tiny", Path(made) / "work"
        for inputs, scale in ((tiny, 0), (large, 1)):
            inputs.mkdir()
            write_inputs(inputs, scale)
        for device in devices:
            start[device] = _least_seconds(next(works(tiny, device)), device, runs=3)
            factors[device] = {}
            for work in works(large, device):
                seconds = _least_seconds(work, device, runs=2) - start[device]
                expected = work.cost.beyond_start(device, threads)
                factor = (seconds + _UNSURE) / (expected + _UNSURE)
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
    rows = decode(some(0)[: _PATTERNS * 24]).reshape(_PATTERNS, 24)
    text = b"".join(b">p%d\n%b\n" % (i, row.tobytes()) for i, row in enumerate(rows))
    (folder / "patterns.fa").write_bytes(text)
    for name, size in (("few", 3_000_000), ("reads", 9_000_000)):
        reads = some(size).reshape(-1, _READ)
        starts = rng.integers(0, panel.size - _READ, len(reads[::_ON_TARGET]))
        reads[::_ON_TARGET] = panel[starts[:, None] + np.arange(_READ)]
        with (folder / f"{name}.fq").open("wb") as file:
            for number, row in enumerate(decode(reads.ravel()).reshape(reads.shape)):
                file.write(b"@r%d\n%b\n+\n%b\n" % (number, row.tobytes(), b"I" * _READ))


def works(folder: Path, device: str) -> Iterator[Work]:
    """A command of each kind."""

    def path(name: str) -> str:
        return str(folder / name)

    panel, codes, fast = path("panel.fa"), path("patterns.fa"), [path("reads.fq")] * _COPIES
    # a GPU waits for reads, not for a panel
    near = ([path("few.fq")], panel, 21) if device == "cpu" else (fast, codes, 24)
    for reads, known, k, options, asked in (
        (fast, panel, 31, ["--report", "reads"], {}),
        ([path("reads.fq")], panel, 21, ["--report", "reads", "--mode", "grow"],
         {"mode": "grow"}),
        (*near, ["-D", "2", "--report", "best"], {"distance": 2}),
        ([path("reads.fq")], codes, 24, ["-D", "2", "--semantics", "ltb"],
         {"distance": 2, "semantics": "ltb"}),
    ):  # fmt: skip
        spec = MatchSpec.of(k=k, sources=(known,), **asked)
        cost = cost_model.matching(reads, spec)
        assert cost is not None
        yield Work(cost.kind, ["match", *reads, "-d", known, "-k", str(k), *options], cost)
    text = path("text.fa")
    searches = (
        ("asm", cost_model.asm(text, cost_model.asm_base([24] * _PATTERNS, 1))),
        ("hamming", cost_model.hamming(text, cost_model.hamming_base(_PATTERNS, 1))),
    )
    for name, cost in searches:
        assert cost is not None
        yield Work(cost.kind, [name, text, "--patterns", codes, "-k", "3"], cost)
    cost = cost_model.primer(path("virus.fa"), path("beta.fa"), 6)
    assert cost is not None
    yield Work("primer", ["primer", path("virus.fa"), path("beta.fa"), "-k", "6"], cost)
    cells = float((folder / "one.fa").stat().st_size) * (folder / "other.fa").stat().st_size
    yield Work("lcs", ["lcs", path("one.fa"), path("other.fa")], cost_model.aligned(cells))


def _least_seconds(work: Work, device: str, *, runs: int) -> float:
    """The least wall seconds of a command, which may compile first; RuntimeError if it fails."""
    command = ["streamer", *work.arguments, "--device", device]
    least = float("inf")
    for _ in range(runs):
        began = time.perf_counter()
        ended = subprocess.run(
            [sys.executable, "-m", *command, "--quiet"], stdout=subprocess.DEVNULL,
            timeout=_PATIENCE,
        )  # fmt: skip
        if ended.returncode:
            raise RuntimeError(f"`{' '.join(command)}`: exit code {ended.returncode}")
        least = min(least, time.perf_counter() - began)
    return least

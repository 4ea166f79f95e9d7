"""Commands on a GPU whose memory another process fills: smaller pieces, or the CPU and one line.

Only on a GPU (``pytest -m gpu tests/gpu/test_full_card.py``); the commands are processes of their
own. It takes about three minutes on 16 cores and needs 4 GiB of host memory, and a GPU that nobody
else uses.
"""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from tests.data_files import ROOT
from tests.gpu import placement
from tests.waiting import DEADLINE

pytestmark = [*placement.marks(), placement.NO_GPU]


FILLER = """
import sys
from numba import cuda
left, held, step = int(sys.argv[1]), [], 1 << 34
context = cuda.current_context()
while step >= 1 << 20:
    free = context.get_memory_info().free
    if free - left < step:
        step //= 2
        continue
    try:
        held.append(context.memalloc(step))
    except cuda.cudadrv.driver.CudaAPIError:
        step //= 2
print(context.get_memory_info().free >> 20, flush=True)
sys.stdin.read()
"""
"""Takes all memory but ``left`` bytes and keeps it until its standard input ends."""

COMMANDS = {
    "asm": ["asm", "text.fa", "--patterns", "patterns.fa", "-k", "3"],
    "hamming": ["hamming", "text.fa", "--patterns", "patterns.fa", "-k", "5"],
    "primer": ["primer", "alpha.fa", "beta.fa", "-k", "5"],
    "lcs": ["lcs", "one.fa", "other.fa"],
    "match": ["match", "reads.fa", "-d", "known.fa", "-k", "31", "--report", "reads"],
    "grow": ["match", "reads.fa", "--seed", "1000", "-k", "25", "--report", "reads"],
    "levenshtein": ["match", "few.fa", "-d", "alpha.fa", "-k", "21", "--distance", "2"],
    "ltb": ["match", "few.fa", "-d", "alpha.fa", "-k", "15", "-D", "1", "--semantics", "ltb"],
}  # fmt: skip

FULL = [(1400, "cuda"), (1400, "auto"), (640, "cuda"), (640, "auto"), (200, "auto")]
"""MiB that are free before a command starts, of which its CUDA context takes about 500."""


def write(path, rng, *sizes, name="r"):
    """Random records of those sizes."""
    with path.open("wb") as file:
        for number, size in enumerate(sizes):
            file.write(f">{name}{number}\n".encode())
            file.write(np.frombuffer(b"ACGT", np.uint8)[rng.integers(0, 4, size, np.uint8)])
            file.write(b"\n")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("full")
    rng = np.random.default_rng(15)
    write(path / "text.fa", rng, 300_000_000)
    write(path / "patterns.fa", rng, *[24] * 96, name="p")
    write(path / "alpha.fa", rng, 30_000)
    write(path / "beta.fa", rng, 32_000_000)
    write(path / "one.fa", rng, 400_000)
    write(path / "other.fa", rng, 300_000)
    write(path / "known.fa", rng, 8_000_000)
    write(path / "reads.fa", rng, *[5_000] * 1_000)
    write(path / "few.fa", rng, *[5_000] * 200)
    return path


PROGRAM = """
import sys
from streamer.cli.app import main
from streamer.device_choice import Cost
Cost.on_gpu = lambda *_: 0.0  # auto takes it, however small the job is
sys.exit(main(sys.argv[1:]))
"""


def run(folder, name, device):
    command = [sys.executable, "-c", PROGRAM, *COMMANDS[name], "--device", device]
    for place, word in enumerate(command):
        if word.endswith(".fa"):
            command[place] = str(folder / word)
    return subprocess.run(
        [*command, "--quiet"], cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE
    )


@pytest.fixture(scope="module")
def on_cpu(folder):
    """What a command writes on the CPU; kept."""
    kept = {}

    def rows(name):
        if name not in kept:
            done = run(folder, name, "cpu")
            assert (done.returncode, done.stderr) == (0, "")
            kept[name] = done.stdout
        return kept[name]

    return rows


@pytest.mark.parametrize("name", COMMANDS)
def test_with_all_its_memory(name, folder, on_cpu):
    """The kernels are compiled here, so that the runs on a full GPU only load them."""
    done = run(folder, name, "cuda")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == on_cpu(name)


@pytest.fixture(scope="module", params=sorted({left for left, _ in FULL}, reverse=True))
def left(request):
    """MiB that are free while the tests that use it run."""
    with subprocess.Popen(
        [sys.executable, "-c", FILLER, str(request.param << 20)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as filler:
        assert filler.stdout.readline().strip(), "no memory was taken"
        yield request.param
        filler.stdin.close()


@pytest.mark.parametrize("name", COMMANDS)
def test_on_a_full_gpu(name, left, folder, on_cpu):
    for device in [device for full, device in FULL if full == left]:
        done = run(folder, name, device)
        lines = done.stderr.splitlines()
        case = f"{name} --device {device} with {left} MiB left: {lines}"
        print(case)
        assert len(lines) <= 1, case
        if device == "cuda" and done.returncode:
            assert done.returncode == 1, case
            assert lines[0].startswith("streamer: error: "), case
            continue
        assert done.returncode == 0, case
        assert done.stdout == on_cpu(name), case
        assert all(line.startswith("streamer: ") for line in lines), case
        assert device == "auto" or not lines, case

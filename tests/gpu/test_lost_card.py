"""A card that is lost in the middle: a kernel writes where nothing is, and no call works after it.

Only on a card (``pytest -m gpu``), in processes of their own, which are of no use for CUDA then.
"""

from __future__ import annotations

import re
import subprocess
import sys

import numpy as np
import pytest

from tests.data_files import ROOT
from tests.gpu import placement
from tests.waiting import DEADLINE

pytestmark = [*placement.marks(), placement.NO_GPU]

STREAM = """
import sys
from contextlib import closing
import numpy as np
from numba import cuda
from streamer.matching.matcher import StreamMatcher
from streamer.sequences.read_batch import ReadBatch
from streamer.dictionary.targets import Dictionary

@cuda.jit
def wild(words):
    words[cuda.grid(1) + (1 << 44)] = 7

rng = np.random.default_rng(3)
text = rng.integers(0, 4, 90_000, dtype=np.uint8)
batches = [
    ReadBatch(["r"], np.array([0, part.size]), part)
    for part in (text[:30_000], text[:60_000], text)
]
known = Dictionary.from_batches(batches[:1], 15, "canonical")
options = {"mode": sys.argv[1], "chunk": 20_000}
told = []
cpu = StreamMatcher.of(known, **options)
card = StreamMatcher.of(known, device="cuda", on_fallback=told.append, **options)
with closing(cpu), closing(card):
    for number, batch in enumerate(batches):
        if number == 1:
            wild[1, 32](cuda.to_device(np.zeros(4, np.uint32)))
        want = sys.argv[2] == "depths" and number > 0
        a, b = (matcher.match([batch], words=want)[0] for matcher in (cpu, card))
        assert np.array_equal(a.events, b.events)
        assert np.array_equal(a.new_kmers, b.new_kmers)
        assert cpu.kmers == card.kmers
assert card.device == "cpu"
print(len(told), told[0].startswith("the CUDA device failed: "), "\\n" in told[0])
"""


BATCH = """
import sys
import numpy as np
from numba import cuda
from streamer.cli.app import main
from streamer.device_choice import Cost

@cuda.jit
def wild(words):
    words[cuda.grid(1) + (1 << 44)] = 7

plain, calls = cuda.device_array, 0

def device_array(*arguments, **options):
    global calls
    calls += 1
    if calls == 2:
        wild[1, 32](cuda.to_device(np.zeros(4, np.uint32)))
    return plain(*arguments, **options)

cuda.device_array = device_array
Cost.on_gpu = lambda *_: 0.0  # auto takes it, however small the job is
sys.exit(main(sys.argv[1:]))
"""

COMMANDS = {
    "asm": ["asm", "text.fa", "--pattern", "ACGTACGTACGT", "-k", "3"],
    "hamming": ["hamming", "text.fa", "--pattern", "ACGTACGTACGT", "-k", "4"],
    "primer": ["primer", "alpha.fa", "text.fa", "-k", "3"],
    "lcs": ["lcs", "alpha.fa", "text.fa", "--method", "systolic"],
}


# Python's own at the very end, of what CuPy cannot give back on a growing dictionary's card
NOTE = "Error in sys.excepthook:\n\nOriginal exception was:\n"


@pytest.mark.parametrize("mode", ["frozen", "grow"])
@pytest.mark.parametrize("asked", ["events", "depths"])
def test_the_cpu_takes_over_without_a_word_but_one(mode, asked):
    command = [sys.executable, "-W", "ignore", "-c", STREAM, mode, asked]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE)
    assert done.stderr.replace(NOTE, "", 2 if mode == "grow" else 0) == ""
    assert done.returncode == 0
    assert done.stdout == "1 True False\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_a_batch_command_ends_with_one_line_or_on_the_cpu(name, tmp_path):
    rng = np.random.default_rng(15)
    for file, size in (("text.fa", 200_000), ("alpha.fa", 3_000)):
        (tmp_path / file).write_text(f">r\n{''.join(rng.choice(list('ACGT'), size))}\n")
    command = [str(tmp_path / word) if ".fa" in word else word for word in COMMANDS[name]]
    done = {
        device: subprocess.run(
            [sys.executable, "-W", "ignore", "-c", BATCH, *command, "--device", device, "--quiet"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=DEADLINE,
        )
        for device in ("cpu", "auto", "cuda")
    }
    failed = r"the CUDA device failed: .*"
    assert (done["cpu"].returncode, done["cpu"].stderr) == (0, "")
    assert (done["auto"].returncode, done["auto"].stdout) == (0, done["cpu"].stdout)
    assert re.fullmatch(f"streamer: {failed}; running on the CPU\n", done["auto"].stderr)
    assert done["cuda"].returncode == 1
    assert re.fullmatch(
        f"streamer: error: {failed}; use the device cpu or auto\n", done["cuda"].stderr
    )

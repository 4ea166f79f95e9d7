"""Ctrl-C during a search through the Python API: KeyboardInterrupt, whenever it comes."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.waiting import DEADLINE

pytestmark = pytest.mark.whole

PROGRAM = """
import queue, signal, sys, threading, time
import numpy as np
from streamer.batch import asm, hamming, lcs, primer

TIMES = 25
rng = np.random.default_rng(1)
letters = np.frombuffer(b"ACGT", np.uint8)
text = letters[rng.integers(0, 4, 150_000)]
a, b = text[:3_000], text[3_000:]
pattern = bytes(text[500:516])
search = {
    "asm": lambda: asm.search(text, pattern, 6, device="cpu", threads=2),
    "asm-best": lambda: asm.search(text, pattern, 6, report="best", device="cpu", threads=2),
    "asm-sequential": lambda: asm.search(
        text, pattern, 5, method="sequential", device="cpu", threads=2
    ),
    "hamming": lambda: hamming.search(text, [pattern, a[:16]], 9, device="cpu", threads=2),
    "primer": lambda: primer.find(a, b, 4, device="cpu", threads=2),
    "lcs": lambda: lcs.sequence(a, b[:9_000], device="cpu", threads=2),
}[sys.argv[1]]
signal.signal(signal.SIGINT, signal.default_int_handler)
search()
begin = time.perf_counter()
search()
took = time.perf_counter() - begin


main = threading.main_thread().ident
moments, sent = queue.SimpleQueue(), []


def interrupt():
    for moment in iter(moments.get, None):
        threading.Event().wait(moment)
        signal.pthread_kill(main, signal.SIGINT)
        sent.append(moment)


threading.Thread(target=interrupt).start()
for number in range(TIMES):
    try:
        moments.put(number * took / TIMES)
        while len(sent) == number:
            search()
        search()
        print("lost")
    except KeyboardInterrupt as error:
        print("KeyboardInterrupt of", repr(error.__cause__))
    except BaseException as error:
        print(repr(error))
moments.put(None)
"""


@pytest.mark.parametrize(
    "search", ["asm", "asm-best", "asm-sequential", "hamming", "primer", "lcs"]
)
def test_an_interrupt_is_raised_whenever_it_comes(search):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, search],
        capture_output=True, text=True, timeout=DEADLINE, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["KeyboardInterrupt of None"] * 25

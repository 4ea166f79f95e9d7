"""Searches that are cut into pieces, or interrupted."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

from streamer.batch.primer import problem
from streamer.sequences import files, raw_file
from tests.data_files import write_fasta
from tests.waiting import DEADLINE

pytestmark = pytest.mark.whole


def turned(sequence):
    return sequence[::-1].translate(str.maketrans("ACGT", "TGCA"))


@pytest.fixture
def texts(tmp_path):
    rng = random.Random(3)

    def letters(size):
        return "".join(rng.choices("ACGTN", (9, 9, 9, 9, 1), k=size))

    motif = "ACGTTGCAAC"
    long = letters(150) + motif + letters(40) + turned(motif) + "ACACACACAC" * 9 + letters(90)
    return write_fasta(
        tmp_path / "texts.fa",
        [
            ("a", letters(5)),
            ("long", long),
            ("empty", ""),
            ("b", letters(70)),
            ("long", long[:133]),
        ],
    )


@pytest.fixture
def in_pieces(monkeypatch):
    """From now on files are cut every few symbols."""

    def cut():
        monkeypatch.setattr(raw_file, "BLOCK_BYTES", 13)
        monkeypatch.setattr(files, "PIECE_BASES", 20)
        monkeypatch.setattr(files, "BATCH_READS", 2)
        monkeypatch.setattr(problem, "piece_symbols", lambda overlap, **_: 4 * overlap)

    return cut


JOBS = (
    ("asm", "{}", "--pattern", "ACGTTGCAAC", "-k", 3),
    ("asm", "{}", "--pattern", "ACGTTGCAAC", "-k", 3, "--report", "best"),
    ("asm", "{}", "--pattern", "ACACAC", "-k", 4, "--report", "best", "--strands", "forward"),
    ("asm", "{}", "--pattern", "ACACAC" * 12, "-k", 20, "--method", "sequential"),
    ("hamming", "{}", "--pattern", "ACGTTGCAAC", "--pattern", "ACACACACAC", "-k", 5),
    ("hamming", "{}", "--pattern", "A", "-k", 0),
    ("hamming", "{}", "--pattern", "ACACAC" * 10, "-k", 30, "--method", "naive"),
    ("primer", "{alpha}", "{}", "-k", 4),
    ("primer", "{alpha}", "{}", "-k", 4, "--strands", "both"),
    ("primer", "{alpha}", "{}", "-k", 4, "--known", "{alpha}", "--known-table", "{table}"),
)  # fmt: skip


@pytest.mark.parametrize("job", JOBS, ids=lambda job: " ".join(map(str, job[:1] + job[2:])))
def test_the_same_rows(streamer, texts, in_pieces, job, tmp_path):
    sequence = re.sub(r">.*\n|\n", "", Path(texts).read_text())
    x = sequence[140:165] + turned(sequence[20:45]) + sequence[250:270]
    alpha = write_fasta(tmp_path / "alpha.fa", [("x", x), ("y", "ACACACCACA")])
    table = tmp_path / "table.tsv"
    command = [str(word).format(texts, alpha=alpha, table=table) for word in job]
    whole = streamer(*command, "--device", "cpu", "-q")
    known = table.read_text() if table.exists() else ""
    assert whole[0] == 0
    assert whole[1].count("\n") > 1
    in_pieces()
    assert streamer(*command, "--device", "cpu", "-q") == whole
    assert not known or table.read_text() == known


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
    "asm-best": lambda: asm.search(text, pattern, 6, report="best", device="cpu", threads=2),
    "hamming": lambda: hamming.search(text, [pattern, a[:16]], 9, device="cpu", threads=2),
    "primer": lambda: primer.find(a, b[:60_000], 4, device="cpu", threads=2),
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


@pytest.mark.parametrize("search", ["asm-best", "hamming", "primer", "lcs"])
def test_an_interrupt_is_raised_whenever_it_comes(search):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, search],
        capture_output=True, text=True, timeout=DEADLINE, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["KeyboardInterrupt of None"] * 25

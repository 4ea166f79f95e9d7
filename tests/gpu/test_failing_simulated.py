"""Batch commands on a GPU that fails, wherever it does: the CPU's rows and one line, or one line.

The tests of one command share the results of its kernels: they stay in one pytest-xdist worker.
"""

from __future__ import annotations

import re

import numpy as np
import pytest

from gpu import asm, lcs
from gpu import hamming as plane_search
from gpu import primer as gpu_primer
from gpu.asm import bit_parallel, listing, paper
from gpu.exact import bucket_table, chunk_match, device_tree, walk
from gpu.hamming import paper as result_table
from gpu.lcs import systolic
from gpu.levenshtein import search
from gpu.primer import seeds, window_scan
from streamer.batch import hamming, primer
from streamer.batch.lcs import solve
from streamer.batch.primer import on_gpu
from streamer.cli.app import main
from streamer.matching import match_engine, near
from tests.gpu import faults, placement

pytestmark = [
    # words are added modulo 2**32, which numpy scalars of the simulator warn of
    pytest.mark.filterwarnings("ignore:overflow encountered in scalar")
]

COMMANDS = {
    "asm": "asm text.fa --pattern ACGTAC --pattern TTGACA -k 1",
    "asm-best": "asm text.fa --pattern ACGTAC -k 2 --report best",
    "asm-wspasm": "asm text.fa --pattern ACGTAC -k 1 --method wspasm",
    "hamming": "hamming text.fa --gpus 0 --pattern ACGTAC --pattern TTGACA -k 2",
    "hamming-naive": "hamming text.fa --gpus 0 --pattern ACGTAC -k 2 --method pmasm-thread",
    "primer": "primer alpha.fa beta.fa -k 2 --strands both",
    "lcs": "lcs one.fa other.fa --method systolic",
    "match": "match text.fa -d beta.fa -k 7 --report windows",
    "match-chunks": "match text.fa -d beta.fa -k 7 --report intervals --chunk 30",
    "match-depths": "match text.fa -d beta.fa -k 7 --report windows --chunk 30",
    "grow": "match text.fa --seed 20 -k 5 --chunk 30",
    "levenshtein": "match text.fa -d beta.fa -k 7 --distance 1",
    "near-grow": "match text.fa --seed 20 -k 7 --distance 1 --chunk 64",
    "ltb": "match text.fa -d beta.fa -k 5 --distance 1 --semantics ltb --chunk 64",
}

ON_TWO = {
    "asm", "asm-best", "asm-wspasm", "hamming", "hamming-naive", "primer", "match-chunks",
    "match-depths", "grow", "levenshtein", "ltb",
}  # fmt: skip
"""Are run on two GPUs too."""

SMALLER = ("asm", "asm-best", "asm-wspasm", "hamming", "hamming-naive")
"""Have smaller pieces even for these texts."""


QUICK = ("asm", "primer", "match-chunks", "near-grow")
"""In the quick lane: a batch command in pieces, one in steps, a stream, and one that grows."""


def grouped(names):
    return [
        pytest.param(
            name, marks=[pytest.mark.xdist_group(name), *[pytest.mark.slow] * (name not in QUICK)]
        )
        for name in names
    ]


@pytest.fixture(scope="module", autouse=True)
def small_kernels():
    """Blocks, steps and strips that the simulator can carry."""
    modules = (
        listing, paper, bit_parallel, bucket_table, device_tree, chunk_match, walk, systolic,
        window_scan, seeds,
    )  # fmt: skip
    with placement.small_blocks(32, *modules) as patch:
        patch.setattr(search, "THREADS", 64)
        placement.small_pieces(patch, 256)
        patch.setattr(paper, "STEPS", 2)
        patch.setattr(listing, "LISTED", 8)
        patch.setattr(bit_parallel, "TILE", 32)
        patch.setattr(bit_parallel, "ROWS", 8)
        # several pieces, and smaller ones
        patch.setattr(asm, "BLOCK_SIZES", dict.fromkeys(asm.METHODS, 40))
        patch.setattr(asm, "LEAST_BLOCK", 10)
        patch.setattr(plane_search, "CHUNKS", (16, 32))
        patch.setattr(result_table, "WINDOWS", (16, 32))
        patch.setattr(hamming, "LEAST_CHUNK", 8)
        # several GPUs for so little
        patch.setattr(hamming, "LEAST_SHARE", 8)
        patch.setattr(primer, "LEAST_STARTS", 5)
        patch.setattr(on_gpu, "FIRST", (64, 64))
        patch.setattr(lcs, "shape_for", lambda symbols, _: systolic.GridShape(1, symbols, 1))
        patch.setattr(lcs, "_multiprocessors", lambda: 1)
        patch.setattr(solve, "LEAF_CELLS", 100)
        patch.setattr(walk, "JUMP_LEVEL", 1)
        patch.setattr(match_engine, "LONG_SPAN", 1)
        patch.setattr(near, "LONG_SPAN", 0)
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("failing")
    rng = np.random.default_rng(15)
    sizes = {
        "text": (50, 30),
        "alpha": (14,),
        "beta": (40, 20),
        "one": (60,),
        "other": (50,),
        "some": (1500,),
        "long": (50_000,),
    }
    for name, lengths in sizes.items():
        records = (
            f">r{i}\n{''.join(rng.choice(list('ACGT'), n))}\n" for i, n in enumerate(lengths)
        )
        (path / f"{name}.fa").write_text("".join(records))
    return path


@pytest.fixture
def run(folder, capsys):
    def command(name, device, gpu=None):
        words = [
            str(folder / word) if word.endswith(".fa") else word for word in COMMANDS[name].split()
        ]
        if gpu is None:
            code = main([*words, "--device", device, "--quiet"])
        else:
            with gpu.installed():
                code = main([*words, "--device", device, "--quiet"])
        return code, *capsys.readouterr()

    return command


@pytest.fixture(scope="module")
def known():
    """For each command the driver's calls when all is well, and the rows."""
    return {}


@pytest.fixture
def usual(run, known):
    def look_up(name):
        if name not in known:
            gpu = faults.FailingGpu()
            code, rows, said = run(name, "cuda", gpu)
            assert (code, said) == (0, "")
            assert rows.count("\n") > 1
            if "--method" not in COMMANDS[name]:
                assert run(name, "cpu") == (0, rows, "")
            known[name] = gpu.kinds, rows
        return known[name]

    return look_up


def check(name, run, usual, kind, message, problem):
    """Calls of that kind (None: all) fail from any on, for one ``--device`` and the other in turn.

    With ``auto`` the rows, with ``cuda`` an error; one line each where a call has failed.
    """
    kinds, rows = usual(name)
    calls = [number for number, one in enumerate(kinds) if kind in (None, one)]
    for turn, first in enumerate(calls):

        def fails(number, one, first=first):
            return message if kind in (None, one) and number >= first else None

        device, case = ("auto", "cuda")[turn % 2], f"{name}: call {first} ({kinds[first]})"
        gpu = faults.FailingGpu(fails)
        code, found, said = run(name, device, gpu)
        if code == 0:
            assert found == rows, case
        if device == "auto":
            assert code == 0, case
            pattern = rf"streamer: {problem}: .*; \w+ on the CPU\n"
        else:
            assert code == gpu.failed, case
            pattern = rf"streamer: error: {problem}: .*; use the device cpu or auto\n"
        assert re.fullmatch(pattern if gpu.failed else "", said), case


@pytest.mark.parametrize("name", grouped(COMMANDS))
def test_a_gpu_that_is_lost_at_any_call(name, run, usual):
    """No call works after it. Rows that are out already are not written again."""
    check(name, run, usual, None, faults.LOST, "the CUDA device failed")


@pytest.mark.parametrize("name", grouped(COMMANDS))
def test_memory_that_is_gone_from_any_call_on(name, run, usual):
    check(name, run, usual, "memory", faults.OUT_OF_MEMORY, "the GPU is out of memory")


@pytest.mark.parametrize("name", grouped(COMMANDS))
def test_an_allocation_that_fails_once(name, run, usual):
    """The GPU goes on in smaller pieces if there are some."""
    kinds, rows = usual(name)
    said = []
    for failing in [number for number, kind in enumerate(kinds) if kind == "memory"]:

        def fails(number, kind, failing=failing):
            return faults.OUT_OF_MEMORY if number == failing else None

        code, found, lines = run(name, "auto", faults.FailingGpu(fails))
        assert (code, found) == (0, rows), f"{name}: call {failing}"
        said += lines.splitlines()
    assert len(said) <= len(kinds)
    if name in SMALLER:
        assert said == []


@pytest.mark.parametrize("name", grouped(sorted(ON_TWO)))
def test_two_gpus_give_the_rows_of_one(name, run, usual):
    """One simulated device stands for both; each has its own buffers and its own thread."""
    _, rows = usual(name)
    code, found, said = run(name, "cuda", faults.FailingGpu(cards=2))
    assert (code, found, said) == (0, rows, "")


@pytest.mark.parametrize("name", grouped(sorted(ON_TWO)))
def test_two_gpus_of_which_one_is_lost(name, run, usual):
    """The CPU takes over from both, with one line."""
    kinds, rows = usual(name)
    for lost in range(0, len(kinds), 3):

        def fails(number, kind, lost=lost):
            return faults.LOST if number == lost else None

        gpu = faults.FailingGpu(fails, cards=2)
        code, found, said = run(name, "auto", gpu)
        assert (code, found) == (0, rows), lost
        if gpu.failed:
            assert re.fullmatch(r"streamer: the CUDA device failed: .*; \w+ on the CPU\n", said), (
                lost
            )


def test_a_growing_dictionary_says_that_it_uses_one_gpu(folder, capsys):
    words = ["match", str(folder / "text.fa"), "--seed", "20", "-k", "5", "--chunk", "30"]
    words += ["--device", "cuda"]
    for gpus, lines in (("0", 1), ("2", 1), ("1", 0)):
        with faults.FailingGpu(cards=2).installed():
            assert main([*words, "--gpus", gpus]) == 0
        said = capsys.readouterr().err
        assert said.count("a growing dictionary uses one GPU, not 2: ") == lines


@pytest.mark.parametrize("name", grouped(["match", "ltb"]))
def test_a_dictionary_that_is_too_large_for_a_snapshot(name, run, usual, monkeypatch):
    """The CPU needs none to match exactly."""
    _, rows = usual(name)
    monkeypatch.setattr("trie.snapshots.tree_bitmap.MAX_NODES", 9)
    problem = "the dictionary is too large for a snapshot, .* nodes, .*"
    code, found, said = run(name, "auto", faults.FailingGpu())
    if name == "match":
        assert (code, found) == (0, rows)
        assert re.fullmatch(rf"streamer: {problem}; matching on the CPU\n", said)
    else:
        assert (code, found) == (1, "")
        assert re.fullmatch(rf"streamer: error: {problem}\n", said)
    code, found, said = run(name, "cuda", faults.FailingGpu())
    assert (code, found) == (1, "")
    assert re.fullmatch(rf"streamer: error: {problem}\n", said)


LONG = {
    "asm": ["asm", "long.fa", "--pattern", "ACGTACGGA", "--pattern", "TTGACATAC", "-k", "1"],
    "hamming": ["hamming", "some.fa", "--pattern", "ACGTAC", "-k", "1", "--method", "naive"],
    "primer": ["primer", "alpha.fa", "some.fa", "-k", "2"],
}


@pytest.mark.parametrize("name", grouped(LONG))
def test_a_gpu_with_little_memory_takes_smaller_pieces(name, folder, capsys, monkeypatch):
    monkeypatch.setattr(asm, "BLOCK_SIZES", dict.fromkeys(asm.METHODS, 1 << 28))
    placement.small_pieces(monkeypatch, 1 << 15)
    monkeypatch.setattr(gpu_primer, "LEAST_HITS", 64)
    monkeypatch.setattr(on_gpu, "LEAST_TEXT", 64)
    words = [str(folder / word) if word.endswith(".fa") else word for word in LONG[name]]
    gpu = faults.FailingGpu()
    with gpu.installed():
        assert main([*words, "--device", "cuda", "--quiet"]) == 0
    rows, all_of_it = capsys.readouterr().out, gpu.most
    fitted = []
    for share in (0.8, 0.4, 0.1, 0.01):
        gpu = faults.FailingGpu(limit=int(share * all_of_it))
        with gpu.installed():
            assert main([*words, "--device", "auto", "--quiet"]) == 0
        found, said = capsys.readouterr()
        assert found == rows, share
        assert said == "" or re.fullmatch(r"streamer: .* on the CPU\n", said), share
        fitted.append(said == "")
    assert fitted[:2] == [True, True]

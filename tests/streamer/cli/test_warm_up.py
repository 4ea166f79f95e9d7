"""``streamer warm-up`` compiles all that commands need, once."""

from __future__ import annotations

import importlib
import os
import pkgutil
import re
import subprocess
import sys

import pytest

import streamer
import trie
from streamer.cli.app import main
from streamer.cli.warm_up import SERVE, write_files
from tests.data_files import ROOT
from tests.waiting import DEADLINE
from trie.cpu import compiling, jit

pytestmark = pytest.mark.whole

NOT_OF_COMMANDS = ("benchmarks",)
NOT_BY_COMMANDS = (
    # with a GPU only
    "gpu.card.packing.pack_letters_into",
    "gpu.exact.expand.copy_range",
    "streamer.daemon.ingest._inspect",
    "streamer.matching.events._move_bits",
    "streamer.matching.cuda._pack",
    "trie.codes.reverse_codes",
    # on a cluster only
    "streamer.matching.events.add_bits",
    "trie.codes._unpack",
    # in Python only
    "streamer.batch.hits._fill",
    "streamer.batch.hits._fill_alike",
    "streamer.batch.hits._mask",
    "streamer.client.messages._are_reads",
    "streamer.matching.target_kernels.first_places",
    "trie.index.reference_text.codes_at_places",
    "trie.snapshots.tree_bitmap._append_leaves",
    "trie.snapshots.tree_bitmap._append_symbols",
    # on other CPUs
    "streamer.batch.lcs.systolic.beside",
    "streamer.batch.lcs.systolic.tabulate",
    "streamer.batch.lcs.systolic._blocks_by_table",
    # many hits, many k-mers, long records in pieces, plots, journals that are gone on with
    "streamer.batch.asm.blocks._counted",
    "streamer.batch.lcs.symbols._columns",
    "streamer.sequences.record_buffer._add_alone",
    "trie.levenshtein._merged",
)
"""Kernels that no job of warm-up needs."""


def kernels():
    """Every kernel that is stored by itself: its index file, and its name."""
    found = {}
    for package in (trie, streamer):
        for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            if module.name.startswith(NOT_OF_COMMANDS) or module.name.endswith("__main__"):
                continue
            for value in vars(importlib.import_module(module.name)).values():
                made = value.dispatcher if isinstance(value, jit.Kernel) else None
                if (
                    made is not None
                    and isinstance(made._cache, jit._Cache)
                    and made.targetoptions.get("inline") != "always"
                ):
                    function = made.py_func
                    name = f"{function.__module__}.{function.__qualname__}"
                    found[made._cache._cache_file._index_path] = name
    return found


def warm_up(*options, **environment):
    """A finished run of the command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "streamer", "warm-up", "--device", "cpu", *options],
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )


@pytest.mark.slow
def test_commands_find_all_kernels_compiled(tmp_path):
    cache = tmp_path / "cache"
    first = warm_up(NUMBA_CACHE_DIR=str(cache))
    assert (first.returncode, first.stdout) == (0, ""), first.stderr
    assert "compiling: 100 %" in first.stderr

    def files():
        return {path for path in cache.rglob("*") if path.suffix in (".nbi", ".nbc")}

    compiled = files()
    write_files(tmp_path)
    for job in (
        "match reads.fq -d ref.fa -k 21",
        "match reads.fq -d ref.fa -k 15 --report targets --format jsonl",
        "match reads.fa --seed 500 -k 31 --report windows",
        "match reads.fq -d ref.fa -k 15 --mode grow --report coverage",
        "match reads.fq -d ref.fa -k 21 -D 2 --report best",
        "filter reads.fq -d ref.fa -k 21 --keep",
        "asm ref.fa --pattern ACGTACGTACGT -k 2",
        "hamming ref.fa --patterns patterns.fa -k 2",
        "primer alpha.fa other.fa -k 3",
        "lcs near.fa other.fa --sequence lcs.fa",
        SERVE,
    ):
        code = f"from streamer.cli.warm_up import run_job; exit(run_job({job.split()}))"
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=tmp_path,
            env=os.environ | {"NUMBA_CACHE_DIR": str(cache), "PYTHONPATH": str(ROOT)},
            capture_output=True,
            timeout=DEADLINE,
        )
        assert done.returncode == 0, (job, done.stderr)
        assert files() == compiled, job
    stored = {path.name for path in compiled}
    missing = {name for path, name in kernels().items() if os.path.basename(path) not in stored}
    assert missing <= set(NOT_BY_COMMANDS)
    again = warm_up(NUMBA_CACHE_DIR=str(cache))
    assert again.returncode == 0
    assert "kernels are compiled" in again.stderr


def run_few(monkeypatch, cache, *listed):
    """The command in this process, with these jobs: its exit code."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(cache))
    monkeypatch.setattr("streamer.cli.warm_up.jobs", lambda device: listed)
    return main(["warm-up", "--device", "cpu", "--threads", "2"])


SMALL = ("primer", "alpha.fa", "other.fa", "-k3", "--method", "conventional", "--device", "cpu")


@pytest.mark.slow  # compiles anew
def test_a_second_run_finds_all_compiled_until_files_are_gone(tmp_path, monkeypatch, capsys):
    assert run_few(monkeypatch, tmp_path, SMALL, SMALL) == 0
    done = capsys.readouterr()
    assert done.out == ""
    count = len(list(tmp_path.rglob("*.nbi")))
    assert " kernels compiled in " in done.err
    assert f", {count} are in " in done.err
    assert run_few(monkeypatch, tmp_path, SMALL) == 0
    assert f"all {count} kernels are compiled, in " in capsys.readouterr().err
    for path in tmp_path.rglob("*.nbi"):
        path.unlink()
    assert run_few(monkeypatch, tmp_path, SMALL) == 0
    assert f"streamer: {count} kernels compiled in " in capsys.readouterr().err


def test_two_processes_compile_a_kernel_once(tmp_path, monkeypatch, capsys):
    assert run_few(monkeypatch, tmp_path, *[SMALL] * 2) == 0
    compiled = int(re.search(r"(\d+) kernels compiled", capsys.readouterr().err)[1])
    assert compiled == len(list(tmp_path.rglob("*.nbc")))


def test_a_job_that_fails_is_named(tmp_path, monkeypatch, capsys):
    missing = ("lcs", "nothing.fa", "other.fa")
    assert run_few(monkeypatch, tmp_path, missing) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == (
        "streamer: error: `streamer lcs nothing.fa other.fa` ended with exit code 1; "
        "what is missing is compiled when it is first needed"
    )


def test_a_cache_that_cannot_be_written_is_an_error(monkeypatch, capsys):
    why = "compiled kernels cannot be stored; set NUMBA_CACHE_DIR to a folder that can be written"
    monkeypatch.setattr(
        "trie.cpu.compiling.kernel_folder", lambda: compiling.KernelFolder(None, why)
    )
    assert main(["warm-up", "--device", "cpu"]) == 1
    assert capsys.readouterr().err == f"streamer: error: {why}\n"

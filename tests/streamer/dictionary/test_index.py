"""Indexes: their targets beside those of a dictionary of k-mers, files, and damaged files."""

from __future__ import annotations

import errno
import gzip
import json
import mmap
import subprocess
import sys
import textwrap
import threading
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamer.cli.app import main
from streamer.daemon.config.loading import load
from streamer.dictionary import index as index_module
from streamer.dictionary import shared_windows
from streamer.dictionary.index import Index
from streamer.dictionary.targets import Dictionary
from streamer.errors import StreamerError
from streamer.matching import record_runs
from streamer.matching.record_runs import runs_in_text
from streamer.sequences.read_batch import ReadBatch
from tests.reference.index import letters, windows
from tests.reference.targets import targets_report
from tests.waiting import DEADLINE, until
from trie.codes import decode
from trie.cpu.team import Team
from trie.index import index_file, places, reference_text, repeats
from trie.index.index_file import damaged
from trie.index.reference_text import gap_codes
from trie.strands import Strands

pytestmark = pytest.mark.whole


def records(seed: int) -> list[tuple[str, np.ndarray]]:
    """Some that share k-mers in both orientations, repeat themselves, or hold no k-mer."""
    rng = np.random.default_rng(seed)
    base = rng.integers(0, 4, 3_000).astype(np.uint8)
    shared = base[500:900]
    other = rng.integers(0, 4, 2_000).astype(np.uint8)
    other[300:700] = 3 - shared[::-1]
    other[1_000:1_400] = shared
    third = rng.integers(0, 4, 1_500).astype(np.uint8)
    third[100:400] = shared[50:350]
    third[700] = 4
    short = rng.integers(0, 4, 9).astype(np.uint8)
    return [("a", base), ("b", other), ("none", short), ("c", third), ("a2", base[1_000:2_000])]


def written(path: Path, some: list[tuple[str, np.ndarray]]) -> str:
    path.write_bytes(b"".join(b">%s\n%s\n" % (n.encode(), decode(c).tobytes()) for n, c in some))
    return str(path)


@pytest.mark.parametrize("strands", ["forward", "canonical", "both"])
@pytest.mark.parametrize("k", [11, 21, 31])
def test_targets_are_those_of_the_kmers(
    k: int, strands: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    some = records(k)
    fasta = written(tmp_path / "r.fa", some)
    holders: dict[str, set[int]] = {}
    for at, (_, codes) in enumerate(some):
        for _, kmer in windows(codes, np.array([0, codes.size]), k, canonical=strands != "forward"):
            holders.setdefault(kmer, set()).add(at)
    made = Index.from_files([fasta], k, strands)  # type: ignore[arg-type]
    made.save(str(tmp_path / "r.idx"))
    bases = np.concatenate([codes for _, codes in some] + [3 - some[1][1][::-1]])
    offsets = np.cumsum([0, *[codes.size for _, codes in some], some[1][1].size])
    for index in (made, Index.open(str(tmp_path / "r.idx"))):
        assert [*index.targets.names] == [name for name, _ in some]
        assert index.shares.distinct == len(holders)
        for at, count in enumerate(index.shares.kmers.tolist()):
            assert count == sum(at in targets for targets in holders.values())
        runs: list[np.ndarray] = []
        index.text.match(bases, offsets, runs=runs)
        sets = np.full(bases.size, 9_999, np.uint32)
        rows = runs_in_text(index, runs)
        assert len(rows) > sum(map(len, runs))
        with monkeypatch.context() as patch:
            patch.setattr(record_runs, "_ROWS_PER_RUN", 1)
            patch.setattr(record_runs, "_RUNS_GRAIN", 1)
            assert (runs_in_text(index, runs, 3) == rows).all()
        for begin, stop, *_, number in rows.tolist():
            sets[begin:stop] = number
        for start, kmer in windows(bases, offsets, k, canonical=strands != "forward"):
            if kmer not in holders:
                assert sets[start] == 9_999
            else:
                targets = index.targets.members_of(int(sets[start])).tolist()
                assert targets == sorted(holders[kmer])


def test_many_sets_of_targets() -> None:
    """Each word is in records of its own choice, so nearly every word has a set of its own."""
    rng = np.random.default_rng(11)
    words = rng.integers(0, 4, (2_000, 33)).astype(np.uint8)
    holds = rng.random((40, len(words))) < 0.5
    parts = [[np.append(word, np.uint8(4)) for word in words[row]] for row in holds]
    bases = np.concatenate([word for part in parts for word in part])
    offsets = np.cumsum([0, *[sum(word.size for word in part) for part in parts]])
    batch = ReadBatch([f"t{at}" for at in range(40)], offsets, bases)
    index = Index.from_batches([batch], 31, "canonical")
    shares = index.shares
    assert shares.distinct == 3 * len(words)
    assert shares.kmers.tolist() == (3 * holds.sum(axis=1)).tolist()
    members = {tuple(shares.sets.members_of(at).tolist()) for at in range(40, len(shares.sets))}
    expected = {tuple(np.flatnonzero(column).tolist()) for column in holds.T}
    assert members == {one for one in expected if len(one) > 1}
    begins, ends, _ = shares.shared.astype(np.int64)
    assert (ends - begins).sum() == 3 * (holds.sum(axis=0) > 1).sum()
    runs: list[np.ndarray] = []
    index.text.match(bases, offsets, runs=runs)
    _, order = np.nonzero(holds)
    for begin, _, _, _, number in runs_in_text(index, runs)[::50].tolist():
        holders = np.flatnonzero(holds[:, order[begin // 34]])
        assert shares.sets.members_of(number).tolist() == holders.tolist()


def satellites(seed: int) -> list[tuple[str, np.ndarray]]:
    """Records of repeats whose windows are found by their k-mers, in both orientations."""
    rng = np.random.default_rng(seed)
    unit, pair = (rng.integers(0, 4, size).astype(np.uint8) for size in (37, 12))
    pair[6:] = 3 - pair[5::-1]
    tandem = np.tile(unit, 200)
    changed = rng.random(tandem.size) < 0.01
    tandem[changed] = rng.integers(0, 5, int(changed.sum()))
    return [
        *records(seed), ("t", tandem), ("p", np.tile(pair, 100)), ("A", np.zeros(900, np.uint8)),
        ("r", 3 - tandem[tandem < 4][::-1]), ("u", np.tile(np.array([0, 3], np.uint8), 300)),
    ]  # fmt: skip


@pytest.mark.parametrize("strands", ["forward", "canonical", "both"])
@pytest.mark.parametrize("k", [9, 21, 30, 31])
def test_a_file_does_not_depend_on_threads_and_parts(
    k: int, strands: Strands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fasta = written(tmp_path / "r.fa", satellites(k))
    Index.from_files([fasta], k, strands).save(str(tmp_path / "r.idx"))
    whole = (tmp_path / "r.idx").read_bytes()
    monkeypatch.setattr(places, "LISTED", 1 << 10)
    monkeypatch.setattr(places, "MOST_AT_ONCE", 1 << 11)
    monkeypatch.setattr(repeats, "MOST_AT_ONCE", 1 << 8)
    monkeypatch.setattr(shared_windows, "_PART", 1 << 7)
    for threads, size in (1, 1), (2, 63), (3, 1_000):
        monkeypatch.setattr(index_module, "usable_cores", lambda threads=threads: threads)
        monkeypatch.setattr(index_module, "_PIECE", size)
        with Team(threads) as team:
            Index.from_files([fasta], k, strands, team=team).save(str(tmp_path / "parts.idx"))
        assert (tmp_path / "parts.idx").read_bytes() == whole


@pytest.mark.parametrize("size", [1, 2, 3, 64, 1 << 22])
def test_text_is_packed_in_parts(
    size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parts end within lines, runs of N, and between records, of which some are empty."""
    monkeypatch.setattr(index_module, "_PIECE", size)
    some = [*records(3), ("empty", np.empty(0, np.uint8)), ("N", np.full(90, 4, np.uint8))]
    some[0][1][100:300] = some[0][1][-5:] = 4
    text = "# comment\r\n\r\n"
    for at, (name, codes) in enumerate(some):
        lines = textwrap.wrap(decode(codes).tobytes().decode().lower(), 7 + at)
        text += f">{name} {'x>y ' * 70}\r\n\n" + "\r\n".join(lines) + "  \n"
    (tmp_path / "r.fa").write_text(text, newline="")
    (tmp_path / "r.fa.gz").write_bytes(gzip.compress(text.encode()))
    gap = np.full(1, 4, np.uint8)
    symbols = np.concatenate([np.tile(gap, 63), *(part for _, c in some for part in (gap, c))])
    lengths = np.array([codes.size for _, codes in some])
    for name, threads in ("r.fa", 1), ("r.fa", 3), ("r.fa.gz", 2):
        with Team(threads) as team:
            made = Index.from_files([str(tmp_path / name)], 21, "canonical", team=team)
        assert made.records == [name for name, _ in some]
        assert made.lengths.tolist() == lengths.tolist()
        assert made.starts.tolist() == (64 + np.cumsum(lengths + 1) - lengths - 1).tolist()
        assert 64 <= made.size - symbols.size < 68
        found = gap_codes(made.reference, 0, made.size)
        assert found[: symbols.size].tolist() == symbols.tolist()
        assert (found[symbols.size :] == 4).all()
        gaps = made.reference.gaps.reshape(-1, 2)
        assert (gaps[1:, 0] > gaps[:-1, 1]).all()
        bits = np.unpackbits(made.reference.blocks.view(np.uint8), bitorder="little")
        for block in range(made.size // 256 + 1):
            assert bits[block] == (found[256 * block : 256 * block + 287] == 4).any()


def test_work_is_reported_up_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (places, repeats):
        monkeypatch.setattr(module, "MOST_AT_ONCE", 500)
    made = Index.from_files([written(tmp_path / "r.fa", records(12))], 21, "canonical")
    done: list[float] = []
    made.save(str(tmp_path / "r.idx"), done.append)
    assert len(done) > 25
    assert all(0 < share <= 1 for share in done)
    assert done[-1] == 1
    saved = Index.open(str(tmp_path / "r.idx"))
    np.testing.assert_array_equal(saved.shares.repeats, made.shares.repeats)


def test_places_are_gone_once_they_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Comparing targets takes gigabytes for a genome: not beside the places, which take more."""
    placed, shares_of = Index._placed, Index._shares_of
    places: list[weakref.ref[Any]] = []

    def watched(self: Index, on_work: Any) -> Any:
        made = placed(self, on_work)
        places.append(weakref.ref(made.arrays[5]))
        return made

    def alone(self: Index, *repeats: Any) -> Any:
        assert [place() for place in places] == [None]
        return shares_of(self, *repeats)

    monkeypatch.setattr(Index, "_placed", watched)
    monkeypatch.setattr(Index, "_shares_of", alone)
    fasta = written(tmp_path / "r.fa", records(12))
    Index.from_files([fasta], 21, "canonical").save(str(tmp_path / "r.idx"))
    assert Index.open(str(tmp_path / "r.idx")).shares.kmers.sum() > 0


def test_named_targets_join_their_sources(tmp_path: Path) -> None:
    some = records(1)
    fasta = written(tmp_path / "r.fa", some)
    table = tmp_path / "t.tsv"
    table.write_text("source\ttarget\na\tA\na2\tA\n" + f"{fasta}\trest\n")
    out = str(tmp_path / "r.idx")
    command = ["index", fasta, "-k", "21", "--targets", str(table), "-o", out]
    assert main(command) == 0
    index = Index.open(out)
    assert [*index.targets.names] == ["A", "rest"]
    assert index.shares.kmers[0] == 2_980  # those of a2 are all in a
    for wrong in ("\nz\tA\n", "\tgroup\na\tA\tG\nb\tA\tH\n", "\na\tA\na\tB\n"):
        table.write_text("source\ttarget" + wrong)
        assert main(command) == 1
    assert main(["index", fasta, "-k", "21", "--target-by", "file", "-o", out]) == 0
    assert [*Index.open(out).targets.names] == [fasta]


@pytest.mark.parametrize("strands", ["forward", "canonical", "both"])
def test_groups_count_as_if_each_were_one_target(
    strands: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A k-mer of several targets, and a read on several, count once in their group."""
    some = records(8)
    fasta, reads = written(tmp_path / "r.fa", some), str(tmp_path / "reads.fa")
    joined = np.concatenate([some[0][1][450:600], some[1][1][300:420], some[4][1][:90]])
    pieces = [joined, *(codes[at : at + 150] for _, codes in some for at in (0, 290, 700))]
    written(Path(reads), [(f"q{at}", piece) for at, piece in enumerate(pieces)])
    table, out = tmp_path / "t.tsv", str(tmp_path / "r.idx")
    rest = "a2\tA\tG\nb\tB\t\nc\tC\tG\n"  # a target without a group is one of its own
    table.write_text(f"source\ttarget\tgroup\na\tA\tG\n{rest}")
    options = ["-k", "21", "--strands", strands]
    assert main(["index", fasta, *options, "--targets", str(table), "-o", out]) == 0
    text = {name: letters(codes) for name, codes in some}
    groups = [("G", "N".join([text["a"], text["c"], text["a2"]])), ("B", text["b"])]
    groups.append(("none", text["none"]))
    named = [(f"q{at}", letters(piece)) for at, piece in enumerate(pieces)]
    joined_again = str(tmp_path / "again.idx")
    assert main(["index", out, *options, "-o", joined_again]) == 0
    command = ["match", reads, "--report", "targets", "--by", "group", "--device", "cpu", "-d"]
    for source, mode in ((out, "frozen"), (joined_again, "frozen"), (out, "grow")):
        capsys.readouterr()
        assert main([*command, source, "--mode", mode, "--min-fraction", "0.6", "-q"]) == 0
        header, *rows = capsys.readouterr().out.splitlines()
        assert header == "#group\treads\tbases\tmatches\tkmers\tseen\tbreadth\tdepth"
        expected = targets_report(named, 21, records=groups, strands=strands, min_fraction="0.6")
        assert [row.split("\t") for row in rows] == [[str(cell) for cell in r] for r in expected]
    assert main([*command, fasta, "-k", "21"]) == 1
    assert "no target has a group" in capsys.readouterr().err


def test_info_and_check(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_file, "_LARGE", 2_000)
    fasta = written(tmp_path / "r.fa", records(2))
    out = str(tmp_path / "r.idx")
    assert main(["index", fasta, "-k", "21", "--strands", "forward", "-o", out]) == 0
    assert main(["index", "--check", out]) == 0
    assert capsys.readouterr().out == "ok\n"
    assert main(["index", "--info", out]) == 0
    lines = dict(line.split(" ", 1) for line in capsys.readouterr().out.splitlines())
    assert (lines["k"], lines["strands"], lines["targets"]) == ("21", "forward", "5")
    _, sections, _, _ = index_file._mapped(out)
    assert [at % index_file.LARGE_PAGE for name, *_, at, _ in sections if name == "packed"] == [0]
    assert lines["source"].startswith(fasta)
    for wrong in (["index"], ["index", fasta, "-o", out], ["index", fasta, "--info", out]):
        assert main(wrong) == 2
    assert main(["index", written(tmp_path / "e.fa", [("x", np.zeros(5, np.uint8))]), "-k", "21",
                 "-o", str(tmp_path / "e.idx")]) == 1  # fmt: skip
    assert not (tmp_path / "e.idx").exists()
    assert main(["index", fasta, "-k", "21", "-o", "/dev/full"]) == 1
    assert "/dev/full: No space left on device" in capsys.readouterr().err


def test_nothing_is_made_for_a_file_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = Index.from_files([written(tmp_path / "r.fa", records(2))], 21, "canonical")
    reached, goes_on = threading.Event(), threading.Event()
    done: list[float] = []
    written_arrays = 0

    def on_work(share: float) -> None:
        done.append(share)
        if share > 0.4:  # the arrays of the text wait to be written
            reached.set()
            goes_on.wait(DEADLINE)

    def full(array: np.ndarray) -> int:
        nonlocal written_arrays
        written_arrays += 1
        if written_arrays == len(index_module._ARRAYS):
            reached.wait(DEADLINE)
            raise OSError(errno.ENOSPC, "No space left on device")
        return 0

    monkeypatch.setattr(index_file, "_checksum", full)
    with pytest.raises(OSError, match="No space"):
        index.save(str(tmp_path / "r.idx"), on_work)
    before = len(done)
    goes_on.set()
    until(
        lambda: all(t.name != "read-ahead" for t in threading.enumerate()), "the thread has ended"
    )
    assert len(done) == before


@pytest.mark.parametrize("strands", ["forward", "canonical"])
def test_subtracting_and_intersecting(strands: str, tmp_path: Path) -> None:
    some = records(5)
    first = written(tmp_path / "a.fa", some[:2])
    second = written(tmp_path / "b.fa", some[3:])
    options = ["-k", "21", "--strands", strands]
    assert main(["index", second, *options, "-o", str(tmp_path / "b.idx")]) == 0

    def kmers(*sources: str) -> set[int]:
        made = Dictionary.from_files(sources, 21, strands)  # type: ignore[arg-type]
        return set(made.codes.tolist())

    both = kmers(first), kmers(second)
    assert both[0] & both[1]
    for other in (second, str(tmp_path / "b.idx")):
        for option, left in (("--subtract", both[0] - both[1]), ("--intersect", both[0] & both[1])):
            out = str(tmp_path / "c.idx")
            assert main(["index", first, *options, option, other, "-o", out]) == 0
            index = Index.open(out)
            assert set(Dictionary.of_index(index).codes.tolist()) == left
            assert [*index.names] == ["a", "b"]
    assert main(["index", first, *options, "--subtract", first, "-o", str(tmp_path / "d.idx")]) == 1
    assert not (tmp_path / "d.idx").exists()
    joined = str(tmp_path / "e.idx")
    assert main(["index", first, str(tmp_path / "b.idx"), *options, "-o", joined]) == 0
    assert set(Dictionary.open(joined).codes.tolist()) == both[0] | both[1]
    assert [*Dictionary.open(joined).targets.names] == ["a", "b", "c", "a2"]


def test_damaged_files(tmp_path: Path) -> None:
    """A cut is found on opening, a flipped byte by ``damaged`` (see ``tests.fuzz.index_files``)."""
    fasta = written(tmp_path / "r.fa", records(3))
    path = tmp_path / "r.idx"
    Index.from_files([fasta], 21, "canonical").save(str(path))
    whole = path.read_bytes()
    for size in (0, 5, 19, 300, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(StreamerError, match=r"is not an index|damaged|cut"):
            Index.open(str(path))
    path.write_bytes(whole)
    size = int.from_bytes(whole[12:16], "little")
    for name, _, count, where, _ in json.loads(whole[20 : 20 + size])["arrays"]:
        if count:
            other = bytearray(whole)
            other[where] ^= 1
            path.write_bytes(other)
            assert damaged(str(path)) == [name]


def test_limits_and_files_that_cannot_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fasta, out = written(tmp_path / "r.fa", records(9)), str(tmp_path / "r.idx")
    command = ["index", fasta, "-k", "21", "-q", "-o", out]
    for module, name, limit, says in (
        (reference_text, "MOST_SYMBOLS", 7_000, f"{fasta}: an index holds at most 7,000 bases"),
        (places, "MOST_PLACES", 500, "at most 500 can be stored"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, limit)
            assert main(command) == 1
        assert says in capsys.readouterr().err
        assert not Path(out).exists()
    assert main(command) == 0

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENODEV, "No such device")

    match = ["match", fasta, "-d", out, "-q"]
    with open(out, "r+b") as file, monkeypatch.context() as patch:
        patch.setattr(mmap, "mmap", refuse)
        assert main(match) == 1
        assert f"{out}: cannot be mapped" in capsys.readouterr().err
        file.seek(8)
        file.write(b"\1")
    assert main(match) == 1
    assert f"{out}: is an index of version 1, not 2" in capsys.readouterr().err


def test_a_file_cut_while_it_is_mapped_ends_in_one_line(tmp_path: Path) -> None:
    fasta = written(tmp_path / "r.fa", records(4))
    path = tmp_path / "r.idx"
    Index.from_files([fasta], 21, "canonical").save(str(path))
    code = (
        "import os, sys; from streamer.dictionary.index import Index\n"
        "index = Index.open(sys.argv[1]); os.truncate(sys.argv[1], 100)\n"
        "print(sum(int(array.sum()) for array in index.text.arrays))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "while it was open" in done.stderr


def test_k_and_strands_are_those_of_the_file(tmp_path: Path) -> None:
    fasta = written(tmp_path / "r.fa", records(6))
    out, rows = str(tmp_path / "r.idx"), str(tmp_path / "rows.tsv")
    assert main(["index", fasta, "-k", "13", "--strands", "forward", "-o", out]) == 0
    config = tmp_path / "daemon.toml"
    config.write_text('[dictionary]\nsources = ["r.idx"]\n')
    table = load(str(config)).dictionary
    assert (table.k, table.strands) == (13, "forward")
    for given, code in (([], 0), (["-k", "13"], 0), (["-k", "12"], 1), (["--strands", "both"], 1)):
        assert main(["match", fasta, "-d", out, *given, "-o", rows, "--device", "cpu"]) == code
    assert main(["match", fasta, "-d", fasta, "-o", rows]) == 2
    # in a distance the records count as they stand
    near = ["match", fasta, "-D", "1", "--device", "cpu", "-o"]
    assert main([*near, rows, "-d", out]) == 0
    other = str(tmp_path / "other.tsv")
    assert main([*near, other, "-d", fasta, "-k", "13"]) == 0
    assert Path(rows).read_bytes() == Path(other).read_bytes()


@pytest.mark.parametrize("report", ["windows", "intervals", "reads", "targets", "coverage"])
def test_rows_are_those_of_the_records(report: str, tmp_path: Path) -> None:
    """Whatever finds them: an index in memory or in a file, or, for k = 12, a bitset."""
    some = records(7)
    fasta, reads = written(tmp_path / "r.fa", some), str(tmp_path / "reads.fa")
    rng = np.random.default_rng(7)
    pieces = [codes[at : at + 200].copy() for _, codes in some for at in (0, 250, 500, 900)]
    for piece in pieces:
        piece[rng.integers(0, max(piece.size, 1), piece.size // 60)] = 2
    written(Path(reads), [(f"q{at}", piece) for at, piece in enumerate(pieces)])
    for k in ("12", "21", "31"):
        out = str(tmp_path / "r.idx")
        assert main(["index", fasta, "-k", k, "-o", out]) == 0
        found = []
        grown = (out, "--mode", "grow", "--max-kmers", "1")
        for source, *more in ((fasta, "-k", k), (out,), grown):
            rows = str(tmp_path / "rows.tsv")
            command = ["match", reads, "-d", source, *more, "--report", report, "-o", rows]
            assert main([*command, "--device", "cpu", "-q"]) == 0
            found.append(Path(rows).read_bytes())
        assert found[0] == found[1] == found[2]

"""Every suite of ``scripts/bench`` at a tiny size: its rows are there and belong together.

Times are not judged.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks import (
    accuracy,
    commands,
    daemon,
    durability,
    exact,
    file,
    frozen_reads,
    growing_daemon,
    hamming,
    index,
    jobs,
    lcs,
    levenshtein,
    ltb,
    pages,
    peers,
    primer,
    read_files,
)  # fmt: skip
from benchmarks.__main__ import app
from benchmarks.deacon_index import K, W, minimizers
from benchmarks.inputs import half_hit, random_codes
from benchmarks.plain_hash import PlainHashSet
from benchmarks.processes import measured
from benchmarks.simulated_reads import illumina_pairs, joined, long_reads
from streamer.dictionary.index import Index
from streamer.sequences.files import read_batches
from tests.streamer.sequences.kit import rows_of
from trie.codes import GAP, decode, reverse_complement
from trie.index.kmer_index import KmerIndex
from trie.windows import MISMATCH

pytestmark = pytest.mark.whole
SIZE = primer.Size(400, 3000, 12)


def small_accuracy(patch):
    patch.setattr(accuracy, "found_removers", lambda _: [])
    patch.setattr(accuracy, "KINDS", accuracy.KINDS[::3])
    sources = [("host", True, True), ("other", False, False)]
    patch.setattr(
        accuracy, "SOURCES",
        [accuracy.Source(name, f"{name}.fa", (), *host) for name, *host in sources],
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        for seed, (name, *_) in enumerate(sources):
            letters = decode(random_codes(30_000, seed)).tobytes()
            Path(folder, f"{name}.fa").write_bytes(b">a\n" + letters + b"\n")
        for table in accuracy.tables("cpu", [Path(folder)], 80, None, 2):
            for row in table.rows():
                assert (row["host"], row["other"]) == ("1.00000", "1.00000"), row
                yield row


def small_lcs(patch):
    patch.setattr(lcs, "FIGURE_A", (50_000, 200_000))
    yield from lcs.lengths((70, 600), threads=2, repeats=1)
    yield from lcs.figures(0.002, 2)
    yield from lcs.table_1(0.002, 1, sizes=(1_000_000,))
    yield from lcs.similar(20_000, (0.0005,))


def small_file(patch):
    patch.setattr(file, "FORMATS", ("fq.gz",))
    patch.setattr(file, "LENGTHS", (150,))
    patch.setattr(file, "found_peers", lambda *_: [])
    yield from file.whole("cpu", 100_000, 2, 1)
    yield from file.stages("cpu", 100_000, 2)


def small_primer(_):
    yield from primer.on_cores(SIZE, 20, threads=[1])
    yield from primer.scaling(SIZE, 10, [1])
    yield from primer.filtered([primer.Size(300, 9000, 2)])
    yield from primer.growing("cpu", [SIZE])


def small_commands(_):
    yield from commands.dictionaries(kmers=200_000)
    yield from commands.texts(100_000)
    yield from commands.strains(20_000)
    yield from growing_daemon.growing(100_000)


def small_hamming(_):
    methods = hamming.methods_of("cpu")
    yield from hamming.table_1(hamming.cpu_rate, methods, 3000, sets=2)
    rows = list(hamming.by_size(hamming.cpu_rate, methods, [2000], 12))
    assert len({row["matches"] for row in rows}) == 1
    yield from rows
    yield from hamming.ratios(rows, "cpu")


def small_exact(_):
    yield from exact.frozen(kmers=3000, ks=(15,), threads=(1, 2), repeats=1)
    yield from exact.grow(total=3000, threads=(1,), repeats=1)
    yield from frozen_reads.rows(3000, ks=(21,), total=20_000, threads=(1,), repeats=1)


def small_index(patch):
    patch.setattr(index, "found_peers", lambda *_, **__: [])
    yield from index.rows((), 300_000, ks=(21,), total=60_000, repeats=1)
    yield from index.commands((), 300_000, 30_000, repeats=1)


SLOW = pytest.mark.slow
SUITES = {
    "accuracy": (small_accuracy, 6),
    "commands": (small_commands, 22),
    "daemon": (
        lambda _: daemon.daemon("cpu", 15, 2, 400_000, batch_bytes=(20_000,), transports=("ipc",)),
        1,
    ),
    "durability": (lambda _: durability.latency(["fsync"], 0.5), 3),
    "exact": (small_exact, 8),
    "file": (small_file, 15),
    "hamming": (small_hamming, 25),
    "index": (small_index, 8),
    "jobs": (lambda _: jobs.jobs(0.3, 2, 2_000_000), 12),
    "lcs": (small_lcs, 15),
    "pages": (lambda _: pages.pages(0.5, 2, 3), 3),
    "primer": (small_primer, 8),
    "recovery": (lambda _: durability.recovery(1_000_000, 2), 1),
    "replay": (lambda _: durability.replay(["none", "os"], 3 << 20), 1),
}  # fmt: skip


def quick(names, *chosen):
    """Those chosen are in the quick lane; mypy checks all of them there."""
    return [pytest.param(name, marks=() if name in chosen else SLOW) for name in names]


@pytest.mark.parametrize("name", quick(SUITES, "daemon", "exact"))
def test_rows(name, monkeypatch):
    if name == "pages":
        pytest.importorskip("uvicorn", reason="the live page needs starlette and uvicorn")
    make, least = SUITES[name]
    rows = list(make(monkeypatch))
    assert len(rows) >= least
    for row in rows:
        assert row.get("equal", "True") in (True, "True"), row
        assert row.get("messages missed", 0) == 0, row
        times = [row[key] for key in row if key in ("s", "seconds", "bases/s", "total, s")]
        assert all(time is None or float(time) > 0 for time in times), row


LINES = {
    "asm": (
        ("asm", "--scale", 0.002),
        ("Table 1", "Figures 6 and 7", "one pattern", "96 patterns"),
    ),
    "exact": (("exact", "--kmers", 5_000, "--section", "frozen"), ("numba", "## ", "| ")),
    "levenshtein": (("levenshtein", "--bases", 20_000, "--kmers", 1_000), ("sassy", "pigeonhole")),
    "ltb": (("ltb", "--device", "cpu", "--bases", 1_000, "-D", 1), ("Fig. 37", "CPU s")),
    "primer": (("primer", "--section", "growing", "--size", "200,2000,8"), ("| alpha",)),
}


@pytest.mark.parametrize("name", quick(LINES, "exact"))
def test_a_command_prints_its_tables(name, streamer, monkeypatch):
    monkeypatch.setattr(levenshtein, "DICTIONARIES", ((96, 24, 3), (500, 12, 2)))
    monkeypatch.setattr(ltb, "KS", (4, 6))
    monkeypatch.setattr(ltb, "DICTIONARIES", ((50, 9, 2),))
    line, titles = LINES[name]
    code, out, err = streamer(*line, app=app)
    assert code == 0, err
    assert all(title in out for title in titles)


def test_unequal_answers_of_an_index_are_seen(tmp_path):
    fasta = str(tmp_path / "genome.fa")
    index.write_model(Path(fasta), 50_000)
    made = Index.from_files([fasta], 21, "canonical")
    batch = frozen_reads.reads_of(index.sample(made, 40), 20_000, 150, 1)
    assert index.unequal(made, [fasta], batch) == 0
    turned = replace(made, owners=made.owners[::-1].copy())
    assert index.unequal(replace(turned, known=made.shares), [fasta], batch) > 0
    text = Path(fasta).read_text().partition(">chromosome12")[0]
    Path(fasta).write_text(text)
    assert index.unequal(made, [fasta], batch) > 1_000


def test_peers_answer_as_the_index():
    """What is timed beside the index does the same work."""
    text = random_codes(20_000, 3)
    index, plain = KmerIndex(21), PlainHashSet(21, expected=20_000)
    others = np.zeros(text.size, np.uint8)
    offsets = np.array([0, text.size])
    _, positions = index.grow(text, offsets, canonical=True)
    plain.grow(text, offsets, others)
    np.testing.assert_array_equal(positions, np.flatnonzero(others == MISMATCH))
    query = peers.sshash(exact.unique_pieces(text, 21), 21)
    for stream in (half_hit(text, 20_000, 4), exact.sequenced(text, 20_000, 150, 5)):
        events = index.match(stream.bases, stream.offsets, canonical=True)
        others = np.zeros(stream.bases.size, np.uint8)
        plain.match(stream.bases, stream.offsets, others)
        np.testing.assert_array_equal(events, others)
        for number, read in enumerate(exact.letters_of(stream) if query is not None else ()):
            first = int(stream.offsets[number])
            hits = [hit is not None for hit in query.query_sequence(read)]
            assert hits == (events[first : first + len(hits)] == 1).tolist()


def test_memory_is_that_of_the_command():
    here = np.ones(1 << 28, np.uint8)
    assert measured(["true"])["peak GB"] < 0.1 < here.nbytes / 1e9


def test_every_format_holds_the_same_reads(tmp_path, monkeypatch):
    monkeypatch.setattr(read_files, "_AT_ONCE", 9_000)
    rows = []
    for suffix in read_files.FORMATS:
        path = tmp_path / f"r.{suffix}"
        read_files.write_reads(path, random_codes(20_000, 3), 50_000, 150)
        rows.append([row for batch in read_batches([str(path)]) for row in rows_of(batch)])
        assert rows[-1] == rows[0], suffix
    assert len({name for name, _ in rows[0]}) == len(rows[0]) == 50_000 // 150


def minimizers_plainly(codes):
    """By the definition: each window has the least hash of its W k-mers, on one strand."""
    seeds = dict(zip(range(4), (0x95C60474, 0x62A02B4C, 0x4BE24456, 0x82572324), strict=True))

    def turned(value, by):
        return (value << by % 32 | value >> -by % 32) & 0xFFFFFFFF

    def hashed(kmer):
        value = 0
        for base in kmer:
            value = turned(value, 1) ^ seeds[base]
        return value

    found = set()
    for start in range(len(codes) - K - W + 2):
        window = codes[start : start + K + W - 1]
        if GAP in window:
            continue
        if sum(base > 1 for base in window) < sum(base < 2 for base in window):
            window = reverse_complement(window)
        kmers = [window[at : at + K] for at in range(W)]
        both = [hashed(one) + hashed(reverse_complement(one)) & 0xFFFFFFFF for one in kmers]
        least = kmers[min(range(W), key=lambda at: both[at] >> 16)]
        # packed-seq: A, C, T, G, the first base in the lowest bits
        packed = [
            sum((0, 1, 3, 2)[base] << 2 * at for at, base in enumerate(one))
            for one in (least, reverse_complement(least))
        ]
        found.add(min(packed))
    return found


def test_minimizers_of_deacon():
    codes = random_codes(700, 4)
    codes[300] = GAP
    codes[400:470] = 0
    codes[500:560] = np.resize([0, 3], 60)
    assert {*minimizers(codes).tolist()} == minimizers_plainly(codes)


def test_simulated_reads():
    """Long reads have the errors that were asked for, and mates are of one fragment."""
    records = joined([random_codes(40_000, 1), random_codes(100, 2)])
    (own,) = long_reads(records, 50, 1, identity=0.9)
    text = KmerIndex(21)
    text.grow(records.codes, records.offsets, canonical=True)
    events = text.match(own.codes, own.offsets, canonical=True)
    kmers = (events == 1).sum() / (events > 0).sum()
    assert 0.9**21 * 0.8 < kmers < 0.9**21 * 1.25
    first, last = illumina_pairs(records, 50, 1, length=150, first=0, last=0)
    turned = reverse_complement(records.codes[:40_000])
    both = [decode(records.codes[:40_000]).tobytes(), decode(turned).tobytes()]
    for number in range(50):
        one = decode(first.read(number)).tobytes()
        other = decode(reverse_complement(last.read(number))).tobytes()
        places = [(text.find(one), text.find(other)) for text in both if one in text]
        assert len(places) == 1
        assert 0 <= places[0][1] - places[0][0] <= 600

"""Inputs that only a GPU can carry: every method against the CPU, as users call it."""

from __future__ import annotations

from contextlib import closing

import numpy as np
import pytest

from gpu.levenshtein import NearEngine
from streamer.batch import asm, hamming, lcs, primer
from streamer.batch.choice import Choice
from streamer.batch.primer.problem import Alpha
from streamer.dictionary.targets import Dictionary
from streamer.matching.matcher import StreamMatcher
from streamer.sequences.read_batch import ReadBatch
from tests.gpu import placement
from trie.levenshtein import NOTHING, Patterns
from trie.levenshtein.lanes import nearest_words
from trie.strands import PRIMER_STRANDS, STRANDS

pytestmark = placement.marks()

LETTERS = np.frombuffer(b"ACGT", dtype=np.uint8)
WITH_GAPS = np.frombuffer(b"ACGT" * 20 + b"N", dtype=np.uint8)


def on_gpu(methods):
    return [method for method, devices in methods.items() if "cuda" in devices]


@pytest.mark.parametrize("size", [1, 70_001, 3_000_000])
@pytest.mark.parametrize("length", [1, 8, 32, 33, 65, 300])
def test_asm(size, length):
    rng = np.random.default_rng(size + length)
    text = WITH_GAPS[rng.integers(0, WITH_GAPS.size, size)]
    pattern = np.resize(text[int(rng.integers(0, max(1, size - length))) :], length).copy()
    pattern[length // 2] = ord("A")
    for k in {2} if size > 100_000 else {0, 2, length - 1}:
        if k < length:
            patterns = [pattern, pattern[::-1]]
            expected = asm.search(text, patterns, k, device="cpu")
            for method in on_gpu(asm.METHODS):
                found = asm.search(text, patterns, k, device="cuda", method=method)
                np.testing.assert_array_equal(found, expected, err_msg=f"{method} k={k}")


@pytest.mark.parametrize("report", ["all", "best"])
def test_asm_with_many_patterns(report):
    rng = np.random.default_rng(20)
    text = LETTERS[rng.integers(0, 4, 300_000)]
    patterns = [LETTERS[rng.integers(0, 4, int(n))] for n in rng.integers(6, 40, 100)]
    found = [asm.search(text, patterns, 3, device=d, report=report) for d in ("cpu", "cuda")]
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize(
    ("symbols", "count", "length", "k"), [(100_000, 3000, 20, 4), (33_000, 70_000, 24, 2)]
)
@pytest.mark.parametrize("method", ["bit-sliced", "pigeonhole", "pmasm-thread"])
def test_hamming_with_many_patterns(method, symbols, count, length, k):
    rng = np.random.default_rng(5)
    text = WITH_GAPS[rng.integers(0, WITH_GAPS.size, symbols)]
    patterns = LETTERS[rng.integers(0, 4, (count, length))]
    for p in range(0, count, 3):
        start = int(rng.integers(0, symbols - length))
        patterns[p] = text[start : start + length]
    expected = hamming.search(text, patterns, k, strands="forward", device="cpu")
    found = hamming.search(text, patterns, k, strands="forward", device="cuda", method=method)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("m", [3_000, 4_096, 4_097, 50_000, 300_001])
@pytest.mark.parametrize("n", [1_500, 8_192, 100_003])
@pytest.mark.parametrize("letters", [4, 20, 90])
def test_lcs(m, n, letters):
    rng = np.random.default_rng(m + n)
    text = letters > 4
    alphabet = np.arange(letters, dtype=np.uint8) if text else LETTERS
    a, b = (alphabet[rng.integers(0, letters, size)] for size in (m, n))
    expected = lcs.length(a, b, method="systolic", device="cpu", text=text)
    for method in ("systolic", "adaptive", "block-step"):
        if method == "block-step" and (text or m * n > 50_000_000):
            continue
        options = {"method": method, "device": "cuda", "text": text}
        assert lcs.length(a, b, **options) == expected, method
        matching = lcs.match(a, b, **options)
        assert len(matching) == expected, method
        assert (a[matching.in_a] == b[matching.in_b]).all(), method


@pytest.mark.parametrize("strands", PRIMER_STRANDS)
@pytest.mark.parametrize(
    ("m", "n", "k"),
    [(300, 5000, 1), (300, 5000, 4), (500, 9000, 20), (400, 6000, 70), (2300, 9000, 5),
     (2000, 90_000, 6)],
)  # fmt: skip
def test_primer(m, n, k, strands, monkeypatch):
    from streamer.batch.primer import on_gpu

    # so that little is left to every start at every column
    monkeypatch.setattr(on_gpu, "FIRST", (256, 256))
    rng = np.random.default_rng(k)
    a, b = (rng.integers(0, 4, size, dtype=np.uint8) for size in (m, n))
    b[1000:1200] = a[100:300]
    a[rng.integers(0, m, 3)] = 4
    b[rng.integers(0, n, 9)] = 4
    if m > 2000:
        b[2000 : 2000 + m] = a  # one long match
        b[np.arange(2100, 2000 + m, 211)] ^= 1
    alpha, beta = Alpha.of([a, a[:50]]), [b[:4000], b[4000:]]
    expected = primer.reaches(alpha, beta, k, Choice("hook-row", "cpu"), strands=strands)
    methods = ["windows", "seeds", "hook-row"]
    for method in methods + ["conventional", "alternative"] * (m < 2000):
        found = primer.reaches(alpha, beta, k, Choice(method, "cuda"), strands=strands)
        np.testing.assert_array_equal(found, expected, err_msg=method)


DENSE = np.unique(np.random.default_rng(5).integers(0, 4**5, 1000, dtype=np.uint64) << 16)


@pytest.mark.parametrize(
    ("codes", "k", "distance", "symbols"),
    [
        (np.zeros(1, np.uint64), 21, 2, [0]),
        (DENSE, 21, 4, [0]),
        (DENSE, 21, 3, [0, 1, 2]),
        (np.arange(4**4, dtype=np.uint64), 4, 3, None),
        (np.arange(4**4, dtype=np.uint64), 4, 1, None),
    ],
    ids=["one in poly-A", "alike in poly-A", "alike in repeats of 3", "all 4-mers", "D = 1"],
)
def test_levenshtein_where_everything_is_near(codes, k, distance, symbols):
    total, stop = 1_000_000, 60_000
    text = np.random.default_rng(5).integers(0, 4, total, dtype=np.uint8)
    if symbols is not None:
        text = np.resize(np.array(symbols, dtype=np.uint8), total)
    patterns = Patterns.of(codes, k, distance, both=True)
    reads = np.array([0, total // 2, total], dtype=np.int64)
    found = np.full(total, NOTHING)
    with closing(NearEngine(k, distance, chunk=1 << 18, threads=8)) as engine:
        for ((_, ends, words),) in engine.match(list, [patterns], text, reads, 0, total):
            found[ends - 1] = words
    for first, last in ((0, stop), (total // 2 - 100, total // 2 + 100)):
        expected = nearest_words(patterns, text, reads, first=first, stop=last, threads=8)
        np.testing.assert_array_equal(found[first:last], expected)


def repetitive_batches(total, seed, reads=40):
    """A repetitive random stream with gaps, as three batches."""
    rng = np.random.default_rng(seed)
    text = rng.integers(0, 4, total // 2).astype(np.uint8)
    bases = np.concatenate((text, (3 - text)[::-1][: total // 4], text[: total // 4]))
    bases[rng.integers(0, bases.size, total // 500)] = 4
    for part in np.array_split(bases, 3):
        cuts = np.sort(rng.integers(0, part.size + 1, reads - 1))
        offsets = np.concatenate(([0], cuts, [part.size])).astype(np.int64)
        yield ReadBatch([f"r{i}" for i in range(reads)], offsets, part)


@pytest.mark.parametrize("strands", STRANDS)
@pytest.mark.parametrize("k", [1, 2, 3, 7, 12, 13, 15, 16, 21, 30, 31])
@pytest.mark.parametrize(
    ("mode", "seed"), [("frozen", 0), ("grow", 0), ("grow", 24_000), ("frozen", 24_000)]
)
def test_exact(k, strands, mode, seed):
    batches = list(repetitive_batches(120_000, k))
    known = Dictionary.empty(k, strands)
    if not seed:
        known = Dictionary.from_batches([batches[1]], k, strands)
    options = {"mode": mode, "seed_bases": seed, "chunk": 70_001}
    for kernel in ("auto", "walk", "shuffle") if k in (7, 15, 21) else ("auto",):
        with (
            closing(StreamMatcher.of(known, **options)) as cpu,
            closing(StreamMatcher.of(known, device="cuda", kernel=kernel, **options)) as gpu,
        ):
            for batch in batches:
                a, b = (matcher.match([batch], words=True)[0] for matcher in (cpu, gpu))
                for name in ("events", "new_kmers", "new_starts"):
                    np.testing.assert_array_equal(getattr(a, name), getattr(b, name), name)
                symbols = np.arange(batch.symbols)
                np.testing.assert_array_equal(a.sets_at(symbols), b.sets_at(symbols), "sets")
                for name in ("depths", "nodes", "versions"):
                    np.testing.assert_array_equal(
                        getattr(a.depths, name), getattr(b.depths, name), name
                    )
            assert cpu.kmers == gpu.kmers

"""The nearest k-mer of every end against Sellers' recurrence, edlib and sassy."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tests.data_files import data_files, read_plainly
from tests.reference import levenshtein as oracle
from tests.reference.exact import decode_kmer
from tests.trie.levenshtein.piece_schemes import schemes
from trie.codes import encode
from trie.cpu import threads as threads_module
from trie.levenshtein import MAX_PATTERNS, NOTHING, Patterns, least, piece_index, unpack
from trie.levenshtein import lanes as lanes_module
from trie.levenshtein.lanes import nearest_words as lanes
from trie.levenshtein.piece_index import TILE, build, choose
from trie.levenshtein.piece_index import nearest_words as scan

KS = (4, 8, 15, 21, 24, 31)
SWAP = str.maketrans("ACGT", "TGCA")


def pieces(scheme, dense):
    def method(patterns, bases, offsets, **options):
        return scan(patterns, build(patterns, scheme), bases, offsets, dense=dense, **options)

    return method


def patterns_of(kmers, distance, both):
    k = len(next(iter(kmers)))
    digits = ["".join(str("ACGT".index(c)) for c in kmer) for kmer in kmers]
    codes = np.array(sorted({int(text, 4) for text in digits}), dtype=np.uint64)
    return Patterns.of(codes, k, distance, both=both)


def batch_of(reads):
    offsets = np.cumsum([0, *map(len, reads)]).astype(np.int64)
    return encode("".join(reads)), offsets


def rows_of(patterns, reads, method, **options):
    """[(read, start, end, distance, strand, k-mer)] as the oracle has them."""
    bases, offsets = batch_of(reads)
    found = unpack(method(patterns, bases, offsets, **options), options.get("first", 0), patterns)
    rows = []
    for at in range(len(found)):
        end = int(found.end[at])
        read = int(np.searchsorted(offsets, end, side="left")) - 1
        begin = int(offsets[read])
        start = end - int(found.length[at]) - begin
        kmer = decode_kmer(int(found.code[at]), patterns.k)
        strand = "+-"[found.strand[at]]
        rows.append((read, start, end - begin, int(found.distance[at]), strand, kmer))
    return rows


def edited(rng, text, edits):
    bases = list(text)
    for _ in range(edits):
        at, kind = rng.randrange(len(bases) + 1), rng.randrange(3)
        if kind == 0:
            bases.insert(at, rng.choice("ACGTN"))
        else:
            bases[at : at + 1] = rng.choice("ACGTN") if kind == 1 else ""
    return "".join(bases)


def made_up(rng, k, distance):
    """K-mers that resemble each other, and reads with edited copies of them on both strands."""
    base = "A" * 70 if rng.random() < 0.2 else "".join(rng.choices("ACGT", k=70))
    kmers = set()
    for _ in range(rng.choice([1, 4, 25])):
        start = rng.randrange(70 - k)
        kmer = list(base[start : start + k])
        for _ in range(rng.randrange(3)):
            kmer[rng.randrange(k)] = rng.choice("ACGT")
        kmers.add("".join(kmer))
    reads = []
    for _ in range(rng.randrange(1, 5)):
        length = rng.choice([0, 1, k - 1, k, k + distance, 75])
        start = rng.randrange(70)
        read = edited(rng, (base * 2)[start : start + length], length // 9)
        reads.append(read[::-1].translate(SWAP) if rng.random() < 0.5 else read)
    return kmers, reads


@pytest.mark.parametrize("k", KS)
def test_every_method_equals_the_definition(k):
    hits = 0
    for seed in range(15):
        rng = random.Random(100 * k + seed)
        distance = seed % (min(4, k - 1) + 1)
        both = rng.random() < 0.5
        kmers, reads = made_up(rng, k, distance)
        patterns = patterns_of(kmers, distance, both)
        want = [
            (i, *row)
            for i, read in enumerate(reads)
            for row in oracle.nearest(kmers, read, distance, both=both)
        ]
        hits += len(want)
        methods = [("lanes", lanes), ("chosen", pieces(None, True))]
        some = list(schemes(k, distance))
        methods += [(str(s), pieces(s, False)) for s in rng.sample(some, min(3, len(some)))]
        for name, method in methods:
            got = rows_of(patterns, reads, method, threads=rng.choice([1, 2]))
            assert got == want, f"k {k} seed {seed} distance {distance} both {both} {name}"
    assert hits > 40


@pytest.mark.whole
@pytest.mark.parametrize("k", KS)
def test_real_reads(k):
    """Nanopore reads against k-mers of the genome that they come from."""
    genome = read_plainly(data_files("lambda.fa.gz")[0])[0][1]
    reads = [sequence[:200] for _, sequence in read_plainly(data_files("lambda_nano*")[0], 3)]
    rng = random.Random(k)
    starts = rng.sample(range(len(genome) - k), 80)
    kmers = {genome[start : start + k] for start in starts}
    kmers |= {reads[0][start : start + k] for start in rng.sample(range(160), 10)}
    for distance in range(min(4, k - 1) + 1):
        patterns = patterns_of(kmers, distance, True)
        want = [
            (i, *row)
            for i, read in enumerate(reads)
            for row in oracle.nearest(kmers, read, distance)
        ]
        assert want
        for method in (lanes, pieces(None, True), pieces(None, False)):
            assert rows_of(patterns, reads, method) == want, (k, distance)


def random_batch(rng, total, kmers, k):
    """Random text with gap codes, reads of all lengths and edited k-mers in it; tiles are
    crossed."""
    bases = rng.integers(0, 4, total).astype(np.uint8)
    bases[rng.integers(0, total, total // 700)] = 4
    for at in rng.integers(0, total - 40, total // 60):
        kmer = kmers[int(rng.integers(0, kmers.size))]
        text = np.array([(int(kmer) >> (2 * (k - 1 - i))) & 3 for i in range(k)], dtype=np.uint8)
        text[rng.integers(0, k, int(rng.integers(0, 3)))] = 0
        text = np.delete(text, rng.integers(0, k, int(rng.integers(0, 2))))
        bases[at : at + text.size] = text
    bases[TILE - 100 : TILE + 100] = 0
    cuts = np.unique(rng.integers(0, total, 40))
    return bases, np.concatenate(([0], cuts, [total])).astype(np.int64)


@pytest.mark.whole
@pytest.mark.parametrize(("k", "distance", "number"), [(4, 3, 30), (15, 2, 400), (21, 4, 60)])
def test_tiles_blocks_and_chunks_do_not_show(k, distance, number):
    rng = np.random.default_rng(k)
    codes = np.unique(rng.integers(0, 4**k, number, dtype=np.uint64))
    codes[0] = 0
    patterns = Patterns.of(codes, k, distance, both=True)
    bases, offsets = random_batch(rng, 2 * TILE + 77, codes, k)
    want = lanes(patterns, bases, offsets, threads=2)
    assert (want != NOTHING).sum() > 100
    for scheme in (None, *list(schemes(k, distance))[-1:]):
        index = build(patterns, scheme, threads=2)
        for dense in (True, False):
            got = scan(patterns, index, bases, offsets, threads=2, dense=dense)
            np.testing.assert_array_equal(got, want, err_msg=f"{scheme} {dense}")
        cuts = [0, *sorted(rng.integers(0, bases.size, 6)), bases.size]
        parts = [
            scan(patterns, index, bases, offsets, first=a, stop=b)
            for a, b in zip(cuts, cuts[1:], strict=False)
        ]
        np.testing.assert_array_equal(np.concatenate(parts), want, err_msg=f"{scheme} {cuts}")


def test_several_sets_are_one():
    rng = random.Random(3)
    kmers, reads = made_up(rng, 8, 3)
    kmers = sorted(kmers | {"ACGTACGT", "AAAAAAAA", "TTTTTTTT"})
    whole = rows_of(patterns_of(kmers, 3, True), reads, lanes)
    bases, offsets = batch_of(reads)
    parts = []
    for part in (kmers[::3], kmers[1::3], kmers[2::3]):
        patterns = patterns_of(part, 3, True)
        parts.append(unpack(lanes(patterns, bases, offsets), 0, patterns))
    found = least(parts)
    assert found.end.tolist() == [row[2] + int(offsets[row[0]]) for row in whole]
    assert found.distance.tolist() == [row[3] for row in whole]
    assert [decode_kmer(int(code), 8) for code in found.code] == [row[5] for row in whole]
    assert (found.end - found.length).tolist() == [row[1] + int(offsets[row[0]]) for row in whole]


def test_a_million_poly_a_candidates_stay_in_bounds():
    """Near-identical k-mers in reads of one letter: dense, and still the whole answer."""
    codes = np.unique((np.uint64(1) << np.arange(0, 42, 2, dtype=np.uint64))[:, None] * [0, 1, 2])
    patterns = Patterns.of(codes.ravel(), 21, 4, both=True)
    bases = np.zeros(6_000, dtype=np.uint8)
    bases[3_000] = 4
    offsets = np.array([0, 10, 2_000, 6_000])
    index = build(patterns)
    want = lanes(patterns, bases, offsets)
    assert (want != NOTHING).sum() > 5_800
    for dense in (True, False):
        got = scan(patterns, index, bases[:400], np.array([0, 10, 400]), dense=dense)
        np.testing.assert_array_equal(got, want[:400])
    np.testing.assert_array_equal(scan(patterns, index, bases, offsets), want)


def test_schemes_follow_the_size_of_the_dictionary():
    few, many = choose(96, 24, 3), choose(1_000_000, 21, 2)
    assert (few.paired, few.width) == (False, 6)
    assert (many.paired, many.key_symbols, len(many.lookups())) == (True, 10, 9)
    for k in range(2, 32):
        for distance in range(min(4, k - 1) + 1):
            scheme = choose(1_000, k, distance)
            assert k - scheme.width + distance <= 31


def test_what_is_refused():
    codes = np.zeros(1, dtype=np.uint64)
    for k, distance, says in ((32, 1, "k is 32"), (5, 5, "0..4"), (3, 3, "0..2 for k = 3")):
        with pytest.raises(ValueError, match=says):
            Patterns.of(codes, k, distance, both=False)
    too_many = np.zeros(MAX_PATTERNS // 2 + 1, dtype=np.uint64)
    with pytest.raises(ValueError, match="at most"):
        Patterns.of(too_many, 21, 1, both=True)


def pairs(seed, count, k, length):
    """(k-mer, read) pairs, every other read with a copy of its k-mer in it that was edited."""
    rng = random.Random(seed)
    for i in range(count):
        kmer = "".join(rng.choices("ACGT", k=k))
        read = "".join(rng.choices("ACGT", k=length))
        if i % 2:
            at = rng.randrange(length)
            read = (read[:at] + edited(rng, kmer, rng.randrange(6)) + read[at:]).replace("N", "A")
        yield kmer, read


PEER_PAIRS = 1_000


def test_edlib_agrees():
    edlib = pytest.importorskip("edlib")
    near = 0
    for kmer, read in pairs(1, PEER_PAIRS, 21, 60):
        patterns = patterns_of([kmer], 4, False)
        rows = rows_of(patterns, [read], lanes if near % 2 else pieces(None, False))
        told = edlib.align(kmer, read, mode="HW", task="locations", k=4)
        if told["editDistance"] < 0:
            assert not rows, (kmer, read)
            continue
        near += 1
        best = min(row[3] for row in rows)
        assert best == told["editDistance"], (kmer, read)
        ends = {row[2] for row in rows if row[3] == best}
        assert ends == {end + 1 for _, end in told["locations"]}, (kmer, read)
    assert near > PEER_PAIRS // 4


def test_sassy_agrees():
    sassy = pytest.importorskip("sassy")
    searcher = sassy.Searcher("dna", rc=True)
    near = 0
    for kmer, read in pairs(2, PEER_PAIRS, 24, 60):
        patterns = patterns_of([kmer], 3, True)
        rows = rows_of(patterns, [read], pieces(None, False))
        told = searcher.search_all(kmer.encode(), read.encode(), 3)
        # sassy's ends on the other strand are those of the reversed text, so only least distances
        # compare there
        ours = {row[2]: row[3] for row in rows_of(patterns_of([kmer], 3, False), [read], lanes)}
        theirs = {}
        for match in told:
            if match.strand == "+":
                end = match.text_end
                theirs[end] = min(match.cost, theirs.get(end, 9))
        assert ours == theirs, (kmer, read)
        least_cost = min((match.cost for match in told), default=None)
        assert least_cost == min((row[3] for row in rows), default=None), (kmer, read)
        near += bool(rows)
    assert near > PEER_PAIRS // 4


@pytest.mark.parametrize("threads", [1, 2])
def test_no_call_of_a_kernel_takes_long_and_cuts_do_not_show(monkeypatch, threads):
    """The main thread notices an interrupt only between two calls."""
    rng = np.random.default_rng(5)
    codes = np.unique(rng.integers(0, 4**15, 50, dtype=np.uint64))
    patterns = Patterns.of(codes, 15, 2, both=True)
    bases, offsets = random_batch(rng, 2 * TILE + 77, codes, 15)
    index = build(patterns)
    want = lanes(patterns, bases, offsets)
    sizes = []
    run = threads_module.run_ranges

    def noted(work, *given, **options):
        def note(start, stop):
            sizes.append(stop - start)
            work(start, stop)

        return run(note, *given, **options)

    for module in (lanes_module, piece_index):
        monkeypatch.setattr(module, "run_ranges", noted)
    monkeypatch.setattr(lanes_module, "_MOST_CELLS", 3000 * patterns.words.size)
    monkeypatch.setattr(piece_index, "_MOST", 3000)
    np.testing.assert_array_equal(lanes(patterns, bases, offsets, threads=threads), want)
    np.testing.assert_array_equal(scan(patterns, index, bases, offsets, threads=threads), want)
    assert max(sizes) <= 3001
    assert sum(sizes) == 2 * bases.size


@pytest.mark.parametrize("distance", [1, 2, 4])
@pytest.mark.parametrize("threads", [1, 2])
def test_an_index_is_built_in_short_calls(monkeypatch, threads, distance):
    rng = np.random.default_rng(distance)
    patterns = Patterns.of(
        np.unique(rng.integers(0, 4**15, 1000, dtype=np.uint64)), 15, distance, both=True
    )
    want = build(patterns)
    sizes = []
    for name in ("_count", "_place"):
        kernel = getattr(piece_index, name)

        def noted(*given, kernel=kernel):
            sizes.append(given[7] - given[6])
            kernel(*given)

        monkeypatch.setattr(piece_index, name, noted)
    monkeypatch.setattr(piece_index, "_MOST_WORDS", 300)
    found = build(patterns, threads=threads)
    for array in ("starts", "entries", "ranks"):
        np.testing.assert_array_equal(getattr(found, array), getattr(want, array))
    assert max(sizes) <= 300
    assert sum(sizes) == 2 * want.entries.size

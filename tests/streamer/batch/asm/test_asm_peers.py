"""asm against sassy and edlib, hit for hit, on random cases and on real jobs."""

from __future__ import annotations

import numpy as np
import pytest

from streamer.batch import asm
from tests.data_files import data_file, read_plainly

pytestmark = pytest.mark.whole

LETTERS = np.frombuffer(b"ACGT", dtype=np.uint8)


def forward_hits(found):
    rows = found[found["strand"] == "+"]
    return sorted(
        zip(rows["pattern"].tolist(), rows["end"].tolist(), rows["distance"].tolist(), strict=True)
    )


def reversed_hits(text, patterns, k, **options):
    """(pattern, start, distance) of what sassy reports as reverse complement hits.

    Its problem is that of the reversed text: an end there is a start here. The complement of a
    pattern in the reversed text is the reverse complement in the text, from right to left.
    """
    turned = [asm_complement(pattern) for pattern in patterns]
    found = asm.search(text[::-1], turned, k, strands="forward", device="cpu", **options)
    starts = (len(text) - found["end"]).tolist()
    return sorted(zip(found["pattern"].tolist(), starts, found["distance"].tolist(), strict=True))


def asm_complement(pattern):
    return pattern.translate(bytes.maketrans(b"ACGT", b"TGCA"))


def sassy_hits(sassy, text, patterns, k):
    searcher = sassy.Searcher("dna", rc=True)
    forward, back = [], []
    for number, pattern in enumerate(patterns):
        for match in searcher.search_all(pattern, text, k):
            if match.strand == "+":
                forward.append((number, match.text_end, match.cost))
            else:
                back.append((number, match.text_start, match.cost))
    return sorted(forward), sorted(back)


def test_random_cases_equal_sassy():
    sassy = pytest.importorskip("sassy")
    rng = np.random.default_rng(1)
    hits = 0
    for case in range(400):
        length = int(rng.integers(2, 90))
        k = int(rng.integers(0, min(length, 8)))
        text = LETTERS[rng.integers(0, 4 if case % 3 else 2, int(rng.integers(1, 700)))].tobytes()
        pattern = LETTERS[rng.integers(0, 4 if case % 3 else 2, length)].tobytes()
        if len(text) > length and case % 2:
            start = int(rng.integers(len(text) - length))
            found = np.frombuffer(text[start : start + length], dtype=np.uint8).copy()
            found[rng.integers(0, length, 2)] = 65
            pattern = found.tobytes()
        forward, back = sassy_hits(sassy, text, [pattern], k)
        ours = asm.search(text, pattern, k, strands="forward", device="cpu", threads=1)
        assert forward_hits(ours) == forward, (case, pattern, text, k)
        assert reversed_hits(text, [pattern], k, threads=1) == back, (case, pattern, text, k)
        hits += len(forward)
    assert hits > 400


@pytest.mark.data("ecoli_K12_MG1655.fa.gz")
def test_guides_over_e_coli_equal_sassy():
    """CRISPR-like: 20 letters, at most 4 edits, both strands, the whole genome."""
    sassy = pytest.importorskip("sassy")
    genome = read_plainly(data_file("ecoli_K12_MG1655.fa.gz"))[0][1].upper().encode()
    rng = np.random.default_rng(2)
    starts = rng.integers(0, len(genome) - 20, 4)
    guides = [genome[a : a + 20] for a in starts.tolist()]
    forward, back = sassy_hits(sassy, genome, guides, 4)
    found = asm.search(genome, guides, 4, device="cpu")
    assert forward_hits(found) == forward
    assert reversed_hits(genome, guides, 4) == back
    assert len(forward) >= 4
    # strand - is the reverse complement searched left to right: ends where sassy has starts, so
    # both see the same places
    minus = found[found["strand"] == "-"]
    for number, end in zip(minus["pattern"].tolist(), minus["end"].tolist(), strict=True):
        assert any(p == number and end - 24 <= start <= end - 16 for p, start, _ in back)


def test_edlib_agrees_on_the_best_end():
    edlib = pytest.importorskip("edlib")
    rng = np.random.default_rng(3)
    for case in range(200):
        text = LETTERS[rng.integers(0, 4, int(rng.integers(20, 400)))].tobytes().decode()
        pattern = LETTERS[rng.integers(0, 4, int(rng.integers(2, 70)))].tobytes().decode()
        k = min(len(pattern) - 1, 20)
        ours = asm.search(text, pattern, k, strands="forward", device="cpu", threads=1)
        theirs = edlib.align(pattern, text, mode="HW", task="locations", k=k)
        if theirs["editDistance"] < 0:
            assert ours.size == 0, case
            continue
        least = ours["distance"].min()
        assert least == theirs["editDistance"], case
        ends = {end + 1 for _, end in theirs["locations"]}
        # edlib also counts the empty end before the text
        assert set(ours["end"][ours["distance"] == least].tolist()) == ends - {0}, case


@pytest.mark.data("sarscov2_MN908947.3.fa.gz", "sarscov2_artic_v3_primers.fa.gz")
def test_artic_primers_in_the_genome_they_were_made_for():
    genome = read_plainly(data_file("sarscov2_MN908947.3.fa.gz"))[0][1]
    primers = read_plainly(data_file("sarscov2_artic_v3_primers.fa.gz"))
    found = asm.search(genome, [sequence for _, sequence in primers], 2, report="best")
    exact = found[found["distance"] == 0]
    assert set(exact["pattern"].tolist()) == set(range(218))
    for row in exact:
        name, sequence = primers[row["pattern"]]
        assert row["end"] - row["start"] == len(sequence)
        assert row["cigar"] == f"{len(sequence)}="
        assert row["strand"] == ("+" if "LEFT" in name else "-"), name


@pytest.mark.data("sarscov2_nanopore_MT007544.fq.gz")
def test_barcodes_in_nanopore_reads():
    """113 of the 200 reads hold barcode NB07 exactly, and no other."""
    reads = read_plainly(data_file("sarscov2_nanopore_MT007544.fq.gz"))
    barcodes = read_plainly(data_file("ont_native_barcodes_24.fa.gz"))
    letters = [sequence for _, sequence in reads]
    found = asm.search(letters, [sequence for _, sequence in barcodes], 5, report="best")
    exact = found[found["distance"] == 0]
    assert len(set(exact["text"].tolist())) == 113
    assert {barcodes[i][0] for i in exact["pattern"].tolist()} == {"NB07"}
    near = found[(found["distance"] <= 3)]
    assert {barcodes[i][0] for i in near["pattern"].tolist()} == {"NB07"}
    assert len(set(near["text"].tolist())) > 150

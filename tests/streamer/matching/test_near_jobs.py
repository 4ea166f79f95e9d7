"""Real jobs with a distance: demultiplexing by native barcodes, primers in amplicon reads."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from tests.data_files import data_file, read_plainly, write_fasta
from tests.reference import levenshtein as near
from tests.streamer.matching.test_match_near import edited, expected, rows_of

pytestmark = pytest.mark.whole


def best_targets(streamer, reads, dictionary, k, distance):
    """{read: target of its nearest hit}."""
    code, out, err = streamer(
        "match", reads, "-d", dictionary, "-k", k, "--distance", distance,
        "--report", "best", "--quiet", "--device", "cpu",
    )  # fmt: skip
    assert code == 0, err
    chosen = {}
    for name, _, _, far, _, _, target in rows_of(out):
        if name not in chosen or int(far) < chosen[name][0]:
            chosen[name] = (int(far), target)
    return {name: target for name, (_, target) in chosen.items()}


def test_barcodes_put_into_nanopore_reads_are_found_again(tmp_path, streamer):
    """Each read gets a native barcode with up to four edits: which reads come back?"""
    barcodes = read_plainly(data_file("ont_native_barcodes_24.fa.gz"))
    reads, truth, edits = [], {}, {}
    rng = random.Random(12)
    for i, (name, sequence) in enumerate(read_plainly(data_file("lambda_nanopore*"), 120)):
        target, barcode = barcodes[i % 24]
        text = sequence[:30] + edited(rng, barcode, i % 5, "ACGT") + sequence[30:500]
        reads.append((name, near.reverse_complement(text) if i % 2 else text))
        truth[name], edits[name] = target, i % 5
    fasta = write_fasta(tmp_path / "reads.fa", reads)
    dictionary = write_fasta(tmp_path / "barcodes.fa", barcodes)
    recalled = []
    for distance in range(5):
        told = best_targets(streamer, fasta, dictionary, 24, distance)
        within = [name for name in truth if edits[name] <= distance]
        assert {name: told.get(name) for name in within} == {name: truth[name] for name in within}
        recalled.append(len(told))
    assert recalled == sorted(recalled)
    assert recalled[4] == len(reads) > 2 * recalled[0]


@pytest.mark.data("sarscov2_nanopore_MT007544.fq.gz")
def test_one_barcode_in_natively_barcoded_reads(streamer):
    """113 of the 200 reads hold NB07 exactly; all of them are of that sample."""
    reads = data_file("sarscov2_nanopore_MT007544.fq.gz")
    barcodes = data_file("ont_native_barcodes_24.fa.gz")
    counted = [Counter(best_targets(streamer, reads, barcodes, 24, d).values()) for d in (0, 3)]
    assert counted[0] == {"NB07": 113}
    assert set(counted[1]) == {"NB07"}
    assert counted[1]["NB07"] >= 198


@pytest.mark.data(
    "sarscov2_artic_v3_primers.fa.gz",
    "sarscov2_miseq_artic_v3_1.fq.gz",
    "sarscov2_nanopore_MT007544.fq.gz",
)
def test_primers_in_amplicon_reads(tmp_path, streamer):
    primers = data_file("sarscov2_artic_v3_primers.fa.gz")
    for name, exact, within in (
        ("sarscov2_miseq_artic_v3_1.fq.gz", 1994, 1998),
        ("sarscov2_nanopore_MT007544.fq.gz", 184, 199),
    ):
        reads = read_plainly(data_file(name), 2000)
        fasta = write_fasta(tmp_path / "reads.fa", reads)
        found = [len(best_targets(streamer, fasta, primers, 22, distance)) for distance in (0, 2)]
        assert found[0] >= exact - 5
        assert found[1] >= within
        # and a few reads, row for row
        few = [(name, sequence[:120]) for name, sequence in reads[:4]]
        fasta = write_fasta(tmp_path / "few.fa", few)
        run = ("match", fasta, "-d", primers, "-k", 22, "--distance", 2, "--report", "best")
        want = expected(read_plainly(primers), few, 22, 2, best=True)
        assert rows_of(streamer(*run, "--quiet", "--device", "cpu")[1]) == want

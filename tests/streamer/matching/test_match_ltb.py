"""``streamer match --semantics ltb`` against a plain set of states, on reads made up and real."""

from __future__ import annotations

import random

import pytest

from tests.data_files import write_fasta
from tests.reference import ltb as ltb_oracle

pytestmark = pytest.mark.whole

HEADER = "#read\tend\tdistances\tdepths"


def rows_of(out):
    header, *lines = out.splitlines()
    assert header == HEADER
    return [tuple(line.split("\t")) for line in lines]


def windows_of(records, k):
    found = {s[i : i + k] for _, s in records for i in range(len(s) - k + 1)}
    return {kmer for kmer in found if set(kmer) <= set("ACGT")}


def expected(kmers, k, distance, reads, strands="forward"):
    return [tuple(map(str, row)) for row in ltb_oracle.report(kmers, k, distance, reads, strands)]


def made_up(k, distance):
    """(records, reads): reads hold k-mers of the records with edits, and gap codes."""
    case = ltb_oracle.make(k, distance, 30, kmers=4, reads=5, length=30)
    records = [(f"d{i}", kmer) for i, kmer in enumerate(case.kmers)]
    records += [("long", "".join(case.kmers)), ("gap", "N".join(case.kmers[:2]))]
    reads = [("empty", ""), ("short", case.kmers[0][: k - 1]), ("whole", case.kmers[0] + "GN")]
    return records, reads + [(f"r{i}", read) for i, read in enumerate(case.reads)]


@pytest.mark.parametrize("k", [1, 3, 4, 7, 12, 24, 31])
def test_the_definition(k, tmp_path, streamer):
    for distance in range(0, min(4, k - 1) + 1, 2 if k > 20 else 1):
        records, reads = made_up(k, distance)
        dictionary = write_fasta(tmp_path / "d.fa", records)
        path = write_fasta(tmp_path / "r.fa", reads)
        for strands in ("forward", "both"):
            want = expected(windows_of(records, k), k, distance, reads, strands)
            assert any(row[2] != "." for row in want)
            for kernel, chunk in (("auto", 1000), ("sliced", k)):
                code, out, _ = streamer(
                    "match", path, "-d", dictionary, "-k", k, "--distance", distance,
                    "--semantics", "ltb", "--strands", strands, "--kernel", kernel,
                    "--chunk", chunk, "--quiet", "--device", "cpu",
                )  # fmt: skip
                assert code == 0
                assert rows_of(out) == want, (k, distance, strands, kernel, chunk)


def test_a_seeded_dictionary_is_that_of_its_windows(tmp_path, streamer):
    rng = random.Random(3)
    genome = "".join(rng.choices("ACGT", k=90))
    reads = [("first", genome), ("second", ltb_oracle.mutated(rng, genome[10:60], 4))]
    path = write_fasta(tmp_path / "r.fa", reads)
    run = ("match", path, "-k", 8, "--distance", 2, "--semantics", "ltb", "--quiet", "--seed")
    seeds = windows_of([("s", genome[:50])], 8)
    for strands in ("forward", "both"):
        want = expected(seeds, 8, 2, reads, strands)
        given = ("--strands", strands)
        assert rows_of(streamer(*run, 50, "--mode", "frozen", *given)[1]) == want
        # everything lies in one span: what grows in it is not in its snapshot yet
        assert rows_of(streamer(*run, 50, "--mode", "grow", *given)[1]) == want


def test_what_has_grown_is_found_in_later_snapshots(tmp_path, streamer):
    rng = random.Random(9)
    genome = "".join(rng.choices("ACGT", k=270_000))
    copy = ltb_oracle.mutated(rng, genome[100:180], 1)
    path = write_fasta(tmp_path / "r.fa", [("genome", genome), ("copy", copy)])
    _, out, _ = streamer(
        "match", path, "-k", 21, "-D", 1, "--semantics", "ltb", "--seed", 0, "--quiet",
        "--chunk", 65_536,
    )  # fmt: skip
    rows = {row[1]: row[2:] for row in rows_of(out) if row[0] == "copy"}
    ends = [end for end, (distances, _) in rows.items() if distances != "."]
    assert len(ends) > 30
    # the snapshot holds k-mers of the genome only, so it finds no more than they give
    truth = ltb_oracle.run(windows_of([("g", genome[:400])], 21), 21, 1, copy)
    for end in ends:
        assert rows[end][0] == ",".join(map(str, truth[int(end) - 1][0]))

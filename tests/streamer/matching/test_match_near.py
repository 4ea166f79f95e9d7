"""``streamer match --distance`` against the definition, on made-up reads and real ones."""

from __future__ import annotations

import json
import random

import pytest

from streamer.cli import match_files
from streamer.dictionary import targets
from streamer.dictionary.index import sets_at
from tests.data_files import write_fasta
from tests.reference import levenshtein as near

pytestmark = pytest.mark.whole

HEADER = "#read\tstart\tend\tdistance\tstrand\tkmer\ttarget"


def edited(rng, text, edits, letters="ACGTN"):
    """The text after so many random edits."""
    bases = list(text)
    for _ in range(edits):
        at = rng.randrange(len(bases) + 1)
        kind = rng.randrange(3)
        if kind == 0:
            bases.insert(at, rng.choice(letters))
        elif at < len(bases):
            bases[at : at + 1] = rng.choice(letters) if kind == 1 else ""
    return "".join(bases)


def made_up(rng, k, *, poly=False):
    """(records, reads): reads hold edited k-mers of the records on both strands."""
    genome = "A" * 40 + "C" if poly else "".join(rng.choices("ACGT", k=k + 25))
    records = [("left", genome[: k + 9]), ("right", edited(rng, genome, 2, "ACGT") + "ACGT" * 8)]
    reads = [("empty", ""), ("short", genome[: k - 1])]
    for i in range(5):
        start = rng.randrange(9)
        piece = edited(rng, genome[start : start + k + rng.randrange(20)], i)
        if i % 2:
            piece = near.reverse_complement(piece)
        reads.append((f"r{i}", "".join(rng.choices("ACGT", k=8)) + piece))
    return records, reads


def label(owners, records):
    names = [records[i][0] for i in owners[:8]]
    return ";".join([*names, "..."] if len(owners) > 8 else names)


def expected(records, reads, k, distance, *, both=True, best=False):
    known = near.dictionary_of(records, k)
    rows = []
    for name, sequence in reads:
        found = near.nearest(known, sequence, distance, both=both)
        for start, end, far, strand, kmer in near.best_of_runs(found) if best else found:
            row = (name, start, end, far, strand, kmer, label(known[kmer], records))
            rows.append(tuple(map(str, row)))
    return rows


def rows_of(out):
    header, *lines = out.splitlines()
    assert header == HEADER
    return [tuple(line.split("\t")) for line in lines]


@pytest.mark.parametrize("k", [4, 8, 15, 21, 24, 31])
def test_the_definition(k, tmp_path, streamer):
    rng = random.Random(k)
    for distance in range(min(4, k - 1) + 1):
        records, reads = made_up(rng, k, poly=distance == 2)
        dictionary = write_fasta(tmp_path / "d.fa", records)
        path = write_fasta(tmp_path / "r.fa", reads)
        strands = rng.choice(["both", "forward"])
        for best in (False, True):
            want = expected(records, reads, k, distance, both=strands == "both", best=best)
            assert want or best
            for chunk in (k, 1000):
                code, out, _ = streamer(
                    "match", path, "-d", dictionary, "-k", k, "--distance", distance,
                    "--strands", strands, "--report", "best" if best else "all",
                    "--chunk", chunk, "--quiet", "--device", "cpu",
                )  # fmt: skip
                assert code == 0
                assert rows_of(out) == want, (k, distance, strands, best, chunk)


def test_both_strands_all_ends_and_jsonl_are_the_defaults(tmp_path, streamer):
    records, reads = made_up(random.Random(5), 12)
    dictionary = write_fasta(tmp_path / "d.fa", records)
    path = write_fasta(tmp_path / "r.fa", reads)
    run = ("match", path, "-d", dictionary, "-k", 12, "-D", 2, "--quiet")
    want = expected(records, reads, 12, 2)
    assert {row[4] for row in want} == {"+", "-"}
    assert rows_of(streamer(*run)[1]) == want
    objects = [json.loads(line) for line in streamer(*run, "--format", "jsonl")[1].splitlines()]
    targets = [";".join(row.pop("target")) for row in objects]
    shown = [(*map(str, row.values()), t) for row, t in zip(objects, targets, strict=True)]
    assert shown == want
    assert [*objects[0], "target"] == HEADER[1:].split("\t")
    assert isinstance(objects[0]["distance"], int)


def test_a_seeded_dictionary_is_that_of_its_windows(tmp_path, streamer):
    rng = random.Random(8)
    genome = "".join(rng.choices("ACGT", k=150))
    reads = [("first", genome), ("second", edited(rng, genome[30:90], 6))]
    reads.append(("third", near.reverse_complement(edited(rng, genome[20:120], 9))))
    path = write_fasta(tmp_path / "r.fa", reads)
    seeds = write_fasta(tmp_path / "s.fa", [("s", genome[:100])])
    for strands in ("forward", "both"):
        run = ("match", path, "-k", 10, "--distance", 2, "--strands", strands, "--quiet")
        want = [row[:6] for row in rows_of(streamer(*run, "-d", seeds)[1])]
        frozen = rows_of(streamer(*run, "--seed", 100, "--mode", "frozen")[1])
        assert [row[:6] for row in frozen] == want
        assert {row[6] for row in frozen} == {"."}
        # everything lies in one span: what grows in it is not in its snapshot yet
        assert rows_of(streamer(*run, "--seed", 100, "--mode", "grow")[1]) == frozen


@pytest.mark.parametrize("semantics", ["levenshtein", "ltb"])
def test_seeds_lie_in_several_files(semantics, tmp_path, streamer):
    """Every read is matched against every seed, whichever file holds it."""
    rng = random.Random(8)
    genome = "".join(rng.choices("ACGT", k=100))
    reads = [("a", edited(rng, genome[60:], 2)), ("b", edited(rng, genome[:30], 1)), ("c", genome)]
    one = write_fasta(tmp_path / "one.fa", reads)
    several = [write_fasta(tmp_path / f"{read[0]}.fa", [read]) for read in reads]
    run = ("-k", 15, "--distance", 2, "--semantics", semantics, "--seed", 150, "--quiet")
    for mode in ("frozen", "grow"):
        options = (*run, "--mode", mode, "--device", "cpu")
        assert streamer("match", *several, *options) == streamer("match", one, *options)
    # a fault stands behind the rows of the reads before it
    several[1] = write_fasta(tmp_path / "bad.fa", [("b", "AC!T")])
    first = streamer("match", several[0], *run)[1]
    code, out, err = streamer("match", *several, *run)
    assert (code, out) == (1, first)
    assert f"{several[1]}: record 1 (b), position 3" in err


def test_what_has_grown_is_found_in_later_spans(tmp_path, streamer):
    rng = random.Random(9)
    genome = "".join(rng.choices("ACGT", k=70_000))
    copy = near.reverse_complement(edited(rng, genome[100:160], 2, "ACGT"))
    path = write_fasta(tmp_path / "r.fa", [("genome", genome), ("copy", copy)])
    run = ("match", path, "-k", 21, "--distance", 2, "--seed", 0, "--quiet", "--chunk", 65_536)
    rows = [row for row in rows_of(streamer(*run)[1]) if row[0] == "copy"]
    assert rows
    for _, start, end, distance, strand, kmer, target in rows:
        assert (strand, target) == ("-", ".")
        assert kmer in genome
        best = near.nearest([kmer], copy[: int(end)], 2)[-1]
        assert best[:4] == (int(start), int(end), int(distance), strand)


def test_the_targets_of_all_kmers_are_listed_once(tmp_path, streamer, monkeypatch):
    """Not for each batch: a panel has a million of them."""
    calls = []

    def counted(*given):
        calls.append(given)
        return sets_at(*given)

    monkeypatch.setattr(targets, "sets_at", counted)
    monkeypatch.setattr(match_files, "BASES_OF_MANY_ROWS", 100)
    records = [("one", "ACGTTGCATTAGC"), ("other", "GGATCCATTAACG")]
    known = write_fasta(tmp_path / "known.fa", records)
    reads = write_fasta(tmp_path / "reads.fa", [(f"r{i}", "ACGTTGCATTAGC" * 9) for i in range(20)])
    code, out, _ = streamer("match", reads, "-d", known, "-k", 9, "-D", 1, "--report", "best")
    assert (code, len(calls)) == (0, 1)
    assert out.count("\tone\n") == 20 * 9

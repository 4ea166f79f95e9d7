"""``streamer.Matcher`` against the definitions, one window at a time."""

from __future__ import annotations

import random
import subprocess
import sys

import numpy as np
import pytest

import streamer
from streamer import Dictionary, Matcher
from streamer.errors import DataError, UsageError
from streamer.matching import api
from tests.data_files import write_fasta
from tests.reference import exact as oracle
from tests.reference import levenshtein as near_oracle
from tests.reference import targets as target_oracle

NO_DEPTH = ["read", "start", "event", "target"]


def genome_and_reads(seed):
    rng = random.Random(seed)
    text = "".join(rng.choices("ACGT", k=300))
    records = [("one", text[:200]), ("two", text[150:] + "N" + text[:30]), ("tiny", "AC")]
    reads = [
        (f"r{i}", text[i * 15 : i * 15 + 50] + rng.choice(["", "N", "ACGTTAC", text[:20]]))
        for i in range(18)
    ]
    return records, [*reads, ("empty", ""), ("short", "ACG")]


def named(rows, texts):
    """Rows with names for indices, as the definitions have them."""
    out = []
    for row in rows.tolist():
        named = dict(zip(rows.dtype.names, row, strict=True))
        for field, names in texts.items():
            if field in named:
                named[field] = names[named[field]] if named[field] >= 0 else "."
        out.append(tuple(named.values()))
    return out


@pytest.mark.parametrize("strands", ["forward", "canonical", "both"])
@pytest.mark.parametrize(("k", "mode", "seed"), [(1, "frozen", 0), (7, "frozen", 0), (7, "grow", 0),
                                                 (11, "frozen", 90), (31, "grow", 0)])  # fmt: skip
def test_equals_the_definition(k, mode, seed, strands, tmp_path, monkeypatch):
    # several batches
    monkeypatch.setattr(api, "BATCH_BASES", 200)
    records, reads = genome_and_reads(k)
    path = write_fasta(tmp_path / "targets.fa", records)
    dictionary = Dictionary.from_files([str(path)], k, strands=strands)
    options = {"records": records, "strands": strands, "mode": mode, "seed": seed}
    with Matcher(dictionary, mode=mode, seed_bases=seed, device="cpu", threads=1) as matcher:
        found = matcher.match(reads)
        texts = {
            "read": found.names, "target": found.labels(), "best_target": found.target_names,
        }  # fmt: skip
        assert named(found.intervals(), texts) == oracle.intervals_report(reads, k, **options)
        assert named(found.reads(), texts) == oracle.reads_report(reads, k, **options)
        windows = found.windows()
        assert named(windows[NO_DEPTH], texts) == oracle.windows_report(reads, k, **options)
        assert (windows["depth"][windows["event"] == "match"] == k).all()
        if not seed:
            del options["seed"]
            rows = found.targets(min_windows=2)
            want = target_oracle.targets_report(reads, k, min_windows=2, **options)
            got = named(rows, {"target": found.target_names})
            for row, expected in zip(got, want, strict=True):
                assert list(row[:3]) == list(expected[:3])
                for value, text in zip(row[3:], expected[3:], strict=True):
                    assert np.isnan(value) or value == 0 if text == "." else value == float(text)


@pytest.mark.whole
@pytest.mark.parametrize("strands", ["forward", "both"])
@pytest.mark.parametrize(("k", "distance"), [(2, 1), (9, 0), (9, 2), (20, 4)])
def test_near_equals_the_definition(k, distance, strands, tmp_path, monkeypatch):
    monkeypatch.setattr(api, "BATCH_BASES", 200)
    records, reads = genome_and_reads(k)
    path = write_fasta(tmp_path / "targets.fa", records)
    dictionary = Dictionary.from_files(path, k, as_stored=True)
    matcher = Matcher(dictionary, device="cpu", threads=1)
    known = near_oracle.dictionary_of(records, k)
    texts = {"read": [name for name, _ in reads], "target": [
        dictionary.targets.label(index) for index in range(len(dictionary.targets))
    ]}  # fmt: skip
    for report in ("all", "best"):
        want = []
        for name, sequence in reads:
            found = near_oracle.nearest(known, sequence, distance, both=strands == "both")
            for *row, kmer in near_oracle.best_of_runs(found) if report == "best" else found:
                owners = ";".join(records[owner][0] for owner in known[kmer])
                want.append((name, *row, kmer, owners))
        assert want
        assert named(matcher.near(reads, distance, report=report, strands=strands), texts) == want


def test_near_is_refused_where_it_has_no_meaning(tmp_path):
    path = write_fasta(tmp_path / "t.fa", [("t", "ACGTACGTAC")])
    with pytest.raises(UsageError, match="as_stored"):
        Matcher(Dictionary.from_files(path, 5)).near([], 1)
    matcher = Matcher(Dictionary.from_files(path, 5, as_stored=True))
    with pytest.raises(ValueError, match=r"0\.\.4"):
        matcher.near([], 5)
    with pytest.raises(UsageError, match="report"):
        matcher.near([], 1, report="reads")
    assert matcher.near([], 1).size == 0


def test_a_growing_matcher_goes_on_as_one_stream():
    _, reads = genome_and_reads(5)
    with Matcher(Dictionary.empty(9, "canonical"), mode="grow", device="cpu") as matcher:
        parts = [matcher.match([read]).intervals() for read in reads]
    want = oracle.intervals_report(reads, 9, mode="grow")
    got = [
        (name, *row[1:5], ".")
        for (name, _), rows in zip(reads, parts, strict=True)
        for row in rows[["read", "start", "end", "event", "windows"]].tolist()
    ]
    assert got == want


def test_letters_of_every_kind_are_equal():
    dictionary = Dictionary.empty(3, "forward")
    letters = ["ACGTuN", b"acgTTN", np.frombuffer(b"ACGTTR", np.uint8)]
    rows = [Matcher(dictionary, device="cpu").match([("r", each)]).windows() for each in letters]
    assert rows[0].size == 3
    assert all(np.array_equal(rows[0], each) for each in rows)


def test_no_reads_are_no_rows():
    found = Matcher(Dictionary.empty(3, "forward"), device="cpu").match([])
    assert found.intervals().size == found.reads().size == found.windows().size == 0
    assert found.targets().tolist()[0][:3] == (-1, 0, 0)


def test_one_path_is_a_list_of_one(tmp_path):
    path = write_fasta(tmp_path / "one.fa", [("one", "ACGTTGCA")])
    lone, listed = (Dictionary.from_files(paths, 5) for paths in (path, [path]))
    assert lone.codes.tolist() == listed.codes.tolist()
    assert lone.targets.names == listed.targets.names == ["one"]


def test_unknown_choices_are_refused(tmp_path):
    path = write_fasta(tmp_path / "one.fa", [("one", "ACGTTGCA")])
    with pytest.raises(UsageError, match=r"^unknown strands 'all'; there are forward, canonical,"):
        Dictionary.from_files([path], 5, strands="all")
    with pytest.raises(UsageError, match=r"^a dictionary needs files"):
        Dictionary.from_files([], 5)
    dictionary = Dictionary.from_files([path], 5)
    with pytest.raises(UsageError, match=r"^unknown mode 'growing'; there are frozen, grow$"):
        Matcher(dictionary, mode="growing")
    with pytest.raises(UsageError, match=r"^unknown device 'gpu'; there are auto, cpu, cuda$"):
        Matcher(dictionary, device="gpu")


def test_a_bad_letter_is_named_with_its_place(monkeypatch):
    monkeypatch.setattr(api, "BATCH_BASES", 4)
    matcher = Matcher(Dictionary.empty(3, "forward"), device="cpu")
    with pytest.raises(DataError, match=r"^reads: record 2 \(b\), position 3: '!' is not a base$"):
        matcher.match([("a", "ACGT"), ("b", "AC!T")])
    with pytest.raises(DataError, match=r"^reads: record 1: the name holds U.000A"):
        matcher.match([("a\n", "ACGT")])


def test_the_package_alone_imports_nothing_heavy():
    code = "import sys, streamer; sys.exit('numpy' in sys.modules or 'numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = streamer.Nothing


@pytest.mark.parametrize("report", ["windows", "intervals", "reads", "targets"])
@pytest.mark.parametrize("mode", ["frozen", "grow"])
def test_arrow_has_the_rows_of_the_command(tmp_path, streamer, report, mode):
    from pyarrow.parquet import read_table

    rng = random.Random(4)
    texts = ["".join(rng.choices("ACGT", k=300)) for _ in range(3)]
    records = [("a;b", texts[0] + texts[1]), ("c", texts[1] + texts[2]), ("far", "ACGTN" * 9)]
    reads = [(f"r{at}", rng.choice(texts)[at : at + 90] + "N" + "ACGGT" * 3) for at in range(12)]
    reference, fasta = (
        write_fasta(tmp_path / "ref.fa", records),
        write_fasta(tmp_path / "r.fa", reads),
    )
    with Matcher(Dictionary.from_files([str(reference)], 15), mode=mode, device="cpu") as matcher:
        options = {"min_windows": 20} if report == "targets" else {}
        found = matcher.match(reads).to_arrow(report, **options)
    flags = [part for name in options for part in ("--min-windows", options[name])]
    out = tmp_path / "rows.parquet"
    words = ("match", fasta, "-d", reference, "-k", 15, "--mode", mode, "--report", report)
    assert streamer(*words, *flags, "-q", "-o", out)[0] == 0
    assert found.num_rows
    assert found.to_pylist() == read_table(out).to_pylist()


def test_arrow_of_an_unknown_report_is_refused(tmp_path):
    reference = write_fasta(tmp_path / "ref.fa", [("a", "ACGTTGCATTACGGCATTACC")])
    with Matcher(Dictionary.from_files([str(reference)], 15)) as matcher:
        found = matcher.match([])
        assert found.to_arrow("reads").num_rows == 0
        with pytest.raises(UsageError, match="coverage"):
            found.to_arrow("coverage")

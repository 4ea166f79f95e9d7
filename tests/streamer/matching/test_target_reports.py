"""``--report targets`` and ``--report coverage`` against the brute-force oracle."""

from __future__ import annotations

import json
import random
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.data_files import write_fasta
from tests.reference import targets as oracle
from tests.reference.exact import reverse_complement

pytestmark = pytest.mark.whole

TARGETS = ["target", "reads", "bases", "matches", "kmers", "seen", "breadth", "depth"]
COVERAGE = ["target", "start", "end", "kmers", "seen", "matches"]


def rows_of(text, columns):
    header, *lines = text.splitlines()
    assert header == "#" + "\t".join(columns)
    return [tuple(line.split("\t")) for line in lines]


def as_text(rows):
    return [tuple(str(field) for field in row) for row in rows]


def report(streamer, reads, dictionaries, k, name, *options, **named):
    """The rows of a report."""
    given_files = [part for path in dictionaries for part in ("-d", path)]
    for option, value in named.items():
        options += (f"--{option.replace('_', '-')}", value)
    code, out, err = streamer(
        "match", reads, *given_files, "-k", k, "--report", name, "--quiet", *options
    )
    assert (code, err) == (0, "")
    return rows_of(out, TARGETS if name == "targets" else COVERAGE)


@st.composite
def cases(draw):
    """Records that share parts with each other, and reads made of them, either way round."""
    text = draw(st.text("ACGT", min_size=8, max_size=90))
    piece = st.builds(
        lambda start, length, turned: (
            reverse_complement(text[start : start + length])
            if turned
            else text[start : start + length]
        ),
        st.integers(0, len(text)),
        st.integers(0, 70),
        st.booleans(),
    )
    sequence = st.lists(piece | st.text("ACGTNacgtnR", max_size=8), max_size=4).map("".join)
    records = [(f"t{i}", s) for i, s in enumerate(draw(st.lists(sequence, min_size=1, max_size=5)))]
    reads = [(f"r{i}", s) for i, s in enumerate(draw(st.lists(sequence, max_size=6)))]
    options = {
        "strands": draw(st.sampled_from(["forward", "canonical", "both"])),
        "mode": draw(st.sampled_from(["frozen", "grow"])),
    }
    limits = {
        "min_windows": draw(st.integers(1, 12)),
        "min_fraction": draw(st.sampled_from(["0", "0.07", "0.1", "0.3", "0.5", "0.9", "1"])),
    }
    k = draw(st.integers(1, 12) | st.sampled_from([13, 16, 21, 31]))
    return records, reads, k, options, limits, draw(st.integers(1, 12))


@settings(max_examples=80)
@given(case=cases(), chunk=st.integers(31, 60), threads=st.integers(1, 2))
def test_any_input(tmp_path_factory, case, chunk, threads):
    from streamer.cli.app import main

    records, reads, k, options, limits, bins = case
    folder = tmp_path_factory.mktemp("any")
    # in a known place, so that there is a dictionary
    records = [("whole", "ACGTTGCATTACGGCATTACGATCCTGAACTGTCA"), *records]
    dictionary = write_fasta(folder / "dictionary.fa", records)
    fasta = write_fasta(folder / "reads.fa", reads)
    common = ["match", fasta, "-d", dictionary, "-k", str(k), "-q", "-o", str(folder / "rows.tsv")]
    common += ["--chunk", str(chunk), "--threads", str(threads)]
    for option, value in options.items():
        common += [f"--{option}", value]
    flags = ["--min-windows", str(limits["min_windows"]), "--min-fraction", limits["min_fraction"]]
    assert main([*common, "--report", "targets", *flags]) == 0
    want = oracle.targets_report(reads, k, records=records, **options, **limits)
    assert rows_of((folder / "rows.tsv").read_text(), TARGETS) == as_text(want)
    assert main([*common, "--report", "coverage", "--bins", str(bins)]) == 0
    want = oracle.coverage_report(reads, k, records=records, **options, bins=bins)
    assert rows_of((folder / "rows.tsv").read_text(), COVERAGE) == as_text(want)


RECORDS = [
    ("one", "ACGTTGCATTACGGCATTACCAGATT" * 3),
    ("two", "ACGTTGCATTACNGCATTACC" + "TTGACCAGTACCA"),
    ("tiny", "AC"),
    ("none", "NNNNNNNNNNNN"),
    ("again", "ACGTTGCATTACGGCATTACCAGATT" * 3),
    ("empty", ""),
]
READS = [
    ("on_both", "ACGTTGCATTACGG"),
    ("on_two", "TTTTTGACCAGTACCATT"),
    ("turned", reverse_complement("GCATTACCAGATTACGTTG")),
    ("off", "CCCCCCCCCCCCCCCC"),
    ("short", "ACGT"),
    ("gaps", "NNNNNNNNNNNNNNN"),
    ("nothing", ""),
]


@pytest.mark.parametrize(
    ("strands", "mode", "kernel"),
    [
        *(("forward", "frozen", "walk"), ("forward", "grow", "index"), ("both", "frozen", "index")),
        *(
            ("canonical", "frozen", "index"),
            ("canonical", "grow", "walk"),
            ("both", "grow", "walk"),
        ),
    ],
)
def test_records_that_are_equal_short_or_empty(strands, mode, kernel, tmp_path, streamer):
    dictionary = write_fasta(tmp_path / "dictionary.fa", RECORDS)
    fasta = write_fasta(tmp_path / "reads.fa", READS)
    options = {"strands": strands, "mode": mode}
    asked = (streamer, fasta, [dictionary], 7)
    got = report(*asked, "targets", kernel=kernel, **options)
    assert got == as_text(oracle.targets_report(READS, 7, records=RECORDS, **options))
    assert [row[0] for row in got] == ["one", "two", "tiny", "none", "again", "empty", "."]
    assert got[2][4:] == ("0", "0", ".", ".")
    for bins in (1, 3, 100):
        got = report(*asked, "coverage", kernel=kernel, bins=bins, **options)
        want = oracle.coverage_report(READS, 7, records=RECORDS, **options, bins=bins)
        assert got == as_text(want)
        assert len(got) == bins * len(RECORDS)


def test_a_fraction_is_met_by_a_quotient_that_is_equal(tmp_path, streamer):
    """However the two are rounded: 0.07 of 100 windows are 7."""
    text, foreign = ("".join(random.Random(seed).choices("ACGT", k=200)) for seed in (4, 5))
    records, k = [("t", text[:50])], 10
    dictionary = write_fasta(tmp_path / "dictionary.fa", records)
    for matches, windows in ((7, 100), (3, 30), (1, 49), (29, 100), (23, 40), (1, 3)):
        other = "CA"[text[k + matches - 1] == "C"]  # no window more matches
        reads = [("r", (text[: k + matches - 1] + other + foreign)[: k + windows - 1])]
        fasta = write_fasta(tmp_path / "reads.fa", reads)
        for share in (f"{matches / windows:.3f}", f"{(matches + 0.5) / windows:.3f}"):
            want = oracle.assigned(reads, k, records=records, min_fraction=share)
            got = report(streamer, fasta, [dictionary], k, "targets", min_fraction=share)
            assert got[0][1:4] == (str(int(want == [0])), str(len(reads[0][1]) * (want == [0])),
                                   str(matches)), share  # fmt: skip
    assert Fraction("0.07") * 100 == 7
    assert 0.07 * 100 > 7


def test_several_dictionaries_one_of_them_saved(tmp_path, streamer):
    files = [write_fasta(tmp_path / f"{at}.fa", part) for at, part in
             enumerate((RECORDS[:2], RECORDS[2:]))]  # fmt: skip
    fasta = write_fasta(tmp_path / "reads.fa", READS)
    saved = tmp_path / "saved.dict"
    for strands in ("forward", "canonical", "both"):
        want = as_text(oracle.targets_report(READS, 7, records=RECORDS, strands=strands))
        assert report(streamer, fasta, files, 7, "targets", strands=strands) == want
        saving = ("--strands", strands, "--save", saved, "-q", "-o", tmp_path / "rows.tsv")
        assert streamer("match", fasta, "-d", files[0], "-k", 7, *saving)[0] == 0
        got = report(streamer, fasta, [saved, files[1]], 7, "targets", strands=strands)
        assert got == want
        # what the dictionary had grown by before it was saved belongs to no target
        growing = ("--mode", "grow", *saving)
        assert streamer("match", fasta, "-d", files[0], "-k", 7, *growing)[0] == 0
        got = report(streamer, fasta, [saved, files[1]], 7, "targets", strands=strands)
        assert got == want
        got = report(streamer, fasta, [saved, files[1]], 7, "coverage", strands=strands, bins=5)
        want = oracle.coverage_report(READS, 7, records=RECORDS, strands=strands, bins=5)
        assert got == as_text(want)


def test_without_targets_and_without_reads(tmp_path, streamer):
    fasta = write_fasta(tmp_path / "reads.fa", READS)
    code, out, _ = streamer("match", fasta, "--seed", 0, "-k", 7, "--report", "targets", "-q")
    bases = sum(len(sequence) for _, sequence in READS)
    assert (code, rows_of(out, TARGETS)) == (0, [(".", str(len(READS)), str(bases), *["."] * 5)])
    code, out, _ = streamer("match", fasta, "--seed", 0, "-k", 7, "--report", "coverage", "-q")
    assert (code, rows_of(out, COVERAGE)) == (0, [])
    empty = tmp_path / "empty.fa"
    empty.write_text("")
    dictionary = write_fasta(tmp_path / "dictionary.fa", RECORDS)
    got = report(streamer, empty, [dictionary], 7, "targets")
    assert got == as_text(oracle.targets_report([], 7, records=RECORDS))
    got = report(streamer, empty, [dictionary], 7, "coverage", bins=2)
    assert got == as_text(oracle.coverage_report([], 7, records=RECORDS, bins=2))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--report", "reads", "--bins", 3), "--bins needs --report coverage"),
        (("--min-windows", 3), "--min-windows needs --report targets"),
        (("--report", "coverage", "--min-fraction", 0.5), "--min-fraction needs --report targets"),
        (("--report", "targets", "--min-fraction", 1.5), "'--min-fraction': must be"),
        (("--report", "targets", "--min-windows", 0), "'--min-windows': must be"),
        (("--report", "coverage", "--bins", 0), "'--bins': must be"),
        (("--report", "targets", "--distance", 1), "--report targets is of exact matching"),
    ],
)
def test_options_that_do_not_go_together(options, told, tmp_path, streamer):
    fasta = write_fasta(tmp_path / "reads.fa", READS)
    code, out, err = streamer("match", fasta, "-d", fasta, "-k", 7, *options)
    assert (code, out) == (2, "")
    assert told in err
    assert err.count("\n") == 1


BY_BARCODE = ["barcode", *TARGETS]


def test_by_barcode(tmp_path, streamer):
    """Barcodes of headers in both styles, of a BAM's tags, and of folders."""
    from tests.streamer.sequences.test_context import bam_file

    dictionary = write_fasta(tmp_path / "dictionary.fa", RECORDS)
    fields = {
        "": ".",
        " barcode=barcode04": "barcode04",
        "\tRG:Z:run_hac_barcode02": "barcode02",
        " barcode=unclassified ch=x": "unclassified",
    }
    rng = random.Random(6)
    chosen = rng.choices([*fields], k=40)
    reads = [(f"r{i}", rng.choice(READS)[1]) for i in range(40)]
    paths, barcodes = [], []
    for folder in ("plain", "barcode07"):
        (tmp_path / folder).mkdir()
        paths.append(tmp_path / folder / "reads.fq")
        paths[-1].write_text(
            "".join(
                f"@{name}{field}\n{letters}\n+\n{'I' * len(letters)}\n"
                for (name, letters), field in zip(reads, chosen, strict=True)
            )
        )
        named = [fields[field] for field in chosen]
        if folder.startswith("barcode"):
            named = [folder if one in (".", "unclassified") else one for one in named]
        barcodes += named
    paths.append(tmp_path / "reads.bam")
    groups = ["RG" in field for field in chosen]
    tags = [[("RG", "Z", "x_barcode02")] if grouped else [] for grouped in groups]
    paths[-1].write_bytes(bam_file(reads, tags))
    barcodes += ["barcode02" if grouped else "." for grouped in groups]
    for limits in ({}, {"min_windows": 8}):
        options = [part for n, v in limits.items() for part in (f"--{n.replace('_', '-')}", v)]
        code, out, err = streamer(
            "match", *paths, "-d", dictionary, "-k", 7, "--report", "targets", "--by", "barcode",
            "--quiet", *options,
        )  # fmt: skip
        assert (code, err) == (0, "")
        want = oracle.targets_report(reads * 3, 7, records=RECORDS, barcodes=barcodes, **limits)
        assert rows_of(out, BY_BARCODE) == as_text(want)
    assert {row[0] for row in want} == {".", "barcode02", "barcode04", "barcode07", "unclassified"}
    code, out, _ = streamer(
        "match", paths[0], "-d", dictionary, "-k", 7, "--report", "targets", "--by", "barcode",
        "--quiet", "--format", "jsonl",
    )  # fmt: skip
    rows = [json.loads(line) for line in out.splitlines()]
    assert list(rows[0]) == BY_BARCODE
    assert (rows[0]["barcode"], rows[-1]["barcode"]) == (None, "unclassified")
    empty = tmp_path / "empty.fq"
    empty.write_text("")
    code, out, _ = streamer(
        "match", empty, "-d", dictionary, "-k", 7, "--report", "targets", "--by", "barcode", "-q"
    )
    assert (code, rows_of(out, BY_BARCODE)) == (0, [])

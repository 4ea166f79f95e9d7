"""``streamer asm``, against the definition and against its peers."""

from __future__ import annotations

import gzip
import io
import sys

import numpy as np
import pytest

from streamer.batch import asm
from streamer.cli import pattern_search
from streamer.sequences import files as sequence_files
from streamer.sequences import raw_file
from tests.data_files import data_file, read_plainly, write_fasta
from tests.reference import asm as asm_oracle

pytestmark = pytest.mark.whole


@pytest.fixture
def files(tmp_path):
    rng = np.random.default_rng(1)
    texts = [(f"t{i}", "".join(rng.choice(list("ACGTN"), 80 + i))) for i in range(3)]
    texts.insert(1, ("empty", ""))
    patterns = [("p", texts[0][1][10:30].replace("N", "A")), ("q", "ACGNA"), ("p", "TTACG")]
    return (
        write_fasta(tmp_path / "text.fa", texts),
        write_fasta(tmp_path / "patterns.fa", patterns),
        texts,
        patterns,
    )


def expected(texts, patterns, k, report="all", **options):
    truth = asm_oracle.every_end if report == "all" else asm_oracle.best_ends
    rows = truth([s for _, s in texts], [s for _, s in patterns], k, **options)
    return [
        (texts[text][0], str(end), str(distance), strand, patterns[index][0])
        for text, end, distance, strand, index in rows
    ]


@pytest.mark.parametrize("method", ["bit-parallel", "sequential", "pasm"])
@pytest.mark.parametrize("strands", ["forward", "reverse", "both"])
def test_rows(streamer, files, method, strands):
    text, patterns, texts, many = files
    code, out, err = streamer(
        "asm", text, "--patterns", patterns, "-k", 2, "--method", method, "--device", "cpu",
        "--strands", strands, "--quiet",
    )  # fmt: skip
    assert (code, err) == (0, "")
    lines = [line.split("\t") for line in out.splitlines()]
    assert lines[0] == ["#text", "start", "end", "distance", "strand", "pattern"]
    assert all(line[1] == "." for line in lines[1:])
    rows = [(line[0], *line[2:]) for line in lines[1:]]
    assert rows == expected(texts, many, 2, strands=strands)
    assert len(rows) > 20


def test_the_best_of_each_run(streamer, files):
    text, patterns, texts, many = files
    code, out, _ = streamer("asm", text, "--patterns", patterns, "-k", 1, "--report", "best", "-q")
    assert code == 0
    lines = [line.split("\t") for line in out.splitlines()]
    assert lines[0][-1] == "cigar"
    assert [(x[0], *x[2:6]) for x in lines[1:]] == expected(texts, many, 1, "best")
    by_name = dict(texts)
    for name, start, end, distance, strand, pattern, cigar in lines[1:]:
        letters = [s if strand == "+" else asm_oracle.turned(s) for n, s in many if n == pattern]
        for one in letters:
            try:
                asm_oracle.check_alignment(
                    by_name[name], int(start), int(end), int(distance), one, cigar
                )
                break
            except (AssertionError, IndexError):
                continue
        else:
            pytest.fail(f"{cigar} aligns none of {letters}")


def test_standard_input_and_compressed_files(streamer, files, tmp_path, monkeypatch):
    text, patterns, _, _ = files
    _, wanted, _ = streamer("asm", text, "--patterns", patterns, "-k", 1, "-q")
    with open(text, "rb") as file:
        content = file.read()
    packed = tmp_path / "text.fa.gz"
    packed.write_bytes(gzip.compress(content))
    assert streamer("asm", packed, "--patterns", patterns, "-k", 1, "-q")[1] == wanted
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    assert streamer("asm", "-", "--patterns", patterns, "-k", 1, "-q")[1] == wanted
    target = tmp_path / "rows.tsv"
    assert streamer("asm", text, "--patterns", patterns, "-k", 1, "-q", "-o", target)[1] == ""
    assert target.read_text() == wanted


def test_it_says_where_it_runs(streamer, files):
    text = files[0]
    assert "running on" in streamer("asm", text, "--pattern", "ACGT", "-k", 1)[2]
    quiet = streamer("asm", text, "--pattern", "ACGT", "-k", 1, "--quiet")
    assert quiet[2] == ""
    assert (
        "running on"
        not in streamer("asm", text, "--pattern", "ACGT", "-k", 1, "--device", "cpu")[2]
    )


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (("--pattern", "ACG", "-k", 3), 1, "record 1 (ACG): the pattern has 3 letters, k = 3"),
        (("--pattern", "", "-k", 0), 1, "the pattern is empty"),
        (("--pattern", "ACXG", "-k", 1), 1, "record 1 (ACXG), position 3: 'X' is not a base"),
        (("--pattern", "ACG", "-k", -1), 2, "-k"),
        (("--pattern", "ACG"), 2, "-k"),
        (("-k", 1), 2, "give either --pattern SEQ or --patterns FASTA"),
        (("--pattern", "ACG", "--patterns", "x.fa", "-k", 1), 2, "give either"),
        (("--patterns", "/nowhere/x.fa", "-k", 1), 1, "no such file"),
        (("--pattern", "ACG", "-k", 1, "--method", "fast"), 2, "fast"),
        (("--pattern", "ACG", "-k", 1, "--strands", "canonical"), 2, "canonical"),
        (("--pattern", "ACG", "-k", 1, "--method", "wspasm", "--device", "cpu"), 2, "not on cpu"),
        (("--pattern", "ACG", "-k", 1, "--method", "sequential", "--device", "cuda"), 2, "cuda"),
    ],
)
def test_what_is_refused(streamer, files, options, code, message):
    found, out, err = streamer("asm", files[0], *options)
    assert (found, out) == (code, "")
    assert message in err
    assert len(err.strip().splitlines()) == 1 or code == 2


def test_bad_files(streamer, files, tmp_path):
    bad = tmp_path / "bad.fa"
    bad.write_text(">a\nACGT\n>b\nAC-T\n")
    code, out, err = streamer(
        "asm", bad, "--pattern", "ACGT", "-k", 1, "-q", "--strands", "forward"
    )
    assert code == 1
    assert "bad.fa: record 2 (b), position 3: '-' is not a base" in err
    # what came before is right and stays
    assert out.splitlines()[1:] == ["a\t.\t3\t1\t+\tACGT", "a\t.\t4\t0\t+\tACGT"]
    code, _, err = streamer("asm", files[0], "--patterns", bad, "-k", 1, "-q")
    assert code == 1
    assert "bad.fa: record 2 (b), position 3: '-' is not a base" in err
    none = tmp_path / "none.fa"
    none.write_text("")
    assert "none.fa: holds no pattern" in streamer("asm", files[0], "--patterns", none, "-k", 1)[2]
    code, out, _ = streamer("asm", none, "--pattern", "ACGT", "-k", 1, "-q")
    assert (code, len(out.splitlines())) == (0, 1)
    code, _, err = streamer("asm", files[0], "--pattern", "ACGT", "-k", 1, "-o", files[0])
    assert code == 2
    assert "input and output are the same file" in err


def test_several_patterns_of_the_command_line(streamer, files):
    text, _, texts, _ = files
    code, out, _ = streamer(
        "asm", text, "--pattern", "ACGNA", "--pattern", "TTACG", "-k", 1, "--device", "cpu", "-q"
    )
    assert code == 0
    given = [("ACGNA", "ACGNA"), ("TTACG", "TTACG")]
    rows = [line.split("\t") for line in out.splitlines()[1:]]
    assert [(row[0], *row[2:]) for row in rows] == expected(texts, given, 1)
    code, _, said = streamer("asm", text, "--pattern", "ACGT", "--pattern", "AXGT", "-k", 1, "-q")
    assert code == 1
    assert "--pattern: record 2 (AXGT), position 2: 'X' is not a base" in said


@pytest.mark.parametrize("report", ["all", "best"])
def test_names_of_texts_before_are_forgotten(streamer, tmp_path, monkeypatch, report):
    texts = [(f"t{i}", "ACGT") for i in range(500)] + [("last", "TTGCA" * 30)]
    text = write_fasta(tmp_path / "many.fa", texts)
    monkeypatch.setattr(raw_file, "BLOCK_BYTES", 64)
    monkeypatch.setattr(sequence_files, "PIECE_BASES", 40)
    known = []
    write_hits = pattern_search.write_hits

    def recorded(writer, hits, names, patterns):
        known.append(len(names))
        write_hits(writer, hits, names, patterns)

    monkeypatch.setattr(pattern_search, "write_hits", recorded)
    code, out, _ = streamer(
        "asm", text, "--pattern", "TTGCA", "-k", 0, "--strands", "forward", "--report", report,
        "--device", "cpu", "-q",
    )  # fmt: skip
    rows = [line.split("\t")[:3:2] for line in out.splitlines()[1:]]
    assert (code, rows) == (0, [["last", str(end)] for end in range(5, 151, 5)])
    assert max(known) < 40


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
    for case in range(200):
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
    assert hits > 200


@pytest.mark.slow
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

"""``streamer hamming``: columns, order, files, names, and what it says where it cannot go on."""

from __future__ import annotations

import random

import pytest

from tests.data_files import write_fasta
from tests.reference import hamming as oracle

pytestmark = pytest.mark.whole

HEADER = "#text\tstart\tend\tdistance\tstrand\tpattern"


@pytest.fixture
def job(tmp_path):
    rng = random.Random(4)
    texts = [
        (f"t{i}", "".join(rng.choices("ACGTN", k=size))) for i, size in enumerate((70, 3, 200))
    ]
    patterns = [(f"p{i}", "".join(rng.choices("ACGT", k=6))) for i in range(4)]
    patterns.append(("p1", patterns[0][1]))  # a name and a sequence for the second time
    return (
        texts,
        patterns,
        write_fasta(tmp_path / "texts.fa", texts),
        write_fasta(tmp_path / "patterns.fa", patterns),
    )


def lines_of(texts, patterns, k, strands):
    found = oracle.search([one for _, one in texts], [one for _, one in patterns], k, strands)
    return [
        f"{texts[text][0]}\t{start}\t{end}\t{distance}\t{strand}\t{patterns[pattern][0]}"
        for text, start, end, distance, strand, pattern in found
    ]


@pytest.mark.parametrize("strands", ["forward", "reverse", "both"])
def test_rows_are_those_of_the_definition(streamer, job, strands):
    texts, patterns, text, fasta = job
    code, out, err = streamer(
        "hamming", text, "--patterns", fasta, "-k", 2, "--strands", strands, "--quiet"
    )
    assert (code, err) == (0, "")
    assert out.splitlines() == [HEADER, *lines_of(texts, patterns, 2, strands)]
    assert len(out.splitlines()) > 5


def test_patterns_on_the_command_line_are_their_own_names(streamer, job):
    texts, patterns, text, _ = job
    given = [sequence for _, sequence in patterns[:2]]
    code, out, _ = streamer(
        "hamming", text, "--pattern", given[0], "--pattern", given[1], "-k", 2, "--quiet"
    )
    assert code == 0
    assert out.splitlines()[1:] == lines_of(texts, [(one, one) for one in given], 2, "both")


@pytest.mark.parametrize("content", ["", ">empty\n", ">short\nACG\n"])
def test_texts_without_a_window_give_no_rows(streamer, tmp_path, content):
    (tmp_path / "t.fa").write_text(content)
    code, out, err = streamer("hamming", tmp_path / "t.fa", "--pattern", "ACGT", "-k", 1, "-q")
    assert (code, out, err) == (0, HEADER + "\n", "")


def test_patterns_that_cannot_be_searched_for(streamer, job, tmp_path):
    """Are named with their file; tests of the methods have the others."""
    fasta = tmp_path / "patterns.fa"
    for content, said in (
        (">a\nACGT\n>b\nACGTA\n", "patterns.fa: record 2 (b): a pattern of 5 symbols"),
        (">a\nACGT\n>b\nAC!T\n", "patterns.fa: record 2 (b), position 3: '!' is not a base"),
        ("", "patterns.fa: no patterns"),
    ):
        fasta.write_text(content)
        code, out, err = streamer("hamming", job[2], "--patterns", fasta, "-k", 1, "-q")
        assert (code, out, err.count("\n")) == (1, "", 1)
        assert said in err


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["-k", 1], 2),
        (["-k", 1, "--pattern", "ACGT", "--patterns", "x.fa"], 2),
        (["-k", -1, "--pattern", "ACGT"], 2),
        (["--pattern", "ACGT"], 2),
        (["-k", 1, "--pattern", "ACGT", "--strands", "canonical"], 2),
        (["-k", 1, "--pattern", "ACGT", "--method", "magic"], 2),
        (["-k", 1, "--pattern", "ACGT", "--method", "pmasm", "--device", "cuda"], 2),
        (["-k", 1, "--patterns", "missing.fa"], 1),
        (["-k", 1, "--pattern", "AC T"], 1),
        (["-k", 1, "--pattern", ""], 1),
    ],
)
def test_exit_codes(streamer, job, arguments, code):
    found, out, err = streamer("hamming", job[2], *arguments)
    assert (found, out) == (code, "")
    assert err.splitlines()[-1].startswith("streamer: error: ")

"""``streamer filter`` against records that are chosen one by one."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import random
import shutil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamer import __version__
from tests.data_files import write_fasta
from tests.reference import targets as oracle
from tests.reference.exact import reverse_complement

pytestmark = pytest.mark.whole

RECORDS = [
    ("host", "ACGTTGCATTACGGCATTACCAGATTACCGGTACCATTAGGACCATTTAACCGG"),
    ("virus", "TTGCGCGATATTAGNATTGGGACCAGTTTACCCAGGATTTACCAACG"),
    ("tiny", "AC"),
]
K = 7
PRESETS = {"host-short": (14, "0", "together"), "host-long": (5, "0.02", "either")}
"""The least windows, the least fraction, and the rule for pairs."""


def sequences(rng, count):
    """Parts of the records, either way round, and foreign ones."""
    for _ in range(count):
        text = rng.choice(RECORDS)[1]
        start = rng.randrange(len(text))
        piece = text[start : start + rng.randrange(30)]
        foreign = "".join(rng.choices("ACGTN", k=rng.randrange(40)))
        yield rng.choice([piece, reverse_complement(piece.replace("N", "A")), foreign + piece, ""])


def fastq(rng, count, mate="", barcodes=("barcode01", None)):
    """A FASTQ text with qualities of every kind, and its barcodes."""
    lines, told = [], []
    for number, letters in enumerate(sequences(rng, count)):
        barcode = rng.choice(barcodes)
        told.append(barcode)
        header = f"@r{number}{mate}" + (f" ch=3 barcode={barcode}" if barcode else "")
        qualities = "".join(chr(rng.randrange(33, 127)) for _ in letters)
        end = rng.choice(["\n", "\r\n"])
        plus = rng.choice(["+", f"+{header[1:]}"])
        lines.append(end.join([header, letters, plus, qualities, ""]))
    return "".join(lines).encode(), told


def written(tmp_path, texts):
    paths = []
    for number, text in enumerate(texts):
        paths.append(tmp_path / f"in{number}.fq")
        paths[-1].write_bytes(text)
    return paths


def alternated(texts):
    """Interleaved files, from those of R1 and R2."""
    pairs = zip(texts[::2], texts[1::2], strict=True)
    files = ([oracle.records_of(text) for text in pair] for pair in pairs)
    return [b"".join(one[0] for two in zip(*pair, strict=True) for one in two) for pair in files]


@pytest.fixture
def dictionary(tmp_path):
    return write_fasta(tmp_path / "dictionary.fa", RECORDS)


@settings(max_examples=60)
@given(
    seed=st.integers(0, 1 << 20),
    files=st.integers(1, 3),
    keep=st.booleans(),
    pairs=st.sampled_from([None, "--pairs", "--interleaved"]),
    separate=st.booleans(),
    removed=st.booleans(),
    rule=st.sampled_from(["either", "together"]),
    renamed=st.booleans(),
    strands=st.sampled_from(["forward", "canonical", "both"]),
    preset=st.sampled_from([None, *PRESETS]),
    given_options=st.lists(st.sampled_from(["windows", "fraction", "rule"]), unique=True),
    windows=st.integers(1, 9),
    fraction=st.sampled_from(["0", "0.25", "0.5", "1"]),
    batch=st.integers(1, 9),
)
def test_any_files(tmp_path_factory, seed, files, keep, pairs, separate, removed, rule, renamed,
                   strands, preset, given_options, windows, fraction, batch):  # fmt: skip
    from streamer.cli import filter_files
    from streamer.cli.app import main

    folder = tmp_path_factory.mktemp("any")
    rng = random.Random(seed)
    counts = [rng.randrange(12) for _ in range(files)]
    made = [
        fastq(rng, count, mate) for count in counts for mate in (("/1", "/2") if pairs else ("",))
    ]
    texts = [text for text, _ in made]
    paths = written(folder, alternated(texts) if pairs == "--interleaved" else texts)
    names = "out.fq", "out2.fq", "summary.json", "removed.fq", "removed2.fq"
    out, out2, summary, *others = (str(folder / name) for name in names)
    arguments = ["filter", *map(str, paths), "-d", write_fasta(folder / "d.fa", RECORDS), "-q"]
    arguments += ["-k", str(K), "--keep" if keep else "--deplete", "-o", out, "--summary", summary]
    arguments += ["--strands", strands, pairs or "--no-interleaved"] + ["--rename"] * renamed
    # an option that is given wins over the preset's value
    own = {"windows": windows, "fraction": fraction, "rule": rule if pairs else "either"}
    named = {"windows": "--min-windows", "fraction": "--min-fraction", "rule": "--pair-rule"}
    for name in given_options:
        arguments += [named[name], str(own[name])]
    arguments += ["--preset", preset] if preset else []
    windows, fraction, rule = (
        own[name] if name in given_options else default
        for name, default in zip(own, PRESETS.get(preset, (1, "0", "either")), strict=True)
    )
    rule = rule if pairs else "either"
    arguments += ["--output2", out2] * bool(pairs and separate)
    arguments += ["--removed", others[0]] * removed
    arguments += ["--removed2", others[1]] * bool(removed and pairs and separate)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(filter_files, "_PAIRS", batch)
        patch.setattr(filter_files, "BATCH_READS", batch)
        assert main(arguments) == 0
    for action, files in ((keep, names[:2]), (not keep, names[3:]))[: 1 + removed]:
        (first, second, both), reads = oracle.filtered(
            texts, K, RECORDS, keep=action, pairs=bool(pairs), strands=strands, rule=rule,
            min_windows=windows, min_fraction=fraction,
        )  # fmt: skip
        if renamed:
            marks = [b"/1", b"/2"] if pairs else [b""]
            first, second = (oracle.renamed(one, [mark]) for one, mark in
                             zip((first, second), (marks[0], marks[-1]), strict=True))  # fmt: skip
            both = oracle.renamed(both, marks)
        if pairs and separate:
            assert (folder / files[1]).read_bytes() == second
            assert (folder / files[0]).read_bytes() == first
        else:
            assert (folder / files[0]).read_bytes() == both
        if action == keep:
            counted = reads
    told = [one for _, one in made]
    if pairs:
        told = [
            [barcode for pair in zip(*both, strict=True) for barcode in pair]
            for both in zip(told[::2], told[1::2], strict=True)
        ]
    barcodes = [barcode for file in told for barcode in file]
    found = json.loads((folder / "summary.json").read_text())
    assert found.pop("version") == __version__
    assert found.pop("parameters") == {
        "reads": [str(path) for path in paths],
        "dictionary": [str(folder / "d.fa")],
        "k": K,
        "strands": strands,
        "action": "keep" if keep else "deplete",
        "min_windows": windows,
        "min_fraction": float(fraction),
        "pairs": bool(pairs),
    } | ({"pair_rule": rule} if rule == "together" else {})
    assert found == oracle.summary(counted, [name for name, _ in RECORDS], barcodes)


@pytest.mark.parametrize("pairs", ["--pairs", "--interleaved"])
@pytest.mark.parametrize("strands", ["forward", "canonical", "both"])
@pytest.mark.parametrize("number", [1, 3])
def test_pairs_that_overlap_are_decided_together(number, pairs, strands, tmp_path, streamer):
    """A window that both mates have, or one of them twice, counts once."""
    rng = random.Random(6)
    targets = [*RECORDS[:2], ("part", RECORDS[0][1][20:40])]
    dictionary = write_fasta(tmp_path / "targets.fa", targets[:number])
    firsts, lasts = [], []
    for _ in range(60):
        text = rng.choice(targets)[1].replace("N", "A")
        start, size = rng.randrange(20), rng.randrange(K, 30)
        first = text[start : start + size] * rng.choice([1, 2])
        last = reverse_complement(text[start + rng.randrange(9) :][:size])
        firsts.append(first + "".join(rng.choices("ACGT", k=rng.randrange(20))))
        lasts.append(rng.choice([last, reverse_complement(last), "GGCCGGCC"]))
    texts = [
        "".join(f"@{number}\n{one}\n+\n{'I' * len(one)}\n" for number, one in enumerate(letters))
        for letters in (firsts, lasts)
    ]
    texts = [text.encode() for text in texts]
    paths = written(tmp_path, alternated(texts) if pairs == "--interleaved" else texts)
    sizes = set()
    for windows, fraction in [*((least, "0") for least in range(2, 30, 3)), (1, "0.3"), (1, "0.6")]:
        code, out, err = streamer(
            "filter", *paths, pairs, "-d", dictionary, "-k", K, "--keep", "-q", "--pair-rule",
            "together", "--strands", strands, "--min-windows", windows, "--min-fraction", fraction,
        )  # fmt: skip
        (*_, want), _ = oracle.filtered(
            texts, K, targets[:number], keep=True, pairs=True, rule="together", strands=strands,
            min_windows=windows, min_fraction=fraction,
        )  # fmt: skip
        assert (code, out.encode(), err) == (0, want, "")
        sizes.add(len(want))
    assert len(sizes) > 5


OPENERS = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}


@pytest.mark.parametrize("suffix", [".gz", ".bgz", ".bz2", ".xz", ".zst", ".fq"])
def test_levels(suffix, tmp_path, dictionary, streamer):
    text, _ = fastq(random.Random(2), 300)
    (path,) = written(tmp_path, [text])
    sizes = []
    for level in (1, 9):
        out, removed = tmp_path / f"out{suffix}", tmp_path / "removed.gz"
        code, _, err = streamer(
            "filter", path, "-d", dictionary, "-k", K, "--keep", "-o", out, "--removed", removed,
            "--level", level, "-q",
        )  # fmt: skip
        assert (code, err) == (0, "")
        sizes.append(out.stat().st_size)
    assert (sizes[0] != sizes[1]) == (suffix not in (".fq", ".bz2"))
    if suffix in (".gz", ".bgz"):
        assert out.read_bytes()[:4] == b"\x1f\x8b\x08\x04"


@pytest.mark.parametrize("suffix", ["", ".gz", ".bz2", ".xz", ".zst"])
def test_compressed_by_the_suffix_also_when_nothing_is_left(suffix, tmp_path, dictionary, streamer):
    text, _ = fastq(random.Random(2), 30)
    (path,) = written(tmp_path, [text])
    out = tmp_path / f"out.fq{suffix}"
    for windows in (1, 1_000):
        code, rows, said = streamer(
            "filter", path, "-d", dictionary, "-k", K, "--keep", "-o", out, "-q",
            "--min-windows", windows,
        )  # fmt: skip
        assert (code, rows, said) == (0, "", "")
        if suffix == ".zst":
            from xopen import xopen

            with xopen(out, "rb", threads=0) as file:
                found = file.read()
        elif suffix:
            assert out.read_bytes()
            with OPENERS[suffix](out, "rb") as file:
                found = file.read()
        else:
            found = out.read_bytes()
        (want, *_), _ = oracle.filtered([text], K, RECORDS, keep=True, min_windows=windows)
        assert found == want
    assert want == b""


def test_fasta_standard_output_and_a_line_that_says_how_many(tmp_path, dictionary, streamer):
    text = b"".join(
        b">r%d some words\n%b\n%b\n" % (number, letters[:9].encode(), letters[9:].encode())
        for number, letters in enumerate(sequences(random.Random(3), 25))
        if letters
    )
    text = text.replace(b"\n\n", b"\n")[:-1]  # without an end of the last line
    (path,) = written(tmp_path, [text])
    for action in ("keep", "deplete"):
        code, out, said = streamer(
            "filter", path, "-d", dictionary, "-k", K, f"--{action}", "--device", "cpu"
        )
        (want, *_), reads = oracle.filtered([text], K, RECORDS, keep=action == "keep")
        assert (code, out.encode()) == (0, want)
        bases = sum(len(letters) for letters, _, out in reads if out)
        total = sum(len(letters) for letters, _, _ in reads)
        count = sum(out for _, _, out in reads)
        warning, line = said.splitlines()
        assert "1 of 3 records have fewer than 7 bases" in warning
        assert line == (
            f"streamer: {count} of {len(reads)} reads and {bases} of {total} bases written"
        )


@pytest.mark.parametrize("text", [b"", b"\n\n"])
def test_empty_files(text, tmp_path, dictionary, streamer):
    paths = written(tmp_path, [text, text])
    for pairs in ((), ("--pairs",)):
        summary = tmp_path / "summary.json"
        code, out, said = streamer(
            "filter", *paths, "-d", dictionary, "-k", K, "--deplete", "-q", *pairs,
            "--summary", summary,
        )  # fmt: skip
        assert (code, out, said) == (0, "", "")
        assert json.loads(summary.read_text())["reads_in"] == 0


def test_blank_lines_between_records_are_left_out(tmp_path, dictionary, streamer):
    text = b"\n@a\nACGTTGCATT\n+\nIIIIIIIIII\n\n\n@b\nC\n+\nI\n \n@c\nACGTTGC\n+\nJJJJJJJ"
    (path,) = written(tmp_path, [text])
    code, out, _ = streamer("filter", path, "-d", dictionary, "-k", K, "--keep", "-q")
    assert (code, out) == (0, "@a\nACGTTGCATT\n+\nIIIIIIIIII\n@c\nACGTTGC\n+\nJJJJJJJ\n")


ONE = "@{}\nACGTTGCATTACGG\n+\nIIIIIIIIIIIIII\n"


@pytest.mark.parametrize(
    ("names", "mates", "told"),
    [
        (["a", "b/1", "c"], ["a", "b/2", "c"], None),
        (["a.1", "b 1:N:0:A"], ["a.2", "b 2:N:0:A"], None),
        (["a", "b"], ["a", "c"], "in1.fq: record 2 (c): the name is not that of the other read of "
         "the pair, record 2 (b) of in0.fq"),
        (["a11"], ["a12"], "in1.fq: record 1 (a12): the name is not that"),
        (["a/2"], ["a/1"], "in1.fq: has R1 of the pairs, and in0.fq has R2: give R1 and R2"),
        (["1"], ["2"], "in1.fq: record 1 (2): the name is not that"),
        (["a", "b", "c"], ["a", "b"], "in1.fq: the file ends after 2 records, in0.fq has more"),
        ([], ["a"], "in0.fq: the file ends after 0 records, in1.fq has more"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("batch", [1, 2, 8])
def test_files_that_are_no_pairs(names, mates, told, batch, tmp_path, dictionary, streamer,
                                 monkeypatch):  # fmt: skip
    from streamer.cli import filter_files

    monkeypatch.setattr(filter_files, "_PAIRS", batch)
    monkeypatch.chdir(tmp_path)
    texts = ["".join(map(ONE.format, each)) for each in (names, mates)]
    written(tmp_path, [texts[0].encode(), texts[1].replace("ACGG", "ACGT").encode()])
    old = tmp_path / "out.fq"
    old.write_text("as it was")
    code, _, said = streamer(
        "filter", "in0.fq", "in1.fq", "-d", dictionary, "-k", K, "--keep", "--pairs", "-q",
        "-o", old,
    )  # fmt: skip
    if told is None:
        assert (code, said) == (0, "")
        assert old.read_bytes().count(b"\n") == 8 * len(names)
    else:
        assert code == 1
        assert said.startswith(f"streamer: error: {told}")
        assert said.count("\n") == 1
        assert old.read_text() == "as it was"


@pytest.mark.parametrize(
    ("headers", "told"),
    [
        (("a/1 x", "a/1 x"), "has R1 of the pairs, and {} has R1"),
        (("a/2", "a/2"), "has R2 of the pairs, and {} has R2"),
        (("a 1:N:0:ACGT", "a 1:N:0:ACGT"), "has R1 of the pairs, and {} has R1"),
        (("a 2:Y:0:1", "a 1:N:0:1"), "has R1 of the pairs, and {} has R2"),
        (("a", "a"), "has the records of {}"),
        (("a 1:N:0:ACGT", "a 2:N:0:ACGT"), ""),
        (("a/1", "a/2"), ""),
        (("a.1", "a.1 other"), ""),
    ],
)
@pytest.mark.parametrize("mark", "@>")
def test_the_same_reads_of_pairs_twice(headers, told, mark, tmp_path, dictionary, streamer):
    rest = "ACGTTGCA\n" + "+\nIIIIIIII\n" * (mark == "@")
    files = written(tmp_path, [f"{mark}{header}\n{rest}".encode() for header in headers])
    code, _, err = streamer("filter", *files, "--pairs", "-d", dictionary, "-k", K, "--keep", "-q")
    said = f"streamer: error: {files[1]}: {told.format(files[0])}: give R1 and R2 of each pair\n"
    assert (code, err) == ((1, said) if told else (0, ""))


@pytest.mark.parametrize("link", [shutil.copy, os.symlink, os.link, None])
def test_a_file_twice_is_no_pair(link, tmp_path, dictionary, streamer):
    one, other = *written(tmp_path, [b"@a\nACGTTGCA\n+\nIIIIIIII\n"]), tmp_path / "other.fq"
    if link is None:
        other = one
    else:
        link(one, other)
    code, _, err = streamer(
        "filter", one, other, "--pairs", "-d", dictionary, "-k", K, "--keep", "-q"
    )
    copied = link is shutil.copy
    told = "has the records of" if copied else "are the same file"
    assert code == 2 - copied
    assert told in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (["a/1", "a/2", "b/1", "b/2"], True),
        (["a 1:N:0", "a 2:N:0", "b 1:N:0", "b 2:N:0"], True),
        (["a/1", "a/2"], True),
        (["a", "a"], True),
        (["a/1", "a/2", "b/1", "c/2"], False),
        (["a/1", "b/1", "a/2", "b/2"], False),
        (["a1", "a2"], False),
        (["a"], False),
    ],
)
def test_pairs_in_one_file_are_told_from_the_names(names, told, tmp_path, dictionary, streamer):
    """The host is only in one read of each pair, so the pair is torn if they are not kept."""
    records = [f"@{name}\n{letters}\n+\nIIIIIIII\n" for name, letters in
               zip(names, ["ACGTTGCA", "CCCCCCCC"] * 2, strict=False)]  # fmt: skip
    files = written(tmp_path, ["".join(records).encode()] * 2)
    arguments = ["filter", *files, "-d", dictionary, "-k", K, "--deplete"]
    code, out, err = streamer(*arguments)
    assert (code, out.count("@")) == (0, 0 if told else 2 * (len(names) // 2))
    assert err.count("mates follow each other, by the first names") == told
    code, out, err = streamer(*arguments, "--no-interleaved", "-q")
    assert (code, out.count("@")) == (0, 2 * (len(names) // 2))
    assert ("follow each other: pairs in one file are torn: give --interleaved" in err) == told
    assert err.count("\n") == told


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (["a/1", "a/2", "b/1"], "record 3 (b/1): has no mate after it: mates must follow"),
        (["a/1", "a/2", "b/1", "c/2"], "record 4 (c/2): the name is not that of the other read of "
         "the pair, record 3 (b/1): mates must follow each other (--no-interleaved: "),
        (["a 1:N:0", "a 1:N:0"], "has R1 of the pairs, and record 1 has R1"),
        (["a/2", "a/1"], "has R1 of the pairs, and record 1 has R2"),
        ([], ""),
    ],
)  # fmt: skip
@pytest.mark.parametrize("batch", [1, 8])
def test_files_that_are_not_interleaved(names, told, batch, tmp_path, dictionary, streamer,
                                        monkeypatch):  # fmt: skip
    from streamer.cli import filter_files

    monkeypatch.setattr(filter_files, "_PAIRS", batch)
    (path,) = written(tmp_path, ["".join(map(ONE.format, names)).encode()])
    code, _, err = streamer(
        "filter", path, "--interleaved", "-d", dictionary, "-k", K, "--keep", "-q",
        "-o", tmp_path / "out.fq",
    )  # fmt: skip
    assert (code, (tmp_path / "out.fq").exists()) == (int(bool(told)), not told)
    assert err.startswith(f"streamer: error: {path}: {told}" if told else "")


def test_a_fault_is_told_before_that_its_file_is_shorter(tmp_path, dictionary, streamer):
    texts = [ONE.format("a") * 3, ONE.format("a") + "@a\nACGT\n+\nIII\n" + ONE.format("a")]
    paths = written(tmp_path, [text.encode() for text in texts])
    for order in (paths, paths[::-1]):
        code, out, said = streamer(
            "filter", *order, "-d", dictionary, "-k", K, "--keep", "--pairs", "-q"
        )
        assert code == 1
        assert "in1.fq: record 2 (a): not valid FASTQ (line 8): length 4" in said
        assert out == ""


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ((), "give either --keep or --deplete"),
        (("--keep", "--deplete"), "give either --keep or --deplete"),
        (("--keep", "--pairs"), "--pairs needs files as R1 R2: 1 were given"),
        (("--keep", "--output2", "x"), "--output2 needs --pairs or --interleaved"),
        (("--keep", "--removed2", "x"), "--removed2 needs --removed"),
        (("--keep", "--removed", "-"), "--removed -: rows go to standard output"),
        (("--keep", "--pairs", "--interleaved"), "--pairs needs files as R1 R2"),
        (("--keep", "--samples", "x"), "give READS, or --samples"),
        (("--keep", "--pair-rule", "together"), "--pair-rule together needs --pairs or"),
        (("--keep", "--level", 3), "--level needs an output that is compressed"),
        (("--keep", "--level", 0, "-o", "a.bz2"), "--level 0: a.bz2 has levels 1 to 9"),
        (("--keep", "--rename", "-o", "a.bam"), "--rename: a.bam: only FASTQ and FASTA"),
        (("--keep", "-o", "a.bam.gz"), "a.bam.gz: alignments are compressed in BAM and CRAM"),
        (("--keep", "-d", "-", "-d", "-"), "standard input (-) can be read only once"),
        (("--keep", "--min-fraction", 2), "'--min-fraction': must be"),
        (("--keep", "--summary", "-"), "--summary -: "),
    ],
)
def test_options_that_do_not_go_together(options, told, tmp_path, dictionary, streamer):
    (path,) = written(tmp_path, [ONE.format("a").encode()])
    code, out, said = streamer("filter", path, "-d", dictionary, "-k", K, *options)
    assert (code, out) == (2, "")
    assert told in said


def test_what_has_no_records_to_write_is_refused(tmp_path, dictionary, streamer):
    fasta = write_fasta(tmp_path / "a.fa", [("a", "ACGT")])
    (path,) = written(tmp_path, [ONE.format("a").encode()])
    code, _, said = streamer("filter", path, fasta, "-d", dictionary, "-k", K, "--keep")
    assert code == 1
    assert f"{fasta}: is FASTA, the files before it are FASTQ" in said
    code, _, said = streamer("filter", path, "-d", dictionary, "-k", K, "--keep", "-o", "a.bam")
    assert (code, "a.bam: FASTQ is not written as BAM" in said) == (1, True)


def test_outputs_are_replaced_together_or_not_at_all(tmp_path, dictionary, streamer):
    """The last one is on a full disk."""
    texts = [
        "".join(f"@r\n{letter * 100}\n+\n{'I' * 100}\n" for _ in range(200)) for letter in "AC"
    ]
    paths = written(tmp_path, [text.encode() for text in texts])
    folder = tmp_path / "outputs"
    folder.mkdir()
    outputs = [folder / name for name in ("out1.fq.gz", "out2.fq.gz", "summary.json")]
    for output in outputs:
        output.write_bytes(b"old")
    # through a link, which stays
    outputs[2].unlink()
    outputs[2].symlink_to("/dev/full")
    arguments = ["filter", *paths, "--pairs", "-d", dictionary, "-k", K, "--deplete", "-q"]
    arguments += ["-o", outputs[0], "--output2", outputs[1], "--summary", outputs[2]]
    code, out, said = streamer(*arguments, "--device", "cpu")
    assert (code, out) == (1, "")
    assert said.startswith(f"streamer: error: {outputs[2]}: cannot write: ")
    assert sorted(folder.iterdir()) == outputs, "nothing beside them"
    assert {path.read_bytes() for path in outputs if not path.is_symlink()} == {b"old"}


def table(path, *rows):
    path.write_text("".join("\t".join(map(str, row)) + "\n" for row in rows))
    return path


def test_samples_are_filtered_like_single_ones(tmp_path, dictionary, streamer):
    """One has lanes, one is faulty, one is not there: the others are complete."""
    rng = random.Random(5)
    mates = [fastq(rng, 20, mate)[0] for mate in ("/1", "/2")]
    single, lane = fastq(rng, 20)[0], fastq(rng, 9)[0]
    one, other, alone, second = written(tmp_path, [*mates, single, lane])
    bad = tmp_path / "bad.fq"
    bad.write_bytes(single + b"@broken\n")
    samples = table(
        tmp_path / "samples.tsv",
        ("sample", "reads1", "reads2", "output1", "output2", "removed"),
        ("bad", bad, "", tmp_path / "bad_out.fq", "", ""),
        ("pairs", one, other, tmp_path / "p1.fq", tmp_path / "p2.fq.gz", ""),
        ("absent", tmp_path / "absent.fq", "", tmp_path / "absent_out.fq", "", ""),
        ("nowhere", one, "", tmp_path / "nowhere" / "out.fq", "", ""),
        ("lanes", alone, "", tmp_path / "lanes.fq", "", tmp_path / "lanes_removed.fq"),
        ("lanes", second, "", tmp_path / "lanes.fq", "", tmp_path / "lanes_removed.fq"),
    )
    arguments = ["filter", "-d", dictionary, "-k", K, "--deplete", "--samples", samples, "-q"]
    code, out, err = streamer(*arguments, "--summary", tmp_path / "all.json")
    assert (code, out) == (1, "")
    faults = err.splitlines()
    assert f"error: bad: {bad}: record 21 (broken): not valid FASTQ" in faults[0]
    assert f"error: absent: {tmp_path / 'absent.fq'}: no such file" in faults[1]
    assert f"error: nowhere: {tmp_path / 'nowhere' / 'out.fq'}: cannot write: " in faults[2]
    assert faults[3:] == ["streamer: error: 3 of 5 samples failed: bad, absent, nowhere"]
    assert not (tmp_path / "bad_out.fq").exists()
    assert not list(tmp_path.glob(".*part"))
    (first, last, _), reads = oracle.filtered(mates, K, RECORDS, keep=False, pairs=True)
    assert (tmp_path / "p1.fq").read_bytes() == first
    assert gzip.decompress((tmp_path / "p2.fq.gz").read_bytes()) == last
    for name, keep in ("lanes.fq", False), ("lanes_removed.fq", True):
        (want, *_), _ = oracle.filtered([single, lane], K, RECORDS, keep=keep)
        assert (tmp_path / name).read_bytes() == want
    told = json.loads((tmp_path / "all.json").read_text())["samples"]
    assert [sample["sample"] for sample in told] == ["pairs", "lanes"]
    assert [sample["parameters"]["pairs"] for sample in told] == [True, False]
    counts = {"reads_in": 40, "reads_out": sum(out for _, _, out in reads)}
    assert counts.items() <= told[0].items()
    rows = json.loads((tmp_path / "all_mqc.json").read_text())["data"]
    assert counts.items() <= rows["pairs"].items()
    assert rows["pairs"]["removed"] == round(1 - counts["reads_out"] / 40, 6)


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ([("sample", "reads1")], "line 1: the columns are sample, reads1, output1 and, if"),
        ([("sample", "reads1", "output1", "size")], "line 1: the columns are"),
        ([("sample", "reads1", "output1")], "holds no sample"),
        ([("sample", "reads1", "output1"), ("a", "in.fq", "")], "line 2: lacks output1"),
        ([("sample", "reads1", "output1"), ("a", "in.fq", "x", "y")], "line 2: has 4 cells"),
        ([("#sample", "reads1", "output1"), ("a", "in.fq", "x"), ("b", "in.fq", "./x")],
         "line 3: ./x is one of a"),
        ([("sample", "reads1", "output1"), ("a", "in.fq", "x"), ("a", "in.fq", "y")],
         "line 3: a has other outputs or pairs"),
        ([("sample", "reads1", "output1"), ("a", "in.fq", "x"), ("b", "x", "y")],
         "x is an input and an output"),
        ([("sample", "reads1", "output1"), ("a", "in.fq", "x.tsv")], "are written, not .tsv"),
    ],
)  # fmt: skip
def test_tables_of_samples_that_are_refused(
    rows, told, tmp_path, dictionary, streamer, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    samples = table(tmp_path / "samples.tsv", *rows)
    code, _, err = streamer(
        "filter", "-d", dictionary, "-k", K, "--deplete", "--samples", samples, "-q"
    )
    assert code in (1, 2)
    assert told in err
    assert err.count("\n") == 1
    assert {path.name for path in tmp_path.iterdir()} == {"samples.tsv", "dictionary.fa"}


def test_a_host_of_many_targets_is_named(tmp_path, dictionary, streamer):
    (path,) = written(tmp_path, [ONE.format("a").encode()])
    words = ["filter", path, "--deplete", "--preset", "host-long", "-o", tmp_path / "o.fq"]
    assert "the host has 3 targets" in streamer(*words, "-d", dictionary, "-k", K)[2]
    index = tmp_path / "host.idx"
    assert streamer("index", dictionary, "-k", K, "--target-by", "file", "-o", index)[0] == 0
    code, _, told = streamer(*words, "-d", index)
    assert code == 0
    assert "apart" not in told

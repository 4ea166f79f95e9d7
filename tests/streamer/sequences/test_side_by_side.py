"""FASTQ that a team parses side by side: rows and errors are those of one parser."""

from __future__ import annotations

import gzip
import random
import subprocess

import numpy as np
import pytest

from streamer.errors import DataError
from streamer.sequences import decompression, side_by_side, source, text_window
from streamer.sequences.bgzf import END_BLOCK
from streamer.sequences.files import read_batches, read_records
from streamer.sequences.record_buffer import RecordBuffer
from tests.streamer.sequences.kit import bgzf_blocks
from tests.streamer.sequences.test_reader import FASTQ, FILES
from trie.cpu.team import Team


@pytest.fixture
def sizes(monkeypatch):
    """Sets the sizes of regions and of blocks."""

    def set_sizes(region, block):
        for module in (side_by_side, source):
            monkeypatch.setattr(module, "REGION_BYTES", region)
        for module in (text_window, decompression, source):
            monkeypatch.setattr(module, "BLOCK_BYTES", block)
        monkeypatch.setattr(side_by_side, "_MOST_BYTES", 8 * region)

    return set_sizes


@pytest.fixture
def parsed(monkeypatch):
    """Whether each region that was parsed had whole records."""
    whole = []

    def parse(block, buffer):
        done = side_by_side.parsed(block, buffer)
        whole.append(done.pieces is not None)
        return done

    monkeypatch.setattr(source, "parsed", parse)
    return whole


def rows(path, team, **limits):
    """(name, codes) of all reads, then the error."""
    found = []
    try:
        for batch in read_batches([str(path)], team=team, **limits):
            places = batch.offsets.tolist()
            codes = (batch.bases[i:j].tobytes() for i, j in zip(places, places[1:], strict=False))
            found += zip(batch.names, codes, strict=True)
    except DataError as error:
        found.append(str(error))
    return found


def texts(path, team, **limits):
    """(number, text, first line) of all records, then the error."""
    found = []
    try:
        for piece in read_records(str(path), team=team, **limits):
            assert piece.text is not None
            (span,), places = piece.text.joined()
            for number, (begin, line, end) in enumerate(places.tolist()):
                parts = span.text[begin:end].tobytes(), span.text[begin:line].tobytes()
                found.append((piece.first + number, *parts))
    except DataError as error:
        found.append(str(error))
    return found


def check(path, content, **limits):
    path.write_bytes(content)
    wanted = rows(path, None, **limits), texts(path, None, **limits)
    with Team(4) as team:
        assert rows(path, team, **limits) == wanted[0], content
    with Team(4) as team:
        assert texts(path, team, **limits) == wanted[1], content
    return wanted[0]


def fastq(rng, records, *, ends=(b"\n",), blank=0.0, lengths=(0, 1, 5, 30, 100, 300)):
    """Records whose qualities look like other lines, with blank lines behind some."""
    content = b""
    for number in range(records):
        length, end = rng.choice(lengths), rng.choice(ends)
        letters = bytes(rng.choices(b"ACGTN", k=length))
        qualities = bytes(rng.choices(b"@+#IIII!~", k=length))
        content += end.join((b"@r%d about" % number, letters, b"+", qualities, b""))
        content += end * (rng.random() < blank)
    return content


@pytest.mark.parametrize("seed", range(40))
def test_rows_and_errors_are_those_of_one_parser(seed, tmp_path, sizes):
    rng = random.Random(seed)
    ends = rng.choice([(b"\n",), (b"\r\n",), (b"\n", b"\r\n")])
    content = fastq(rng, rng.randrange(1, 150), ends=ends, blank=rng.choice([0, 0, 0.05]))
    for _ in range(rng.choice([0, 0, 1, 2])):
        at = rng.randrange(len(content))
        content = (
            content[:at] + bytes(rng.choices(b"@+\nACx\x80")) + content[at + rng.randrange(2) :]
        )
    if rng.random() < 0.3:
        content = content[: rng.randrange(len(content))]
    packed = rng.choice(["", "", "gz", "bgzf"])
    if packed == "gz":
        content = gzip.compress(content)
    elif packed == "bgzf":
        blocks = bgzf_blocks(content, *range(100, len(content), 100))
        content = b"".join((*blocks, END_BLOCK))
    if packed and rng.random() < 0.4:
        content = content[: rng.randrange(len(content))]
    sizes(rng.choice((300, 1000, 3000)), rng.choice((64, 200, 1000)))
    limits = {"batch_bases": rng.choice((100, 1000, 10**6)), "batch_reads": rng.choice((3, 10**5))}
    check(tmp_path / "f", content, **limits)


@pytest.mark.parametrize("name", ["fastq", "fastq-blank"])
def test_cut_at_every_byte(name, tmp_path, sizes):
    sizes(100, 64)
    content = FILES[name]
    for end in range(len(content) + 1):
        check(tmp_path / "f", content[:end])


def test_all_of_a_plain_file_is_parsed_side_by_side(tmp_path, sizes, parsed):
    sizes(3000, 500)
    assert len(check(tmp_path / "f", fastq(random.Random(1), 500))) == 500
    assert len(parsed) > 30
    assert all(parsed)


def test_one_parser_goes_on_behind_a_wrong_cut(tmp_path, sizes, parsed, monkeypatch):
    sizes(3000, 500)
    right, cuts = side_by_side._last_end, []

    def wrong(text, first, stop):
        cuts.append(right(text, first, stop))
        return cuts[-1] - 7 * (len(cuts) == 5)

    monkeypatch.setattr(side_by_side, "_last_end", wrong)
    assert len(check(tmp_path / "f", fastq(random.Random(2), 500, lengths=(30, 100)))) == 500
    assert parsed[:5] != [True] * 5


def test_records_longer_than_a_region(tmp_path, sizes, parsed):
    sizes(1000, 300)
    rng = random.Random(3)
    content = b"".join(fastq(rng, 2, lengths=(size,)) for size in (10, 700, 2000, 3500, 40))
    assert len(check(tmp_path / "f", content)) == 10
    assert all(parsed)
    # and than what is looked through for its end
    content += fastq(rng, 1, lengths=(20_000,)) + fastq(rng, 300)
    assert len(check(tmp_path / "f", content)) == 311
    assert not all(parsed)


def test_few_threads_and_pipes_have_one_parser(tmp_path, sizes, parsed):
    sizes(1000, 300)
    path = tmp_path / "f"
    path.write_bytes(FASTQ * 20)
    with Team(2) as team:
        wanted = rows(path, team)
    with Team(4) as team, subprocess.Popen(["cat", path], stdout=subprocess.PIPE) as child:
        batches = read_batches(["-"], opened=child.stdout, team=team)
        assert sum(len(batch) for batch in batches) == len(wanted) > 50
    assert not parsed


def test_a_region_that_ends_within_a_record_is_refused():
    first = text_window.ROOM_BYTES
    block = text_window.new_block(40)
    block.array[first:][:40] = np.frombuffer(FASTQ[:40], np.uint8)
    assert side_by_side.parsed(block, RecordBuffer("f", 100, 100)).pieces is None


def test_full_batches_are_those_of_one_parser(tmp_path, sizes, parsed):
    sizes(3000, 500)
    path = tmp_path / "f"
    path.write_bytes(fastq(random.Random(4), 500))

    def batches(threads, **options):
        with Team(threads) as team:
            found = read_batches([str(path)], batch_reads=70, team=team, **options)
            return [len(batch) for batch in found]

    assert batches(4, full=True) == batches(2) == [70] * 7 + [10]
    assert not parsed
    assert batches(4) != batches(2)


def equal_for_any_threads(streamer, parsed, *arguments):
    """The output of a command, with two threads and with four."""
    code, wanted, error = streamer(*arguments, "--quiet", "--threads", 2)
    assert (code, error) == (0, "")
    assert streamer(*arguments, "--quiet", "--threads", 4) == (0, wanted, "")
    assert not parsed
    return wanted


def as_bases(folder):
    """A dictionary of one k-mer."""
    path = folder / "d.fa"
    path.write_text(f">d\n{'A' * 31}\n")
    return path


def test_pairs_whose_mates_differ_in_length(tmp_path, sizes, parsed, streamer):
    sizes(3000, 500)
    rng = random.Random(5)
    paths = [tmp_path / "1.fq", tmp_path / "2.fq"]
    for path, length in zip(paths, (150, 120), strict=True):
        path.write_bytes(fastq(rng, 200, lengths=(length,)))
    given = ["filter", *paths, "--pairs", "-d", as_bases(tmp_path), "-k", 31, "--deplete"]
    assert equal_for_any_threads(streamer, parsed, *given).count("\n") == 4 * 400


@pytest.mark.parametrize("limit", [[], ["--max-kmers", 1000], ["--distance", 1]])
def test_growth_does_not_depend_on_threads(limit, tmp_path, sizes, parsed, streamer):
    sizes(3000, 500)
    rng = random.Random(6)
    letters = [bytes(rng.choices(b"ACGT", k=100)) for _ in range(100)]
    letters += [b"T" + one[1:50] + b"A" + one[51:] for one in letters]
    path = tmp_path / "reads.fq"
    path.write_bytes(b"".join(b"@r\n%s\n+\n%s\n" % (one, b"I" * 100) for one in letters))
    report = [] if "--distance" in limit else ["--report", "novelty"]
    given = ["match", path, "-d", as_bases(tmp_path), "-k", 31, "--mode", "grow", *limit, *report]
    equal_for_any_threads(streamer, parsed, *given)

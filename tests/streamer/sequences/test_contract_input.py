"""What stands in a file is read to its last byte, or it is said why not; names are first words."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import random
import subprocess
import zipfile
import zlib
from contextlib import nullcontext
from functools import partial

import pytest

from streamer.errors import DataError
from streamer.output.output_file import END_BLOCK
from streamer.sequences import record_limit
from streamer.sequences.decompression import COMPRESSIONS, Members
from streamer.sequences.files import read_batches, read_pieces
from tests.data_files import write_fasta
from tests.streamer.sequences.kit import bam_of, bgzf_block, zstd

pytestmark = pytest.mark.whole

COMPRESS = {"gz": gzip.compress, "bz2": bz2.compress, "xz": partial(lzma.compress, preset=0)}
READS = [f"@r{i}\nACGTACGTAC\n+\nIIIIIIIIII\n".encode() for i in range(6)]
FIRST, SECOND = b"".join(READS[:2]), b"".join(READS[2:])


@pytest.fixture
def names(tmp_path, streamer):
    """The names of the reads in a file with some content; or the one line of its error."""

    def read(content):
        path = tmp_path / "reads"
        path.write_bytes(content)
        code, out, err = streamer("match", path, "--seed", 0, "-k", 4, "--report", "reads", "-q")
        found = [line.split("\t")[0] for line in out.splitlines()[1:]]
        if code == 0:
            return found
        assert code == 1
        assert err.count("\n") == 1
        return err

    return read


@pytest.mark.parametrize(
    ("name", "between", "behind"),
    [("gz", 0, 0), ("gz", 0, 512), ("bz2", 0, 0), ("xz", 0, 0), ("xz", 4, 0), ("xz", 512, 8)],
)
def test_members_and_padding(names, name, between, behind):
    first, second = COMPRESS[name](FIRST), COMPRESS[name](SECOND)
    found = names(first + bytes(between) + second + bytes(behind))
    assert found == [f"r{i}" for i in range(6)]


@pytest.mark.parametrize("name", COMPRESS)
def test_a_damaged_second_member_is_told(names, name):
    second = bytearray(COMPRESS[name](SECOND))
    second[1] ^= 1
    assert "reads: " in names(COMPRESS[name](FIRST) + bytes(second))


def test_other_bytes_behind_xz_are_an_error(names):
    assert "reads: " in names(lzma.compress(FIRST) + b">r9\nACGTA\n")


@pytest.fixture
def warned(tmp_path, streamer):
    """The names of the reads in a file with some content, and what is said about it."""

    def read(content, *options):
        path = tmp_path / "reads"
        path.write_bytes(content)
        code, out, err = streamer(
            "match", path, "--seed", 0, "-k", 4, "--report", "reads", "-q", *options
        )
        assert code == 0, err
        return [line.split("\t")[0] for line in out.splitlines()[1:]], err.replace(str(path), "F")

    return read


IGNORED = "streamer: warning: F: other bytes follow the compressed data: they are ignored\n"


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize(
    "bytes_behind", [b"\n", b"ab", b">r9\nACGTA\n", b"\0\0more", b"x" * 99_999]
)
@pytest.mark.parametrize("name", ["gz", "bz2", "BGZF"])
def test_other_bytes_behind_the_last_member_are_ignored_aloud(warned, name, bytes_behind, threads):
    content = b"".join(map(bgzf_block, (FIRST, SECOND))) + END_BLOCK if name == "BGZF" else b""
    content = content or COMPRESS[name](FIRST) + COMPRESS[name](SECOND)
    if name == "bz2":
        bytes_behind = bytes_behind.lstrip(b"\0")
    assert warned(content + bytes_behind, "--threads", threads) == (
        [f"r{i}" for i in range(6)],
        IGNORED,
    )


def test_other_bytes_between_blocks_of_bgzf_are_an_error(names):
    first, second = map(bgzf_block, (FIRST, SECOND))
    assert "no block" in names(first + b"other bytes" + second + END_BLOCK)


SKIPPED = b"\x50\x2a\x4d\x18\x04\0\0\0size"


@pytest.mark.parametrize("first", [0x50, 0x5F])
def test_zstd_behind_frames_to_skip(warned, names, first):
    """As pzstd writes it."""
    skipped = bytes([first]) + SKIPPED[1:]
    content = skipped + zstd(FIRST) + skipped + zstd(SECOND)
    assert warned(content) == ([f"r{i}" for i in range(6)], "")
    for stop in range(6, len(content), 1 if first == 0x50 else 7):
        if stop not in (len(skipped), len(skipped + zstd(FIRST)), len(content) - len(zstd(SECOND))):
            assert "reads: " in names(content[:stop]), stop


FASTA = b">r0\nACGTACG\n>r1\nACGTA\n"


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
@pytest.mark.parametrize("content", [FIRST, FASTA, b"\n" + FIRST])
def test_a_byte_order_mark_is_skipped(warned, content, compress):
    assert warned(compress(b"\xef\xbb\xbf" + content)) == (["r0", "r1"], "")


@pytest.mark.parametrize("content", [FIRST, FASTA])
def test_wide_encodings_are_named_with_a_remedy_that_works(names, content):
    for size in (16, 32):
        for order, mark in (("LE", ""), ("BE", ""), ("LE", "\ufeff"), ("BE", "\ufeff")):
            wide = (mark + content.decode()).encode(f"utf-{size}-{order}")
            named = f"UTF-{size}" + order * (not mark)
            command = f"iconv -f {named} -t UTF-8"
            assert names(wide).endswith(f"reads: is {named} text: convert it with {command}\n")
            done = subprocess.run(command.split(), input=wide, capture_output=True, check=True)
            assert names(done.stdout) == ["r0", "r1"], command


@pytest.mark.parametrize("threads", [1, 3])
def test_another_header_behind_plus_is_ignored_aloud(warned, threads, sizes):
    sizes(400, 100)
    content = b"".join(READS[:2]) + b"".join(READS[2:]).replace(b"+\n", b"+SRR1.1 x\n")
    said = "streamer: warning: F: line 11: the header after '+' is not the one after '@': it is "
    found = warned(content * 20, "--threads", threads)
    assert found == ([f"r{i}" for i in range(6)] * 20, said + "ignored, here and below\n")
    whole = content.replace(b"+SRR1.1 x", b"+")
    assert warned(whole * 20, "--threads", threads)[1] == ""


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_members_cut_anywhere(compression):
    rng = random.Random(7)
    parts = [rng.randbytes(size) for size in (0, 1, 300, 0)]
    whole = b"".join(map(COMPRESS[compression], parts))
    ends = {0: b""}
    for part in parts:
        ends[max(ends) + len(COMPRESS[compression](part))] = part
    for size in range(len(whole) + 1):
        raw = io.BufferedReader(io.BytesIO(whole[:size]), 5)
        read = iter(partial(Members(raw, compression).read1, 16), b"")
        found = []
        with nullcontext() if size in ends else pytest.raises(EOFError):
            found.extend(read)
        assert b"".join(parts).startswith(b"".join(found))
        complete = sum(len(part) for end, part in ends.items() if end <= size)
        assert len(b"".join(found)) >= complete
    assert b"".join(found) == b"".join(parts)


@pytest.mark.parametrize("mark", [">", "@"])
@pytest.mark.parametrize(
    ("header", "name"),
    [("a b", "a"), ("a\tb", "a"), (" a b", "a"), ("\t a", "a"), ("", ""), (" ", "")],
)
def test_a_name_is_the_first_word_of_the_header(names, mark, header, name):
    rest = "+\nIIIII\n" if mark == "@" else ""
    assert names(f"{mark}{header}\nACGTA\n{rest}".encode()) == [name]


@pytest.mark.parametrize("name", COMPRESS)
def test_all_reads_in_front_of_a_cut(name, tmp_path, inflating):
    rng = random.Random(9)
    letters = [rng.randbytes(100).translate(b"ACGT" * 64).decode() for _ in range(12_000)]
    whole = COMPRESS[name]("".join(f"@r\n{one}\n+\n{one}\n" for one in letters).encode())
    path = tmp_path / "reads"
    path.write_bytes(whole[: len(whole) // 2])
    member = {"gz": zlib.decompressobj(31), "bz2": bz2.BZ2Decompressor()}.get(name)
    member = member or lzma.LZMADecompressor()
    there = member.decompress(path.read_bytes()).count(b"\n") // 4
    assert 3000 < there < 9000
    batches = []
    with pytest.raises(DataError, match=f"record {there + 1}: the compressed stream is truncated"):
        batches.extend(iter(read_batches([str(path)])))
    assert sum(map(len, batches)) == there


def sam_of(records):
    rows = (f"{name}\t4\t*\t0\t0\t*\t*\t0\t0\t{text}\t*\n" for name, text in records)
    return "@HD\tVN:1.6\n" + "".join(rows)


LONG = [("r0", "ACGTACGT" * 5), ("r1", "ACGTACG"), ("r2", "ACGTA" * 9), ("r3", "ACGTTG" * 9)]
WITH_LONG = {
    "FASTA": "".join(f">{name} x\n{text[:11]}\n{text[11:]}\n" for name, text in LONG).encode(),
    "FASTQ": "".join(f"@{n} x\n{text}\n+\n{'I' * len(text)}\n" for n, text in LONG).encode(),
    "SAM": sam_of(LONG).encode(),
    "BAM": bam_of(LONG),
}


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("name", WITH_LONG)
def test_a_record_over_the_limit_is_refused(name, threads, compress, tmp_path, streamer, sizes):
    sizes(100, 40)
    path = tmp_path / "reads"
    path.write_bytes(compress(WITH_LONG[name]))
    words = ("match", path, "--seed", 0, "-k", 4, "--report", "reads", "-q", "--threads", threads)
    for limit in (45, 53):
        code, out, err = streamer("--max-record", limit, *words)
        wanted = [f"r{i}" for i in range(2 + (limit == 45) + (limit == 53))]
        assert (code, [row.split("\t")[0] for row in out.splitlines()[1:]]) == (1, wanted)
        number = len(wanted) + 1
        assert err == (
            f"streamer: error: {path}: record {number} (r{number - 1}): more than {limit} bases: "
            "cut the record into parts, or raise the limit: "
            "streamer --max-record BASES COMMAND ...\n"
        )
    assert streamer("--max-record", 54, *words)[0] == 0
    assert streamer(*words)[0] == 0


def test_fasta_in_parts_has_no_limit(tmp_path, streamer):
    path = tmp_path / "reads"
    path.write_bytes(WITH_LONG["FASTA"])
    for words in (("asm", path, "--pattern", "ACGTTG"), ("match", path, "-d", path)):
        limit = 54 if words[0] == "match" else 5
        assert streamer("--max-record", limit, *words, "-k", 4, "-q")[0] == 0


@pytest.mark.parametrize("name", ["FASTQ", "SAM", "BAM"])
def test_a_record_without_end_is_given_up(name, monkeypatch, sizes, tmp_path):
    """Long before the file ends, so that memory is bounded."""
    sizes(100, 40)
    monkeypatch.setattr(record_limit, "LONGEST_HEADER", 1000)
    path = tmp_path / "reads"
    record = {
        "FASTQ": b"@r\n" + b"A" * 50_000,
        "SAM": b"r\t4\t*\t0\t0\t*\t*\t0\t0\t" + b"A" * 50_000,
        "BAM": bam_of([("r", "A" * 50_000)])[:-1],
    }[name]
    path.write_bytes(record)
    said = r"reads: record 1: more than 500 bases: cut the record"
    record_limit.limit_records(500)
    try:
        with pytest.raises(DataError, match=said):
            list(read_batches([str(path)]))
        with pytest.raises(DataError, match=said):
            list(read_pieces(str(path), 3))
    finally:
        record_limit.limit_records(record_limit.MOST_BASES)


@pytest.mark.parametrize("role", ["reads", "dictionary"])
def test_an_archive_is_named(role, tmp_path, streamer):
    """Dictionaries were saved in such archives, too."""
    path = tmp_path / "genome.zip"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("genome.fa", ">a\nACGTACGT\n")
    other = write_fasta(tmp_path / "other.fa", [("a", "ACGTTGCA")])
    files = (path, "-d", other) if role == "reads" else (other, "-d", path)
    code, _, err = streamer("match", *files, "-k", 5, "-q")
    assert (code, err) == (1, f"streamer: error: {path}: is a ZIP archive: unzip it\n")

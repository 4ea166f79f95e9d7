"""What stands in a file is read to its last byte, or it is said why not; names are first words."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import random
import zlib
from contextlib import nullcontext
from functools import partial

import pytest

from streamer.errors import DataError
from streamer.sequences.bz2_xz import COMPRESSIONS, Members
from streamer.sequences.files import read_batches

pytestmark = pytest.mark.whole

COMPRESS = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress}
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


@pytest.mark.parametrize("name", COMPRESS)
def test_other_bytes_behind_the_last_member_are_told(names, name):
    assert "reads: " in names(COMPRESS[name](FIRST) + b">r9\nACGTA\n")


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
    letters = ["".join(rng.choices("ACGT", k=100)) for _ in range(12_000)]
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

"""FASTQ: every record before a fault, and the fault's place, whatever bytes the headers hold."""

from __future__ import annotations

import bz2
import gzip

import pytest

from streamer.errors import DataError
from streamer.sequences.files import read_batches

RECORDS = 9050


def lines_of(number):
    """The lines of a record; one header in three is not ASCII, one in seven is no text at all."""
    name = f"r{number}" + ("é" if number % 21 == 0 else "")
    comment = b" caf\xc3\xa9" if number % 3 == 0 else b" \xff\xfe" if number % 7 == 0 else b" x"
    length = 8 * (1 + number % 5)
    return [b"@" + name.encode() + comment, b"ACGTTGCA" * (length // 8), b"+", b"I" * length]


def name_of(number):
    return lines_of(number)[0][1:].split()[0].decode()


# what is done to the lines of a record, and what is said of it
DAMAGE = {
    "bad base": (lambda r: [r[0], b"AC!T" + r[1][4:], *r[2:]], "position 3: '!' is not a base"),
    "bad byte": (lambda r: [r[0], b"AC\xc3T" + r[1][4:], *r[2:]], "position 3: byte 0xc3"),
    "short qualities": (lambda r: [*r[:3], r[3][1:]], "of the qualities"),
    "no plus": (lambda r: [*r[:2], b"-", r[3]], "expected '+', not '-'"),
    "third line missing": (lambda r: [*r[:2], r[3]], "expected '+', not 'IIIIIIII"),
    "no at": (lambda r: [r[0][1:], *r[1:]], "expected '@' at the beginning of a record"),
    "header missing": (lambda r: r[1:], "expected '@' at the beginning of a record, not 'ACGTT"),
    "bad quality": (lambda r: [*r[:3], b"\xe9" + r[3][1:]], "the qualities hold byte 0xe9"),
    "name not UTF-8": (lambda r: [b"@r\xff x", *r[1:]], "the name is not UTF-8: it holds byte 0xf"),
    "control character": (lambda r: [b"@r\x1b[2J", *r[1:]], "the name holds U+001B, which is not"),
    "NUL in a name": (lambda r: [b"@r\0 x", *r[1:]], "the name holds U+0000, which is not"),
    "no-break space": (lambda r: ["@r\xa0x".encode(), *r[1:]], "the name holds U+00A0, which is"),
    "multi-line": (
        lambda r: [r[0], r[1][:4], r[1][4:], b"+", r[3][:4], r[3][4:]],
        "multi-line FASTQ is not supported",
    ),
    "truncated": (lambda r: None, "the file ends within the record"),
}


def damaged(kind, number):
    """A file of 9,050 records of which one is damaged."""
    records = [lines_of(at) for at in range(1, RECORDS + 1)]
    made = DAMAGE[kind][0](records[number - 1])
    if made is None:
        whole = records[: number - 1]
        return b"".join(line + b"\n" for record in whole for line in record) + lines_of(number)[0]
    records[number - 1] = made
    return b"".join(line + b"\n" for record in records for line in record)


@pytest.mark.whole
@pytest.mark.parametrize(
    ("kind", "number"),
    # what does not begin with a header is no FASTQ
    [
        (k, n)
        for k in DAMAGE
        for n in (1, 3, 8619, 9001)
        if n > 1 or "expected '@'" not in DAMAGE[k][1]
    ],
)
def test_damage_is_found_where_it_is(kind, number, tmp_path):
    path = tmp_path / "reads.fq"
    content = damaged(kind, number)
    compress = {3: gzip.compress, 8619: bz2.compress}.get(number, bytes)
    path.write_bytes(compress(content))
    for batch_bases in (2000, 4_000_000):
        batches = []
        with pytest.raises(DataError) as caught:
            batches.extend(iter(read_batches([str(path)], batch_bases=batch_bases)))
        names = [name for batch in batches for name in batch.names]
        assert names == [name_of(at) for at in range(1, number)]
        assert caught.value.record == number
        assert caught.value.name in (None, name_of(number))
        assert DAMAGE[kind][1] in str(caught.value)
        if " (line " in str(caught.value):
            line = int(str(caught.value).split(" (line ")[1].split(")")[0])
            assert 4 * number - 3 <= line <= 4 * number


@pytest.mark.parametrize("blank", ["\n", "\r\n", "\n\n\n", " \n", "\n \t\n"])
@pytest.mark.parametrize("mark", [">", "@"])
def test_blank_lines_around_records(mark, blank, tmp_path, streamer):
    path = tmp_path / "reads"
    rest = "+\nIIIII\n" if mark == "@" else ""
    records = [f"{mark}r{i}\nACGTA\n{rest}" for i in range(3)]
    for content in ("".join(records) + blank, blank + blank.join(records), blank.join(records)):
        path.write_bytes(content.encode())
        code, out, err = streamer(
            "match", path, "--seed", 0, "-k", 4, "--report", "reads", "--quiet"
        )
        assert (code, err) == (0, "")
        assert [row.split("\t")[0] for row in out.splitlines()[1:]] == ["r0", "r1", "r2"]
    # what follows is a record or a fault, not the end
    path.write_text("".join(records) + blank + "ACGTA\n")
    code, _, err = streamer("match", path, "--seed", 0, "-k", 4, "--quiet")
    assert (code, mark == "@") in ((1, True), (0, False))
    assert ("record 4: not valid FASTQ" in err) == (mark == "@")

"""BGZF: a BAM without the block that ends it was cut, though every block in it is whole."""

from __future__ import annotations

import gzip
import io
from itertools import product

import pytest

from streamer.errors import DataError
from streamer.output.output_file import END_BLOCK
from streamer.sequences import bgzf
from streamer.sequences.bgzf import Watched
from streamer.sequences.files import read_batches
from tests.streamer.sequences.kit import bam_of, bgzf_block, bgzf_blocks, outcome
from trie.cpu.team import Team

RECORDS = [(f"r{i}", "ACGTACGTAC") for i in range(6)]


WHOLE = bam_of(RECORDS)
RECORD_BYTES = len(bam_of(RECORDS[:1])) - len(bam_of([]))
HALF = len(bam_of([])) + 3 * RECORD_BYTES
BLOCKS = bgzf_blocks(WHOLE, HALF)


@pytest.fixture
def names(tmp_path, streamer, monkeypatch):
    """Exit code, names of reads and errors for a file with some content, by name or on a pipe."""

    def read(content, pipe=False):
        path = tmp_path / "reads.bam"
        path.write_bytes(content)
        if pipe:
            monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
        code, out, err = streamer(
            "match", "-" if pipe else path, "--seed", 0, "-k", 4, "--report", "reads", "-q"
        )
        return code, [line.split("\t")[0] for line in out.splitlines()[1:]], err

    return read


@pytest.mark.parametrize("pipe", [False, True])
def test_a_bam_cut_at_a_record(names, pipe):
    code, found, err = names(BLOCKS[0], pipe)
    assert (code, found) == (1, ["r0", "r1", "r2"])
    place = "<stdin>" if pipe else "reads.bam"
    assert err.endswith(
        f"{place}: record 4: truncated after 3 records: BGZF's end block is missing\n"
    )
    assert err.count("\n") == 1
    code, found, err = names(b"".join(BLOCKS), pipe)
    assert (code, len(found)) == (1, 6)
    assert "truncated after 6 records" in err


@pytest.mark.parametrize(
    "content",
    [
        b"".join(BLOCKS) + END_BLOCK,
        BLOCKS[0] + END_BLOCK + BLOCKS[1] + END_BLOCK,
        b"".join(BLOCKS) + END_BLOCK + bytes(5000),
        gzip.compress(WHOLE),
        WHOLE,
    ],
    ids=["whole", "end block within", "zeros behind", "plain gzip", "uncompressed"],
)
@pytest.mark.parametrize("pipe", [False, True])
def test_a_whole_bam(names, content, pipe):
    assert names(content, pipe) == (0, [name for name, _ in RECORDS], "")


def test_a_bam_without_records(names):
    empty = bgzf_block(bam_of([]))
    assert names(empty + END_BLOCK) == (0, [], "")
    code, _, err = names(empty)
    assert code == 1
    assert "truncated after 0 records" in err


@pytest.mark.parametrize("cut", [1, 2, 12, 18, len(END_BLOCK) - 10, len(END_BLOCK) - 1])
def test_a_cut_end_block(tmp_path, cut):
    path = tmp_path / "reads.bam"
    path.write_bytes(b"".join(BLOCKS) + END_BLOCK[:cut])
    seen = []
    with pytest.raises(DataError, match=r"reads\.bam: record 7: "):
        seen.extend(iter(read_batches([str(path)])))
    assert [name for batch in seen for name in batch.names] == [name for name, _ in RECORDS]


def test_other_bytes_behind_the_end_block(names):
    code, _, err = names(b"".join(BLOCKS) + END_BLOCK + b"more")
    assert code == 1
    assert "reads.bam: record 7: " in err


@pytest.mark.parametrize("mark", [">", "@"])
def test_text_needs_no_end_block(names, mark):
    """Common programs that write FASTQ as BGZF leave it out."""
    text = "".join(f"{mark}r{i}\nACGTA\n" + "+\nIIIII\n" * (mark == "@") for i in range(4)).encode()
    assert names(b"".join(bgzf_blocks(text, 20))) == (0, ["r0", "r1", "r2", "r3"], "")


@pytest.mark.parametrize("zeros", [0, 1, 40])
def test_the_end_however_it_comes(zeros):
    ends = (END_BLOCK, False), (b"", True), (END_BLOCK[:-1], zeros == 0)
    for size, (end, lacks) in product((1, 3, 11, 28, 29, 64, 1 << 17), ends):
        file = io.BufferedReader(io.BytesIO(b"".join(BLOCKS) + end + bytes(zeros)), 64)
        watched = Watched(file)
        while watched.read1(size):
            pass
        assert watched.lacks_end_block() == lacks


PIECES = bgzf_blocks(WHOLE, HALF // 2)
PLAIN = gzip.compress(WHOLE, mtime=0)
EXTRA = PLAIN[:3] + b"\x04" + PLAIN[4:10] + b"\x04\x00ab\x00\x00" + PLAIN[10:]
FORMS = {
    "blocks": b"".join(PIECES) + END_BLOCK,
    "zeros behind": b"".join(PIECES) + END_BLOCK + bytes(70_000),
    "then gzip": b"".join(PIECES[:2]) + gzip.compress(b"".join(map(gzip.decompress, PIECES[2:]))),
    "no block at all": EXTRA,
}


def damaged(step=3):
    """Every form, cut at bytes everywhere, and with bytes changed."""
    for name, content in FORMS.items():
        size = len(content.rstrip(b"\0")) + 3
        yield f"{name}", content
        for at in range(0, size, step):
            yield f"{name} cut at {at}", content[:at]
            yield f"{name} changed at {at}", content[:at] + b"\x5a" + content[at + 1 :]


@pytest.mark.parametrize("threads", [1, 3])
def test_a_team_reads_what_one_thread_reads(tmp_path, threads, inflating):
    path = tmp_path / "reads.bam"
    whole = 0
    for name, content in damaged():
        path.write_bytes(content)
        wanted = outcome(read_batches([str(path)], batch_reads=2))
        with Team(threads) as team:
            assert outcome(read_batches([str(path)], batch_reads=2, team=team)) == wanted, name
        whole += len(wanted) == 3
    assert whole >= len(FORMS) - 1


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("size", [1, 50, 1 << 18])
def test_groups_hold_every_byte(size, whole, monkeypatch, inflating):
    monkeypatch.setattr(bgzf, "_READ_BYTES", size)
    for name, content in damaged(29 if size == 1 else 7):
        for most in (1, HALF, 1 << 20):
            groups = list(bgzf.block_groups(io.BytesIO(content), most, whole=whole))
            assert b"".join(group.tobytes() for group in groups) == content, name
        if name == "blocks":
            texts = [bgzf.inflated(group)[1] for group in groups]
            found = [text.array[text.first : text.stop].tobytes() for text in texts]
            assert b"".join(found) == WHOLE
            assert len(groups) == (1 if size > len(content) or whole else len(PIECES) + 1)

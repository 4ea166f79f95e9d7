"""A run that is played: its channels, and records that keep their bytes."""

from __future__ import annotations

import bz2
import gzip
import lzma
import random
from collections import defaultdict

import pytest

from streamer.errors import DataError
from streamer.playing.run_folder import BASES_A_SECOND, RawRead, group_played, played, raw_reads


def reads_of(lengths):
    texts = (f"@r{i}\n{'A' * n}\n+\n{'I' * n}\n".encode() for i, n in enumerate(lengths))
    return [RawRead("x", text, n) for text, n in zip(texts, lengths, strict=True)]


def some_lengths(seed, count=300):
    rng = random.Random(seed)
    return [rng.choice((0, 1, 150, 4000, rng.randrange(20_000))) for _ in range(count)]


@pytest.mark.parametrize("channels", [1, 2, 7, 299, 300, 1000])
def test_each_read_once_and_in_the_order_of_its_end(channels):
    reads = reads_of(some_lengths(channels))
    run = list(played(iter(reads), channels, seed=4))
    assert sorted(one.read.name for one in run) == sorted(read.name for read in reads)
    assert [one.end for one in run] == sorted(one.end for one in run)
    assert {one.channel for one in run} == set(range(1, min(channels, len(reads)) + 1))


@pytest.mark.parametrize("channels", [1, 5, 64])
def test_a_channel_reads_one_molecule_after_the_other_at_its_speed(channels):
    by_channel = defaultdict(list)
    for one in played(iter(reads_of(some_lengths(9))), channels, seed=2):
        assert one.read.bases / (1.1 * BASES_A_SECOND) <= one.end - one.start + 1e-9
        assert one.end - one.start <= one.read.bases / (0.9 * BASES_A_SECOND) + 1e-9
        by_channel[one.channel].append(one)
    for ones in by_channel.values():
        free = 0.0
        for one in ones:
            assert one.start >= free
            free = one.end


def test_the_next_read_goes_to_the_channel_that_is_free_first():
    reads = reads_of(some_lengths(5))
    run = list(played(iter(reads), 16, seed=1))
    ends = {one.read.name: (one.end, one.channel) for one in run}
    free = dict.fromkeys(range(1, 17), 0.0)
    for read in reads:
        end, channel = ends[read.name]
        assert free[channel] == min(free.values())
        free[channel] = end


def test_a_seed_is_a_run():
    reads = reads_of(some_lengths(3))
    assert list(played(reads, 30, seed=8)) == list(played(reads, 30, seed=8))
    assert list(played(reads, 30, seed=8)) != list(played(reads, 30, seed=9))


def test_a_run_is_read_as_it_is_played():
    """No more reads are taken from the input than there are channels."""
    taken = 0

    def source():
        nonlocal taken
        for read in reads_of([1000] * 50):
            taken += 1
            yield read

    for done, _ in enumerate(played(source(), 10, seed=1)):
        assert taken <= done + 11


@pytest.mark.parametrize("seconds", [0.5, 1.0, 60.0])
@pytest.mark.parametrize("bases", [1, 5000, 10**9])
def test_groups_are_the_run_cut_at_seconds_and_bases(seconds, bases):
    run = list(played(iter(reads_of(some_lengths(1))), 40, seed=1))
    groups = list(group_played(run, seconds, bases))
    assert [one for group in groups for one in group] == run
    for group, following in zip(groups, [*groups[1:], None], strict=True):
        assert len({one.end // seconds for one in group}) == 1
        assert sum(one.read.bases for one in group[:-1]) < bases
        if following is not None:
            full = sum(one.read.bases for one in group) >= bases
            assert full or following[0].end // seconds > group[-1].end // seconds


TEXT = b"@a x\r\nACGT\r\n+a x\r\nIIII\r\n@b\n\n+\n\n\n@c\tq\nNN\n+\n@+"


def read(*paths):
    return list(raw_reads(map(str, paths), lambda _: None))


@pytest.mark.parametrize("pack", [bytes, gzip.compress, bz2.compress, lzma.compress])
def test_records_keep_their_bytes(tmp_path, pack):
    path = tmp_path / "reads"
    path.write_bytes(pack(TEXT))
    reads = read(path, path)
    assert [one.text for one in reads[:3]] == [
        b"@a x\r\nACGT\r\n+a x\r\nIIII\r\n",
        b"@b\n\n+\n\n",
        b"@c\tq\nNN\n+\n@+\n",
    ]
    assert [(one.name, one.bases, one.path) for one in reads] == 2 * [
        ("a", 4, str(path)),
        ("b", 0, str(path)),
        ("c", 2, str(path)),
    ]


def test_how_far_the_files_have_been_read(tmp_path):
    path = tmp_path / "reads"
    path.write_bytes(TEXT)
    done = []
    list(raw_reads([str(path), str(path)], done.append))
    assert done == sorted(done)
    assert done[-1] == 2 * len(TEXT)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b">a\nAC\n", "record 1: not FASTQ, which runs are played from"),
        (b"@a\nAC\n+\nII\n@b\nACG\n+\nII\n", "record 2: not valid FASTQ"),
        (b"@a\nAC\n-\nII\n", "record 1: not valid FASTQ"),
        (b"@a\nAC\n", "record 1: not valid FASTQ"),
        (gzip.compress(TEXT)[:-4], "the compressed stream is truncated"),
        (None, "record 1: no such file"),
    ],
    ids=["fasta", "lengths", "plus", "lines", "truncated", "missing"],
)
def test_faults_have_a_place(tmp_path, content, problem):
    path = tmp_path / "reads"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}: {problem}")


@pytest.mark.parametrize(
    ("header", "folder", "barcode"),
    [
        ("r runid=1 barcode=barcode04 x=1", "barcode09", "barcode04"),
        ("r runid=1 barcode=unclassified", "", "unclassified"),
        ("r\tch:i:3\tRG:Z:6f_dna_r10.4.1_e8.2_400bps_hac@v4.3.0_barcode11", "", "barcode11"),
        ("r BC:Z:SQK-NBD114-24_barcode07 ch:i:3", "", "barcode07"),
        ("r BC:Z:barcode07", "", "barcode07"),
        ("r barcode=../../x", "", ""),
        ("r RG:Z:6f_dna_r10.4.1", "unclassified", "unclassified"),
        ("r", "barcode12", "barcode12"),
        ("r", "reads", ""),
        ("barcode=barcode04", "", ""),
    ],
)
def test_barcodes_of_header_and_folder(header, folder, barcode, tmp_path):
    (tmp_path / "data" / folder).mkdir(parents=True)
    path = tmp_path / "data" / folder / "a.fastq"
    text = f"@{header}\nA\n+\nI\n".encode()
    path.write_bytes(text * 300)
    found = read(path)
    one = RawRead(str(path), text, 1, barcode)
    assert found == [one] * 300
    assert one.name == header.split()[0]

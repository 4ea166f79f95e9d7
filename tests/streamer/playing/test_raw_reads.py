"""Records of FASTQ as they stand, and their barcodes."""

from __future__ import annotations

import bz2
import gzip
import lzma

import pytest

from streamer.errors import DataError
from streamer.playing.run_folder import RawRead, raw_reads

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

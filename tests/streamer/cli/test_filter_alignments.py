"""``streamer filter`` of SAM, BAM and CRAM against pysam, record by record."""

from __future__ import annotations

import gzip
import random
import struct

import pysam
import pytest

from tests.data_files import write_fasta

pytestmark = pytest.mark.whole

HOST = "ACGTTGCATTACGGCATTACCAGATTACCGGTACCATTAGGACCATTTAACCGG"
K = 7
MODES = {"sam": "w", "bam": "wb", "cram": "wc"}
NOT_PRIMARY = 0x900


def header(**more):
    return pysam.AlignmentHeader.from_dict({
        "HD": {"VN": "1.6", "SO": "unknown"},
        "SQ": [{"SN": f"chr{number}", "LN": 5000} for number in range(3)],
        "RG": [{"ID": "run_model_barcode04", "SM": "sample", **more}],
        "CO": ["a comment, as it is"],
    })  # fmt: skip


def records(rng, count, head, *, pairs=False):
    """Reads of every kind, some of the host, some of which have further records."""
    for number in range(count):
        start = rng.randrange(len(HOST) - K)
        letters = rng.choice([HOST[start : start + rng.randrange(30)], "CC" * rng.randrange(20)])
        mate = (1 | 0x40 << number % 2) if pairs else 0
        flags = [rng.choice([4, 0, 16])] + [0x800, 0x100] * (rng.random() < 0.2 and not pairs)
        for flag in flags if letters else [4]:
            read = pysam.AlignedSegment(head)
            read.query_name = f"r{number // 2 if pairs else number}"
            read.flag = flag | mate
            read.query_sequence = letters
            if rng.random() < 0.8:
                read.query_qualities = pysam.qualitystring_to_array(
                    "".join(chr(rng.randrange(43, 120)) for _ in letters)
                )
            if not flag & 4:
                read.reference_id, read.reference_start = rng.randrange(3), rng.randrange(4000)
                read.cigartuples, read.mapping_quality = [(0, len(letters))], rng.randrange(60)
            tags = [("RG", "run_model_barcode04"), ("ch", rng.randrange(3000)), ("de", 0.5),
                    ("MM", "C+m,1;"), ("ML", [1, 200]), ("xa", -70_000), ("xc", "c")]  # fmt: skip
            read.set_tags(rng.sample(tags, rng.randrange(len(tags) + 1)))
            yield read


def write(path, reads, head):
    options = ["no_ref=1"] if path.suffix == ".cram" else None
    mode = MODES[path.suffix[1:]]
    with pysam.AlignmentFile(path, mode, header=head, format_options=options) as file:
        for read in reads:
            file.write(read)
    return path


def lines(path, wanted=lambda read: True, *, tags_move=False):
    """The header, and the wanted records as lines of SAM. tags_move: CRAM writes RG last."""
    with pysam.AlignmentFile(path, check_sq=False) as file:
        reads = [read for read in file.fetch(until_eof=True) if not read.flag & NOT_PRIMARY]
        rows = [read.to_string().split("\t") for read in reads if wanted(read)]
        return str(file.header), [row[:11] + sorted(row[11:]) if tags_move else row for row in rows]


def is_host(read):
    """Whether a k-mer of it is one of the host, either way round."""
    letters = read.get_forward_sequence() or ""
    kmers = {HOST[at : at + K] for at in range(len(HOST) - K + 1)}
    turned = {kmer[::-1].translate(str.maketrans("ACGT", "TGCA")) for kmer in kmers}
    return any(letters[at : at + K] in kmers | turned for at in range(len(letters) - K + 1))


def as_fastq(path, wanted):
    """The reads as sequenced."""
    text = ""
    with pysam.AlignmentFile(path, check_sq=False) as file:
        for read in file.fetch(until_eof=True):
            if read.flag & NOT_PRIMARY or not wanted(read):
                continue
            letters = read.get_forward_sequence() or ""
            shown = '"' * len(letters)
            if read.query_qualities is not None:
                shown = "".join(chr(one + 33) for one in read.get_forward_qualities())
            text += f"@{read.query_name}\n{letters}\n+\n{shown}\n"
    return text.encode()


@pytest.fixture
def dictionary(tmp_path):
    return write_fasta(tmp_path / "host.fa", [("host", HOST)])


@pytest.mark.parametrize("count", [0, 150])
@pytest.mark.parametrize("given", MODES)
def test_records_tags_and_headers_stay(given, count, tmp_path, dictionary, streamer, monkeypatch):
    from streamer.cli import filter_files

    monkeypatch.setattr(filter_files, "BATCH_READS", 7)
    head = header()
    path = write(tmp_path / f"in.{given}", records(random.Random(count), count, head), head)
    for suffix in (*MODES, "fq.gz"):
        out, removed = tmp_path / f"out.{suffix}", tmp_path / f"removed.{suffix}"
        code, _, err = streamer(
            "filter", path, "-d", dictionary, "-k", K, "--deplete", "-o", out,
            "--removed", removed, "-q",
        )  # fmt: skip
        assert code == 0, err
        assert err.count("\n") == err.count("secondary and supplementary records are left out")
        assert err.count("\n") == bool(count)
        for file, wanted in (out, lambda read: not is_host(read)), (removed, is_host):
            if suffix in MODES:
                tags = {"tags_move": suffix == "cram"}
                assert lines(file, **tags) == lines(path, wanted, **tags)
            else:
                assert gzip.decompress(file.read_bytes()) == as_fastq(path, wanted)


def test_bam_stays_byte_for_byte(tmp_path, dictionary, streamer):
    head = header()
    path = write(tmp_path / "in.bam", records(random.Random(1), 90, head, pairs=True), head)
    out, removed = tmp_path / "out.bam", tmp_path / "removed.bam"
    code, _, err = streamer(
        "filter", path, "--interleaved", "-d", dictionary, "-k", K, "--keep", "-o", out,
        "--removed", removed, "-q",
    )  # fmt: skip
    assert (code, err) == (0, "")
    with pysam.AlignmentFile(path, check_sq=False) as file:
        hosts = [is_host(read) for read in file.fetch(until_eof=True)]
    pairs = [one or other for one, other in zip(hosts[::2], hosts[1::2], strict=True)]
    begin, *rest = raw_records(path)
    for file, keep in (out, True), (removed, False):
        chosen = [one for at, one in enumerate(rest) if pairs[at // 2] == keep]
        assert gzip.decompress(file.read_bytes()) == b"".join([begin, *chosen])
        assert file.read_bytes().endswith(path.read_bytes()[-28:])


def raw_records(path):
    """The header of a BAM file, and the bytes of each record."""
    data = gzip.decompress(path.read_bytes())
    at = 8 + struct.unpack_from("<i", data, 4)[0] + 4
    for _ in range(struct.unpack_from("<i", data, at - 4)[0]):
        at += 8 + struct.unpack_from("<i", data, at)[0]
    parts = [data[:at]]
    while at < len(data):
        size = 4 + struct.unpack_from("<i", data, at)[0]
        parts.append(data[at : at + size])
        at += size
    return parts


def test_what_tears_pairs_or_loses_a_header_is_told(tmp_path, dictionary, streamer):
    head = header()
    path = write(tmp_path / "in.bam", records(random.Random(1), 6, head, pairs=True), head)
    arguments = ["-d", dictionary, "-k", K, "--deplete", "-q"]
    code, _, err = streamer("filter", path, *arguments)
    assert (code, err) == (0, "")  # told from the names
    with pysam.AlignmentFile(path, check_sq=False) as file:
        reads = [*file.fetch(until_eof=True)]
    apart = write(tmp_path / "apart.sam", reads[::2] + reads[1::2], head)
    code, _, err = streamer("filter", apart, *arguments)
    assert (code, "r0 is a read of a pair: mates that are not next to each" in err) == (0, True)
    other = header(LB="another")
    second = write(tmp_path / "second.bam", records(random.Random(2), 6, other), other)
    code, _, err = streamer(
        "filter", path, second, *arguments, "--no-interleaved", "-o", tmp_path / "out.bam"
    )
    assert (code, err.count("second.bam: its header is not that of the files before it")) == (1, 1)


# pysam closes a file again that it could not begin
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("suffix", ["bam", "cram"])
def test_a_full_disk_leaves_no_torn_file(suffix, tmp_path, dictionary, streamer):
    head = header()
    path = write(tmp_path / "in.sam", records(random.Random(3), 9, head), head)
    out, removed = tmp_path / f"out.{suffix}", tmp_path / f"removed.{suffix}"
    out.write_bytes(b"old")
    removed.symlink_to("/dev/full")
    code, _, err = streamer(
        "filter",
        path,
        "-d",
        dictionary,
        "-k",
        K,
        "--deplete",
        "-o",
        out,
        "--removed",
        removed,
        "-q",
    )
    assert code == 1
    assert f"error: {removed}: cannot write: " in err
    assert out.read_bytes() == b"old"
    assert not list(tmp_path.glob(".*part"))

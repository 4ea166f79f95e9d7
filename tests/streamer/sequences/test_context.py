"""The context of reads from header lines, against regular expressions."""

from __future__ import annotations

import gzip
import struct

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from streamer.errors import DataError
from streamer.sequences.context import LabelColumn, ReadContext, ReadGroup, read_groups, tell_apart
from streamer.sequences.files import read_batches, work_on_batches
from tests.reference import context as oracle

RUN = "e4994c62-93f9-439a-bc8f-d20c95a137a5"
HASH = "bc8993f4557dd53bf0cbda5fd68453fea5e94485"


def contexts(lines, folder="reads", file="reads.fastq.gz"):
    """(channel, start_time, run, barcode, sample) of each line."""
    encoded = [line.encode("utf-8", "surrogateescape") for line in lines]
    text = np.frombuffer(b"".join(encoded) or b"\n", np.uint8)
    stops = np.cumsum([len(line) for line in encoded], dtype=np.int64)
    firsts = stops - [len(line) for line in encoded] if lines else stops
    return rows_of(ReadContext.of_lines(text, firsts, stops, f"/data/{folder}/{file}"))


def rows_of(found):
    columns = (found.run.texts(), found.barcode.texts(), found.sample.texts())
    return [
        (None if channel < 0 else channel, time.decode() or None, *labels)
        for channel, time, *labels in zip(
            found.channel.tolist(), found.start_time.tolist(), *columns, strict=True
        )
    ]


# as the programs wrote them
LINES = [
    (  # Guppy
        f"r1 runid={HASH} sampleid=lambda read=12 ch=207 start_time=2019-07-16T19:51:22Z "
        "model_version_id=2021-05-17_dna_r9.4.1 barcode=barcode12",
        (207, "2019-07-16T19:51:22Z", HASH, "barcode12", "lambda"),
    ),
    (  # MinKNOW
        f"r2 runid={RUN} ch=290 start_time=2026-03-05T16:16:37.520170+01:00 flow_cell_id=FBF81064 "
        "protocol_group_id=trial sample_id= barcode=unclassified barcode_alias=unclassified",
        (290, "2026-03-05T16:16:37.520170+01:00", RUN, "unclassified", None),
    ),
    (  # Dorado
        f"r3\tqs:f:15.2988\tst:Z:2025-02-01T00:44:50.584+00:00\tRG:Z:{HASH}_dna_r10.4.1_e8.2_400bps"
        "_sup@v5.0.0_SQK-NBD114-96-override_barcode08\tDS:Z:gpu:Tesla V100-SXM2-16GB",
        (None, "2025-02-01T00:44:50.584+00:00", HASH, "barcode08", None),
    ),
    (  # Dorado through other tools
        f"r4 qs:f:27.75 mx:i:1 ch:i:295 st:Z:2024-08-29T22:06:03.400+00:00 rn:i:585 "
        f"RG:Z:{HASH}_dna_r10.4.1_e8.2_400bps_sup@v5.0.0",
        (295, "2024-08-29T22:06:03.400+00:00", HASH, None, None),
    ),
    (  # MinKNOW since 26.01
        f"r5\tRG:Z:{RUN}_unknown_barcode02\tDT:Z:2025-01-06T10:06:36Z\tch:i:512\t"
        "st:Z:2025-01-06T10:06:36.778368Z\tPU:Z:FAB12345\tLB:Z:My_Sample\tSM:Z:barcode02\tal:Z:mine",
        (512, "2025-01-06T10:06:36.778368Z", RUN, "barcode02", "My_Sample"),
    ),
    ("r6 RG:Z:H0164.2 SM:Z:patient BC:Z:AC-TG", (None, None, "H0164.2", "AC-TG", "patient")),
    ("r7 RG:Z:run1_hac_barcode04", (None, None, "run1", "barcode04", None)),
    ("r8 RG:Z:lane_1", (None, None, "lane_1", None, None)),
    ("r9", (None, None, None, None, None)),
    ("", (None, None, None, None, None)),
    ("ch=4 start_time=2020-01-01T00:00:00", (None, "2020-01-01T00:00:00Z", None, None, None)),
    ("r ch=x ch:i:-1 ch:i:3.0 ch=9999999999 st:Z:now runid=", (None,) * 5),
    ("r ch=x ch:i:7 ch=8 barcode=a barcode=b", (7, None, None, "a", None)),
    ("r ch=5 barcode=.", (5, None, None, None, None)),
    ("r ch:Z:7 CH=8 xch=9 ch =1 barcode:Z:2", (None,) * 5),
    (
        "r barcode=SQK-RBK114-24_barcode11 runid=caf\u00e9 SM:Z:\x07",
        (None, None, "caf\u00e9", "barcode11", None),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("line", "want"), LINES)
def test_header_lines(line, want):
    assert contexts([line]) == [want]
    assert oracle.context_of(line) == want


@pytest.mark.parametrize("folder", ["barcode04", "unclassified", "barcode", "Barcode04", "mixed"])
def test_the_folder_is_the_last_to_ask(folder):
    lines = [line for line, _ in LINES]
    assert contexts(lines, folder) == [oracle.context_of(line, folder) for line in lines]
    assert contexts(["r"], "unclassified")[0][3] == "unclassified"
    text, none = np.zeros(1, np.uint8), np.zeros(1, np.int64)
    assert ReadContext.of_lines(text, none, none, "-").barcode.texts() == [None]


# of MinKNOW, dorado demux, people, bcl-convert; the last have none
FILES = {
    "FAX_pass_barcode04_8f3c_91ab_0.fastq.gz": "barcode04",
    "FAX_pass_barcode04_..fastq": "barcode04",
    "8f3c_SQK-NBD114-24_barcode03.fastq": "barcode03",
    "barcode11.bam": "barcode11",
    "run.7_barcode12.fq.gz": "barcode12",
    "FAX_pass_unclassified_8f3c_0.fastq.gz": "unclassified",
    "barcode01_of_barcode02.fq": "barcode02",
    "two-barcode03.fastq": None,
    "a_barcode.fastq": None,
    "a_mybarcode03.fastq": None,
    "a_barcode03x.fastq": None,
    "NTC_barcode9_S12_L001_R1_001.fastq.gz": "barcode9",
    "patient_7_S3_R2_001.fastq": None,
}


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("folder", ["barcode07", "unclassified", "fastq_pass"])
def test_tags_come_before_the_folder_and_this_before_the_name_of_the_file(file, folder):
    lines = [line for line, _ in LINES]
    want = [oracle.context_of(line, folder, file=file) for line in lines]
    assert contexts(lines, folder, file) == want
    assert contexts(["r"], "fastq_pass", file)[0][3] == FILES[file]
    assert contexts(["r barcode=barcode01"], folder, file)[0][3] == "barcode01"
    if folder == "barcode07":
        stale = ["r barcode=unclassified", "r SM:Z:unclassified", "r RG:Z:a_hac_unclassified"]
        assert [found[3] for found in contexts(stale, folder, file)] == ["barcode07"] * 3
    assert contexts(["r"], folder, "patient_7_S3_R2_001.fastq")[0][4] == "patient_7"


def test_a_relative_path_has_a_folder_too(tmp_path, monkeypatch):
    (tmp_path / "barcode03").mkdir()
    monkeypatch.chdir(tmp_path / "barcode03")
    text, none = np.zeros(1, np.uint8), np.zeros(1, np.int64)
    assert ReadContext.of_lines(text, none, none, "a.fq").barcode.texts() == ["barcode03"]


SIZES = {"A": "c", "c": "b", "C": "B", "s": "h", "S": "H", "i": "i", "I": "I", "f": "f"}


def tag_bytes(tag, kind, value):
    """A tag as BAM has it (SAM specification 4.2.4)."""
    if kind in "ZH":
        data = value.encode() + b"\0"
    elif kind == "B":
        data = value[0].encode() + struct.pack(f"<i{len(value[1])}{SIZES[value[0]]}",
                                               len(value[1]), *value[1])  # fmt: skip
    else:
        data = struct.pack(f"<{SIZES[kind]}", value.encode() if kind == "A" else value)
    return tag.encode() + kind.encode() + data


def bam_record(name, letters, tags, cut=0):
    """A record, as many bytes shorter at its end as are cut."""
    body = struct.pack("<iiBBHHHiiii", -1, -1, len(name) + 1, 0, 0, 0, 4, letters, -1, -1, 0)
    body += name.encode() + b"\0" + bytes((letters + 1) // 2) + b"\xff" * letters
    aux = b"".join(tag_bytes(*tag) for tag in tags)
    body += aux[: len(aux) - cut]
    return struct.pack("<i", len(body)) + body


def bam_file(reads, tags, header=b""):
    """A BAM file of (name, letters), each with its tags."""
    nibbles = {letter: at for at, letter in enumerate("=ACMGRSVTWYHKDBN")}
    records = []
    for (name, letters), own in zip(reads, tags, strict=True):
        record = bytearray(bam_record(name, len(letters), own))
        first = 4 + 32 + len(name) + 1
        for at, letter in enumerate(letters):
            record[first + at // 2] |= nibbles[letter] << (0 if at & 1 else 4)
        records.append(bytes(record))
    start = b"BAM\x01" + struct.pack("<i", len(header)) + header + struct.pack("<i", 0)
    return gzip.compress(start + b"".join(records))


def contexts_of_bam(records, groups=b"", folder="reads"):
    text = np.frombuffer(b"".join(records) + bytes(8), np.uint8)
    sizes = np.array([len(record) for record in records], np.int64)
    stops = np.cumsum(sizes)
    places = np.stack([stops - sizes, stops], axis=1)
    path = f"/data/{folder}/reads.bam"
    return rows_of(ReadContext.of_bam_records(text, places, path, read_groups(groups)))


def as_line(tags):
    """The same as a header line."""
    shown = [
        f"{tag}:{'i' if kind in 'cCsSiI' else kind}:{value}"
        for tag, kind, value in tags
        if kind not in "ABf"
    ]
    return "\t".join(["r", *shown])


HEADER = b"""@HD\tVN:1.6\tSO:unknown
@PG\tID:basecaller\tPN:dorado\tDS:runid=no
@RG\tID:a_hac_SQK-NBD114-24_barcode02\tSM:barcode02\tLB:My_Sample\tDS:basecall_model=hac runid=run_a
@RG\tID:b\tSM:patient\tLB:lib\tPL:ILLUMINA
@RG\tID:c\tDS:no run
@RG\tSM:nobody
"""


def test_read_groups_of_a_bam_file():
    told = {
        "a_hac_SQK-NBD114-24_barcode02": ("run_a", "barcode02", "My_Sample"),
        "b": (None, "patient", "lib"),
        "c": (None, None, None),
    }
    assert read_groups(HEADER) == {name: ReadGroup(*group) for name, group in told.items()}
    tags = [[("RG", "Z", name), ("ch", "C", 200 + at)] for at, name in enumerate([*told, "d", "b"])]
    found = contexts_of_bam([bam_record("r", 5, some) for some in tags], HEADER)
    assert found == [oracle.context_of(as_line(some), groups=told) for some in tags]
    assert found[:2] == [
        (200, None, "run_a", "barcode02", "My_Sample"),
        (201, None, "b", None, "patient"),
    ]
    assert contexts_of_bam([], HEADER) == []


@pytest.mark.parametrize("suffix", ["sam", "bam"])
def test_read_groups_in_whichever_order_threads_come(suffix, tmp_path):
    """The work on later records may be done before that on the first, which the header precedes."""
    path = tmp_path / f"reads.{suffix}"
    if suffix == "sam":
        line = b"r\t4\t*\t0\t0\t*\t*\t0\t0\tACGTA\tIIIII\tRG:Z:b\n"
        path.write_bytes(HEADER + 50 * line)
    else:
        start = b"BAM\1" + struct.pack("<i", len(HEADER)) + HEADER + struct.pack("<i", 0)
        record = bam_record("r", 5, [("RG", "Z", "b")]).replace(b"r\0\0\0\0", b"r\0\x11\x11\x10")
        path.write_bytes(gzip.compress(start + 50 * record))
    works = work_on_batches([str(path)], samples_of, batch_bases=40, context=True)
    samples = [work() for work in reversed(list(works))]
    assert len(samples) > 5
    assert [one for some in samples for one in some] == ["patient"] * 50


def samples_of(reads):
    """The sample of each read."""
    return reads.context.sample.texts()


numbers = {"c": 7, "C": 8, "s": 15, "S": 16, "i": 31, "I": 32}
tags = st.one_of(
    st.sampled_from("cCsSiI").flatmap(
        lambda kind: st.tuples(
            st.sampled_from(["ch", "mx", "Ch"]),
            st.just(kind),
            st.integers(0 if kind.isupper() else -(1 << numbers[kind]), (1 << numbers[kind]) - 1),
        )
    ),
    st.tuples(
        st.sampled_from(["st", "RG", "BC", "SM", "LB", "DS", "ch"]), st.just("Z"),
        st.sampled_from(["barcode04", f"{RUN}_hac_barcode1", "2025-01-06T10:06:36Z", "x", ""]),
    ),
    st.tuples(st.just("mv"), st.just("B"),
              st.tuples(st.sampled_from("cS"), st.lists(st.integers(0, 9), max_size=5))),
    st.tuples(st.sampled_from(["tp", "st"]), st.just("A"), st.just("P")),
    st.tuples(st.sampled_from(["qs", "ch"]), st.just("f"), st.just(1.5)),
)  # fmt: skip


@settings(max_examples=200)
@given(records=st.lists(st.tuples(st.integers(0, 6), st.lists(tags, max_size=6)), max_size=4))
def test_any_tags(records):
    found = contexts_of_bam([bam_record("r", *record) for record in records])
    assert found == [oracle.context_of(as_line(tags)) for _, tags in records]


def test_a_tag_that_is_cut_is_not_looked_at():
    tags = [("qs", "f", 9.5), ("ch", "S", 512), ("mv", "B", ("c", [5, 1, 1])),
            ("st", "Z", "2025-01-06T10:06:36Z"), ("BC", "Z", "barcode04")]  # fmt: skip
    sizes = [len(tag_bytes(*tag)) for tag in tags]
    for cut in range(sum(sizes) + 1):
        whole = sum(np.cumsum(sizes) <= sum(sizes) - cut)
        found = contexts_of_bam([bam_record("r", 4, tags, cut), bam_record("s", 3, tags)])
        want = [oracle.context_of(as_line(some)) for some in (tags[:whole], tags)]
        assert found == want
    unknown = tag_bytes("xx", "i", 3).replace(b"xxi", b"xxQ")
    behind = tag_bytes("ch", "C", 9)
    assert contexts_of_bam([bam_record("r", 0, []) + unknown + behind]) == [(None,) * 5]
    assert contexts_of_bam([bam_record("r", 0, []) + behind + unknown])[0][0] == 9


digits = st.integers(0, 99).map(lambda n: f"{n:02d}")
times = st.one_of(
    st.datetimes(timezones=st.timezones()).map(lambda time: time.isoformat()),
    st.builds(
        "{}-{}-{}{}{}:{}:{}{}{}".format,
        st.sampled_from(["2025", "1900", "2000", "0000", "2024"]), digits, digits,
        st.sampled_from("Tt "), digits, digits, digits,
        st.sampled_from(["", ".", ".5", ".123456789", ".1234567890"]),
        st.sampled_from(["", "Z", "z", "+01:00", "-23:59", "+24:00", "+0100", "+1:00"]),
    ),
)  # fmt: skip
words = st.text("abZ01:=_-\u00e9\x07", max_size=6)
names = words | st.sampled_from(
    ["barcode04", "unclassified", f"{RUN}_hac_barcode1", f"{HASH}", f"{HASH}x", "kit_barcode2"]
)
keys = ["ch=", "ch:i:", "start_time=", "st:Z:", "runid=", "RG:Z:", "barcode=", "BC:Z:", "SM:Z:",
        "LB:Z:", "sample_id=", "sampleid=", "", "x"]  # fmt: skip
values = st.one_of(names, times, st.integers(-5, 1 << 33).map(str))
lines = st.lists(
    st.lists(st.builds("{}{}".format, st.sampled_from(keys), values), max_size=7).flatmap(
        lambda fields: (
            st.builds(
                "{}".join([*fields, ""]).format, *[st.sampled_from([" ", "\t", "  "])] * len(fields)
            )
            if not any("{" in field or "}" in field for field in fields)
            else st.just("")
        )
    ),
    max_size=6,
)


@pytest.mark.whole
@settings(max_examples=200)
@given(lines=lines, folder=st.sampled_from(["reads", "barcode07"]))
@example(lines=["r st:Z:2024-02-29T23:59:60Z", "r st:Z:1900-02-29T00:00:00Z"], folder="x")
@example(lines=["r st:Z:2025-01-01T24:00:00Z", "r st:Z:2025-04-31T00:00:00Z"], folder="x")
def test_any_line(lines, folder):
    assert contexts(lines, folder) == [oracle.context_of(line, folder) for line in lines]


@settings(max_examples=100)
@given(texts=st.lists(st.text("ab", max_size=3) | st.integers(0, 99).map(str), max_size=300))
def test_texts_told_apart(texts):
    joined = np.frombuffer("".join(texts).encode() or b"-", np.uint8)
    stops = np.cumsum([len(text) for text in texts], dtype=np.int64)
    spans = np.stack([stops - [len(text) for text in texts], stops], axis=1) if texts else (
        np.zeros((0, 2), np.int64))  # fmt: skip
    numbers = np.empty(len(texts), np.int32)
    firsts = tell_apart(joined, spans, numbers)
    distinct = list(dict.fromkeys(text for text in texts if text))
    assert [texts[first] for first in firsts] == distinct
    assert numbers.tolist() == [distinct.index(text) if text else -1 for text in texts]


def test_columns_of_labels():
    one = LabelColumn(["a", "b", "c"], np.array([0, -1, 2, 1, -1], np.int32))
    other = LabelColumn(["b", "d"], np.array([1, 0, 1, 1, -1], np.int32))
    both = one | other
    assert both.texts() == ["a", "b", "c", "b", None]
    assert both.labels == ["a", "b", "c", "d"]
    nothing = LabelColumn.same(None, 5)
    assert (one | nothing).texts() == (nothing | one).texts() == one.texts()
    assert (nothing | nothing).texts() == nothing.of(str).texts() == [None] * 5
    assert one.of(lambda label: "b").texts() == ["b", None, "b", "b", None]
    assert one.of(lambda label: label.upper() if label != "b" else None).texts() == [
        "A", None, "C", None, None,
    ]  # fmt: skip


@pytest.mark.whole
@pytest.mark.parametrize("batch_reads", [1, 3, 100])
def test_of_the_reads_of_files(batch_reads, tmp_path):
    """Also of records longer than a block, and in front of a faulty one."""
    (tmp_path / "barcode09").mkdir()
    lines = [line for line, _ in LINES]
    lengths = [7, 0, 900_000, 1, 30, 600_000, 12]
    reads = [(line.split()[0] if line else "", "A" * lengths[at % 7])
             for at, line in enumerate(lines)]  # fmt: skip
    fastq = tmp_path / "barcode09" / "reads.fq"
    fastq.write_text(
        "".join(
            f"@{line}\r\n{letters}\r\n+\r\n{letters}\r\n\n"
            for line, (_, letters) in zip(lines, reads, strict=True)
            if "\x07" not in line
        )
        + "@bad ch=1\nA-C\n+\nIII\n"
    )
    lines = [line for line in lines if "\x07" not in line]
    fasta = tmp_path / "barcode09" / "reads.fa"
    fasta.write_text("".join(f">{line}\nACGT\nAC\n" for line in lines))
    want = [oracle.context_of(line, "barcode09") for line in lines]
    for path, faulty in ((fastq, True), (fasta, False)):
        found = []
        try:
            for batch in read_batches([str(path)], batch_reads=batch_reads, context=True):
                assert batch.context.channel.size == len(batch)
                found += rows_of(batch.context)
        except DataError:
            assert faulty
        assert found == want
    bam = tmp_path / "barcode09" / "reads.bam"
    tags = [[("RG", "Z", "b"), ("ch", "i", at)] for at in range(len(reads))]
    bam.write_bytes(bam_file(reads, tags, HEADER))
    found = [
        row
        for batch in read_batches([str(bam)], batch_reads=batch_reads, context=True)
        for row in rows_of(batch.context)
    ]
    assert found == [(at, None, "b", "barcode09", "patient") for at in range(len(reads))]
    assert all(batch.context is None for batch in read_batches([str(bam)]))

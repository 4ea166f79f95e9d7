"""Sample sheets as MinKNOW, Illumina's programs and people write them."""

from __future__ import annotations

import numpy as np
import pytest

from streamer.sequences.context import LabelColumn, ReadContext
from streamer.sequences.sample_sheet import SampleSheet, SampleSheetError

MINKNOW = """\
flow_cell_id,position_id,sample_id,experiment_id,kit,barcode,alias,type
FAX1,X1,clinic,run 7,SQK-NBD114-24,barcode01,patient_1,test_sample
FAX1,X1,clinic,run 7,SQK-NBD114-24,barcode2,"patient, 2",
FAX1,X1,clinic,run 7,SQK-NBD114-24,barcode03,NTC,no_template_control

FAX1,X1,clinic,run 7,SQK-NBD114-24,barcode12,pos,Positive control
"""
V1 = """\
[Header],,,,,
Date,2026-01-01,,,,
[Reads],,,,,
151,,,,,
[Data],,,,,
Lane,Sample_ID,Sample_Name,index,index2,Sample_Project
1,S-1,patient_1,ACGTACGT,TTGCAATT,clinic
2,S-1,patient_1,ACGTACGT,TTGCAATT,clinic
1,S-2,,GGGGCCCC,,clinic
"""
V2 = """\
[Header]
FileFormatVersion,2
[BCLConvert_Settings]
AdapterRead1,CTGTCTCTTATACACATCT
[BCLConvert_Data]
Lane,Sample_ID,Index,Index2,Type
1,S-1,acgtacgt,TTGCAATT,
1,NTC,GGGGCCCC,AAAATTTT,negative_control
1,whole,,,
[Cloud_Data]
Sample_ID,ProjectName
other,clinic
"""


def read(tmp_path, text, encoding="utf-8"):
    path = tmp_path / "sheet.csv"
    path.write_bytes(text.encode(encoding))
    return SampleSheet.read(str(path))


CHANGES = [
    str,
    lambda text: text.replace("\n", "\r\n"),
    lambda text: "\ufeff" + text,
    lambda text: text.replace(",", ";").replace("t; 2", "t, 2"),
]


@pytest.mark.parametrize("change", CHANGES)
def test_minknow(tmp_path, change):
    sheet = read(tmp_path, change(MINKNOW))
    assert sheet.rows() == [
        ["barcode01", "clinic", "patient_1", None],
        ["barcode02", "clinic", "patient, 2", None],
        ["barcode03", "clinic", "NTC", "negative"],
        ["barcode12", "clinic", "pos", "positive"],
    ]
    assert sheet.negative == ["barcode03"]
    assert sheet.samples["barcode01"].name == "patient_1"
    assert sheet.columns("barcode02") == ("clinic", "patient, 2", None)
    assert sheet.columns("barcode05") == sheet.columns(None) == (None, None, None)
    assert SampleSheet.of(sheet.rows()).samples == sheet.samples


def context(barcodes, samples):
    """Reads with these barcodes and samples, or none."""
    columns = []
    for labels in (barcodes, samples):
        known = [*dict.fromkeys(label for label in labels if label is not None)]
        at = [-1 if label is None else known.index(label) for label in labels]
        columns.append(LabelColumn(known, np.array(at, np.int32)))
    nothing = LabelColumn.same(None, len(barcodes))
    channel, time = np.full(len(barcodes), -1, np.int32), np.zeros(len(barcodes), "S35")
    return ReadContext(channel, time, nothing, *columns)


def test_barcodes_of_minknow(tmp_path):
    """A barcode that is there stays; the alias that dorado writes in its place is turned back."""
    found = read(tmp_path, MINKNOW).barcodes(
        context(["barcode01", "NTC", "unclassified", None, "barcode07"], ["NTC"] * 5)
    )
    assert found.texts() == ["barcode01", "barcode03", "unclassified", "barcode03", "barcode07"]


def test_illumina(tmp_path):
    sheet = read(tmp_path, V1)
    assert sheet.rows() == [
        ["ACGTACGT+TTGCAATT", "S-1", "patient_1", None],
        ["GGGGCCCC", "S-2", None, None],
    ]
    reads = [("ACGTACGT-TTGCAATT", None), (None, "S-1"), (None, "patient_1"), (None, "S-2"),
             (None, "x"), ("GGGGCCCC", "S-1")]  # fmt: skip
    two, one = "ACGTACGT+TTGCAATT", "GGGGCCCC"
    found = sheet.barcodes(context(*zip(*reads, strict=True))).texts()
    assert found == [two, two, two, one, None, one]
    assert read(tmp_path, V2).rows() == [
        ["ACGTACGT+TTGCAATT", "S-1", None, None],
        ["GGGGCCCC+AAAATTTT", "NTC", None, "negative"],
        ["whole", "whole", None, None],
    ]


def test_a_name_of_two_samples_stands_for_neither(tmp_path):
    text = "[Data]\nSample_ID,Sample_Name,index\na,same,AAAA\nb,same,CCCC\n"
    found = read(tmp_path, text).barcodes(context([None, None], ["same", "b"]))
    assert found.texts() == [None, "CCCC"]


FAULTS = {
    "": "has no sample",
    "barcode,alias\n": "has no sample",
    "sample,alias\nbarcode01,x\n": "line 1: no column barcode, but sample, alias",
    "[Data]\nindex,Sample\nA,b\n": "line 2: no column sample_id, but index, sample",
    "barcode\nbarcode01\nNB02\n": (
        "line 3, column barcode: 'NB02', expected a name such as barcode01"
    ),
    "barcode,type\nbarcode01,blank\n": (
        "line 2, column type: 'blank', expected test_sample, sample, negative_control, "
        "no_template_control, positive_control"
    ),
    "flow_cell_id,barcode,alias\nA,barcode01,x\nB,barcode01,y\n": (
        "line 3: barcode01 is x in an earlier line, y here: keep those of one run and lane"
    ),
    "barcode,alias\nbarcode01,x,y\n": "line 2: has 3 cells, the header 2",
    "barcode,alias\nbarcode01,\x07\n": "line 2: '\\x07' has unprintable characters",
    "[Data]\nSample_ID,index\n,ACGT\n": "line 3, column sample_id: it is empty",
}


@pytest.mark.parametrize("text", FAULTS)
def test_faults_name_their_place(tmp_path, text):
    with pytest.raises(SampleSheetError) as fault:
        read(tmp_path, text)
    assert str(fault.value) == f"{tmp_path / 'sheet.csv'}: {FAULTS[text]}"


def test_what_is_no_text_or_not_there(tmp_path):
    with pytest.raises(SampleSheetError, match="not a sample sheet of MinKNOW or Illumina, which"):
        read(tmp_path, "barcode\nbarcode01,\u00e9", "latin-1")
    with pytest.raises(SampleSheetError, match="cannot be read: no such file or directory"):
        SampleSheet.read(str(tmp_path / "none.csv"))

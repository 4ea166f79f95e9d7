"""When there is enough of a target, or of a group, as the panel says."""

from __future__ import annotations

import random

import pytest

from streamer.dictionary.targets import Dictionary
from streamer.matching.matcher import StreamMatcher
from streamer.matching.reports import Assignment
from streamer.matching.target_tally import Panel, TargetTally
from streamer.sequences.read_batch import ReadBatch
from tests.data_files import write_fasta

ONE, TWO = ("".join(random.Random(seed).choices("ACGT", k=60)) for seed in (1, 2))


def enough(tmp_path, records, reads, panel):
    """What there is enough of, once these reads are counted."""
    write_fasta(tmp_path / "ref.fa", records)
    dictionary = Dictionary.from_files([str(tmp_path / "ref.fa")], 21)
    matcher = StreamMatcher.of(dictionary, counted=True, device="cpu")
    tally = TargetTally(matcher, Assignment(), panel)
    names = [f"read{number}" for number in range(len(reads))]
    tally.add(matcher.match([ReadBatch.from_sequences(names, reads)]))
    matcher.close()
    return tally.enough()


def test_a_target_that_a_group_names_twice_counts_once(tmp_path):
    panel = Panel({"both": ["one", "two", "one"]}, reads=2)
    reads = [ONE, TWO, ONE, TWO, ONE]
    assert enough(tmp_path, [("one", ONE), ("two", TWO)], reads, panel) == [
        [None, None, "one", 3, 1.0, 3.0],
        [None, None, "two", 2, 1.0, 2.0],
        [None, "both", None, 5, 1.0, 2.5],
    ]


@pytest.mark.parametrize("groups", [{}, {"group": ["one"]}])
def test_records_of_one_name_are_one_target(tmp_path, groups):
    """The reads belong to the first of them where both are equally good."""
    records = [("one", ONE), ("one", ONE[:40])]
    (first, *rest) = enough(tmp_path, records, [ONE] * 2, Panel(groups, breadth=0.9, reads=2))
    assert first == [None, None, "one", 2, 1.0, 2.0]
    assert rest == [[None, "group", None, 2, 1.0, 2.0] for _ in groups]

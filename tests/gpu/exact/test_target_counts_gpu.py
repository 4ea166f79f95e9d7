"""The counts of targets from events of a CUDA device against the definition."""

from __future__ import annotations

from contextlib import closing

import numpy as np
import pytest

from gpu.exact.pipeline import ExactFlight
from streamer.dictionary.targets import Dictionary
from streamer.matching import cuda
from streamer.matching.matcher import StreamMatcher
from streamer.matching.target_counts import CoverageCounts, TargetCounts
from tests.data_files import write_fasta
from tests.gpu import placement
from tests.gpu.exact.test_engine_gpu import (
    RECORDS,
    batch_of,
    failing,
    make_reads,
    small_blocks,  # noqa: F401  (a fixture of the module)
)
from tests.reference import targets as oracle

pytestmark = placement.marks()


@pytest.mark.parametrize(
    ("k", "strands", "mode", "records", "fails"),
    [
        (5, "canonical", "frozen", RECORDS, 3),
        (3, "both", "grow", RECORDS, 0),
        (4, "forward", "frozen", RECORDS[:1], 0),
        (15, "both", "frozen", (*RECORDS, ("tiny", "ACG")), 0),
        (16, "canonical", "grow", RECORDS[1:], 3),
    ],
)
def test_equal_the_definition(k, strands, mode, records, fails, tmp_path, monkeypatch):
    """Also where the CPU takes over from a GPU that fails."""
    text = "".join(sequence for _, sequence in records)
    reads = [("own", text[3:40]), *make_reads(k, 110, 31), ("again", text[20:45])]
    path = write_fasta(tmp_path / "records.fa", records)
    known = Dictionary.from_files([path], k, strands)
    told = []
    monkeypatch.setattr(cuda, "_WORDS_PER_THREAD", 1)
    matcher = StreamMatcher.of(
        known, mode=mode, counted=True, chunk=40, threads=3, device="cuda", cards=(0,),
        on_fallback=told.append if fails else None,
    )  # fmt: skip
    if fails:
        failing(ExactFlight, "send", fails, monkeypatch)
    with closing(matcher):
        assert matcher.device == "cuda"
        targets, coverage = TargetCounts(matcher), CoverageCounts(matcher)
        for part in (reads[:2], reads[2:]):
            result = matcher.match([batch_of(part)])[0]
            targets.add(result)
            coverage.add(result)
        assert matcher.device == ("cpu" if told else "cuda")
    assert len(told) == (fails > 0)
    options = {"records": list(records), "strands": strands, "mode": mode}
    rows = oracle.targets_report(reads, k, **options)
    columns = targets.columns()
    for at, name in enumerate(("reads", "bases", "matches", "kmers", "seen"), 1):
        assert columns[name].tolist() == [0 if row[at] == "." else row[at] for row in rows]
    (columns,) = coverage.columns(7)
    found = np.array([*columns.values()]).T.tolist()
    want = oracle.coverage_report(reads, k, bins=7, **options)
    names = [name for name, _ in records]
    assert found == [[names.index(row[0]), *row[1:]] for row in want]

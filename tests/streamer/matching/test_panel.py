"""Verdicts of a panel against their definition, one by one and all at once."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from streamer.matching.panel import VERDICTS, Panel
from tests.reference.verdict import verdict

PANELS = st.fixed_dictionaries(
    {
        "reads": st.sampled_from([0, 1, 5]),
        "windows": st.sampled_from([0, 1, 60]),
        "breadth": st.sampled_from([0.0, 0.25, 0.5, 1.0]),
        "depth": st.sampled_from([0.0, 0.5, 2.0]),
        "control_factor": st.sampled_from([0.0, 1.0, 2.5]),
        "sample_reads": st.sampled_from([0, 8, 1000]),
    }
).filter(lambda one: any(one[name] for name in ("reads", "windows", "breadth", "depth")))


@st.composite
def rows(draw):
    """reads, matches, kmers, seen of a target."""
    kmers = draw(st.sampled_from([0, 4, 20]))
    seen = draw(st.integers(0, kmers))
    matches = draw(st.integers(seen, 4 * seen))
    return draw(st.integers(0, 9)), matches, kmers, seen


TABLES = st.lists(st.lists(rows(), min_size=3, max_size=3), min_size=1, max_size=3)


@settings(max_examples=300)
@given(panel=PANELS, samples=TABLES, controls=st.integers(0, 2), watched=st.booleans())
def test_any_counts(panel, samples, controls, watched):
    """The first samples are negative controls; one target is not watched, if groups are given."""
    names = ["a", "b", "c"]
    made = Panel({"g": ["a", "b"]} if watched else {}, **panel)
    unassigned = (2, 0, 0, 0)
    columns = [
        dict(zip(("reads", "matches", "kmers", "seen"), np.array([*s, unassigned]).T, strict=True))
        for s in samples
    ]
    negative = columns[:controls]
    for at, sample in enumerate(samples):
        own = at < controls
        others = [] if own else samples[:controls]
        total = sum(counts[0] for counts in sample) + unassigned[0]
        found = made.verdicts(names, columns[at], [] if own else negative, negative=own)
        want = [
            verdict(
                counts, panel, sample_reads=total, negative=own,
                control_reads=[other[target][0] for other in others],
            ) if not (watched and target == 2) else None
            for target, counts in enumerate(sample)
        ]  # fmt: skip
        assert [VERDICTS[code] for code in found] == [*want, None]
        control = max((other[0][0] for other in others), default=0)
        (reads, matches, kmers, seen), (code, *_) = sample[0], found
        assert code == made.judge(
            reads, matches, kmers, seen, total=total, control=control, negative=own
        )


def test_the_rule_in_words():
    assert Panel(reads=10, breadth=0.5).rule() == (
        "detected: at least 10 reads, breadth 0.5; more needed: less, but at least one read; "
        "not detected: otherwise"
    )
    every = Panel(windows=1000, depth=2, control_factor=10, sample_reads=5000)
    assert every.rule() == (
        "detected: at least 1,000 matching windows, depth 2, and more than 10 times the reads of "
        "each negative control; more needed: less, but at least one read and more than that "
        "multiple, or fewer than 5,000 reads of the sample; not detected: otherwise"
    )

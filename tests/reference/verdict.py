"""The verdict on a target of a sample, row by row, from its definition in docs/panel.md."""

from __future__ import annotations

from fractions import Fraction


def verdict(counts, thresholds, *, sample_reads, control_reads=(), negative=False):
    """One of the words, or None. counts: reads, matches, kmers, seen of the target in the sample.

    control_reads: the reads of the target in each negative control, but for a sample that is one.
    """
    reads, matches, kmers, seen = counts
    if kmers == 0:
        return None
    least = {"reads": 0, "windows": 0, "breadth": 0, "depth": 0, "control_factor": 0}
    least |= {name: Fraction(value) for name, value in thresholds.items()}
    beyond = all(reads > least["control_factor"] * own for own in control_reads)
    if least["control_factor"] and not control_reads:
        beyond = reads > 0
    if not least["control_factor"]:
        beyond = True
    if (
        reads >= least["reads"]
        and matches >= least["windows"]
        and Fraction(seen, kmers) >= least["breadth"]
        and Fraction(matches, kmers) >= least["depth"]
        and beyond
    ):
        return "detected"
    if negative:
        return "not detected"
    if (reads > 0 and beyond) or sample_reads < thresholds.get("sample_reads", 0):
        return "more needed"
    return "not detected"

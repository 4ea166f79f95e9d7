"""When there is enough of a target, and what is said of each target of a sample."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from streamer.dictionary.target_sets import check_kmers, first_names
from streamer.dictionary.targets import Dictionary
from streamer.errors import StreamerError
from streamer.matching.reports import Columns
from streamer.sequences.sample_sheet import SampleSheet

VERDICTS = (None, "detected", "more needed", "not detected")
"""By code; None: there is no verdict."""

DETECTED, MORE_NEEDED, NOT_DETECTED = 1, 2, 3


@dataclass(frozen=True)
class Panel:
    """Which targets are watched, and when a target has enough data.

    groups: target names by group; if there are none, all targets form one unnamed group. breadth,
    depth, reads, windows: thresholds, of which all nonzero ones must be reached; if all are 0, no
    target ever has enough. control_factor: if not 0, the reads must also exceed this multiple of
    those of each negative control. sample_reads: with fewer reads a sample needs more. positive:
    the targets that each positive control must show; if there are none, at least one of any.
    """

    groups: Mapping[str, Sequence[str]] = field(default_factory=dict)
    breadth: float = 0.0
    depth: float = 0.0
    reads: int = 0
    windows: int = 0
    control_factor: float = 0.0
    sample_reads: int = 0
    positive: Sequence[str] = ()
    words: ClassVar = VERDICTS

    def check(self, dictionary: Dictionary) -> None:
        """Raise StreamerError, with its key, for a target that is not there or can never match."""
        known = set(dictionary.targets.names)
        lists = {f"groups.{group}": names for group, names in self.groups.items()}
        for key, names in (lists | {"positive": self.positive}).items():
            for at, name in enumerate(names):
                if name not in known:
                    raise StreamerError(
                        f"panel.{key}.{at}: no target of the dictionary is '{name}'"
                    )
            check_kmers(names, dictionary.targets, dictionary.k, f"panel.{key}")
        if not self.groups and self.limits:
            check_kmers(known, dictionary.targets, dictionary.k, "panel")

    def grouped(self, dictionary: Dictionary) -> Panel:
        """Return the panel with the groups of the table of targets, if it has none of its own."""
        members: dict[str, list[str]] = {}
        for name, group in zip(dictionary.targets.names, dictionary.index.groups, strict=False):
            members.setdefault(group, []).append(name)
        return self if self.groups else replace(self, groups=members)

    def alarms(
        self, sheet: SampleSheet, seen: Mapping[str | None, Sequence[str]],
        reads: Mapping[str | None, int],
    ) -> Iterator[str]:  # fmt: skip
        """Yield what is wrong with a run: samples without reads, controls that are not right.

        seen, reads: the detected targets (without thresholds, those with reads) and the number of
        reads of each barcode.
        """
        for barcode, sample in sheet.samples.items():
            name, here = sheet.shown(barcode), seen.get(barcode, ())
            lacks = [target for target in self.positive if target not in here]
            if sample.control == "negative" and here:
                yield f"in the negative control {name} was found: {first_names(here)}"
            elif sample.control == "positive" and lacks:
                yield f"in the positive control {name} was not found: {first_names(lacks)}"
            elif sample.control == "positive" and not here:
                yield f"in the positive control {name} nothing was found"
        empty = [sheet.shown(barcode) for barcode, sample in sheet.samples.items()
                 if sample.control is None and not reads.get(barcode)]  # fmt: skip
        if empty:
            yield f"without a read: {first_names(empty)}"
        rest = sorted(filter(None, reads.keys() - sheet.samples.keys() - {"unclassified"}))
        if sheet.samples and rest:
            yield f"the sample sheet does not name {first_names(rest)}"

    @property
    def limits(self) -> bool:
        """Whether any threshold is set."""
        return bool(self.breadth or self.depth or self.reads or self.windows)

    @property
    def watched(self) -> set[str]:
        """The targets of all groups; empty: all targets."""
        return {name for members in self.groups.values() for name in members}

    def reached(
        self, reads: Any, breadth: Any, depth: Any, windows: Any = 0, control: Any = 0
    ) -> Any:
        """Return whether all thresholds are reached, of numbers or of arrays.

        windows: that match. control: reads of the negative control that has the most.
        """
        enough = (reads >= self.reads) & (breadth >= self.breadth) & (depth >= self.depth)
        return enough & (windows >= self.windows) & self._above(reads, control) & self.limits

    def _above(self, reads: Any, control: Any) -> Any:
        return (reads > self.control_factor * control) | (not self.control_factor)

    def judge(
        self, reads: Any, matches: Any, kmers: Any, seen: Any, *,
        total: int, control: Any = 0, negative: bool = False,
    ) -> Any:  # fmt: skip
        """Return the code of the verdict in VERDICTS, for the counts of a target or for arrays.

        total: all reads of the sample. negative: it is a negative control, which never needs more.
        """
        some = kmers + (kmers == 0)
        detected = self.reached(reads, seen / some, matches / some, matches, control)
        more = (reads > 0) & self._above(reads, control) | (total < self.sample_reads)
        code = NOT_DETECTED - (1 - detected) * (more & (not negative))
        return (code - (NOT_DETECTED - DETECTED) * detected) * (kmers > 0)

    def times(self, reads: int, matches: int, kmers: int, seen: int) -> float:
        """Return how many times as many reads it takes until all thresholds are reached.

        Breadth grows as with reads from random places, 1 - exp(-depth). Infinite without a read.
        """
        if not (reads and matches and seen):
            return math.inf
        wanted = [self.reads / reads, self.windows / matches, self.depth * kmers / matches]
        if seen < self.breadth * kmers:
            # the last k-mer is there once less than half of one is expected to lack
            lacking = max(1 - self.breadth, 0.5 / kmers)
            wanted.append(math.log(lacking) / math.log(1 - seen / kmers))
        return max(wanted)

    def verdicts(
        self, names: Sequence[str], columns: Columns, controls: Sequence[Columns], *,
        negative: bool = False,
    ) -> NDArray[np.int64]:  # fmt: skip
        """Return the codes of all targets of a sample, and 0 for its unassigned reads.

        columns: as from ``TargetCounts.columns``. controls: the same of the negative controls,
        none for a negative control itself.
        """
        control = np.max([each["reads"] for each in controls], axis=0) if controls else 0
        reads, matches, kmers, seen = map(columns.get, ("reads", "matches", "kmers", "seen"))
        total = int(columns["reads"].sum())
        codes = self.judge(
            reads, matches, kmers, seen, total=total, control=control, negative=negative
        )
        if watched := self.watched:
            codes = codes * [*(name in watched for name in names), False]
        return np.asarray(codes, np.int64)

    def rule(self) -> str:
        """The rule in words."""
        limits = [
            f"{self.reads:,} reads" if self.reads else "",
            f"{self.windows:,} matching windows" if self.windows else "",
            f"breadth {self.breadth:g}" if self.breadth else "",
            f"depth {self.depth:g}" if self.depth else "",
        ]
        above = beyond = few = ""
        if self.control_factor:
            above = (
                f", and more than {self.control_factor:g} times the reads of each negative control"
            )
            beyond = " and more than that multiple"
        if self.sample_reads:
            few = f", or fewer than {self.sample_reads:,} reads of the sample"
        return (
            f"detected: at least {', '.join(filter(None, limits))}{above}; more needed: less, but "
            f"at least one read{beyond}{few}; not detected: otherwise"
        )

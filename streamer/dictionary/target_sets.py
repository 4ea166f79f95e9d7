"""Which targets hold a k-mer: target sets, each distinct one stored once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from streamer.errors import StreamerError
from streamer.protocol.schema import SHOWN_TARGETS, shown_targets
from trie.windows import NO_SET


@dataclass(frozen=True)
class TargetSets:
    """Sets of targets (records), as rows of indices.

    names: target names by index. starts: int64[sets + 1], members: int32; set i holds the targets
    members[starts[i]:starts[i+1]], in file order. No two sets are equal.
    """

    names: Sequence[str]
    starts: NDArray[np.int64]
    members: NDArray[np.int32]
    _shown: dict[int, list[str]] = field(default_factory=dict, repr=False, compare=False)

    def __len__(self) -> int:
        return self.starts.size - 1

    def shown(self, index: int) -> list[str] | None:
        """The names of a set, at most 8 and then ``...``; None for NO_SET."""
        if index == NO_SET:
            return None
        if index not in self._shown:
            members = self.members_of(index)[: SHOWN_TARGETS + 1]
            self._shown[index] = shown_targets([self.names[i] for i in members])
        return self._shown[index]

    def label(self, index: int) -> str | None:
        """Like ``shown``, joined by ``;``."""
        names = self.shown(index)
        return None if names is None else ";".join(names)

    def members_of(self, index: int) -> NDArray[np.int32]:
        """Return the targets of a set, in file order."""
        return self.members[self.starts[index] : self.starts[index + 1]]

    @property
    def without_kmers(self) -> list[str]:
        """The names of targets that hold no k-mer, in file order; a repeated name may hold some."""
        holds = np.zeros(len(self.names), dtype=np.bool_)
        holds[self.members] = True
        none = np.flatnonzero(~holds).tolist()
        some = {self.names[at] for at in np.flatnonzero(holds).tolist()} if none else set()
        return [name for name in dict.fromkeys(self.names[at] for at in none) if name not in some]

    @classmethod
    def empty(cls) -> TargetSets:
        """Return no targets, for a dictionary that grows from the reads alone."""
        return cls((), np.zeros(1, dtype=np.int64), np.zeros(0, dtype=np.int32))


def unknown_names(names: Iterable[str], targets: TargetSets) -> str:
    """Return the names that no target has, for a message: the first of them; empty if none."""
    known = set(targets.names)
    return first_names([name for name in dict.fromkeys(names) if name not in known])


def first_names(names: Sequence[str]) -> str:
    """Return names for a message: the first of them."""
    shown = ", ".join(name or "''" for name in names[:SHOWN_TARGETS])
    return shown + (", ..." if len(names) > SHOWN_TARGETS else "")


def confusing_names(names: Sequence[str]) -> Iterator[str]:
    """Yield a line about names that repeat, and one about names that look like several or none."""
    for line in repeated_names(names, "target"):
        yield f"{line}, or name targets by a table or by file (--targets, --target-by)"
    if unclear := [name for name in names if ";" in name or name in ("", ".", "...")]:
        yield (
            f"{len(unclear):,} target names hold ';', which joins names in the column target, or "
            f"are dots or empty: {first_names(unclear)}; use --format jsonl, which has lists, or "
            "rename"
        )


def repeated_names(names: Sequence[str], what: str) -> Iterator[str]:
    """Yield a line about names of records that repeat; what: target or pattern."""
    if len(set(names)) < len(names):
        repeated = [name for name, count in Counter(names).items() if count > 1]
        yield (
            f"{len(repeated):,} {what} names repeat, so rows do not tell their records apart: "
            f"{first_names(repeated)}; a name ends at the first blank: replace blanks, or rename"
        )


def check_kmers(names: Iterable[str], targets: TargetSets, k: int, whose: str) -> None:
    """Raise StreamerError if a named target holds no k-mer and so can never match."""
    without = {*targets.without_kmers}
    if without and (never := [name for name in dict.fromkeys(names) if name in without]):
        message = f"{whose}: can never match, no {k}-mer without an ambiguity code: "
        raise StreamerError(message + first_names(never))


def bounds_of(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """int64[n + 1]: where each of n consecutive runs starts, then where the last one ends."""
    bounds = np.zeros(sizes.size + 1, dtype=np.int64)
    np.cumsum(sizes, out=bounds[1:])
    return bounds

"""Saved dictionaries: what ``match --save`` writes and ``--dictionary`` reads.

The file is a snapshot (``trie.snapshots.snapshot_file``) that also holds the targets:

    names        uint8: the names of the targets in file order, UTF-8, a line feed after each
    set_starts   int64[sets + 1] and
    set_members  int32: the sets of targets, as in ``TargetSets``
    sets         an unsigned integer for each k-mer of the trie, ascending: its target set, or one
                 of the two greatest numbers of its type

The greatest number marks a k-mer without a target. With strands ``both`` the trie holds both
orientations of a k-mer, but the records hold one or both: the second greatest number marks an
orientation that is present only as the reverse complement of the other.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from streamer.dictionary.target_sets import TargetSets
from streamer.dictionary.targets import Dictionary
from streamer.errors import StreamerError
from trie.codes import with_reverse_complements
from trie.snapshots.snapshot_file import SnapshotDamagedError, is_snapshot, load, save
from trie.snapshots.tree_bitmap import TreeBitmap
from trie.strands import Strands
from trie.windows import NO_SET, codes_at, window_codes

if TYPE_CHECKING:
    from streamer.matching.result import BatchResult

_NOT_STORED = np.uint32(0xFFFFFFFE)


def is_saved(path: str) -> bool:
    """Return whether a regular file is a saved dictionary; unreadable files fail when read."""
    try:
        return os.path.isfile(path) and is_snapshot(path)
    except OSError:
        return False


def load_dictionary(
    path: str, k: int, strands: Strands, on_notice: Callable[[str], None] | None = None
) -> Dictionary:
    """Load a dictionary; with strands ``both``, its k-mers as they stand in the records.

    Raises StreamerError if the file is damaged, or was saved with another k or other strands.
    on_notice: called with one line if the file is too old to have targets.
    """
    try:
        whole = load(path)
        tree = whole.tree
        if (tree.k, whole.strands) == (k, strands):
            codes = tree.codes()
            if whole.labels is not None:
                sets, targets = _labels_of(path, codes.size, whole.labels)
            else:
                sets, targets = np.full(codes.size, NO_SET, np.uint32), TargetSets.empty()
                if strands == "both":
                    # the stored orientation is unknown: take the smaller one
                    sets[codes > with_reverse_complements(codes, k)[codes.size :]] = _NOT_STORED
                if on_notice is not None:
                    on_notice(
                        f"{path}: saved by an earlier version, without targets: "
                        "its k-mers have the target '.'"
                    )
    except ValueError as error:
        raise StreamerError(str(error)) from error
    if (tree.k, whole.strands) != (k, strands):
        message = (
            f"{path}: was saved with -k {tree.k} --strands {whole.strands}, "
            f"not with -k {k} --strands {strands}"
        )
        raise StreamerError(message)
    if strands == "both":
        stored = sets != _NOT_STORED
        return Dictionary(k, "forward", codes[stored], sets[stored], targets)
    return Dictionary(k, strands, codes, sets, targets)


def save_dictionary(
    path: str, stored: Dictionary, grown: NDArray[np.uint64], tree: TreeBitmap, strands: Strands
) -> None:
    """Write a dictionary that may have grown; raise OSError if that fails.

    stored: the initial dictionary, with strands ``both`` its k-mers as they stand in the records.
    grown: uint64, k-mers as stored that were added later; needed with strands ``both`` only. tree:
    all k-mers.
    """
    codes = tree.codes()
    sets = np.full(codes.size, _NOT_STORED if strands == "both" else NO_SET, dtype=np.uint32)
    if strands == "both":
        sets[np.searchsorted(codes, grown)] = NO_SET
    sets[np.searchsorted(codes, stored.codes)] = stored.sets
    targets = stored.targets
    dtype = np.min_scalar_type(len(targets) + 1)
    save(
        tree,
        path,
        strands=strands,
        labels={
            "names": np.frombuffer(
                "".join(f"{name}\n" for name in targets.names).encode(), dtype=np.uint8
            ),
            "set_starts": targets.starts.astype(np.int64),
            "set_members": targets.members.astype(np.int32),
            # the two greatest numbers remain the greatest after narrowing
            "sets": sets.astype(dtype),
        },
    )


class StoredKmers:
    """Collects the k-mers that a dictionary grows by, as they stand in the reads, if ``needed``."""

    def __init__(self, k: int, *, needed: bool) -> None:
        self._k = k
        self._needed = needed
        self._parts: list[NDArray[np.uint64]] = []

    def add(self, result: BatchResult) -> None:
        """Add the new k-mers of the next batch."""
        if not self._needed:
            return
        batch = result.batch
        seeds = result.seed_bases
        if seeds:
            # both orientations of a seed count as stored if both occur
            offsets = np.minimum(batch.offsets, seeds)
            found = window_codes(batch.bases[:seeds], offsets, self._k, canonical=False)[0]
            self._parts.append(np.unique(found))
        if result.new_starts.size > result.seeded:
            starts = result.new_starts[result.seeded :]
            self._parts.append(codes_at(batch.bases, starts, self._k))

    def codes(self) -> NDArray[np.uint64]:
        """Return all of them, uint64, unordered; some may occur twice."""
        return np.concatenate(self._parts) if self._parts else np.zeros(0, dtype=np.uint64)


def _labels_of(
    path: str, kmers: int, labels: dict[str, NDArray[Any]]
) -> tuple[NDArray[np.uint32], TargetSets]:
    """Return each k-mer's target set, and the sets; SnapshotDamagedError if inconsistent."""
    raw, starts, members = labels["sets"], labels["set_starts"], labels["set_members"]
    names = labels["names"].tobytes().decode().split("\n")[:-1]
    special = np.iinfo(raw.dtype).max
    sets = raw.astype(np.uint32)
    sets[raw == special] = NO_SET
    sets[raw == special - 1] = _NOT_STORED
    used = sets[sets < _NOT_STORED]
    sound = (
        raw.shape == (kmers,)
        and starts.ndim == members.ndim == 1
        and starts.size > 0
        and starts[0] == 0
        and starts[-1] == members.size
        and bool((np.diff(starts) > 0).all())
        and int(used.max(initial=0)) < max(starts.size - 1, 1)
        and int(members.min(initial=0)) >= 0
        and int(members.max(initial=0)) < max(len(names), 1)
    )
    if not sound:
        raise SnapshotDamagedError(Path(path), "its targets do not fit its k-mers")
    return sets, TargetSets(names, starts, members)

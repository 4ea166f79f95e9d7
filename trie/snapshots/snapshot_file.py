"""Snapshots on disk: an ordinary .npz whose zip comment is a checksum of all preceding bytes.

    [ zip archive: format, k, strands, inmaps, exmaps, prefix_sums, level_offsets ][ 64 hex digits ]

``strands`` are the orientations of the k-mers in the trie: forward (as given), canonical or both.
Format 2 also has labels: names, set_starts, set_members and sets, the named sets of each k-mer
(``streamer.dictionary.targets``). The digits are the archive comment, the last bytes of
the file: the BLAKE2b-256 of all that precedes them. ``numpy.load`` opens the file like any .npz.
"""

from __future__ import annotations

import errno
import hashlib
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trie.codes import MAX_K
from trie.new_file import NewFile, check_new_file, in_place, naming
from trie.snapshots.tree_bitmap import TreeBitmap
from trie.strands import STRANDS

FORMATS = (1, 2)
DIGEST_LENGTH = 64
ARRAYS = {
    "inmaps": np.uint32,
    "exmaps": np.uint64,
    "prefix_sums": np.uint32,
    "level_offsets": np.uint64,
}
LABELS: dict[str, tuple[type[np.generic], ...]] = {
    "names": (np.uint8,),
    "set_starts": (np.int64,),
    "set_members": (np.int32,),
    "sets": (np.uint8, np.uint16, np.uint32),
}


class SnapshotDamagedError(ValueError):
    """The file at ``path`` is not, byte for byte, what ``save`` wrote."""

    def __init__(self, path: Path, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(
            f"{path}: damaged snapshot ({reason}); delete it and build it again, or restore a copy"
        )


def check_place(path: str | os.PathLike[str]) -> None:
    """Raise OSError if no snapshot can be written to ``path``: no folder, or a device or pipe."""
    check_new_file(path)
    if in_place(path):
        raise OSError(errno.EINVAL, "is no regular file: give another name", os.fspath(path))


class SavedSnapshot(NamedTuple):
    """The content of a file; labels: an array per name in LABELS, None for format 1."""

    tree: TreeBitmap
    strands: str
    labels: dict[str, NDArray[Any]] | None


def save(
    tree: TreeBitmap,
    path: str | os.PathLike[str],
    *,
    strands: str = "forward",
    labels: Mapping[str, NDArray[Any]] | None = None,
) -> None:
    """Write a snapshot to ``path`` atomically: on failure the old file stays.

    labels: the arrays that LABELS names, for format 2. Raises OSError as ``check_place`` does, or
    if the file cannot be written.
    """
    check_place(path)
    if strands not in STRANDS:
        raise ValueError(f"strands {strands!r} is none of {', '.join(STRANDS)}")
    arrays = {field: getattr(tree, field) for field in ARRAYS}
    arrays |= {
        "format": np.int64(1 if labels is None else 2),
        "k": np.int64(tree.k),
        "strands": np.int64(STRANDS.index(strands)),
    }
    with NewFile(path) as new, naming(path):
        np.savez(new.file, allow_pickle=False, **arrays, **(labels or {}))
        with zipfile.ZipFile(new.file, "a") as archive:
            archive.comment = b"0" * DIGEST_LENGTH
        new.file.seek(0, os.SEEK_END)
        end = new.file.tell() - DIGEST_LENGTH
        digest = _digest(new.file, end)
        new.file.seek(end)
        new.file.write(digest)


def is_snapshot(path: str | os.PathLike[str]) -> bool:
    """Whether the file begins like a zip archive, which no sequence file does."""
    with Path(path).open("rb") as file:
        return file.read(4) == b"PK\x03\x04"


def load(path: str | os.PathLike[str]) -> SavedSnapshot:
    """Read what ``save`` wrote.

    Raises SnapshotDamagedError if any byte has changed or is missing, ValueError for an unknown
    format, OSError if the file cannot be read.
    """
    path = Path(path)
    with path.open("rb") as file:
        end = file.seek(0, os.SEEK_END) - DIGEST_LENGTH
        if end <= 0:
            raise SnapshotDamagedError(path, "too short")
        digest = _digest(file, end)
        if file.read(DIGEST_LENGTH + 1) != digest:
            raise SnapshotDamagedError(path, "its bytes do not fit its checksum")
        file.seek(0)
        # fails only for a file with a correct checksum that this module did not write
        try:
            with np.load(file, allow_pickle=False) as archive:
                version = int(archive["format"])
                if version in FORMATS:
                    tree = _checked(path, int(archive["k"]), archive)
                    labels = None if version == 1 else _checked_labels(path, archive)
                    return SavedSnapshot(tree, STRANDS[int(archive["strands"])], labels)
        except (KeyError, TypeError, IndexError, zipfile.BadZipFile) as error:
            raise SnapshotDamagedError(path, "not a snapshot") from error
    raise ValueError(f"{path}: snapshot format {version}, this version reads formats 1 and 2")


def _checked(path: Path, k: int, archive: np.lib.npyio.NpzFile) -> TreeBitmap:
    arrays = {field: archive[field] for field in ARRAYS}
    tree = TreeBitmap(k, **arrays)
    nodes = tree.inmaps.size
    sizes = {"level_offsets": k // 3 + 2}
    sound = (
        1 <= k <= MAX_K
        and all(arrays[field].dtype == dtype for field, dtype in ARRAYS.items())
        and all(array.shape == (sizes.get(field, nodes),) for field, array in arrays.items())
        and tree.level_offsets[-1] == nodes
    )
    if not sound:
        raise SnapshotDamagedError(path, "its arrays do not fit together")
    return tree


def _checked_labels(path: Path, archive: np.lib.npyio.NpzFile) -> dict[str, NDArray[Any]]:
    labels = {name: archive[name] for name in LABELS}
    if any(a.ndim != 1 or a.dtype.type not in LABELS[name] for name, a in labels.items()):
        raise SnapshotDamagedError(path, "its labels are not of the right types")
    return labels


def _digest(file: IO[bytes], size: int) -> bytes:
    """The hex digits of the first ``size`` bytes; leaves the file at ``size`` or its end."""
    state = hashlib.blake2b(digest_size=DIGEST_LENGTH // 2)
    file.seek(0)
    while size > 0 and (block := file.read(min(size, 1 << 20))):
        state.update(block)
        size -= len(block)
    return state.hexdigest().encode("ascii")

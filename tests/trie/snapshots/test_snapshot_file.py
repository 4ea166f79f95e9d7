"""Snapshot files: every changed or missing byte is found, and a failed save leaves no trace."""

from __future__ import annotations

import pickle
import random
import zipfile
from pathlib import Path

import numpy as np
import pytest

from tests.reference import tree_bitmap as oracle
from trie.snapshots import tree_bitmap
from trie.snapshots.tree_bitmap import SnapshotDamagedError, TreeBitmap, load, save, snapshot


@pytest.fixture
def tree() -> TreeBitmap:
    return snapshot(np.random.default_rng(2).integers(0, 4**9, 40, dtype=np.uint64), 9)


@pytest.fixture
def path(tmp_path: Path, tree: TreeBitmap) -> Path:
    path = tmp_path / "dictionary.npz"
    save(tree, path)
    return path


@pytest.mark.parametrize("k", [1, 2, 3, 15, 16, 31])
@pytest.mark.parametrize("size", [0, 1, 1000])
def test_what_is_saved_is_loaded(tmp_path: Path, k: int, size: int) -> None:
    codes = np.random.default_rng(size).integers(0, 4**k, size, dtype=np.uint64)
    tree = snapshot(codes, k)
    save(tree, tmp_path / "a.npz")
    oracle.assert_same(load(str(tmp_path / "a.npz")).tree, tree)


def test_numpy_opens_it(path: Path, tree: TreeBitmap) -> None:
    with np.load(path) as archive:
        assert archive["k"] == 9
        assert archive["format"] == 1
        np.testing.assert_array_equal(archive["exmaps"], tree.exmaps)
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        assert len(archive.comment) == 64


def test_every_flipped_bit_is_found(path: Path) -> None:
    whole = path.read_bytes()
    chosen = random.Random(7)
    ends = [*range(64), *range(len(whole) - 700, len(whole))]  # headers, directory, comment
    for position in [*ends, *chosen.sample(range(len(whole)), 300)]:
        damaged = bytearray(whole)
        damaged[position] ^= 1 << chosen.randrange(8)
        path.write_bytes(damaged)
        with pytest.raises(SnapshotDamagedError):
            load(path)
    path.write_bytes(whole)
    load(path)


def test_every_truncation_is_found(path: Path) -> None:
    whole = path.read_bytes()
    chosen = random.Random(8)
    for length in [*range(200), *chosen.sample(range(len(whole)), 200), len(whole) - 1]:
        path.write_bytes(whole[:length])
        with pytest.raises(SnapshotDamagedError):
            load(path)
    path.write_bytes(whole + b"\0")
    with pytest.raises(SnapshotDamagedError):
        load(path)


def test_the_message_says_what_to_do(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(SnapshotDamagedError) as caught:
        load(path)
    assert caught.value.path == path
    message = str(caught.value)
    assert str(path) in message
    assert "build it again" in message
    assert "\n" not in message


def sealed(path: Path, **arrays: object) -> Path:
    """An archive with a right digest but other content."""
    with path.open("w+b") as file:
        np.savez(file, **arrays)
        with zipfile.ZipFile(file, "a") as archive:
            archive.comment = b"0" * 64
        end = file.seek(-64, 2)
        digest = tree_bitmap._digest(file, end)
        file.seek(end)
        file.write(digest)
    return path


def test_refuses_another_format(path: Path) -> None:
    with np.load(path) as archive:
        arrays = dict(archive)
    with pytest.raises(ValueError, match="format 3") as caught:
        load(sealed(path, **{**arrays, "format": np.int64(3)}))
    assert not isinstance(caught.value, SnapshotDamagedError)


@pytest.mark.parametrize(
    "change",
    [
        {"k": np.int64(12)},
        {"k": np.int64(40)},
        {"inmaps": np.zeros(3, dtype=np.uint32)},
        {"exmaps": np.zeros(3, dtype=np.int64)},
    ],
)
def test_refuses_arrays_that_do_not_fit(path: Path, change: dict[str, object]) -> None:
    with np.load(path) as archive:
        arrays = dict(archive)
    with pytest.raises(SnapshotDamagedError, match="fit together"):
        load(sealed(path, **{**arrays, **change}))


def test_refuses_another_archive(tmp_path: Path) -> None:
    with pytest.raises(SnapshotDamagedError, match="not a snapshot"):
        load(sealed(tmp_path / "x.npz", reads=np.arange(3)))


def test_never_unpickles(path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return pytest.fail, ("unpickled",)

    assert pickle.dumps(Trap())
    with np.load(path) as archive:
        arrays = dict(archive)
    arrays["inmaps"] = np.array([Trap()], dtype=object)
    with pytest.raises(ValueError, match=r"allow_pickle|not a snapshot"):
        load(sealed(path, **arrays))


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "none.npz")


def test_a_failed_save_keeps_the_old_file(
    path: Path, tree: TreeBitmap, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = path.read_bytes()

    def fail(descriptor: int) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(tree_bitmap.os, "fsync", fail)
    with pytest.raises(OSError, match="no space left"):
        save(tree, path)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_a_place_that_cannot_be_written_is_named_as_given(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "kmers"
    with pytest.raises(FileNotFoundError) as caught:
        save(snapshot(np.array([1], dtype=np.uint64), 3), path)
    assert caught.value.filename == str(path)

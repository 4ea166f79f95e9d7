"""New files: whole in their place or not there, whatever ends the writing."""

from __future__ import annotations

import errno
import gc
import os
from pathlib import Path

import pytest

from trie import new_file
from trie.new_file import NewFile, check_new_file, in_place, remove_unfinished


def unfinished(folder: Path) -> list[str]:
    """The temporary files below a folder that this process still has to remove."""
    return [path for path in new_file._unfinished if path.startswith(str(folder))]


def test_it_takes_its_place_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    path.write_bytes(b"old")
    with NewFile(path) as new:
        new.file.write(b"new")
        assert path.read_bytes() == b"old"
        hidden = [one for one in tmp_path.iterdir() if one != path]
        assert [one.name[:6] for one in hidden] == [".rows."]
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("end", ["error", "garbage", "signal"])
def test_what_is_not_complete_goes(tmp_path: Path, end: str) -> None:
    path = tmp_path / "rows"
    path.write_bytes(b"old")
    new = NewFile(path)
    new.file.write(b"new")
    if end == "error":
        with pytest.raises(KeyboardInterrupt), new:
            raise KeyboardInterrupt
    elif end == "garbage":
        new.file.close()
        del new
        gc.collect(1)
    else:
        remove_unfinished()
        new.file.close()
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
    assert not unfinished(tmp_path)


def test_names_as_long_as_they_may_be(tmp_path: Path) -> None:
    for name in ("x" * 255, "\u00e9" * 127, os.fsdecode(b"\xff" * 255)):
        with NewFile(tmp_path / name) as new:
            new.file.write(b"rows")
        assert (tmp_path / name).read_bytes() == b"rows"


def test_what_cannot_be_replaced_is_kept_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file mounted into a container is busy; its folder can be written all the same."""

    def busy(one: str, other: str) -> None:
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), one, None, other)

    monkeypatch.setattr(new_file.os, "replace", busy)
    path = tmp_path / "rows"
    with pytest.raises(OSError, match="what was written is in") as caught, NewFile(path) as new:
        new.file.write(b"rows")
    assert caught.value.filename == str(path)
    (kept,) = tmp_path.iterdir()
    assert str(kept) in caught.value.strerror
    assert kept.read_bytes() == b"rows"
    gc.collect(1)
    assert kept.exists()


def test_errors_have_the_name_that_was_given(tmp_path: Path) -> None:
    for path, number in (
        (tmp_path / "none" / "rows", errno.ENOENT),
        (tmp_path, errno.EISDIR),
        (f"{tmp_path}/rows/", errno.EISDIR),
    ):
        with pytest.raises(OSError, match=os.strerror(number)) as caught:
            check_new_file(path)
        assert (caught.value.filename, caught.value.errno) == (str(path), number)
        # at once: the error's traceback may hold the file for long
        assert not unfinished(tmp_path)
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    with pytest.raises(OSError, match="symbolic links"):
        check_new_file(loop)
    assert list(tmp_path.iterdir()) == [loop]


def test_what_is_written_directly(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"old ")
    with file.open("ab") as stream:
        descriptor = f"/dev/fd/{stream.fileno()}"
        link = tmp_path / "link"
        link.symlink_to(descriptor)
        assert in_place(descriptor)
        assert in_place(link)
        with NewFile(link) as new:
            new.file.write(b"and new")
    assert file.read_bytes() == b"old and new"
    assert not in_place(file)
    assert not in_place(tmp_path / "none")
    assert in_place("/dev/null")

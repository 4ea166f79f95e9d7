"""``streamer journal``: check, rebuild and copy, against damage and a running owner."""

from __future__ import annotations

import shutil
import threading
from contextlib import closing

import pytest

from streamer.cli.app import main
from streamer.journal.store import Journal
from tests.streamer.journal.kit import IDENTITY, assert_holds, keyed, verify


def make(directory):
    """A journal with a snapshot, not closed, and its records."""
    journal = Journal(directory, IDENTITY, "os", keep_bytes=1)
    stored = [keyed(at, b"x" * 3000, producer=f"p{at % 3}") for at in range(1, 9)]
    for one in stored:
        journal.append([one])
    journal.put_snapshot(4, b"s", (b"state",))
    return journal, stored


def run(capsys, *arguments) -> tuple[int, str, list[str]]:
    """The exit code, what was printed, and the lines on standard error."""
    code = main(["journal", *map(str, arguments)])
    out, error = capsys.readouterr()
    return code, out, error.splitlines()


@pytest.mark.whole
def test_a_journal_is_checked_and_its_index_made_anew(tmp_path, capsys):
    directory = tmp_path / "j"
    journal, _ = make(directory)
    for command in ("check", "rebuild"):
        code, out, (line,) = run(capsys, command, directory)
        assert (code, out) == (1, "")
        assert "in use by another process" in line
    journal.close()
    whole = f"{directory}: records 1 to 8, 3 producers: "
    assert run(capsys, "check", directory) == (0, f"{whole}nothing is damaged\n", [])
    for path in directory.glob("index*"):
        path.unlink()
    code, out, (line,) = run(capsys, "check", directory)
    assert code == 1
    assert "index.sqlite: is missing" in line
    assert "streamer journal rebuild" in line
    assert not list(directory.glob("index*"))
    assert run(capsys, "rebuild", directory) == (0, f"{whole}the index was made anew\n", [])
    assert run(capsys, "check", directory) == (0, f"{whole}nothing is damaged\n", [])
    path = directory / "records-00000001"
    data = bytearray(path.read_bytes())
    data[data.index(b"x" * 3000) + 5] ^= 1  # of record 1
    data[data.rindex(b"kmer-lg3") + 9] ^= 1  # of the snapshot's group
    path.write_bytes(data)
    code, out, lines = run(capsys, "check", directory)
    assert code == 1
    assert any("record 1: wrong checksum" in line for line in lines)
    assert any("the header of a group is damaged" in line for line in lines)
    assert len(lines) == 2
    assert bytes(data) == path.read_bytes()


@pytest.mark.whole
def test_a_copy_while_the_owner_stores(tmp_path, capsys):
    """It has what was stored before, is whole, and goes on as another stream."""
    directory = tmp_path / "j"
    journal, stored = make(directory)
    stop = threading.Event()

    def store() -> None:
        while not stop.is_set() and len(stored) < 500:
            stored.append(keyed(len(stored) + 1, b"y" * 3000, producer=f"p{len(stored) % 3}"))
            journal.append(stored[-1:])
            if len(stored) % 20 == 0:
                journal.put_snapshot(journal.head, b"s", (b"state",))

    thread = threading.Thread(target=store)
    thread.start()
    try:
        copies = []
        for number in range(3):
            before = journal.head
            copy = tmp_path / f"copy{number}"
            code, out, lines = run(capsys, "copy", directory, copy)
            assert (code, lines) == (0, [])
            assert "copied; it is another stream" in out
            copies.append((before, copy))
    finally:
        stop.set()
        thread.join()
    journal.close()
    for before, copy in copies:
        with closing(Journal(copy, IDENTITY, "os")) as found:
            assert before <= found.head <= len(stored)
            assert_holds(found, stored[: found.head])
            assert found.snapshot() is not None
            assert found.stream != journal.stream
            assert verify(found) == []
    with closing(Journal(directory, IDENTITY, "os")) as again:
        assert again.stream == journal.stream


def test_what_is_no_journal(tmp_path, capsys):
    empty, full = tmp_path / "empty", tmp_path / "full"
    empty.mkdir()
    full.mkdir()
    (full / "thesis.txt").touch()
    for command in ("check", "rebuild"):
        for path in (empty, full, tmp_path / "none"):
            code, _, (line,) = run(capsys, command, path)
            assert (code, line.endswith(f"{path}: there is no journal")) == (1, True)
    journal, _ = make(tmp_path / "j")
    journal.close()
    code, _, (line,) = run(capsys, "copy", tmp_path / "j", full)
    assert (code, "is not empty" in line) == (1, True)
    code, _, (line,) = run(capsys, "copy", empty, tmp_path / "copy")
    assert (code, "nothing is stored" in line) == (1, True)
    assert not (tmp_path / "copy").exists()
    before = tmp_path / "before"
    shutil.copytree(tmp_path / "j", before)
    (before / "records-00000001").write_bytes(b"kmer-log" + bytes(500))
    code, _, (line,) = run(capsys, "check", before)
    assert (code, "format 2, this version of the program reads 3" in line) == (1, True)

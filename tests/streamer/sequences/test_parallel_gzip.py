"""One gzip file by the threads of rapidgzip: rows and errors are those of one thread."""

from __future__ import annotations

import fcntl
import gzip
import os
import random
import sys
import threading
from types import SimpleNamespace

import pytest

from streamer.sequences import decompression
from streamer.sequences.files import read_batches
from tests.streamer.sequences.kit import outcome
from tests.waiting import until
from trie.cpu.team import Team

rapidgzip = pytest.importorskip("rapidgzip")
pytestmark = pytest.mark.whole  # a process decompresses

THREADS = 8
RNG = random.Random(8)


def fastq(reads):
    letters = [RNG.randbytes(100).translate(b"ACGT" * 64) for _ in range(reads)]
    return b"".join(b"@r%d\n%s\n+\n%s\n" % (i, s, s) for i, s in enumerate(letters))


@pytest.fixture(autouse=True, scope="module")
def _contents():
    """They take a second, which a worker that only collects is spared."""
    global TEXT, FIRST, CONTENT, TWO, EXTRAS
    TEXT = fastq(12_000)
    parts = TEXT, TEXT[: len(TEXT) // 3], TEXT[len(TEXT) // 3 :]
    CONTENT, FIRST, rest = (gzip.compress(part, 1, mtime=0) for part in parts)
    TWO = FIRST + rest
    EXTRAS = CONTENT[:3] + b"\x1c" + CONTENT[4:10] + b"\x03\0abcname\0comment\0" + CONTENT[10:]


EMPTY = gzip.compress(b"")


@pytest.fixture
def ended(monkeypatch):
    """Files of any size are read in parallel; how often rapidgzip brought one to its end."""
    monkeypatch.setattr(decompression, "LEAST_BYTES", 0)
    monkeypatch.setattr(decompression, "usable_cores", lambda: THREADS)
    found = []
    without_end = decompression._without_end

    def noted(*blocks):
        found.append(without_end(*blocks)[0])
        return without_end(*blocks)

    monkeypatch.setattr(decompression, "_without_end", noted)
    return found


def same(path, content):
    """Whether a team and one thread make the same of a file; the rows and the error."""
    path.write_bytes(content)
    with Team(THREADS) as team:
        found = outcome(read_batches([str(path)], team=team, full=True))
        assert team.lent == 0
    wanted = outcome(read_batches([str(path)], full=True))
    assert found == wanted
    return found


@pytest.fixture
def small_chunks(monkeypatch):
    """Rapidgzip divides a file into tasks of 32 KB."""
    monkeypatch.setattr(decompression, "_CHUNK_KB", (32, 32))


@pytest.mark.parametrize(
    "content",
    [lambda: CONTENT, lambda: TWO, lambda: EMPTY + CONTENT + EMPTY, lambda: EXTRAS],
    ids=["one", "two", "empty ones", "extras"],
)
def test_a_whole_file(content, tmp_path, ended):
    found = same(tmp_path / "f", content())
    assert sum(map(len, found)) == 12_000
    assert ended == [True]


@pytest.mark.parametrize("name", ["CONTENT", "TWO", "EXTRAS"])
def test_many_chunks(name, tmp_path, ended, small_chunks):
    content = globals()[name]
    assert sum(map(len, same(tmp_path / "f", content))) == 12_000
    for cut in random.Random(82).sample(range(1, len(content)), 10):
        same(tmp_path / "f", content[:cut])
    assert ended[0]
    assert not any(ended[1:])


def test_batches_as_they_come(tmp_path, ended):
    """Regions are parsed side by side, as of a plain file."""
    path = tmp_path / "f"
    path.write_bytes(CONTENT)
    done = []
    with Team(THREADS) as team:
        found = outcome(read_batches([str(path)], team=team, on_bytes=done.append))
        assert team.stages.size("decompress") == len(TEXT)
    assert [row for batch in found for row in batch] == [
        row for batch in outcome(read_batches([str(path)])) for row in batch
    ]
    assert ended == [True]
    assert done == sorted(done)
    assert done[-1] == len(CONTENT)


@pytest.mark.parametrize(
    "content",
    [
        lambda: CONTENT + bytes(100),
        lambda: TWO[:-8] + bytes(8),
        lambda: CONTENT + b"more",
        lambda: CONTENT + b"more than ten bytes",
        lambda: CONTENT[:-8] + bytes([CONTENT[-8] ^ 1]) + CONTENT[-7:],
        lambda: CONTENT[:-4] + bytes([CONTENT[-4] ^ 1]) + CONTENT[-3:],
        lambda: gzip.compress(b""),
        lambda: CONTENT[:3] + b"\xff" + CONTENT[4:],
    ],
    ids=["zeros", "no sum", "short", "longer", "sum", "size", "nothing", "flags"],
)
def test_other_ends(content, tmp_path, ended):
    same(tmp_path / "f", content())


def test_truncated(tmp_path, ended):
    rng = random.Random(81)
    cuts = [*range(1, 24, 3), *(len(CONTENT) - i for i in range(1, 24, 3)), len(CONTENT) // 2]
    cuts += rng.sample(range(len(CONTENT)), 8)
    first = len(FIRST)
    within = (first + 5, first + 30, (first + len(TWO)) // 2, len(TWO) - 9, len(TWO) - 1)
    for content in [CONTENT[:cut] for cut in cuts] + [TWO[:cut] for cut in within]:
        assert isinstance(same(tmp_path / "f", content)[-1], str), len(content)
    assert not any(ended)
    same(tmp_path / "f", TWO[:first])
    assert ended[-1], "behind a member a file may end"


def test_truncated_at_every_byte(tmp_path, ended):
    members = gzip.compress(b"@a\nACGT\n+\nIIII\n"), gzip.compress(b"@b\nTT\n+\nII\n")
    content = b"".join(members)
    for cut in (*range(0, len(content), 2), len(content)):
        same(tmp_path / "f", content[:cut])
    assert ended.count(True) == 1 + (len(members[0]) % 2 == 0)  # also between the members


@pytest.mark.parametrize("seed", range(5))
def test_damaged(seed, tmp_path, ended):
    rng = random.Random(seed)
    content = bytearray(rng.choice([CONTENT, TWO]))
    for _ in range(rng.choice([1, 3])):
        content[rng.randrange(10, len(content))] ^= 1 << rng.randrange(8)
    same(tmp_path / "f", bytes(content))


def test_damage_behind_text_that_has_come(tmp_path, ended, monkeypatch):
    """Blocks are given away before rapidgzip meets the fault; what follows them is not repeated."""
    path = tmp_path / "f"
    text = fastq(60_000)
    parts = [gzip.compress(text[i : i + 1_000_000], 1) for i in range(0, len(text), 1_000_000)]
    content = b"".join(parts)
    for damaged in (content[: len(content) - 1000], content + b"more than ten bytes"):
        found = same(path, damaged)
        assert sum(len(batch) for batch in found if not isinstance(batch, str)) > 55_000
        assert isinstance(found[-1], str) == (len(damaged) < len(content))


@pytest.mark.parametrize("change", ["grows", "shrinks"])
def test_a_file_that_changes_meanwhile(change, tmp_path, ended, monkeypatch):
    path = tmp_path / "f"
    changed = CONTENT + gzip.compress(b"@last\nACGT\n+\nIIII\n") if change == "grows" else CONTENT
    without_end = decompression._without_end

    def change_it(*blocks):
        path.write_bytes(changed)
        return without_end(*blocks)

    monkeypatch.setattr(decompression, "_without_end", change_it)
    path.write_bytes(CONTENT if change == "grows" else CONTENT + EMPTY)
    with Team(THREADS) as team:
        found = outcome(read_batches([str(path)], team=team))
    assert ended == [True]
    assert sum(map(len, found)) == 12_000 + (change == "grows")


def test_a_process_that_dies(tmp_path, ended, monkeypatch):
    """What it has delivered counts; one thread delivers what follows."""
    text = fastq(100_000)
    fill = decompression._Rapidgzip.fill

    def fill_and_kill(process, block):
        filled = fill(process, block)
        process._child.kill()
        return filled

    monkeypatch.setattr(decompression._Rapidgzip, "fill", fill_and_kill)
    assert sum(map(len, same(tmp_path / "f", gzip.compress(text, 1)))) == 100_000
    assert not any(ended)


@pytest.mark.parametrize("program", ["/no/such/program", "/bin/false"])
def test_a_process_that_does_not_start(program, tmp_path, ended, monkeypatch):
    monkeypatch.setattr(sys, "executable", program)
    assert sum(map(len, same(tmp_path / "f", CONTENT))) == 12_000
    assert not any(ended)


def test_a_user_without_room_for_large_pipes(tmp_path, ended, monkeypatch):
    def refused(*_):
        raise PermissionError

    monkeypatch.setattr(fcntl, "fcntl", refused)
    before = os.listdir("/proc/self/fd")
    assert sum(map(len, same(tmp_path / "f", CONTENT))) == 12_000
    assert ended == [True]
    assert os.listdir("/proc/self/fd") == before


def test_no_thread_to_feed_the_process(tmp_path, ended, monkeypatch):
    class Thread(threading.Thread):
        def start(self):
            raise RuntimeError("can't start new thread")

    monkeypatch.setattr(decompression, "threading", SimpleNamespace(Thread=Thread))
    before = os.listdir("/proc/self/fd")
    assert sum(map(len, same(tmp_path / "f", CONTENT))) == 12_000
    assert ended == []
    assert os.listdir("/proc/self/fd") == before


def test_a_file_that_is_read_from_within(tmp_path, ended):
    path = tmp_path / "f"
    path.write_bytes(b"something in front" + CONTENT)
    with open(path, "rb") as opened, Team(THREADS) as team:
        opened.seek(18)
        found = outcome(read_batches(["f"], opened=opened, team=team))
        assert opened.tell() == 18 + len(CONTENT), "another program may read on there"
    assert sum(map(len, found)) == 12_000
    assert ended == [True]


def test_text_that_repeats_itself_is_left_to_one_thread(tmp_path, ended):
    same(tmp_path / "f", gzip.compress(b"@r\nACGT\n+\nIIII\n" * 100_000))
    assert ended == []


def test_a_reader_that_is_left_early(tmp_path, ended):
    path = tmp_path / "f"
    path.write_bytes(CONTENT * 30)
    with Team(THREADS) as team:
        batches = read_batches([str(path)], team=team, batch_bases=1000)
        assert len(next(iter(batches))) > 0
        batches.close()
        until(lambda: team.lent == 0, "rapidgzip has ended")


def test_few_threads_and_other_files_do_without(tmp_path, monkeypatch):
    path = tmp_path / "f"
    path.write_bytes(CONTENT)
    few = THREADS - 1
    for threads, cores, least in (
        (few, THREADS, 0),
        (THREADS, few, 0),
        (THREADS, THREADS, len(CONTENT) + 1),
    ):
        monkeypatch.setattr(decompression, "LEAST_BYTES", least)
        monkeypatch.setattr(decompression, "usable_cores", lambda cores=cores: cores)
        monkeypatch.setattr(decompression, "_Rapidgzip", None)
        with Team(threads) as team:
            assert sum(map(len, outcome(read_batches([str(path)], team=team)))) == 12_000

"""A watched folder: each record once, whatever becomes of its files and of the watcher."""

from __future__ import annotations

import bz2
import errno
import gzip
import io
import lzma
import os
import random
import socket
from contextlib import closing
from pathlib import Path

import pytest

from streamer.errors import start_warnings
from streamer.output.output_file import END_BLOCK
from streamer.watching.file_visit import FileVisit
from streamer.watching.folder import UNTIL, has_end, may_grow
from streamer.watching.ledger import NOT_DONE
from tests.streamer.sequences.kit import bgzf_block, zstd
from tests.streamer.watching.kit import Life, live, named, record, text_of, write


def test_files_as_minknow_dorado_and_bcl_convert_leave_them(run):
    write(run / "fastq_pass/barcode01/FPL_pass_barcode01_a_b_0.fastq.gz", text_of(["n1"]))
    write(run / "fastq_pass/unclassified/FPL_pass_unclassified_a_b_0.fastq.bgz", text_of(["n2"]))
    write(run / "Alignment_1/Fastq/S1_S1_L001_R1_001.fastq.gz", text_of(["i1"]))
    write(run / "dorado.fastq", text_of(["d1"]))
    for skipped in (
        ".hidden.fastq", ".snapshot/x.fastq", "x.fastq.gz.tmp", "x.tmp.fastq", "x.part.fastq.gz",
        "x.fastq.partial", "fastq_fail/barcode01/x.fastq", "pod5/x.pod5", "reference.fasta",
        "S1_S1_L001_I1_001.fastq.gz", "S1_S1_I2_001.fastq",
    ):  # fmt: skip
        write(run / skipped, text_of(["bad"]))
    life = live(run)
    assert sorted(life.names) == ["d1", "i1", "n1", "n2"]
    assert (life.faults, life.notes) == ([], [])


def test_reads_have_their_context(run):
    """Of headers and folders, also where a file is read on from a place within."""
    write(run / "barcode04" / "a.fastq.gz", text_of(["a"]))
    grown = run / "barcode05" / "b.fastq"
    write(grown, text_of(named("b", 2)))
    life = live(run, lambda: write(grown, text_of(named("b", 4))))
    found = [
        (name, channel, barcode)
        for piece in life.pieces
        for name, channel, barcode in zip(
            piece.reads.names,
            piece.reads.context.channel.tolist(),
            piece.reads.context.barcode.texts(),
            strict=True,
        )
    ]
    assert sorted(found) == [
        ("a", 7, "barcode04"), *((name, 7, "barcode05") for name in named("b", 4))
    ]  # fmt: skip


def test_plain_fastq_is_read_as_it_grows_and_packed_files_once_they_are_whole(run):
    packed = gzip.compress(text_of(named("p", 50)).encode())
    life = Life(run, run.parent / "ledger")
    seen = []

    def write_half():
        (run / "a.fastq").write_text(text_of(named("a", 3)) + record("a3")[:-5])
        (run / "b.fastq.gz").write_bytes(packed[:200])

    def write_rest():
        seen.append(life.names)
        (run / "a.fastq").write_text(text_of(named("a", 5)))
        (run / "b.fastq.gz").write_bytes(packed)

    life.turns._steps = [write_half, lambda: None, lambda: None, write_rest]
    life.run()
    assert seen == [named("a", 3)]
    assert sorted(life.names) == sorted([*named("a", 5), *named("p", 50)])
    assert life.notes == []


def test_other_bytes_and_another_header_are_ignored_aloud(run, capsys):
    start_warnings()  # a daemon in this process has sent them to its log
    packed, plain = run / "a.fastq.gz", run / "b.fastq"
    texts = [text_of(named("b", count)).replace("+", "+other") for count in (2, 4)]

    def write_both():
        packed.write_bytes(gzip.compress(text_of(named("a", 3)).encode()) + b"more")
        plain.write_text(texts[0])

    life = live(run, write_both, lambda: None, lambda: write(plain, texts[1]))
    assert sorted(life.names) == [*named("a", 3), *named("b", 4)]
    assert (life.faults, life.notes) == ([], [])
    said = capsys.readouterr().err.splitlines()
    assert sorted(line.removeprefix("streamer: warning: ") for line in said) == [
        f"{packed}: other bytes follow the compressed data: they are ignored",
        f"{plain}: line 3: the header after '+' is not the one after '@': it is ignored, here and "
        "below",
    ]


def test_a_record_without_a_line_end_counts_once_the_file_has_settled(run):
    life = live(run, lambda: write(run / "a.fastq", text_of(named("a", 3)).rstrip("\n")))
    assert life.names == named("a", 3)
    assert life.faults == []


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("a.fastq.gz", "a.fastq.gz: the compressed stream is truncated"),
        ("a.fastq", "a.fastq: record 2 (a1): not valid FASTQ (line 7): the file ends within the "
         "record"),
    ],
)  # fmt: skip
def test_a_file_that_stays_truncated_is_waited_for_then_said_then_given_up(run, name, problem):
    whole = text_of(named("a", 2))
    write(run / name, whole)
    data = (run / name).read_bytes()
    (run / name).write_bytes(data[: data.rindex(b"+") + 2] if name == "a.fastq" else data[:-9])
    life = live(run, *[lambda: None] * 12)
    assert life.names == (named("a", 1) if name == "a.fastq" else [])
    assert life.notes == [f"{problem}: waits for the rest"]
    assert life.faults == [f"{problem}: given up"]
    # it is complete when the watcher comes back
    (run / name).write_bytes(data)
    assert live(run, mark=life.pieces[-1].mark(1) if life.pieces else b"").names == (
        named("a", 1, 1) if name == "a.fastq" else named("a", 2)
    )


def test_a_name_that_comes_again_is_one_line_and_counts(run):
    """Not those of mates, which have one name, nor of copies."""
    write(run / "a.fastq.gz", text_of(named("r", 3)))
    write(run / "b.fastq.gz", text_of(["x", "r1", "r0"]))
    write(run / "c.fastq.gz", text_of(named("r", 3)))
    for mate in (1, 2):
        letters = random.Random(mate)
        mates = "".join(record(name, letters) for name in named("m", 3))
        write(run / f"S1_S1_L001_R{mate}_001.fastq.gz", mates)
    life = live(run, lambda: write(run / "d.fastq", text_of(["y", "r2"])))
    assert sorted(life.names) == sorted(
        [*named("r", 3), "x", "r0", "r1", "y", "r2", *named("m", 3), *named("m", 3)]
    )
    (line,) = [line for line in life.notes if "count once" not in line]
    assert line.endswith(" comes again: both reads count; further names are not reported")
    assert life.faults == []


def test_a_file_that_shrinks_or_is_another_one_is_one_line(run):
    life = live(
        run,
        lambda: write(run / "a.fastq", text_of(named("a", 5))),
        lambda: write(run / "a.fastq", text_of(named("a", 2))),
        lambda: write(run / "a.fastq", text_of(named("a", 7))),
        lambda: write(run / "a.fastq", text_of(named("b", 9))),
    )
    assert life.names == [*named("a", 7), *named("b", 9)]
    size = len(record("a0"))
    assert life.notes == [
        f"a.fastq: has shrunk from {5 * size} to {2 * size} bytes",
        "a.fastq: has other records than before: they are sent, too",
    ]
    assert life.faults == []


def of_one_size(path, names, time=None):
    """A file whose size depends on the number of its records alone."""
    data = text_of(names).encode()
    path.write_bytes(gzip.compress(data, 0, mtime=0) if path.suffix == ".gz" else data)
    if time:
        os.utime(path, ns=(time, time))


@pytest.mark.parametrize("time", [None, 10**18])
@pytest.mark.parametrize("name", ["a.fastq", "a.fastq.gz"])
def test_a_file_replaced_by_one_of_equal_size_is_new(run, name, time):
    """Also one with the time of the other, and while no watcher runs."""
    life = live(
        run,
        lambda: of_one_size(run / name, named("a", 300), time),
        *[lambda: None] * 3,
        lambda: of_one_size(run / name, named("b", 300), time),
    )
    size = (run / name).stat().st_size
    assert life.names == [*named("a", 300), *named("b", 300)]
    assert life.notes == [f"{name}: has other records than before: they are sent, too"]
    of_one_size(run / name, named("c", 300), time)
    assert (run / name).stat().st_size == size
    again = live(run, mark=life.pieces[-1].mark(len(life.pieces[-1].reads)))
    assert again.names == named("c", 300)


@pytest.mark.parametrize("name", ["a.fastq", "a.fastq.gz"])
def test_reads_replaced_amid_a_file_are_new(run, name):
    names = named("a", 900)
    life = live(
        run,
        lambda: of_one_size(run / name, names),
        *[lambda: None] * 3,
        lambda: of_one_size(run / name, [*names[:400], "bbbb", *names[401:]]),
    )
    assert sorted(life.names) == sorted([*names, *names[:400], "bbbb", *names[401:]])


@pytest.mark.parametrize("name", ["a.fastq", "a.fastq.gz"])
def test_a_file_restored_or_with_other_permissions_is_not_read_again(run, name, monkeypatch):
    monkeypatch.setattr("streamer.watching.watcher.FileVisit", (visits := Counting(FileVisit)))

    def restore():
        data, time = (run / name).read_bytes(), (run / name).stat().st_mtime_ns
        (run / name).unlink()
        (run / name).write_bytes(data)
        os.utime(run / name, ns=(time, time))

    of_one_size(run / name, named("a", 300))
    life = live(run, *[lambda: None] * 3, lambda: (run / name).chmod(0o640), lambda: None, restore)
    assert life.names == named("a", 300)
    assert visits.calls == 1
    (run / name).chmod(0o600)
    again = live(run, mark=life.pieces[-1].mark(len(life.pieces[-1].reads)))
    assert (again.names, visits.calls, again.notes) == ([], 1, [])


class Counting:
    """Counts calls of ``function``."""

    def __init__(self, function):
        self.calls = 0
        self._function = function

    def __call__(self, *arguments, **options):
        self.calls += 1
        return self._function(*arguments, **options)


def test_a_folder_that_disappears_is_waited_for(run):
    write(run / "a.fastq", text_of(["a"]))
    away = run.parent / "away"
    (run / "old").mkdir()
    life = live(
        run,
        lambda: os.rename(run, away),
        lambda: None,
        lambda: os.rename(away, run),
        lambda: write(run / "b.fastq", text_of(["b"])),
    )
    assert life.names == ["a", "b"]
    assert life.notes == [f"{run}: is gone: waits for it", f"{run}: is back"]


def test_a_damaged_file_is_one_line_and_the_others_go_on(run):
    good, bad = record("a0"), record("a1").replace("A", "!")
    write(run / "a.fastq", good + bad + record("a2"))
    packed = bytearray(gzip.compress(text_of(named("b", 50)).encode()))
    packed[-8] ^= 1
    (run / "b.fastq.gz").write_bytes(packed)
    write(run / "c.fastq.gz", text_of(["c"]))
    life = live(run, lambda: None, lambda: None)
    # of what is damaged, that before the fault may have been sent
    assert sorted(name for name in life.names if name[0] != "b") == ["a0", "c"]
    assert sorted(line.split(":")[0] for line in life.faults) == ["a.fastq", "b.fastq.gz"]
    assert any("a.fastq: record 2 (a1), position" in line for line in life.faults)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_file_is_one_line(run):
    write(run / "a.fastq", text_of(["a"]))
    (run / "a.fastq").chmod(0)
    life = live(run, lambda: None)
    assert life.faults == ["a.fastq: cannot be read: permission denied"]


class Refusing:
    """In the place of a folder that may not be read, as root may read everything."""

    def __init__(self, monkeypatch):
        self.paths = set()
        self._scandir = os.scandir
        monkeypatch.setattr("streamer.watching.folder.os.scandir", self)

    def __call__(self, path):
        if isinstance(path, str) and Path(path) in self.paths:
            raise PermissionError(errno.EACCES, "Permission denied")
        return self._scandir(path)


def test_a_folder_that_cannot_be_read_is_one_line_and_given_up(run, monkeypatch):
    refusing = Refusing(monkeypatch)
    write(run / "barcode01" / "a.fastq.gz", text_of(["a"]))
    write(run / "barcode02" / "b.fastq.gz", text_of(["b"]))
    refusing.paths.add(run / "barcode02")
    life = live(run, lambda: None, lambda: None)
    assert life.names == ["a"]
    assert life.faults == ["barcode02/: cannot be read: permission denied"]
    assert life.watcher.given_up == {"barcode02/"}


@pytest.mark.parametrize("below", [".", "barcode02"])
def test_a_folder_that_can_be_read_again_is_not_given_up(run, monkeypatch, below):
    refusing = Refusing(monkeypatch)
    counts = []
    write(run / "barcode02" / "b.fastq.gz", text_of(["b"]))
    life = Life(run, run.parent / "ledger")
    life.turns._steps = [
        lambda: refusing.paths.add(run / below),
        lambda: None,
        lambda: counts.append(len(life.watcher.given_up)),
        refusing.paths.clear,
        lambda: None,
    ]
    life.run()
    assert life.names == ["b"]
    (line,) = life.faults
    assert line.endswith(
        "run: cannot be read: permission denied"
        if below == "."
        else "barcode02/: cannot be read: permission denied"
    )
    assert life.notes == []
    assert counts == [1]
    assert life.watcher.given_up == set()


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_it_stops_after_the_piece_at_hand_and_notes_what_was_sent(run, suffix):
    write(run / f"a.fastq{suffix}", text_of(named("a", 200)))
    life = Life(run, run.parent / "ledger", steps=[lambda: None], sizes=(10**6, 10))
    for piece in life.watcher:
        life.pieces.append(piece)
        life.stopped = len(life.pieces) == 3
    assert life.names == named("a", 30)
    mark = life.pieces[-1].mark(10)
    (visit,) = life.ledger.files.values()
    assert mark == life.ledger.mark(visit.number, visit.sent)
    assert visit.size == NOT_DONE
    life.ledger.close()
    # noted as it was: nothing has to be recovered
    again = live(run, mark=mark)
    assert again.names == named("a", 170, 30)
    assert again.notes == []


def test_what_is_no_file_is_left_alone(run):
    """Whatever its name: opening a pipe would wait for ever. Links to files are followed."""
    elsewhere = run.parent / "elsewhere"
    write(elsewhere / "a.fastq", text_of(["a"]))
    os.mkfifo(run / "pipe.fastq")
    (run / "folder.fastq").mkdir()
    write(run / "folder.fastq" / "b.fastq.gz", text_of(["b"]))
    (run / "link.fastq").symlink_to(run / "folder.fastq")
    (run / "nowhere.fastq").symlink_to(run / "nothing")
    (run / "loop.fastq").symlink_to(run / "loop.fastq")
    (run / "linked.fastq").symlink_to(elsewhere / "a.fastq")
    with closing(socket.socket(socket.AF_UNIX)) as other:
        other.bind(str(run / "socket.fastq"))
        life = live(run, lambda: {"pipe.fastq", "link.fastq"}, lambda: None)
    assert sorted(life.names) == ["a", "b"]
    links = "loop.fastq", "nowhere.fastq"
    assert sorted(life.faults) == [f"{name}: the link leads nowhere" for name in links]
    assert life.notes == []


def test_a_link_to_what_is_not_there_yet_is_no_fault_in_the_end(run):
    elsewhere = run.parent / "elsewhere"
    (run / "barcode01").symlink_to(elsewhere)
    life = live(run, lambda: None, lambda: write(elsewhere / "a.fastq", text_of(["a"])))
    assert life.names == ["a"]
    assert life.faults == ["barcode01: the link leads nowhere"]
    assert not life.watcher.given_up


def test_events_below_a_link_count_where_a_scan_enters_it(run):
    """inotify follows links to folders, also to the folder itself."""
    elsewhere = run.parent / "elsewhere"
    elsewhere.mkdir()
    (run / "link").symlink_to(elsewhere)
    (run / "loop").symlink_to(run)
    (run / "up").symlink_to(run.parent)

    def write_all():
        write(elsewhere / "a.fastq", text_of(["a"]))
        write(elsewhere / "below" / "b.fastq", text_of(["b"]))
        write(run / "c.fastq", text_of(["c"]))
        return {"link/a.fastq", "link/below/b.fastq", "loop/c.fastq", "c.fastq", "link/below"}

    life = Life(run, run.parent / "ledger", steps=[write_all, lambda: {"link"}])
    life.turns._seconds = 0.5
    life.run()
    assert sorted(life.names) == ["a", "b", "c"]
    assert (life.faults, life.notes) == ([], [])
    assert life.ledger.files.keys() == {"link/a.fastq", "link/below/b.fastq", "c.fastq"}


def test_linked_folders_are_read_once(run):
    """Also by several links, in cycles, and from below another link; failed reads never."""
    data = run.parent / "data"
    for barcode in ("barcode01", "barcode02"):
        write(data / "pass" / barcode / "a.fastq.gz", text_of([barcode]))
    write(data / "fastq_fail" / "bad.fastq.gz", text_of(["bad"]))
    write(run.parent / "other_run" / "x.fastq.gz", text_of(["x"]))
    (data / "pass" / "barcode01" / "cycle").symlink_to(data / "pass")
    write(run / "own" / "c.fastq.gz", text_of(["own"]))
    for link, target in (
        ("a_link", run / "own"), ("fastq_pass", data / "pass"), ("again", data / "pass"),
        ("barcode02", data / "pass/barcode02"), ("failed", data / "fastq_fail"),
        ("fastq_fail", data / "pass"), ("all", run.parent), ("whole", "/"),
    ):  # fmt: skip
        (run / link).symlink_to(target)
    life = live(run)
    assert sorted(life.names) == ["barcode01", "barcode02", "own"]
    assert (life.faults, life.notes) == ([], [])
    assert len(life.ledger.files) == 3


def test_a_run_ends_its_own_folder_only(run):
    write(run / "run1/fastq_pass/barcode01/a.fastq.gz", text_of(["a"]))
    (run / "run1/final_summary_1.txt").touch()
    grown = run / "run2/fastq_pass/barcode01/b.fastq"
    grown.parent.mkdir(parents=True)
    life = live(
        run,
        *[lambda: None] * 3,
        *[lambda n=n: write(grown, text_of(named("b", n))) for n in range(1, 6)],
    )
    assert life.names == ["a", *named("b", 5)]
    (waits,) = life.notes
    others = "waits for the end of all others, such as that of run2/fastq_pass/"
    assert waits == f"a run is over: {others}"


@pytest.mark.parametrize(
    ("marks", "waits"),
    [
        (["run1/final_summary_1.txt", "run2/final_summary_2.txt"], 0),
        # of a run without reads
        (["run1/final_summary_1.txt", "empty/final_summary_3.txt"], 1),
        (["final_summary_x.txt"], 0),
        (["run1/Logs/FastqComplete.txt"], 1),
        (["run1/Logs/FastqComplete.txt", "run2/Logs/FastqComplete.txt"], 0),
        (["Logs/FastqComplete.txt"], 0),
    ],
)
def test_it_ends_once_the_runs_of_all_reads_are_over(run, marks, waits):
    for number in (1, 2):
        write(run / f"run{number}/barcode01/a.fastq.gz", text_of([f"a{number}"]))
    for mark in marks:
        (run / mark).parent.mkdir(exist_ok=True)
        (run / mark).touch()
    life = Life(run, run.parent / "ledger", steps=[lambda: None] * 6, until=(*UNTIL, "FastqC*"))
    life.run()
    assert sorted(life.names) == ["a1", "a2"]
    assert (run / "final_summary_x.txt").exists() == (waits or marks == ["final_summary_x.txt"])
    assert len(life.notes) == waits


@pytest.mark.parametrize("name", [b"\xff\xfe.fastq", b"\xe9 \t\n.fastq.gz", "\u6f22.fq".encode()])
def test_any_name_of_a_file(run, name):
    path = Path(os.fsdecode(os.fsencode(run) + b"/" + name))
    write(path, text_of(named("a", 3)))
    life = live(run, lambda: {path.name})
    assert life.names == named("a", 3)
    assert (life.faults, life.notes) == ([], [])
    marks = [piece.mark(len(piece.reads)) for piece in life.pieces]
    again = live(run, mark=marks[-1])
    assert again.names == []


def test_hints_are_enough_to_see_a_file_and_never_needed(run):
    told, untold = run / "told.fastq", run / "untold.fastq"
    life = Life(run, run.parent / "ledger")
    life.turns._seconds = 1.0

    def write_both():
        write(told, text_of(["told"]))
        write(untold, text_of(["untold"]))
        return {"told.fastq", "no/such.fastq"}

    seen = []
    nothing = [lambda: seen.append(life.names) or set()] * 6
    life.turns._steps = [write_both, *nothing]
    life.run()
    assert seen[0] == ["told"]
    assert seen[-1] == ["told", "untold"]


@pytest.mark.whole
@pytest.mark.parametrize("seed", range(60))
def test_any_history_with_kills_counts_each_record_once(tmp_path, seed):
    """Files grow, are completed, copied, renamed and written anew between lives of the watcher."""
    rng = random.Random(seed)
    run = tmp_path / "run"
    run.mkdir()
    plain, packed, made = {}, {}, []

    def grow():
        path = run / f"plain{rng.randrange(4)}.fastq"
        text, names = plain.get(path, ("", []))
        new = [f"{path.stem}-{len(names) + i}" for i in range(rng.randrange(5))]
        text += "".join(record(name, length=rng.randrange(1, 60)) for name in new)
        plain[path] = text, names + new
        made.extend(new)
        cut = rng.randrange(max(1, len(text) - 30), len(text) + 1) if text else 0
        path.write_text(text[:cut])

    def pack():
        path = run / f"barcode{rng.randrange(3):02}" / f"packed{len(packed)}.fastq.gz"
        names = [f"{path.stem}-{i}" for i in range(rng.randrange(20))]
        made.extend(names)
        write(path, text_of(names))
        packed[path] = path.read_bytes()
        if rng.random() < 0.5:
            path.write_bytes(packed[path][: rng.randrange(len(packed[path]))])

    def complete():
        for path, data in packed.items():
            if path.exists():
                path.write_bytes(data)

    def copy():
        if packed:
            path = rng.choice(list(packed))
            (run / f"copy{rng.randrange(5)}.fastq.gz").write_bytes(packed[path])

    def rename():
        there = [path for path in packed if path.exists()]
        if there:
            path = rng.choice(there)
            path.rename(path.with_name(f"moved-{path.name}"))
            packed[path.with_name(f"moved-{path.name}")] = packed.pop(path)

    def end():
        complete()
        for path, (text, _) in plain.items():
            path.write_text(text)

    steps = [rng.choice((grow, grow, grow, pack, complete, copy, rename)) for _ in range(30)]
    sent, mark = [], b""
    sizes = rng.choice(((40, 2), (200, 4000), (10**6, 4000)))
    while steps:
        coming, steps = steps[: (n := rng.randrange(1, 12))], steps[n:]
        life = Life(run, tmp_path / "ledger", mark=mark, steps=coming, sizes=sizes)
        life.turns._seconds = rng.choice((0.5, 1.5, 7.0))
        life.run(rng.randrange(1, 10))
        (run / "final_summary_x.txt").unlink(missing_ok=True)
        names, new = life.durable(rng)
        sent += names
        mark = new or mark
    life = Life(run, tmp_path / "ledger", mark=mark, steps=[end], sizes=sizes).run()
    assert sorted(sent + life.names) == sorted(made)
    assert life.faults == []


def test_copies_count_once(run):
    names = named("a", 5)
    life = live(
        run,
        lambda: write(run / "a.fastq", text_of(names)),
        lambda: write(run / "a.fastq.gz", text_of(names)),
        lambda: write(run / "copy.fastq.gz", text_of(named("a", 3))),
        lambda: write(run / "more/longer.fastq.gz", text_of(named("a", 8))),
        lambda: os.utime(run / "a.fastq", (1, 1)),
        lambda: os.rename(run / "a.fastq.gz", run / "renamed.fastq.gz"),
    )
    assert life.names == named("a", 8)
    assert life.notes == [
        "a.fastq.gz: begins with the 5 records of a.fastq: they count once",
        "copy.fastq.gz: is a part of a.fastq.gz, whose records have been sent",
        "more/longer.fastq.gz: begins with the 5 records of a.fastq: they count once",
        "renamed.fastq.gz: is a part of more/longer.fastq.gz, whose records have been sent",
    ]


def test_a_file_that_only_begins_like_a_longer_one_is_another(run):
    """Also one that is written anew under its name, once it stays so: nothing proves it then."""
    write(run / "a.fastq", text_of(named("a", 10)))
    write(run / "c.fastq.gz", text_of(["c", *named("c", 10)]))
    life = live(
        run,
        lambda: write(run / "b.fastq", text_of(["a0", *named("b", 2)])),
        lambda: write(run / "c.fastq.gz", text_of(["c", *named("d", 2)])),
    )
    assert sorted(life.names) == sorted(
        [*named("a", 10), "c", *named("c", 10), "a0", *named("b", 2), "c", *named("d", 2)]
    )
    line = "may be a part of c.fastq.gz, which is no longer there as it was sent"
    assert [line for line in life.notes if "shrunk" not in line and "again" not in line] == [
        f"c.fastq.gz: {line}: its records are sent, too"
    ]
    assert life.faults == []
    # and counts once from now on
    (run / "b.fastq").rename(run / "e.fastq")
    write(run / "f.fastq.gz", text_of(["c", *named("d", 2)]))
    assert live(run, mark=life.pieces[-1].mark(len(life.pieces[-1].reads))).names == []


def test_what_a_file_had_is_known_when_another_one_has_more(run):
    """And the file itself has gone."""
    life = live(
        run,
        lambda: write(run / "a.fastq", text_of(named("a", 4))),
        lambda: write(run / "all.fastq", text_of(named("a", 10))),
        lambda: os.rename(run / "a.fastq", run.parent / "a.fastq"),
        lambda: write(run / "m.fastq", text_of([*named("a", 4), *named("m", 2)])),
        lambda: write(run / "m.fastq", text_of([*named("a", 4), *named("m", 5)])),
        lambda: write(run / "some.fastq", text_of(named("a", 6))),
    )
    assert life.names == [*named("a", 10), *named("m", 5)]
    assert life.notes == [
        "all.fastq: begins with the 4 records of a.fastq: they count once",
        "m.fastq: begins with the 4 records of a.fastq: they count once",
        "some.fastq: is a part of all.fastq, whose records have been sent",
    ]


def test_a_part_is_proved_by_a_file_that_is_as_it_was_sent(run):
    """Not by one that was written anew with it: neither has been sent."""

    def write_both():
        for name in ("a.fastq.gz", "b.fastq.gz"):
            write(run / name, text_of(["a0", *named("b", 2)]))

    write(run / "a.fastq.gz", text_of(named("a", 10)))
    life = live(run, lambda: None, write_both)
    assert sorted(life.names) == sorted([*named("a", 10), "a0", *named("b", 2)])


def test_a_part_grows_to_a_copy_and_more(run):
    path = run / "b.fastq"
    write(run / "a.fastq", text_of(named("a", 5)))
    steps = [lambda n=n: write(path, text_of(named("a", n))) for n in (2, 3, 5, 7)]
    life = live(run, *[step for write_more in steps for step in (write_more, lambda: None)])
    assert life.names == named("a", 7)
    part = "b.fastq: is a part of a.fastq, whose records have been sent"
    assert life.notes == [part, part]


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_damage_in_a_file_that_begins_like_another_one_is_one_line(run, suffix):
    bad = record("a3").replace("A", "!")
    write(run / f"a.fastq{suffix}", text_of(named("a", 10)))
    damaged = text_of(named("a", 3)) + bad + text_of(named("a", 6, 4))
    life = live(run, lambda: write(run / f"b.fastq{suffix}", damaged), lambda: None)
    assert life.names == named("a", 10)
    (line,) = life.faults
    assert line.startswith(f"b.fastq{suffix}: record 4 (a3), position")
    assert life.watcher.given_up == {f"b.fastq{suffix}"}


def test_a_part_that_ends_within_a_record_is_given_up(run):
    write(run / "a.fastq", text_of(named("a", 10)))
    life = live(run, lambda: write(run / "b.fastq", text_of(named("a", 3))[:-40]), lambda: None)
    assert life.names == named("a", 10)
    (line,) = life.faults
    assert line.startswith("b.fastq: record 3 (a2)")
    assert line.endswith("the file ends within the record: given up")


def test_files_that_only_begin_alike_are_others(run):
    write(run / "a.fastq.gz", text_of(["same", *named("a", 5)]))
    write(run / "b.fastq.gz", text_of(["same", *named("b", 5)]))
    assert sorted(live(run).names) == sorted(["same", "same", *named("a", 5), *named("b", 5)])


def test_mates_that_are_equal_are_no_copies(run):
    """Both reads of a pair are all G where there is no light, and all N at masked cycles."""
    dark = "".join(f"@dark{number}\n{'G' * 30}\n+\n{'#' * 30}\n" for number in range(3))
    first, second = (f"Blank_S9_L001_R{mate}_001.fastq.gz" for mate in (1, 2))
    write(run / first, dark)
    life = live(run, lambda: write(run / second, dark), lambda: None)
    assert life.names == [*named("dark", 3)] * 2
    mark = life.pieces[-1].mark(3)
    # copies of either are
    write(run / "copies" / first, dark)
    write(run / "copies" / second, dark)
    write(run / "other.fastq", dark)
    (run / second).rename(run / "Blank_S9_L001_R2_002.fastq.gz")
    again = live(run, mark=mark)
    assert again.names == []
    assert again.faults == []


TEXT = text_of(named("r", 20)).encode()


PACKED = {
    "gzip": gzip.compress(TEXT),
    "two members": gzip.compress(TEXT[:100]) + gzip.compress(TEXT[100:]),
    "bzip2": bz2.compress(TEXT),
    "xz": lzma.compress(TEXT),
    "zstd": zstd(TEXT),
}


@pytest.mark.parametrize("name", PACKED)
def test_every_truncation_is_seen(name):
    data = PACKED[name]
    whole = {0, len(data)}
    if name == "two members":
        # nothing tells that another one follows
        whole.add(len(gzip.compress(TEXT[:100])))
    for size in range(6, len(data) + 1):
        assert has_end(io.BytesIO(data[:size]), patient=False) == (size in whole), size


@pytest.mark.parametrize("name", ["gzip", "two members", "bzip2"])
@pytest.mark.parametrize("bytes_behind", [b"\n", b"more", b"more than ten bytes"])
def test_other_bytes_behind_the_end_leave_it_complete(name, bytes_behind):
    assert has_end(io.BytesIO(PACKED[name] + bytes_behind), patient=False)


def test_zstd_behind_a_frame_to_skip():
    data = b"\x50\x2a\x4d\x18\x04\0\0\0size" + PACKED["zstd"]
    for size in range(13, len(data) + 1):
        assert has_end(io.BytesIO(data[:size]), patient=False) == (size == len(data)), size


def test_bgzf_needs_its_end_block_unless_nothing_comes_for_long():
    blocks = bgzf_block(TEXT[:500]) + bgzf_block(TEXT[500:])
    assert gzip.decompress(blocks) == TEXT
    whole = blocks + END_BLOCK
    for size in range(20, len(whole)):
        assert not has_end(io.BytesIO(whole[:size]), patient=False)
    assert has_end(io.BytesIO(whole), patient=False)
    assert has_end(io.BytesIO(blocks), patient=True)
    assert not has_end(io.BytesIO(blocks[:-1]), patient=True)


def test_damage_is_for_the_reader_to_report():
    rng = random.Random(1)
    for data in PACKED.values():
        damaged = bytearray(data)
        damaged[rng.randrange(20, len(data))] ^= 255
        assert has_end(io.BytesIO(damaged), patient=False) in (True, False)
    assert has_end(io.BytesIO(TEXT), patient=False)


def test_only_plain_fastq_grows():
    assert may_grow(io.BytesIO(TEXT))
    assert may_grow(io.BytesIO(b"\n\n@r"))
    for data in (*PACKED.values(), b">r\nACGT\n", b"@HD\tVN:1.6\n", b"BAM\1", b""):
        assert not may_grow(io.BytesIO(data))

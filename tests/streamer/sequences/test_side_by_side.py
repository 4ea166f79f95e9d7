"""Files read by several threads or processes: rows and errors are those of one parser."""

from __future__ import annotations

import faulthandler
import gzip
import os
import random
import subprocess
import threading
from contextlib import contextmanager
from itertools import chain, pairwise, product

import numpy as np
import pytest

from streamer.cli import match_files
from streamer.errors import DataError
from streamer.output.output_file import END_BLOCK
from streamer.output.rows import RowWriter
from streamer.sequences import files, raw_file, side_by_side, source
from streamer.sequences.files import read_batches, work_on_batches, work_on_records
from streamer.sequences.raw_file import (
    BEHIND_BYTES,
    ROOM_BYTES,
    FileRegion,
    RawFile,
    plain_blocks,
)
from streamer.sequences.record_buffer import RecordBuffer
from tests.streamer.sequences.kit import bgzf_blocks
from tests.streamer.sequences.test_reader import FASTQ, FILES
from tests.waiting import until
from trie.cpu.forks import forked
from trie.cpu.stages import Stages
from trie.cpu.team import Done, Team, results_of


@pytest.fixture
def parsed(monkeypatch):
    """Whether each region that was parsed had whole records."""
    whole = []

    def parse(*given, **options):
        done = side_by_side.parsed(*given, **options)
        whole.append(done.worked is not None)
        return done

    monkeypatch.setattr(source, "parsed", parse)
    return whole


def rows(path, team, **limits):
    """(name, codes) of all reads, then the error."""
    found = []
    try:
        for batch in read_batches([str(path)], team=team, **limits):
            places = batch.offsets.tolist()
            codes = (batch.bases[i:j].tobytes() for i, j in zip(places, places[1:], strict=False))
            found += zip(batch.names, codes, strict=True)
    except DataError as error:
        found.append(str(error))
    return found


def texts(path, team, **limits):
    """(text, first line) of all records, then the error."""
    found = []
    try:
        for piece in results_of(
            work_on_records(str(path), lambda piece, _: piece, team=team, **limits)
        ):
            assert piece.text is not None
            (span,), places = piece.text.joined()
            for begin, line, end in places.tolist():
                found.append((span.text[begin:end].tobytes(), span.text[begin:line].tobytes()))
    except DataError as error:
        found.append(str(error))
    return found


def check(path, content, **limits):
    path.write_bytes(content)
    wanted = rows(path, None, **limits), texts(path, None, **limits)
    with Team(4) as team:
        assert (rows(path, team, **limits), texts(path, team, **limits)) == wanted, content
    return wanted[0]


def fastq(rng, records, *, ends=(b"\n",), blank=0.0, lengths=(0, 1, 5, 30, 100, 300)):
    """Records whose qualities look like other lines, with blank lines behind some."""
    content = bytearray()
    for number in range(records):
        length, end = rng.choice(lengths), rng.choice(ends)
        letters = bytes(rng.choices(b"ACGTN", k=length))
        qualities = bytes(rng.choices(b"@+#IIII!~", k=length))
        content += end.join((b"@r%d about" % number, letters, b"+", qualities, b""))
        content += end * (rng.random() < blank)
    return bytes(content)


@pytest.mark.parametrize("seed", range(16))
def test_rows_and_errors_are_those_of_one_parser(seed, tmp_path, sizes):
    rng = random.Random(seed)
    ends = rng.choice([(b"\n",), (b"\r\n",), (b"\n", b"\r\n")])
    content = fastq(rng, rng.randrange(1, 150), ends=ends, blank=rng.choice([0, 0, 0.05]))
    for _ in range(rng.choice([0, 0, 1, 2])):
        at = rng.randrange(len(content))
        content = (
            content[:at] + bytes(rng.choices(b"@+\nACx\x80")) + content[at + rng.randrange(2) :]
        )
    if rng.random() < 0.3:
        content = content[: rng.randrange(len(content))]
    packed = rng.choice(["", "", "gz", "bgzf"])
    if packed == "gz":
        content = gzip.compress(content)
    elif packed == "bgzf":
        blocks = bgzf_blocks(content, *range(100, len(content), 100))
        content = b"".join((*blocks, END_BLOCK))
    if packed and rng.random() < 0.4:
        content = content[: rng.randrange(len(content))]
    sizes(rng.choice((300, 1000, 3000)), rng.choice((64, 200, 1000)))
    limits = {"batch_bases": rng.choice((100, 1000, 10**6)), "batch_reads": rng.choice((3, 10**5))}
    check(tmp_path / "f", content, **limits)


@pytest.mark.whole
@pytest.mark.parametrize("name", ["fastq", "fastq-blank"])
def test_cut_at_every_byte(name, tmp_path, sizes):
    sizes(100, 64)
    content = FILES[name]
    for end in range(len(content) + 1):
        if end % 16 == 0 or b"\n" in content[max(end - 9, 0) : end + 9]:  # else within a long line
            check(tmp_path / "f", content[:end])


def test_all_of_a_plain_file_is_parsed_side_by_side(tmp_path, sizes, parsed):
    sizes(3000, 500)
    assert len(check(tmp_path / "f", fastq(random.Random(1), 500))) == 500
    assert len(parsed) > 30
    assert all(parsed)


def test_one_parser_goes_on_behind_a_wrong_cut(tmp_path, sizes, parsed, monkeypatch):
    sizes(3000, 500)
    right, cuts = side_by_side._last_end, []

    def wrong(text, first, stop):
        cuts.append(right(text, first, stop))
        return cuts[-1] - 7 * (len(cuts) == 5)

    monkeypatch.setattr(side_by_side, "_last_end", wrong)
    assert len(check(tmp_path / "f", fastq(random.Random(2), 500, lengths=(30, 100)))) == 500
    assert not all(parsed)


def test_records_longer_than_a_region(tmp_path, sizes, parsed):
    sizes(1000, 300)
    rng = random.Random(3)
    content = b"".join(fastq(rng, 2, lengths=(size,)) for size in (10, 700, 2000, 3500, 40))
    assert len(check(tmp_path / "f", content)) == 10
    assert all(parsed)
    # and than what is looked through for its end
    content += fastq(rng, 1, lengths=(20_000,)) + fastq(rng, 300)
    parsed.clear()
    assert len(check(tmp_path / "f", content)) == 311
    assert len(parsed) < 40, "one parser goes on there"


def test_few_threads_and_pipes_have_one_parser(tmp_path, sizes, parsed):
    sizes(1000, 300)
    path = tmp_path / "f"
    path.write_bytes(FASTQ * 20)
    with Team(2) as team:
        wanted = rows(path, team)
    with Team(4) as team, subprocess.Popen(["cat", path], stdout=subprocess.PIPE) as child:
        batches = read_batches(["-"], opened=child.stdout, team=team)
        assert sum(len(batch) for batch in batches) == len(wanted) > 50
    assert not parsed


def test_a_region_that_ends_within_a_record_is_refused():
    first = raw_file.ROOM_BYTES
    block = raw_file.new_block(40)
    block.array[first:][:40] = np.frombuffer(FASTQ[:40], np.uint8)
    buffer = RecordBuffer("f", 100, 100)
    assert side_by_side.parsed(block, buffer, lambda piece: piece, Stages()).worked is None


def test_full_batches_are_those_of_one_parser(tmp_path, sizes, parsed):
    sizes(3000, 500)
    path = tmp_path / "f"
    path.write_bytes(fastq(random.Random(4), 500))

    def batches(threads, **options):
        with Team(threads) as team:
            found = read_batches([str(path)], batch_reads=70, team=team, **options)
            return [len(batch) for batch in found]

    assert batches(4, full=True) == batches(2) == [70] * 7 + [10]
    assert not parsed
    assert batches(4) != batches(2)


def as_bases(folder):
    """A dictionary of one k-mer."""
    path = folder / "d.fa"
    path.write_text(f">d\n{'A' * 31}\n")
    return path


def test_the_thread_that_parses_a_region_does_the_work(tmp_path, sizes):
    sizes(3000, 500)
    rng = random.Random(7)
    paths = [tmp_path / name for name in ("1.fq", "2.fa", "3.fq.gz", "4.fq", "5.fq")]
    contents = [fastq(rng, count) for count in (300, 0, 200, 1, 400)]
    contents[1] = b">a\nACGT\n>b\nAC\n"
    contents[2] = gzip.compress(contents[2])
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
    given = list(map(str, paths))
    workers = []

    def work(batch):
        workers.append(threading.current_thread().name)
        return list(batch.names)

    with Team(4) as team:
        works = list(work_on_batches(given, work, team=team))
        made = [call for call in works if isinstance(call, Done)]
        assert len(works) > len(made) == len(workers) > 50
        assert len(set(workers)) > 1
    with Team(4) as team:
        found = list(team.results(work_on_batches(given, lambda b: list(b.names), team=team)))
    wanted = [list(batch.names) for batch in read_batches(given)]
    assert [*chain(*found)] == [*chain(*wanted)]


def test_a_fault_behind_regions_that_were_worked_on(tmp_path, sizes, streamer):
    sizes(3000, 500)
    path, taken = tmp_path / "f.fq", []
    path.write_bytes(
        fastq(random.Random(8), 100) + b"@bad\nAC\n+\nI\n" + fastq(random.Random(9), 99)
    )
    with Team(4) as team, pytest.raises(DataError, match="record 101"):
        taken[:0] = (
            taken.append(names)
            for names in team.results(
                work_on_batches([str(path)], lambda batch: list(batch.names), team=team)
            )
        )
    assert [*chain(*taken)] == [f"r{i}" for i in range(100)]
    for report in ("targets", "reads"):
        given = ["match", path, "-d", as_bases(tmp_path), "-k", 31, "--report", report, "--quiet"]
        codes = [streamer(*given, "--threads", threads) for threads in (1, 4)]
        assert codes[0] == codes[1]
        assert codes[0][0] == 1


def test_an_error_of_the_work_is_no_error_of_the_file(tmp_path, sizes):
    sizes(3000, 500)
    path = tmp_path / "f.fq"
    path.write_bytes(fastq(random.Random(10), 300))

    def work(batch):
        if "r200" in batch.names:
            raise ValueError("of the work")

    with Team(4) as team, pytest.raises(ValueError, match="of the work"):
        list(team.results(work_on_batches([str(path)], work, team=team)))


def test_a_file_that_is_cut_or_grows_while_it_is_read(tmp_path, sizes):
    sizes(3000, 500)
    path, more = tmp_path / "f.fq", fastq(random.Random(12), 50)
    content = fastq(random.Random(11), 300)
    for change in ("cut", "grow"):
        path.write_bytes(content)
        with Team(4) as team:
            batches = read_batches([str(path)], batch_reads=10, team=team)
            found = list(next(batches).names)
            with path.open("r+b") as file:
                if change == "cut":
                    # long before, at the end of a record or not, whatever has been read of it
                    file.truncate(len(content) // 2)
                else:
                    file.seek(0, 2)
                    file.write(more)
            try:
                for batch in batches:
                    found += batch.names
            except DataError:
                assert change == "cut"
        wanted = [f"r{i}" for i in range(300)] + [f"r{i}" for i in range(50)] * (change == "grow")
        assert found == wanted[: len(found)]
        assert change == "cut" or len(found) == len(wanted)


@pytest.mark.parametrize("problem", ["Input/output error", "the file has become shorter"])
def test_a_region_that_cannot_be_read_at_first(problem, tmp_path, sizes, monkeypatch):
    """Work has been done on those behind it: to read on would do it twice."""
    sizes(3000, 500)
    monkeypatch.setattr(side_by_side, "_LOOK_BYTES", 1000)
    path, found, read = tmp_path / "f.fq", [], os.preadv
    records = (b"@r%03d\n%s\n+\n%s\n" % (i, b"A" * 45, b"I" * 45) for i in range(300))
    path.write_bytes(b"".join(records))
    assert path.stat().st_size == 30_000

    def fails(file, buffers, place):
        size = len(buffers[0])
        if (place, size) == (9000, 3000):
            return read(file, [buffers[0][:1000]], place)
        if (place, size) == (10_000, 2000):
            if problem.startswith("Input"):
                raise OSError(problem)
            return 0
        return read(file, buffers, place)

    monkeypatch.setattr(os, "preadv", fails)
    with Team(4) as team, pytest.raises(DataError, match=f"record 101: cannot be read: {problem}"):
        found[:0] = (
            found.append(names)
            for names in team.results(
                work_on_batches([str(path)], lambda batch: list(batch.names), team=team)
            )
        )
    assert [*chain(*found)] == [f"r{i:03}" for i in range(100)]


@pytest.mark.parametrize("count", [1, 5, 300])
@pytest.mark.parametrize("end", [b"", b"\n", b"@cut\nAC", b"@bad\nAC\n+\nI\n@r\nA\n+\nI\n"])
def test_the_bytes_that_have_been_read(count, end, tmp_path, sizes):
    sizes(3000, 500)
    path, told = tmp_path / "f.fq", []
    path.write_bytes(fastq(random.Random(count), count) + end)
    size = path.stat().st_size
    with path.open("rb") as file, Team(4) as team:
        try:
            list(read_batches(["-"], opened=file, team=team, batch_reads=7, on_bytes=told.append))
        except DataError:
            assert end.startswith(b"@")
        else:
            assert told[-1] == size
            assert file.tell() == size, "another program may read on there"
        assert told == sorted(told)
        assert max(told, default=0) <= team.stages.size("read") <= size
        assert end.startswith(b"@") or team.stages.size("read") == size


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_ended_early_the_threads_have_nothing_to_do(pack, tmp_path, sizes):
    sizes(3000, 500)
    path = tmp_path / "f"
    path.write_bytes(pack(fastq(random.Random(14), 500)))
    with Team(4) as team:
        batches = read_batches([str(path)], team=team)
        next(batches)
        batches.close()
        assert not team._lines


@pytest.mark.parametrize("asked", [("--report", "windows"), ("--distance", 0)])
def test_many_rows_are_made_of_few_batches_ahead(asked, tmp_path, sizes, monkeypatch, streamer):
    """Of each window, and within a distance."""
    sizes(3000, 500)
    monkeypatch.setattr(match_files, "CAN_FORK", False)
    monkeypatch.setattr(match_files, "BASES_OF_MANY_ROWS", 300)
    path, worked, teams = tmp_path / "f.fq", [], []
    path.write_bytes(b"@r\n%s\n+\n%s\n" % (b"A" * 100, b"I" * 100) * 500)
    work, put, profiled = match_files._Run.work, RowWriter.put, match_files.profiled

    @contextmanager
    def kept(*given):
        with profiled(*given) as team:
            teams.append(team)
            yield team

    def counted(run, batch):
        worked.append(len(batch))
        return work(run, batch)

    def late(writer, lines):
        if teams:
            team = teams.pop()
            until(lambda: team.spare == 3, "all other threads wait")
            assert len(worked) <= 4 + 2 + 1
        put(writer, lines)

    monkeypatch.setattr(match_files, "profiled", kept)
    monkeypatch.setattr(match_files._Run, "work", counted)
    monkeypatch.setattr(RowWriter, "put", late)
    given = ["match", path, "-d", as_bases(tmp_path), "-k", 31, *asked, "--quiet"]
    code, rows, error = streamer(*given, "--threads", 4)
    assert (code, error, rows.count("\n")) == (0, "", 1 + 500 * 70)
    assert len(worked) > 100


def plain_last_end(text, first, stop):
    """As the kernel, by looking at every byte."""
    begins = [at for at in range(first, stop + 1) if at == first or text[at - 1 : at] == b"\n"]
    lines = [text[a : b - 1].removesuffix(b"\r") for a, b in pairwise(begins)]
    for last in range(len(lines), 3, -1):
        header, letters, plus, qualities = lines[last - 4 : last]
        if header[:1] == b"@" and plus[:1] == b"+" and len(letters) == len(qualities):
            return begins[last]
    return first


@pytest.mark.parametrize("seed", range(4))
def test_where_the_last_record_ends(seed):
    """Among lines of any length, around those that are looked through at once."""
    rng = random.Random(seed)
    found = set()
    for _ in range(400):
        size = rng.choice((0, 3, 30, 63, 64, 65, 200))
        record = b"@r\n%s\n+\n%s\n" % (b"A" * size, b"I" * size)
        if rng.random() < 0.3:
            record = record.replace(b"\n", b"\r\n")
        parts = rng.choices((record, b"A\n", b"\n", b"@", b"+\n", b"I" * 70), k=6)
        text = b"".join(parts)
        first = rng.randrange(len(text) + 1)
        stop = rng.randrange(first, len(text) + 1)
        wanted = plain_last_end(text, first, stop)
        array = np.frombuffer(text, np.uint8)
        assert side_by_side._last_end(array, first, stop) == wanted, (text, first, stop)
        found.add(wanted > first)
    assert len(found) == 2


@pytest.fixture
def forks(monkeypatch):
    """Small files are worked on in forked processes, too."""
    monkeypatch.setattr(source, "FORK_THREADS", 1)
    monkeypatch.setattr(source, "FORK_BYTES", 0)


def forked_rows(path, **limits):
    """What ``rows`` returns, of work in forked processes; and whether any was done there."""
    here, found = os.getpid(), []

    def work(batch):
        places = batch.offsets.tolist()
        codes = [batch.bases[i:j].tobytes() for i, j in zip(places, places[1:], strict=False)]
        return list(zip(batch.names, codes, strict=True)), os.getpid() != here

    away = []
    try:
        with Team(3) as team:
            works = work_on_batches([str(path)], work, team=team, forks=True, **limits)
            for some, elsewhere in results_of(works):
                found += some
                away.append(elsewhere)
    except DataError as error:
        found.append(str(error))
    return found, any(away)


@pytest.mark.whole
@pytest.mark.parametrize("seed", range(6))
def test_processes_find_what_one_parser_finds(seed, tmp_path, sizes, forks):
    rng = random.Random(seed)
    content = fastq(rng, rng.randrange(100, 200), blank=rng.choice([0, 0.02]))
    fault = rng.choice([b"", b"", b"@", b"\x80", b"\n"])
    at = rng.randrange(len(content) // 2, len(content))
    content = content[:at] + fault + content[at:] if fault else content
    path = tmp_path / "f.fq"
    path.write_bytes(content[: rng.choice([at, len(content)])])
    sizes(1000, 200)
    limits = {"batch_bases": rng.choice((100, 10**6)), "batch_reads": rng.choice((3, 10**5))}
    found, away = forked_rows(path, **limits)
    assert found == rows(path, None, **limits)
    assert away


@pytest.mark.whole
def test_large_regions_are_mapped(tmp_path, sizes, forks):
    """Except near the ends of the file, where the parser's margins would lie outside."""
    path = tmp_path / "f.fq"
    path.write_bytes(fastq(random.Random(7), 20_000))
    sizes(200_000, 5000)
    assert path.stat().st_size > 10 * raw_file.ROOM_BYTES
    found, away = forked_rows(path)
    assert away
    assert found == rows(path, None)


@pytest.mark.whole
@pytest.mark.parametrize("how", ["forks", "small"])
@pytest.mark.parametrize("fault", ["none", "cut", "missing", "format"])
def test_many_small_files_are_read_at_once(how, fault, tmp_path, monkeypatch, forks):
    """Each file by one process or thread; results and errors are those of one after the other."""
    monkeypatch.setattr(files, "FORK_THREADS", 1)
    rng, paths, sizes = random.Random(3), [], []
    for number in range(9):
        content = fastq(rng, rng.randrange(40))
        if number == 5 and fault == "cut":
            content = content[:-7]
        if number == 5 and fault == "format":
            content = b"what is this?\n"
        path = tmp_path / f"{number}.fq.gz"
        path.write_bytes(gzip.compress(content) if number % 3 else content)
        paths.append(str(path))
    if fault == "missing":
        os.unlink(paths[5])
    here = os.getpid(), threading.get_ident()
    threads, waits = set(), False

    def work(batch):
        me = os.getpid(), threading.get_ident()
        threads.add(me)
        if waits and me == here:
            # on a busy machine it would do all the work before another thread began
            until(lambda: len(threads) > 1, "another thread works")
        return list(batch.names), me

    def found(**options):
        rows, away = [], set()
        with Team(3) as team:
            works = work_on_batches(
                paths, work, batch_reads=7, team=team,
                on_bytes=sizes.append, **options,
            )  # fmt: skip
            try:
                for names, process in results_of(works):
                    rows += names
                    away.add(process)
            except DataError as error:
                rows.append((str(error), error.file, error.record))
            return rows, away - {here}, team.stages.size("parse")

    wanted, _, bases = found()
    threads.clear()
    waits = how == "small"
    rows, away, counted = found(**{how: True})
    if how == "small" and fault != "none":
        # the reads of a file are given once all of them are done
        assert rows[-1] == wanted[-1]
        assert rows[:-1] == wanted[: len(rows) - 1]
    else:
        assert rows == wanted
    assert len({process for process, _ in away}) > 1 if how == "forks" else away
    if fault == "none":
        assert counted == bases
        assert max(sizes) == sum(os.path.getsize(path) for path in paths)
        assert len(rows) == len(wanted) > 100


SIZE = ROOM_BYTES + 100_000


@pytest.fixture
def file(tmp_path):
    content = np.random.default_rng(5).integers(0, 256, SIZE, dtype=np.uint8).tobytes()
    path = tmp_path / "file"
    path.write_bytes(content)
    with path.open("rb") as opened:
        yield path, opened.fileno(), content


@pytest.mark.parametrize(
    ("first", "stop"),
    [
        (ROOM_BYTES, ROOM_BYTES + 1),
        (ROOM_BYTES + 1, ROOM_BYTES + 4097),
        (ROOM_BYTES + 4096, SIZE - BEHIND_BYTES),
    ],
)
def test_mapped_bytes_have_room_on_both_sides(file, first, stop):
    _, descriptor, content = file
    block = FileRegion(descriptor, first, stop).mapped()
    assert block.array[block.first : block.stop].tobytes() == content[first:stop]
    assert block.first >= ROOM_BYTES
    assert block.array.size - block.stop >= BEHIND_BYTES
    block.array[:] = 0
    assert os.pread(descriptor, SIZE, 0) == content


@pytest.mark.parametrize(
    ("first", "stop"), [(0, 5000), (ROOM_BYTES - 1, SIZE - 1000), (ROOM_BYTES, SIZE - 50)]
)
def test_near_its_ends_a_file_is_not_mapped(file, first, stop):
    assert FileRegion(file[1], first, stop).mapped() is None


def test_a_file_that_has_just_become_shorter_is_not_mapped(file, monkeypatch):
    path, descriptor, _ = file
    before = os.fstat(descriptor)
    monkeypatch.setattr(os, "fstat", lambda _: before)
    os.truncate(path, 1000)
    assert FileRegion(descriptor, ROOM_BYTES, ROOM_BYTES + 10).mapped() is None


def test_a_file_that_becomes_shorter_ends_only_a_forked_process(file):
    path, descriptor, content = file
    here = os.getpid()

    def work(region):
        block = region.mapped()
        if os.getpid() == here:
            return None if block is None else block.array[block.first]
        faulthandler.disable()  # pytest's reports the signal
        os.truncate(path, 1000)
        return block.array[block.first]

    regions = [FileRegion(descriptor, ROOM_BYTES + at, ROOM_BYTES + at + 10) for at in (0, 8192)]
    found = forked(regions, lambda region: [work(region)], 1, Stages(), works="", takes="")
    assert list(found) == [content[ROOM_BYTES], None]


def test_blocks_are_the_file_from_where_it_was_and_what_is_added(tmp_path):
    path = tmp_path / "file"
    for size, before in product((0, 1, 6, 7, 99, 100, 101, 5000), (0, 1, 50)):
        content = np.random.default_rng(size).integers(0, 256, size, dtype=np.uint8).tobytes()
        path.write_bytes(bytes(before) + content)
        with path.open("rb") as file, path.open("ab") as more:
            file.seek(before)
            raw = RawFile(file)
            blocks = plain_blocks(raw, 100)
            texts = [block.array[block.first : block.stop].tobytes() for block in blocks]
            assert b"".join(texts) == content
            assert all(0 < len(text) <= 100 for text in texts)
            more.write(b"more")
            more.flush()
            assert raw.read1() == b"more"
            assert raw.bytes_read == size + 4

"""FASTQ read in forked processes, and many files at once: what one parser finds."""

from __future__ import annotations

import gzip
import os
import random
import threading

import pytest

from streamer.errors import DataError
from streamer.sequences import files, raw_file, source
from streamer.sequences.files import work_on_batches
from tests.streamer.sequences.test_side_by_side import fastq, rows
from tests.waiting import until
from trie.cpu.team import Team, results_of


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


def test_large_regions_are_mapped(tmp_path, sizes, forks):
    """Except near the ends of the file, where the parser's margins would lie outside."""
    path = tmp_path / "f.fq"
    path.write_bytes(fastq(random.Random(7), 20_000))
    sizes(200_000, 5000)
    assert path.stat().st_size > 10 * raw_file.ROOM_BYTES
    found, away = forked_rows(path)
    assert away
    assert found == rows(path, None)


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

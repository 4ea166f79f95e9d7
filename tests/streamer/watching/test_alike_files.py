"""Files that begin like others: copies, parts, and those that only look like them."""

from __future__ import annotations

import os

import pytest

from tests.streamer.watching.kit import live, named, record, text_of, write


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

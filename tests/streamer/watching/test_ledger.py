"""The ledger and the daemon's mark: one says how far the other came, or does not fit it."""

from __future__ import annotations

import apsw
import msgpack
import pytest

from streamer.errors import StreamerError
from streamer.watching.ledger import NOT_DONE, Digest, Ledger
from tests.streamer.watching.kit import Life, named, text_of, write


def opened(path, mark=b""):
    return Ledger(str(path), mark, "x")


def test_without_a_mark_everything_begins_anew_under_another_id(tmp_path):
    ledger = opened(tmp_path / "state/ledger")
    assert not ledger.begins_anew
    visit = ledger.begin("a", 0, 5, Digest())
    old = ledger.mark(visit.number, Digest(1, 2, 3))
    ledger.close()
    ledger = opened(tmp_path / "state/ledger")
    assert ledger.begins_anew
    assert ledger.files == {}
    ledger.close()
    with pytest.raises(StreamerError, match=r"is of another ledger than .*: give that one"):
        opened(tmp_path / "state/ledger", old)


def test_a_mark_is_small_whatever_the_paths_are(tmp_path):
    ledger = opened(tmp_path / "ledger")
    visit = ledger.begin("é/" * 2000, 0, 5, Digest())
    mark = ledger.mark(visit.number, Digest(2**50, 2**32 - 1, 2**32 - 1))
    assert len(mark) <= 256
    ledger.close()
    ledger = opened(tmp_path / "ledger", mark)
    (path,) = ledger.files
    assert path == "é/" * 2000
    assert ledger.files[path].sent.records == 2**50


def test_what_is_behind_the_mark_never_happened(tmp_path):
    ledger = opened(tmp_path / "ledger")
    marks = []
    for number, path in enumerate(("a", "b", "a", "c"), 1):
        visit = ledger.begin(path, 0, number, Digest())
        sent = Digest(10 * number, number, number)
        ledger.end(visit._replace(size=100 * number, sent=sent))
        marks.append(ledger.mark(number, sent))
    ledger.close()
    ledger = opened(tmp_path / "ledger", marks[2])
    assert {path: visit.size for path, visit in ledger.files.items()} == {"a": 300, "b": 200}
    ledger.close()
    # the last visit is durable in part
    ledger = opened(tmp_path / "ledger", ledger.mark(3, Digest(7, 8, 9)))
    assert ledger.files["a"].size == NOT_DONE
    assert ledger.files["a"].sent == Digest(7, 8, 9)
    assert ledger.begin("d", 0, 1, Digest()).number == 4
    ledger.close()
    with pytest.raises(StreamerError, match="is older than the mark of producer 'x'"):
        opened(tmp_path / "ledger", ledger.mark(9, Digest(1, 1, 1)))


def test_a_ledger_of_another_version_is_refused(tmp_path):
    opened(tmp_path / "ledger").close()
    db = apsw.Connection(str(tmp_path / "ledger"))
    db.pragma("user_version", 3)
    db.close()
    with pytest.raises(StreamerError, match="was written by another version of this program"):
        opened(tmp_path / "ledger")


OTHERS = (b"\x01", b"\xc1", b"\xa3abc", msgpack.packb(["streamer send 1", 2]))


@pytest.mark.parametrize("mark", OTHERS)
def test_a_mark_of_another_program(tmp_path, mark):
    with pytest.raises(StreamerError, match="was not made by `streamer send --watch`"):
        opened(tmp_path / "ledger", mark)


def test_one_process_at_a_time(tmp_path):
    ledger = opened(tmp_path / "ledger")
    with pytest.raises(StreamerError, match="another process uses this ledger"):
        opened(tmp_path / "ledger")
    ledger.close()
    opened(tmp_path / "ledger").close()


def test_other_files_and_places_are_refused(tmp_path):
    (tmp_path / "text").write_text("no ledger\n" * 100)
    for path in ("text", ".", "text/ledger"):
        with pytest.raises(StreamerError, match="ledger"):
            opened(tmp_path / path)


def test_it_forgets_what_later_visits_have_replaced(tmp_path):
    ledger = opened(tmp_path / "ledger")
    for number in range(1, 101):
        content, before = (
            (number % 3 + 1, Digest(*[number - 3] * 3)) if number > 3 else (0, Digest())
        )
        visit = ledger.begin(f"f{number % 3}", content, number % 3, before)
        ledger.end(visit._replace(size=number, sent=Digest(number, number, number)))
    ledger.store()
    ledger.forget(90)
    left = [row[0] for row in ledger._rows()]
    assert left == [88, 89, 90, *range(91, 101)]
    ledger.close()
    ledger = opened(tmp_path / "ledger", ledger.mark(92, Digest(92, 92, 92)))
    assert sorted(visit.number for visit in ledger.files.values()) == [90, 91, 92]


def test_the_ledger_of_a_long_run_stays_small(tmp_path, monkeypatch):
    monkeypatch.setattr("streamer.watching.watcher._FORGET_VISITS", 20)
    run = tmp_path / "run"
    run.mkdir()

    def grow(count):
        return lambda: write(run / "a.fastq", text_of(named("a", count)))

    life = Life(run, tmp_path / "ledger", steps=[grow(n) for n in range(1, 100)]).run()
    assert life.names == named("a", 99)
    ledger = opened(tmp_path / "ledger", life.pieces[-1].mark(1))
    assert ledger.last == 99
    ledger.close()
    assert max(life.rows) < 60

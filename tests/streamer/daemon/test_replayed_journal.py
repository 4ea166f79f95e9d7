"""The journal as sync reads it: what is no longer kept, and what cannot be read just now."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import apsw
import pytest

from streamer.daemon.core.sync import SyncLimits
from streamer.daemon.replay import ReplayedJournal, SyncReplay
from streamer.journal.reader import JournalReader
from streamer.journal.record import JournalExpired
from tests.daemon_sync import asked, parsed
from tests.stored_batches import Batches
from tests.streamer.journal.kit import Unreadable, open_small

LIMITS = SyncLimits(4, 4, 1 << 22, 1 << 25)


def open_data_files(directory: Path) -> tuple[list[str], list[str]]:
    """Those this process has open: that are there, and that are deleted."""
    targets = [path.readlink() for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
    own = [str(target) for target in targets if str(target).startswith(f"{directory}/records-")]
    there = [target for target in own if not target.endswith(" (deleted)")]
    return there, [target for target in own if target.endswith(" (deleted)")]


def test_files_of_expired_records_are_closed(tmp_path):
    batches = Batches()
    with closing(open_small(tmp_path, keep_bytes=1)) as journal:
        for _ in range(60):
            journal.append([batches.record(rows=400)])
        with closing(ReplayedJournal(JournalReader(tmp_path))) as replayed:
            assert replayed.look().oldest == 1
            for at in (0, 10, 20, 30, 59):
                assert replayed.after(at).at == at + 1
            writing = 1  # the journal's own
            there, deleted = open_data_files(tmp_path)
            assert len(there) > writing + 2
            assert not deleted
            journal.put_snapshot(50, b"s", (b"state",))
            while journal.expire(0):
                pass
            assert replayed.look().oldest == 51
            assert not open_data_files(tmp_path)[1]
            # who reads on where records are kept goes on, others learn that they are not
            assert replayed.after(60) is None
            assert replayed.after(50).at == 51
            with pytest.raises(JournalExpired):
                replayed.after(42)


def said_of_a_pull(replay, after, stream):
    """The answer to a pull, in short."""
    request = {"type": "pull", "id": 1, "after": after, "stream": stream, "topics": ["read"]}
    replay.core.hear(b"it", asked(request | {"credit": 1 << 20}), 1.0)
    replay.core.gone(b"it")
    header, _ = parsed(replay.core.out.pop()[1])
    return header["type"], header.get("reason")


def test_a_right_place_is_not_of_the_future_while_the_index_cannot_be_read(tmp_path, monkeypatch):
    batches = Batches()
    with closing(open_small(tmp_path)) as journal:
        journal.append([batches.record()])
        with closing(ReplayedJournal(JournalReader(tmp_path))) as replayed:
            replay = SyncReplay(replayed, LIMITS, lambda: 1.0, lambda *_: None, lambda *_: None)
            assert replay.see() == 1
            journal.append([batches.record()])
            with monkeypatch.context() as patched:
                errors = {"credit": apsw.NoMemError("out of memory")}
                errors["damaged"] = apsw.CorruptError("malformed")
                for reason, error in errors.items():
                    patched.setattr(replayed._reader._index, "_db", Unreadable(error))
                    replay.see()
                    assert said_of_a_pull(replay, 2, journal.stream) == ("refused", reason)
                    assert said_of_a_pull(replay, 1, journal.stream) == ("reached", None)
            assert replay.see() == 2
            assert said_of_a_pull(replay, 2, journal.stream) == ("reached", None)
            assert said_of_a_pull(replay, 3, journal.stream) == ("reset", "future")

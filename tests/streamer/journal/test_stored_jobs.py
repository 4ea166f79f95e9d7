"""The database of batch jobs: what it returns, and what it says of damage."""

from __future__ import annotations

import pytest

from streamer.daemon.jobs.jobs_worker import StoredJobs
from streamer.errors import StreamerError

IDS = ("0000000a", "0000000b", "0000000c")


@pytest.fixture
def path(tmp_path):
    made = tmp_path / "jobs.db"
    store = StoredJobs(made, "os")
    for id_ in IDS:
        store.put(id_, {"id": id_, "state": "waiting"})
    store.close()
    return made


def found(path):
    """Ids of the rows and whether there are damaged ones; or the error."""
    try:
        store = StoredJobs(path, "os")
        ids = [row["id"] for row in store.rows()]
        store.close()
    except StreamerError as error:
        return [], str(error)
    return ids, store.damaged


def test_rows_come_in_the_order_of_their_first_put(path):
    store = StoredJobs(path, "fsync")
    store.put(IDS[0], {"id": IDS[0], "state": "done"})
    store.delete(IDS[1])
    store.close()
    store = StoredJobs(path, "fsync")
    assert store.rows() == [{"id": IDS[0], "state": "done"}, {"id": IDS[2], "state": "waiting"}]
    store.close()


def test_a_flipped_bit_of_a_row_costs_no_other(path):
    """Its header has the types of its values, which then differ."""
    whole = path.read_bytes()
    at = whole.rindex(IDS[1].encode() + b"\x82")
    seen = set()
    for byte in range(at - 8, at + 30):
        for bit in (0, 3, 7):
            flipped = bytearray(whole)
            flipped[byte] ^= 1 << bit
            path.write_bytes(flipped)
            ids, damaged = found(path)
            seen.add(type(damaged))
            # never one that was not stored
            assert {*ids} <= {*IDS}, (byte, bit)
            assert damaged or ids == list(IDS), (byte, bit)
            if isinstance(damaged, str):
                assert damaged.startswith(f"{path}: damaged: ")
    assert list in seen


def test_a_file_that_is_no_database_is_named_with_what_to_do(tmp_path):
    path = tmp_path / "jobs.db"
    path.write_bytes(b"no database" * 100)
    with pytest.raises(StreamerError, match="not a database; remove it to go on without") as caught:
        StoredJobs(path, "os")
    assert str(path) in str(caught.value)

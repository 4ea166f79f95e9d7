"""A plain file in blocks and in regions that are mapped; it may grow or become shorter."""

from __future__ import annotations

import faulthandler
import os
from itertools import product

import numpy as np
import pytest

from streamer.sequences.raw_file import (
    BEHIND_BYTES,
    ROOM_BYTES,
    FileRegion,
    RawFile,
    plain_blocks,
)
from trie.cpu.forks import forked
from trie.cpu.stages import Stages

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

"""Blocks of a plain file that several threads read: its bytes, whatever happens to it meanwhile."""

from __future__ import annotations

import io
from itertools import product

import numpy as np
import pytest

from streamer.sequences.raw_file import RawFile, plain_blocks
from trie.cpu.team import Team


def content_of(size):
    return np.random.default_rng(size).integers(0, 256, size, dtype=np.uint8).tobytes()


def text_of(block):
    return block.array[block.first : block.stop].tobytes()


@pytest.mark.parametrize("threads", [1, 2, 3, 16])
def test_blocks_are_the_file_from_where_it_was(tmp_path, threads):
    path = tmp_path / "file"
    for size, before in product((0, 1, 6, 7, 99, 100, 101, 5000, 5001), (0, 1, 50)):
        content = content_of(size)
        path.write_bytes(bytes(before) + content)
        with path.open("rb") as file, Team(threads) as team:
            file.seek(before)
            raw = RawFile(file)
            blocks = [text_of(block) for block in plain_blocks(raw, 100, team)]
            assert raw.bytes_read == size
        assert b"".join(blocks) == content
        assert all(0 < len(block) <= 100 for block in blocks)


def test_a_file_in_memory(monkeypatch):
    content = content_of(1000)
    with Team(4) as team:
        blocks = plain_blocks(RawFile(io.BufferedReader(io.BytesIO(content))), 100, team)
        assert b"".join(map(text_of, blocks)) == content


def test_what_is_added_meanwhile_is_read_too(tmp_path):
    content = content_of(5050)
    path = tmp_path / "file"
    path.write_bytes(content[:3333])
    with path.open("rb") as file, path.open("ab") as more, Team(4) as team:
        blocks = plain_blocks(RawFile(file), 100, team)
        found = [text_of(next(blocks))]
        more.write(content[3333:])
        more.flush()
        found += map(text_of, blocks)
    assert b"".join(found) == content


def test_a_file_that_is_cut_meanwhile_ends_there(tmp_path):
    content = content_of(100_000)
    path = tmp_path / "file"
    path.write_bytes(content)
    with path.open("rb") as file, Team(4) as team:
        blocks = plain_blocks(RawFile(file), 100, team)
        found = [text_of(next(blocks))]
        with path.open("r+b") as same:
            same.truncate(50_050)
        found += map(text_of, blocks)
    # some blocks may have been read before it was cut, but none behind one that was not
    assert content.startswith(b"".join(found))
    assert len(b"".join(found)) < len(content)


def test_ended_early_the_threads_have_nothing_to_do(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(content_of(100_000))
    with path.open("rb") as file, Team(4) as team:
        blocks = plain_blocks(RawFile(file), 100, team)
        next(blocks)
        blocks.close()
        assert not team._lines

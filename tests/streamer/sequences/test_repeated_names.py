"""Names of reads: packed, and told once when one comes again."""

from __future__ import annotations

import random

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamer.sequences import repeated_names
from streamer.sequences.read_batch import PackedNames
from streamer.sequences.repeated_names import RepeatedNames


def packed(names):
    return PackedNames.of(msgpack.packb(names))


def told_of(batches):
    """(batch, name) of all that is told."""
    found = RepeatedNames()
    told = [(number, found.first(packed(names))) for number, names in enumerate(batches)]
    return [(number, at) for number, at in told if at >= 0]


@pytest.mark.parametrize("seed", range(6))
def test_the_first_name_that_comes_again_is_told_once(seed):
    rng = random.Random(seed)
    kinds = 10 ** rng.randint(1, 6)
    batches = [
        [f"{'read' * rng.randrange(3)}{rng.randrange(kinds)}" for _ in range(rng.randrange(300))]
        for _ in range(20)
    ]
    known, want = set(), []
    for number, names in enumerate(batches):
        for at, name in enumerate(names):
            if name in known and not want:
                want.append((number, at))
            known.add(name)
    assert told_of(batches) == want


def test_many_names_and_none_again():
    assert told_of([[f"{n}-{i}" for i in range(4000)] for n in range(30)]) == []
    assert told_of([[f"{i}" for i in range(60_000)], ["x", "59999", "0"]]) == [(1, 1)]
    assert told_of([[], [""], ["x"], ["", "x"]]) == [(3, 0)]


def test_memory_is_bounded_and_what_came_long_before_forgotten(monkeypatch):
    monkeypatch.setattr(repeated_names, "_SLOTS", 16)
    monkeypatch.setattr(repeated_names, "_MOST_SLOTS", 256)
    found = RepeatedNames()
    for number in range(100):
        assert found.first(packed([f"{number}.{i}" for i in range(10)])) == -1
        assert found._slots.size <= 256
    assert found.first(packed(["0.0", "99.9"])) == 1
    # a batch that is larger than all of it
    assert RepeatedNames().first(packed([str(i) for i in range(1000)] + ["7"])) == 1000


ASCII = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=40)


@settings(deadline=None)
@given(st.lists(ASCII, max_size=20))
def test_plain_names(names):
    packed = PackedNames.of(msgpack.packb(names))
    assert packed is not None
    assert len(packed) == len(names)
    assert list(packed) == names
    assert packed[1:3] == names[1:3]


def test_every_width_of_a_length():
    for number in (0, 15, 16, 31, 32, 255, 256, 65_535, 65_536):
        for names in (["x"] * number, ["x" * number, "y"]):
            packed = PackedNames.of(memoryview(msgpack.packb(names)))
            assert packed is not None
            assert list(packed) == names


@pytest.mark.parametrize(
    "other",
    [{}, "name", 7, None, [1], ["a", b"b"], ["a", None], ["a", ["b"]], ["tab\t"], ["\x7f"], ["é"]],
)
def test_anything_else_is_not_taken(other):
    assert PackedNames.of(msgpack.packb(other)) is None


@settings(deadline=None)
@given(st.lists(ASCII, max_size=5), st.data())
def test_what_is_cut_or_damaged_is_not_misread(names, data):
    frame = msgpack.packb(names)
    assert PackedNames.of(frame[: data.draw(st.integers(0, len(frame) - 1))]) is None
    assert PackedNames.of(frame + b"\xa1x") is None
    damaged = bytearray(frame)
    damaged[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    packed = PackedNames.of(bytes(damaged))
    if packed is not None:
        assert list(packed) == msgpack.unpackb(bytes(damaged))


@settings(deadline=None)
@given(st.binary(max_size=60))
def test_any_bytes(frame):
    packed = PackedNames.of(frame)
    if packed is not None:
        assert list(packed) == msgpack.unpackb(frame)

"""Names as they travel: what is taken as it is, and what is looked at closely."""

from __future__ import annotations

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamer.sequences.read_batch import PackedNames

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

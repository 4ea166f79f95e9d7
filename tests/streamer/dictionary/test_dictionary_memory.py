"""Bytes a k-mer: of reading a dictionary and of matching against it, beside the program itself."""

from __future__ import annotations

import tracemalloc
from contextlib import closing

import numpy as np
import pytest

from streamer.dictionary.targets import Dictionary
from streamer.matching import reports
from streamer.matching.matcher import StreamMatcher
from streamer.sequences.read_batch import ReadBatch
from trie.codes import decode

pytestmark = pytest.mark.whole

K = 31
BASES = 6_000_000


@pytest.fixture(scope="module")
def bases():
    return np.random.default_rng(4).integers(0, 4, BASES, dtype=np.uint8)


@pytest.fixture(scope="module")
def one_record(bases, tmp_path_factory):
    path = tmp_path_factory.mktemp("one") / "one.fa"
    path.write_bytes(b">one\n" + decode(bases).tobytes() + b"\n")
    return str(path)


@pytest.fixture(scope="module")
def many_records(bases, tmp_path_factory):
    path = tmp_path_factory.mktemp("many") / "many.fa"
    letters = decode(bases).tobytes()
    path.write_bytes(
        b"".join(b">r%d\n%b\n" % (at, letters[at : at + 300]) for at in range(0, BASES, 300))
    )
    return str(path)


def peak_of(work):
    """The greatest number of bytes that Python and numpy had at a time, and what ``work`` gave."""
    tracemalloc.start()
    try:
        result = work()
        return tracemalloc.get_traced_memory()[1], result
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("file", "most"), [("one_record", 31), ("many_records", 42)])
def test_reading_a_dictionary(file, most, request):
    path = request.getfixturevalue(file)
    few = Dictionary.from_files([path], 5, "canonical")  # compiles
    assert few.codes.size == 512
    peak, dictionary = peak_of(lambda: Dictionary.from_files([path], K, "canonical"))
    assert peak / dictionary.codes.size < most


@pytest.mark.parametrize("strands", ["canonical", "both"])
def test_depths_of_windows_need_no_snapshot(strands, bases):
    read = ReadBatch(["one"], np.array([0, bases.size]), bases)
    few = ReadBatch(["few"], np.array([0, 2000]), np.roll(bases[:2000], 7))
    known = Dictionary.from_batches([read], K, strands)

    def windows():
        with closing(StreamMatcher.of(known, mode="frozen")) as matcher:
            return reports.windows(matcher.match([few], depths=True)[0])

    windows()  # compiles
    peak, columns = peak_of(windows)
    assert columns["depth"].size == 2000 - K + 1
    # 13 to 27 of the index, 12 of both orientations twice over while they are sorted
    assert peak / known.codes.size < {"canonical": 35, "both": 75}[strands]


def test_rows_of_windows_come_in_pieces(bases):
    """However many windows a batch has, few are rows at a time."""
    bases = bases[:1_500_000]
    read = ReadBatch(["one", "two"], np.array([0, 700_000, bases.size]), bases)
    known = Dictionary.from_batches([read], K, "canonical")
    with closing(StreamMatcher.of(known, mode="frozen")) as matcher:
        result = matcher.match([read], depths=True)[0]
    whole = reports.windows(result)
    pieces = list(reports.window_pieces(result))
    assert max(piece["start"].size for piece in pieces) <= 1 << 19
    for name, values in whole.items():
        np.testing.assert_array_equal(np.concatenate([piece[name] for piece in pieces]), values)

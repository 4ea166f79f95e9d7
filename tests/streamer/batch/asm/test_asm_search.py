"""Every method of asm gives what brute force gives, for any cut of the texts and any threads."""

from __future__ import annotations

import numpy as np
import pytest

from streamer.batch import asm
from streamer.batch.asm import bit_parallel
from streamer.errors import DataError, UsageError
from tests.reference import asm as asm_oracle
from trie.codes import INVALID, LETTER_TO_CODE, InvalidBaseError

ENGINES = ("bit-parallel", "sequential", "pasm")
LENGTHS = (1, 2, 7, 8, 31, 32, 33, 63, 64, 65, 127, 300)


def letters(rng, size, alphabet="ACGT"):
    return "".join(rng.choice(list(alphabet), size))


def edited(rng, text, edits):
    """The text with so many random edits."""
    found = list(text)
    for _ in range(edits):
        at = int(rng.integers(len(found)))
        kind = rng.integers(3)
        if kind == 0 and len(found) > 1:
            del found[at]
        elif kind == 1:
            found.insert(at, str(rng.choice(list("ACGT"))))
        else:
            found[at] = str(rng.choice(list("ACGT")))
    return "".join(found)


def pattern_like(rng, text, length, edits):
    """A pattern of that length that occurs in the text with about so many edits."""
    if length + edits >= len(text):
        return letters(rng, length)
    start = int(rng.integers(len(text) - length - edits))
    found = edited(rng, text[start : start + length + edits], edits)[:length]
    return found + letters(rng, length - len(found))


def rows_of(found):
    return [tuple(row) for row in found[["text", "end", "distance", "strand", "pattern"]].tolist()]


def agree(texts, patterns, k, *, report="all", strands="both", iupac=False, **options):
    case = f"{[len(t) for t in texts]} {patterns} {k} {report} {strands} {iupac} {options}"
    found = asm.search(
        texts, patterns, k, report=report, strands=strands, iupac=iupac,
        **{"device": "cpu", "threads": 1} | options,
    )  # fmt: skip
    truth = asm_oracle.every_end if report == "all" else asm_oracle.best_ends
    assert rows_of(found) == truth(texts, patterns, k, strands, iupac), case
    if report == "all":
        assert (found["start"] == -1).all()
        return len(found)
    for row in found:
        pattern = patterns[row["pattern"]]
        if row["strand"] == "-":
            pattern = asm_oracle.turned(pattern)
        asm_oracle.check_alignment(
            texts[row["text"]], row["start"], row["end"], row["distance"], pattern,
            row["cigar"], iupac,
        )  # fmt: skip
    return len(found)


@pytest.mark.whole
@pytest.mark.parametrize("method", ENGINES)
@pytest.mark.parametrize("length", LENGTHS)
def test_pattern_lengths_and_distances(method, length):
    rng = np.random.default_rng(length)
    hits = 0
    for k in sorted({0, 1, 2, 6, length - 1}):
        if k < length:
            text = letters(rng, 420, "ACGTN" if k == 1 else "ACGT")
            patterns = [pattern_like(rng, text, length, min(k, 4)) for _ in range(2)]
            hits += agree([text], patterns, k, method=method)
    assert hits > 0


@pytest.fixture
def blocks_of(monkeypatch):
    """Makes every engine take blocks of that size."""
    engine_for = asm.engine_for

    def install(size):
        def cut(*given):
            engine = engine_for(*given)
            engine.block_size = size
            return engine

        monkeypatch.setattr(asm, "engine_for", cut)

    return install


# lanes have multiples of 64 ends, tiles 512 lanes; a block of text is cut where it is patched to
EDGES = (0, 1, 5, 63, 64, 65, 127, 128, 511, 512, 513, 1025)


@pytest.mark.whole
@pytest.mark.parametrize("report", asm.REPORTS)
@pytest.mark.parametrize("method", ENGINES)
@pytest.mark.parametrize("block", [1, 64, 100, 1 << 20])
def test_texts_of_any_length_cut_anywhere(method, block, report, blocks_of):
    if block == 1 and method != "bit-parallel":
        block = 7
    blocks_of(block)
    rng = np.random.default_rng(block)
    sizes = EDGES[:7] if block < 64 else EDGES
    texts = [letters(rng, size, "ACGTN") for size in sizes]
    patterns = [pattern_like(rng, texts[-1], length, 1) for length in (3, 9, 20)]
    threads = int(rng.integers(1, 4))
    assert agree(texts, patterns, 2, report=report, method=method, threads=threads) > 50


@pytest.mark.parametrize("unit", ["AAAAAC", "AAAAACAAAAACAAAAAC"])
def test_rows_that_wait_for_a_run_without_end_are_sorted_once(monkeypatch, blocks_of, unit):
    """The run of the first pattern goes on for a whole text, with those of others behind it."""
    lexsort, sizes = np.lexsort, []

    def counted(keys):
        sizes.append(keys[0].size)
        return lexsort(keys)

    blocks_of(40)
    monkeypatch.setattr(np, "lexsort", counted)
    texts = ["AAAAAC" * 500, "C" + "AAAAAC" * 300 + "GGGGGG" + "AAAAAC" * 200]
    patterns = ["AAAAAA", unit * 3, "CAAAAACA"]
    found = asm.search(texts, patterns, 2, strands="forward", report="best", threads=1)
    monkeypatch.undo()
    whole = asm.search(texts, patterns, 2, strands="forward", report="best", threads=1)
    assert found.tolist() == whole.tolist()
    assert len(found) > 300
    ends = np.sort(asm.search(texts, patterns, 2, strands="forward"), order=["text", "pattern"])
    runs = int((np.diff(ends["end"]) != 1).sum()) + 1
    assert sum(sizes) < 3 * runs


@pytest.mark.parametrize("block", [7, 40, 1 << 20])
def test_of_overlapping_hits_the_nearest_stays(block, blocks_of):
    """Chains of hits in repeats, each of which depends on those behind it."""
    blocks_of(block)
    rng = np.random.default_rng(15)
    texts = [edited(rng, unit * 60, 25) for unit in ("ACCG", "AC", "ACGTTTG")]
    patterns = ["ACCGACCGACCG", "ACACACAC", "GTTTGACGTTTG"]
    for k in (0, 1, 2, 3):
        agree(texts, patterns, k, report="best", method="sequential")
    # a barcode with two runs of ends
    text = "AGGCTCCAATAAGAAATTTGTCGGTGTTTGAGTTGTGTAATGCGTCA"
    barcode = "AAGAAAGTTGTCGGTGTCTTTGTG"
    options = {"strands": "forward", "device": "cpu"}
    assert asm.search(text, barcode, 5, **options)["end"].tolist() == [*range(30, 36), 37]
    found = asm.search(text, barcode, 5, report="best", **options)
    assert found[["start", "end", "distance"]].tolist() == [(10, 32, 4)]


def test_lanes_and_tiles_join_without_a_seam(monkeypatch):
    monkeypatch.setattr(bit_parallel, "SPAN_BLOCKS", 1)
    rng = np.random.default_rng(4)
    text = letters(rng, 3 * 512 * 64 + 17, "ACGT")
    pattern = "ACGTTA"
    for threads in (1, 2):
        agree([text], [pattern], 1, threads=threads)


@pytest.fixture
def searched(monkeypatch):
    """The ends and hits of each part of a block that is searched."""
    searched = []
    whole = asm.AsmLane._first

    def noted(cutter, block):
        part, found, rest = whole(cutter, block)
        searched.append((part.ends, sum(map(len, found))))
        return part, found, rest

    monkeypatch.setattr(asm.AsmLane, "_first", noted)
    return searched


@pytest.mark.parametrize("report", asm.REPORTS)
def test_more_hits_than_are_held_at_once(report, searched, monkeypatch):
    monkeypatch.setattr(asm, {"all": "ROWS_AT_ONCE", "best": "BEST_AT_ONCE"}[report], 40)
    rng = np.random.default_rng(5)
    texts = [letters(rng, size, "AC") for size in (700, 3, 90)]
    for method in ENGINES:
        assert agree(texts, ["ACA", "CCAC"], 2, report=report, method=method) > 10
    assert all(hits <= 40 or ends <= asm.ALWAYS_ENDS for ends, hits in searched)
    # parts that have only the gaps between empty texts
    monkeypatch.setattr(asm, "ALWAYS_ENDS", 4)
    empty = [""] * 30
    assert agree([*empty, *texts, *empty, texts[0]], ["ACA"], 2, report=report) > 3


@pytest.mark.parametrize("report", asm.REPORTS)
def test_blocks_are_long_again_behind_many_hits(report, searched, monkeypatch):
    monkeypatch.setattr(asm, {"all": "ROWS_AT_ONCE", "best": "BEST_AT_ONCE"}[report], 400)
    text = "A" * 1000 + letters(np.random.default_rng(14), 100_000, "ACGT") + "A" * 1000
    assert agree([text], ["A" * 12], 2, report=report, strands="forward") > 0
    assert len(searched) < 50
    assert all(hits <= 400 or ends <= asm.ALWAYS_ENDS for ends, hits in searched)


@pytest.mark.parametrize("strands", ["forward", "reverse", "both"])
@pytest.mark.parametrize("report", asm.REPORTS)
def test_strands(strands, report):
    rng = np.random.default_rng(6)
    text = letters(rng, 300)
    palindrome = "ACGCGT"
    patterns = [palindrome, text[40:60], asm_oracle.turned(text[90:110])]
    found = agree([text], patterns, 1, strands=strands, report=report)
    assert found >= 2
    both = asm.search(text, [palindrome], 2, device="cpu")
    assert (both["strand"] == "+").sum() == (both["strand"] == "-").sum() > 0


def test_ambiguity_letters():
    rng = np.random.default_rng(7)
    text = letters(rng, 400, "ACGTNRacgtu")
    patterns = ["ACGNNTA", "RYSWKMBDHVN", "nnnnnnnn", "ACGU"]
    for iupac in (False, True):
        for method in ENGINES:
            agree([text], patterns, 2, iupac=iupac, method=method)
    # without iupac an ambiguity letter matches nothing, itself neither
    assert asm.search("NNNN", "NN", 0, device="cpu").size == 0
    assert asm.search("NNNN", "NN", 0, device="cpu", iupac=True).size == 0
    assert asm.search("ACGT", "NN", 0, device="cpu", iupac=True, strands="forward").size == 3


def test_every_byte_as_a_letter():
    """In a place of its own each time: letters are seen 64 at once, and one by one at edges."""
    rng = np.random.default_rng(10)
    text = letters(rng, 330, "ACGTacgtuU")
    for byte in range(256):
        at = int(rng.integers(len(text)))
        given = text[:at].encode() + bytes([byte]) + text[at + 1 :].encode()
        code = LETTER_TO_CODE[byte]
        if code == INVALID:
            for texts, number in ((given, at), ([text, given, "-"], at)):
                with pytest.raises(InvalidBaseError) as error:
                    asm.search(texts, "ACGTA", 1, device="cpu", threads=1)
                assert (error.value.byte, error.value.position) == (byte, number), byte
        else:
            agree([given.decode()], ["ACGTA"], 1, strands="forward")


def test_hits_that_have_no_room(monkeypatch):
    """Columns are made longer, once the tile does not fit, and what they held is still there."""
    monkeypatch.setattr(bit_parallel, "_RATE", 1e-4)
    monkeypatch.setattr(bit_parallel, "SPAN_BLOCKS", 1)
    rng = np.random.default_rng(12)
    text = letters(rng, 3 * 512 * 64 + 100)
    for patterns in (["ACGTT"], ["ACGTT", "CCAT"]):
        assert agree([text], patterns, 1, strands="forward") > 2000


def test_distances_of_more_than_a_byte():
    rng = np.random.default_rng(13)
    text = letters(rng, 700)
    pattern = edited(rng, text[100:500], 300)[:380]
    hits = agree([text], [pattern], 290, strands="forward")
    assert hits > 100


PLAIN = """
import numpy as np
from tests.streamer.batch.asm import test_asm_search as tests
from trie.cpu.llvm import has_feature

assert not has_feature("avx512f")
rng = np.random.default_rng(14)
text = tests.letters(rng, 2_300, "ACGTN")
for length, k in ((3, 2), (9, 3), (40, 6), (300, 270)):
    patterns = [tests.pattern_like(rng, text, length, 2) for _ in range(2)]
    assert tests.agree([text, text[5:900]], patterns, k) > 0
"""


@pytest.mark.slow  # compiles anew
@pytest.mark.whole
def test_a_processor_without_wide_vectors(on_a_plain_processor):
    on_a_plain_processor(PLAIN)


def test_ambiguous_stretches_end_where_they_end(monkeypatch):
    monkeypatch.setattr(bit_parallel, "SPAN_BLOCKS", 1)
    rng = np.random.default_rng(11)
    text = letters(rng, 512 * 64 + 300)
    for start, stop in ((0, 70), (1000, 9000), (32_760, 32_776), (33_000, 33_068)):
        text = text[:start] + "N" * (stop - start) + text[stop:]
    for threads in (1, 2):
        assert agree([text], ["ACGTTA"], 1, threads=threads) > 100


@pytest.mark.whole
def test_long_patterns_skip_strips_but_no_hit():
    rng = np.random.default_rng(8)
    text = letters(rng, 1100)
    for length, k in ((100, 3), (250, 6), (500, 2), (900, 40), (1000, 0)):
        places = (0, 64, len(text) - length)
        patterns = [edited(rng, text[a : a + length], k)[:length] for a in places]
        patterns = [p + "A" * max(0, k + 1 - len(p)) for p in patterns]
        assert agree([text], patterns, k, strands="forward") >= 3


@pytest.mark.whole
@pytest.mark.parametrize(("patterns", "length", "k"), [(100_000, 30, 20), (1, 100_000, 50_000)])
def test_an_interrupt_ends_a_tile(waits_of_interrupted, patterns, length, k):
    """A tile that would take minutes ends, and the interrupt is raised."""
    rng = np.random.default_rng(patterns)
    letters = np.frombuffer(b"ACGT", np.uint8)
    text = letters[rng.integers(0, 4, 1_000_000)].tobytes()
    wanted = [row.tobytes() for row in letters[rng.integers(0, 4, (patterns, length))]]
    with pytest.raises(KeyboardInterrupt):
        asm.search(text, wanted, k, device="cpu", threads=2)
    assert next(waits_of_interrupted) == 2


def test_many_patterns_of_many_lengths():
    rng = np.random.default_rng(9)
    texts = [letters(rng, size) for size in (200, 64, 333)]
    patterns = [pattern_like(rng, texts[2], int(rng.integers(3, 40)), 1) for _ in range(60)]
    assert agree(texts, patterns, 2, threads=3) > 60
    assert agree(texts, patterns, 2, threads=2, report="best") > 60


def test_shapes_of_arguments():
    found = asm.search("ACGTACGT", "GTA", 0, device="cpu", strands="forward")
    assert found.dtype.names == ("text", "start", "end", "distance", "strand", "pattern")
    assert found.tolist() == [(0, -1, 5, 0, "+", 0)]
    text = np.frombuffer(b"ACGTACGT", dtype=np.uint8)
    for given in (b"GTA", np.frombuffer(b"gta", dtype=np.uint8), [b"GTA"], memoryview(b"GTA")):
        other = asm.search(text, given, 0, device="cpu", strands="forward")
        assert other.tolist() == found.tolist()
    best = asm.search([text, "GGTTA"], ["GTA"], 1, device="cpu", strands="forward", report="best")
    assert best.dtype.names[-1] == "cigar"
    assert best["text"].tolist() == [0, 0, 1]
    assert best["distance"].tolist() == [0, 1, 1]
    assert best[0].tolist() == (0, 2, 5, 0, "+", 0, "3=")
    # without a row too
    none = asm.search("AAAA", "CCC", np.int64(0), device="cpu", report="best")
    assert none.dtype == best.dtype
    assert none.size == 0
    assert asm.search("", "ACG", 1, device="cpu").size == 0
    assert asm.search([], "ACG", 1, device="cpu").size == 0
    longer = asm.search("AC", "ACGTACGT", 7, device="cpu", strands="forward")
    assert longer["distance"].tolist() == [7, 6]


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        (("ACGT", "ACG", 3), {}, DataError, "3 letters, k = 3 must be less"),
        (("ACGT", ["ACGT", "AC"], 2), {}, DataError, r"record 2 \(1\): the pattern has 2 letters"),
        (("ACGT", ["ACGT", ""], 0), {}, DataError, "record 2 .*the pattern is empty"),
        (("ACGT", [], 0), {}, DataError, "holds no pattern"),
        (("ACGT", "ACG", -1), {}, UsageError, "k is -1"),
        (("ACGT", "ACG", 1), {"strands": "canonical"}, UsageError, "unknown strands"),
        (("ACGT", "ACG", 1), {"report": "most"}, UsageError, "unknown report"),
        (("ACGT", "ACG", 1), {"method": "fast"}, UsageError, "unknown method"),
        (("ACGT", "AXG", 1), {}, ValueError, "'X' is not a base"),
        (("AC-T", "ACG", 1), {}, ValueError, "'-' is not a base"),
    ],
)
def test_what_is_refused(arguments, options, error, message):
    with pytest.raises(error, match=message):
        asm.search(*arguments, device="cpu", **options)


@pytest.mark.whole
def test_dense_hits_on_many_threads_take_bounded_memory(monkeypatch):
    """Each thread that runs out of room asks for four times its own, not of what others ask."""
    rng = np.random.default_rng(20)
    text = letters(rng, 300_000)
    patterns = [letters(rng, int(n)) for n in rng.integers(6, 12, 40)]
    rooms = []
    columns = bit_parallel._columns

    def recorded(room, *rest):
        rooms.append(room)
        return columns(room, *rest)

    monkeypatch.setattr(bit_parallel, "_columns", recorded)
    found = asm.search(text, patterns, 3, threads=16)
    assert max(rooms) <= 16 * found.size

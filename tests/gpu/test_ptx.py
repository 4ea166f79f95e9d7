"""Every kernel compiles to PTX, its words in registers; that needs the compiler but no GPU."""

from __future__ import annotations

import re
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("numba_cuda", reason="PTX needs numba-cuda (extra gpu-test)")

from numba import cuda
from numba.cuda import types

from gpu import hamming, lcs, levenshtein
from gpu.asm import bit_parallel, listing
from gpu.asm import paper as asm_paper
from gpu.exact import bucket_table, chunk_match, device_tree, kmer_set, reference_index, walk
from gpu.hamming import bit_sliced, network, sorting
from gpu.hamming import paper as hamming_paper
from gpu.lcs import paper as lcs_paper
from gpu.lcs import systolic
from gpu.levenshtein import search
from gpu.ltb import sliced, sweeping
from gpu.primer import paper as primer_paper
from gpu.primer import seeds, window_scan

pytestmark = pytest.mark.whole

SHARED_BYTES = 48 * 1024
SCALARS = {
    "u8": types.uint8, "u16": types.uint16, "u32": types.uint32, "u64": types.uint64,
    "i32": types.int32, "i64": types.int64,
}  # fmt: skip


def argument(name):
    """The numba type of "u32", "u64[]" or "i32[,]"; also of "uint64[::1]"."""
    scalar, _, dimensions = name.replace("int", "").partition("[")
    if not dimensions:
        return SCALARS[scalar]
    return types.Array(SCALARS[scalar], dimensions.count(",") + 1, "C")


def compiled(source, capability=(9, 0)):
    """The PTX of a (plain function, names of its argument types)."""
    function, arguments = source
    names = arguments.split() if isinstance(arguments, str) else arguments
    ptx, _ = cuda.compile_ptx(function, tuple(map(argument, names)), cc=capability)
    assert f".target sm_{capability[0]}{capability[1]}" in ptx
    return ptx


STRIPS = (
    bit_parallel.Strip(rows=32, first=True, planes=6, letters=4),
    bit_parallel.Strip(rows=8, first=False, planes=0, letters=4),
    bit_parallel.Strip(rows=5, first=False, planes=11, letters=16),
)
"""Some of what the bit-sliced kernel of asm is made for."""


def asm_kernels():
    warps = "u8[] u8[] i32[] i32[,] i32 i32 i32 i32[,,] u32[,]"
    lanes = "u32[] u32[] i64 i64 i32 i64 i64"
    paper = asm_paper
    yield "last_in_piece", (paper.last_in_piece, "u8[] u8[] i32[,]")
    yield "carry_over", (paper.carry_over(paper.PASM_THREADS), "i32[,]")
    yield "last_positions", (paper.last_positions, "u8[] u8[] i32[,] i32[,]")
    yield "first_row", (paper.first_row, "i32[]")
    yield "pasm_row", (paper.pasm_row, "u8[] u8 i32[] i32 i32[] i32[]")
    yield "collect", (paper.collect, "i32[] i32 i32 u32[,]")
    for groups, shared in ((1, False), (1, True), (2, True)):
        made = paper.wspasm(paper.WSPASM_THREADS, groups, shared)
        yield f"wspasm-{groups}-{shared}", (made, warps)
    yield "count", (paper.count(paper.LIST_THREADS), "u32[,,] i64 i64 i64[,]")
    yield (
        "emit",
        (paper.emit(paper.LIST_THREADS), "u32[,,] i64 i64 i32 i32 i64[] u32[] u16[]"),
    )
    tile = bit_parallel.TILE
    yield "slice_text", (bit_parallel.slice_text(tile), "u32[] i64 i64 u32[] i64 u32[]")
    made = listing.count(listing.COUNT_THREADS, tile)
    yield "count_sliced", (made, f"{lanes} u8[] u32[] i64[]")
    made = listing.emit(tile, listing.LISTED)
    yield "emit_sliced", (made, f"{lanes} i32 u8[] u32[] i64[] i64 u32[] u16[]")
    yield "places", (listing.sums_before(listing.PLACE_THREADS), "i64[] i64 i64 i64[] i64[]")
    for strip in STRIPS:
        made = bit_parallel.strip_kernel(strip, bit_parallel.THREADS)
        yield (
            f"strip-{strip.rows}",
            (made, "u32[] u32[] i64 i64 i64 u8[] i64 i32 u8[] u32[] i32 i32 u32[] u32[]"),
        )


def hamming_kernels():
    pmasm = "u8[] u32 u32[,,] u32 u32 i32[,]"
    sort = "u64[] u32[] u32 u64[] u64[]"
    paper = hamming_paper
    yield "naive-hamming", (paper.naive, "u8[] u32 u8[,] u32 i32[,]")
    yield from ((name, (kernel, pmasm)) for name, kernel in paper.KERNELS.items())
    for words in (1, 2, 37):
        arguments = "u8[] u32 u64[,,] u32 u32 u32 u32 u32 i32[,]"
        yield f"shift-add-{words}", (paper.shift_add(words), arguments)
    yield "tally", (sorting.tally, "u64[] u32 u32[]")
    yield "begins", (sorting.begins(sorting.MANY_THREADS), "u32[] u32[]")
    yield "place", (sorting.place, "u64[] u32 u32[] u64[]")
    yield "sort-few", (sorting.sort(sorting.FEW_THREADS, sorting.FEW), sort)
    yield "sort-many", (sorting.sort(sorting.MANY_THREADS, 0), sort)
    for length in (4, 12):
        arguments = "u32[,] u32 u32 u64[] u32[] u32[] u32[,] u32 u64[] u32 u32 u32[] u32 u64[]"
        yield f"pigeonhole-{length}", (hamming.pigeonhole(length), arguments)


def lcs_kernels():
    paper = lcs_paper
    yield "planes-lcs", (systolic.planes, "u8[] u32[,]")
    yield "arrange", (systolic.arrange, "u8[] i64[,] u32 u32 u32[] u64[]")
    yield "cut", (systolic.cut, "u32[] i64[,] i64[,]")
    yield "match_vectors", (paper.match_vectors, "u8[] i64 i64 i64 u32[,] u32[]")
    arguments = "u8[] i64 i64 i64 i64 u32[,] u32[] u8[,,] i64"
    yield "block_step", (paper.block_step, arguments)


def levenshtein_kernels():
    keys = "u64[] u32 u32 u32 u32 u32 u32 u32 u32[]"
    yield "fill", (search.fill, "u32[] u64[]")
    yield "count_keys", (levenshtein.count_keys, keys)
    yield "share_buckets", (levenshtein.share_buckets, "u32[] u32[] u64[]")
    yield "place_entries", (levenshtein.place_entries, f"{keys} u64[] u32[]")


def ltb_kernels():
    yield "planes-ltb", (sliced.planes, "u8[] u32 u32 u32 u64[]")
    yield "ltb-naive", (sweeping.naive(), sweeping.ARGUMENTS)
    yield "ltb-efficient", (sweeping.efficient(), sweeping.ARGUMENTS)
    yield "ltb-queue", (sweeping.queue(sweeping.THREADS, sweeping.QUEUE), sweeping.ARGUMENTS)


def primer_kernels(words=7, threads=64, k=100):
    extend = (
        "u32[] i64 u32[,] i64[] i32 i64[,] u64[,] i64 i64[] i32 i32 i64[] u64[,] u64[,] u32[,] i32"
    )
    paper = primer_paper
    yield (
        "conventional",
        (paper.conventional_kernel(threads), "u8[] u8[] i32 i64[] i32[,] i32[] u64[]"),
    )
    for counted, c in ((False, 3), (True, 1)):
        made = paper.alternative_kernel(threads, k, c, counted)
        yield f"alternative-{counted}", (made, "u8[] u8[] i32 i64[] i32[] u64[]")
    yield "pack", (window_scan.pack, "u8[] i64 u32[] u32[] u32[]")
    yield "windows_of", (seeds.windows_of, "u8[] i64[,] i32 u32[,]")
    yield "variants", (seeds.variants, "u32[,] i64[,] i32 i32 i32 u32[] u32[] i32")
    yield "seeds", (seeds.seeds, "u32[] u32[] i64 i64 u32[] i32 i32 i32 u32[] u32[] u64[] u32[]")
    made = window_scan.kernel(words)
    yield "scan", (made, "u32[] u32 u32 u8[] i64[,] u32 i32 i32 u64[] u32[]")
    yield "extend", (window_scan.extend(words, max(0, words - 2), False), extend)
    yield "extend-gaps", (window_scan.extend(words, 0, True), extend)


def snapshot_kernels():
    """Of exact matching, for every k."""
    yield (
        "naive-exact",
        (chunk_match.naive, "u32[] u32[] u32 u32 u32 u32 u32[] u32[] u64[] u32[] u32[,] u32[] "
         "u64[] u32[]"),
    )  # fmt: skip
    yield "split", (chunk_match.split, "u32[] u32[] u32 u32 u32[] u32[] u32[]")
    yield "merge", (chunk_match.merge, "u32[] u32 u32 u32[]")
    yield "interleave", (device_tree.interleave, "u32[] u64[] u32[] u64[]")
    yield "expand", (device_tree.expand, "u32 u32 u64[] u32[] u64[]")
    yield "clear", (device_tree.clear_words, "u32[]")
    yield "jump", (device_tree.jump(walk.jump_level(15)), "u64[] u64[]")


def window_kernels(k):
    """Of exact matching, made for one k."""
    leaves = "u64[]" if k % 3 == 0 else "u32[]"
    for words in (False, True):
        arguments = "u32[] u32[] u32 u32 u32 u64[] u32[] u64[] u32[]"
        yield f"shuffle-{words}", (chunk_match.shuffle(k, words), arguments)
    for canonical in (False, True):
        bits = walk.walk_bits(k, canonical)
        yield f"walk-{canonical}", (bits, f"u32[] u32[] u64[] u64[] {leaves} u32[]")
        words = walk.walk_words(k, canonical)
        yield f"walk-words-{canonical}", (words, "u32[] u32[] u64[] u32[] u64[] u32[]")


def bucket_kernels(shape):
    leaves = "u64[]" if shape.k % 3 == 0 else "u32[]"
    for canonical in (False, True):
        made = bucket_table.lookup(shape, canonical)
        yield f"buckets-{canonical}", (made, f"u32[] u32[] u64[] u64[] u64[] {leaves} u32[]")
    yield "insert", (bucket_table.insert(shape), "u32 u32[] u64[] u64[] u32[]")
    yield "finish", (bucket_table.finish(shape), "u64[] u32[]")


def kmer_set_kernels(k=31, canonical=True):
    claimed = "u32[] u32[] u64[] u64 u64 u32[]"
    for name, arguments in {
        "claim": claimed,
        "claim_filtered": claimed,
        "decide": f"{claimed} u32[] u32[]",
        "compact": "u32[] u32[] u32[] u32[] u64[]",
        "find": "u32[] u32[] u64[] u64 u32[]",
        "values": "u32[] u32[] u64[] u64 u32[]",
    }.items():
        yield name, (getattr(kmer_set, name)(k, canonical), arguments)
    yield "add", (kmer_set.add, "u64[] u64[] u64[] u64")
    yield "rehash", (kmer_set.rehash, "u64[] u64[] u64")
    yield "wipe", (kmer_set.wipe, "u64[]")


def index_kernels():
    arguments = (
        "u32 u32 u32 u32[] u32[] u64[] u64 u32[] u32[] u32[] u32[] u8[] u64[] u32[] u32[] u32[]"
    )
    for canonical, with_runs in product((True, False), repeat=2):
        name = f"index-{canonical}-{with_runs}"
        yield name, (reference_index.look_up(canonical, with_runs), arguments)


CAPABILITIES = [pytest.param((8, 0), marks=pytest.mark.slow, id="sm_80"), (9, 0)]
KERNELS = dict(
    source
    for kernels in (
        asm_kernels, hamming_kernels, index_kernels, kmer_set_kernels, lcs_kernels,
        levenshtein_kernels, ltb_kernels, primer_kernels, snapshot_kernels,
    )
    for source in kernels()
)  # fmt: skip
"""The kernels that keep all their words in registers."""

LONG = {"index-False-False", "index-False-True", "pigeonhole-4", "strip-5"} | {
    name
    for name, (made, _) in KERNELS.items()
    if str(made.__module__).endswith((".paper", ".sweeping"))
}
"""For the long lane: those that better ones have replaced, and others in a further shape."""

NAMES = [pytest.param(name, marks=[pytest.mark.slow] * (name in LONG)) for name in KERNELS]

INSTRUCTIONS = {
    "count_sliced": ["ld.global.nc.v4.u32"],
    "emit_sliced": ["ld.global.nc.v4.u32"],
    "slice_text": ["st.global.v4.u32"],
    "wspasm-1-True": ["shfl.sync.up"],
    "wspasm-1-False": ["shfl.sync.up"],
    "ltb-naive": ["bar.sync", ".global.or.b32"],
    "ltb-efficient": ["bar.sync", ".global.or.b32"],
    "ltb-queue": ["bar.sync", ".shared", "shfl.sync.idx", "vote.sync.ballot", ".global.or.b32"],
    "claim": ["cas", "min"],
    "claim_filtered": ["cas", "min"],
    "add": ["cas", "min"],
    "rehash": ["cas"],
}


@pytest.mark.parametrize("capability", CAPABILITIES)
@pytest.mark.parametrize("name", NAMES)
def test_a_kernel_keeps_its_words_in_registers(name, capability):
    ptx = compiled(KERNELS[name], capability)
    assert ".local" not in ptx
    for instruction in INSTRUCTIONS.get(name, []):
        assert instruction in ptx
    if name.startswith("strip"):
        # three three-input operations a cell, four columns at once
        assert ptx.count("lop3.b32") >= 12 * int(name.split("-")[1])
        assert ".u64 %SP" not in ptx
        assert "ld.global.nc.v4.u32" in ptx
    if name == "slice_text":
        assert ptx.count("prmt.b32") >= 16
    if name in ("count_keys", "share_buckets", "place_entries"):
        assert "div" not in ptx


def test_the_oldest_gpu():
    compiled(KERNELS["collect"], (8, 0))


@pytest.mark.parametrize(
    ("name", "k", "capability"),
    [
        pytest.param(name, k, (major, 0), marks=[pytest.mark.slow] * ((k, major) != lane))
        for name in dict(window_kernels(2))
        for lane in [(15 if name == "walk-True" else 31, 9)]  # of 15 the leaves are wider
        for k, major in ((2, 9), (15, 8), (15, 9), (31, 9))
    ],
)
def test_exact_matching_of_one_k(name, k, capability):
    ptx = compiled(dict(window_kernels(k))[name], capability)
    assert ".local" not in ptx
    assert name[:7] != "shuffle" or "shfl.sync.up" in ptx


@pytest.mark.parametrize("capability", CAPABILITIES)
@pytest.mark.parametrize("k", [pytest.param(15, marks=pytest.mark.slow), 31])
def test_the_bucket_table(k, capability):
    shape = bucket_table.choose_shape(k, 10_000_000)
    for name, source in bucket_kernels(shape):
        ptx = compiled(source, capability)
        assert ".local" not in ptx, name
        if name == "buckets-False":
            assert ptx.count("ld.global.nc.v2.u64") >= shape.words // 2


@pytest.mark.parametrize(
    ("length", "k", "major"),
    [
        (12, 4, 9),
        *(pytest.param(*case, marks=pytest.mark.slow)
          for case in ((1, 0, 9), (12, 4, 8), (32, 31, 9), (33, 8, 8), (256, 255, 9))),
    ],
)  # fmt: skip
def test_bit_sliced_counts_in_registers(length, k, major):
    shape = network.shape_for(length, k)
    arguments = "u32[,] u32 u32 u32 u32[] u32 u32 u32 u64[] u32 u32 u32 u32[] u32 u64[]"
    ptx = compiled((bit_sliced.bit_sliced(shape), arguments), (major, 0))
    assert ".local" not in ptx
    # a load a word and symbol; one for a word's hits, one for a hit that was listed
    words = ptx.count("ld.shared.u32") + 2 * ptx.count("ld.shared.v2.u32")
    assert words >= shape.loaded * network.WORDS + 2
    sizes = re.findall(r"\.shared .*\[(\d+)\];", ptx)
    assert 0 < sum(map(int, sizes)) <= SHARED_BYTES


def test_operations_of_a_pattern():
    """The numbers that docs/performance/hamming.md names."""
    for branched, operations in ((0, 17), (3, 18), (5, 19), (12, 23)):
        adders = network.Network()
        adders.complement(adders.more_than(12, branched, 4))
        assert len(adders.names()) == operations


@pytest.mark.parametrize("capability", CAPABILITIES)
@pytest.mark.parametrize(
    "shape",
    [*systolic.SHAPES[:2], *(pytest.param(s, marks=pytest.mark.slow) for s in systolic.SHAPES[2:])],
    ids=str,
)
def test_the_systolic_kernel_keeps_its_words_in_registers(shape, capability):
    arguments = "u32[,] u32 i64 u64[] i64[,] u32[,] u32[] u64[] u32[]"
    ptx = compiled((systolic.systolic(shape), arguments), capability)
    assert ".local" not in ptx
    # two steps of four columns, for low strips four times after another, and nothing else carries
    copies = ptx.count("dp4a.u32.u32") // (2 * 4)
    assert copies == (1 if shape.words > 4 else 4)
    assert ptx.count("addc.cc.u32") == copies * 2 * 4 * shape.words
    assert ptx.count("shfl.sync.up") == copies * 2 * 2
    assert len(re.findall(r"lop3\.b32[^;]*0xF4;", ptx)) == copies * 2 * 4 * shape.words
    assert ptx.count("ld.relaxed.gpu.global.u64") == 3
    assert ptx.count("st.relaxed.gpu.global.u64") == 1
    shared = sum(map(int, re.findall(r"\.shared [^\[]*\[(\d+)\]", ptx)))
    assert 0 < shared <= SHARED_BYTES
    vector = {1: "", 2: ".v2", 4: ".v4"}[min(shape.words, 4)]
    assert ptx.count(f"ld.shared{vector}.u32") >= 2 * 4 * max(1, shape.words // 4)


def test_strips_are_as_high_as_lets_them_end_together(monkeypatch):
    monkeypatch.setattr(lcs, "_multiprocessors", lambda: 132)

    def chosen(rows, columns, symbols=4, count=2):
        each = SimpleNamespace(rows=np.full(count, rows), columns=np.full(count, columns))
        return lcs.shape_for(symbols, each).words

    low, tall = (shape.words for shape in systolic.SHAPES[:2])
    assert chosen(100_000, 100_000) == low
    assert chosen(4_000_000, 2_000_000) == low
    assert chosen(5_000_000, 2_500_000) == tall
    assert chosen(5_000_000, 2_500_000, symbols=20) == 4
    assert chosen(5_000_000, 2_500_000, symbols=200) == 1
    for number in 108, 132, 148:  # warm-up compiles the kernel for many rows on any of them
        monkeypatch.setattr(lcs, "_multiprocessors", lambda number=number: number)
        assert chosen(lcs.tall_rows(), 700_000, count=1) == tall


@pytest.mark.parametrize("name", ["scan1", pytest.param("scan0_paired", marks=pytest.mark.slow)])
def test_the_levenshtein_scan(name):
    made = search.scan(int(name[4]), name.endswith("paired"))
    ptx = compiled((made, search.ARGUMENTS))
    # windows by one funnel shift, buckets and entries through the read-only path
    assert "shf.r.wrap.b32" in ptx
    assert ptx.count("ld.global.nc.u64") == 2
    assert "atom.global.min.u32" in ptx or "red.global.min.u32" in ptx


@pytest.mark.parametrize("capability", CAPABILITIES)
@pytest.mark.parametrize(
    "distance", [*(pytest.param(some, marks=pytest.mark.slow) for some in range(4)), 4]
)
def test_the_sliced_tree_bitmap(distance, capability):
    arguments = "u64[] u32 u32 u32 u32 u32 u32[] u64[] u32 u32[] u32[]"
    ptx = compiled((sliced.sliced(distance + 1), arguments), capability)
    assert ".local" in ptx  # the path
    assert "vote.sync.any" in ptx
    assert ptx.count(".global.or.b32") >= 2  # both bitmaps


@pytest.mark.parametrize("words", [pytest.param(1, marks=pytest.mark.slow), 33])
@pytest.mark.parametrize("name", ["scan", "extend"])
def test_rows_of_primers_stay_in_registers(name, words):
    ptx = compiled(dict(primer_kernels(words))[name])
    assert ".local" not in ptx
    if name == "scan" and words > 1:
        # loads of the masks: at the start, behind a record, and for each symbol
        assert ptx.count("ld.shared") <= 3 * words

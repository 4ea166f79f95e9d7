"""Every method finds what plain dynamic programming finds."""

from __future__ import annotations

import random
import signal
import threading

import numpy as np
import pytest

from streamer.batch import primer
from streamer.batch.asm.pattern_masks import masks_of
from streamer.batch.choice import Choice
from streamer.batch.primer import known, paper, seeds, shared_windows
from streamer.batch.primer.cpu_text import CpuText
from streamer.batch.primer.problem import Alpha
from streamer.batch.primer.seeds import MOST_WINDOWS, CutCosts
from streamer.errors import UsageError
from tests.reference import primer as oracle
from trie.codes import InvalidBaseError, encode
from trie.strands import PRIMER_STRANDS

ON_CPU = [name for name, devices in primer.METHODS.items() if "cpu" in devices]


def random_sequence(rng, length):
    """Random, with gaps, a tandem repeat, or nearly one letter."""
    kind = rng.randrange(4)
    if kind == 2:
        unit = "".join(rng.choice("ACGT") for _ in range(rng.randint(1, 4)))
        return (unit * length)[:length]
    return "".join(rng.choice(["ACGT", "ACGTN", "", "AAAAAC"][kind]) for _ in range(length))


def random_case(rng):
    """Records, k and strands: empty records, alpha inside beta, equal sequences."""
    alphas = [random_sequence(rng, rng.randint(0, 50)) for _ in range(rng.randint(0, 3))]
    betas = [random_sequence(rng, rng.randint(0, 80)) for _ in range(rng.randint(0, 3))]
    if alphas and betas and rng.random() < 0.4:
        changed = [c if rng.random() < 0.9 else rng.choice("ACGT") for c in alphas[0]]
        betas[-1] += rng.choice([alphas[0], "".join(changed)])
    if alphas and rng.random() < 0.1:
        betas = list(alphas)
    longest = max(map(len, alphas), default=5)
    k = rng.choice([1, 1, 2, 2, 3, 4, 5, 8, 13, max(1, longest - 1), longest + 1])
    return alphas, betas, k, rng.choice(PRIMER_STRANDS)


@pytest.fixture(autouse=True)
def _filter_from_the_first_columns_on(monkeypatch):
    """The filter looks at texts of any size, not only at what is behind the first 256 K columns."""
    monkeypatch.setattr(seeds, "BEGINNING", 40)
    monkeypatch.setattr(seeds, "COSTS", CutCosts(scanned=1e9, candidate=1, found=1, shared=3))


@pytest.mark.whole
@pytest.mark.parametrize(
    "seed", [*range(3), *(pytest.param(seed, marks=pytest.mark.slow) for seed in (3, 4))]
)
def test_all_methods_find_what_the_oracle_finds(seed):
    rng = random.Random(seed)
    for number in range(40):
        case = alphas, betas, k, strands = random_case(rng)
        expected = oracle.primers(*case)
        for method in ON_CPU:
            threads = rng.choice([1, 1, 1, 2])
            found = primer.find(
                alphas, betas, k, strands=strands, method=method, device="cpu", threads=threads
            )
            assert found.tolist() == expected, (seed, number, method, threads, case)


@pytest.mark.whole
@pytest.mark.parametrize(
    "longest_prefix", [paper.alternative_longest_prefix, paper.conventional_longest_prefix]
)
def test_an_interrupt_ends_within_a_start(longest_prefix):
    """A start of the paper's solutions may take hours: the thread that waits tells its kernel."""
    rng = np.random.default_rng(1)
    alpha = Alpha.of([rng.integers(0, 4, 5000, dtype=np.uint8)])
    beta = rng.integers(0, 4, 3_000_000, dtype=np.uint8)
    counts = []

    def watched(*arguments):
        counts.append(arguments[-2])
        main = threading.main_thread().ident
        threading.Timer(0.1, signal.pthread_kill, (main, signal.SIGINT)).start()
        return longest_prefix(*arguments)

    with pytest.raises(KeyboardInterrupt):
        paper.coarse(watched, alpha, [beta], 900, alpha.first_reaches(900), 1)
    assert counts[0][0] < 899 * beta.size  # a start has more comparisons


def test_the_example_of_the_seed():
    for method in (None, *ON_CPU):
        found = primer.find("ACTG", "AGCAAG", 2, method=method, device="cpu")
        assert found.tolist() == [(0, 0, 3, 3), (0, 1, 4, 3)]
        assert found.dtype.names == ("alpha", "start", "end", "length")


@pytest.mark.whole
@pytest.mark.parametrize("method", ["windows", "hook-row", "alternative-coarse", "seeds"])
@pytest.mark.parametrize("k", [1, 3, 12, 40])
def test_longer_sequences(method, k):
    rng = np.random.default_rng(k)
    letters = np.frombuffer(b"ACGT", dtype=np.uint8)
    alpha, beta = letters[rng.integers(0, 4, 700)], letters[rng.integers(0, 4, 3000)]
    # a part of beta that differs a little, and another that does not
    beta[500:800] = alpha[100:400]
    beta[np.arange(510, 800, 29)] = letters[0]
    beta[2000:2100] = alpha[600:]
    found = primer.find(alpha, beta, k, method=method, device="cpu")
    reached = {row["start"]: row["end"] for row in found}
    for start in [*range(0, 700, 23), *range(90, 110), *range(590, 700, 11)]:
        c = oracle.longest(bytes(alpha[start:]).decode(), [bytes(beta).decode()], k)
        end = start + c + 1
        assert reached.get(start) == (end if end <= 700 else None), (method, k, start)


@pytest.mark.whole
@pytest.mark.parametrize("chunk", [1, 200, 1000])
@pytest.mark.parametrize("method", ["windows", "seeds", "alternative"])
def test_chunks_do_not_change_results(chunk, method, monkeypatch):
    rng = np.random.default_rng(chunk)
    alphas = [rng.integers(0, 5, size, dtype=np.uint8) for size in (60, 0, 90)]
    betas = [rng.integers(0, 4, size, dtype=np.uint8) for size in (2500, 3, 0, 400, 700)]
    betas[0][1200:1290] = alphas[2]
    alpha = Alpha.of(alphas)
    for k in (2, 6):
        for strands in PRIMER_STRANDS:
            choice = Choice(method, "cpu")
            whole = primer.reaches(alpha, betas, k, Choice("hook-row", "cpu"), strands=strands)
            with monkeypatch.context() as patch:
                patch.setattr(primer, "CHUNK_SYMBOLS", chunk)
                cut = primer.reaches(alpha, iter(betas), k, choice, strands=strands)
            np.testing.assert_array_equal(cut, whole)


@pytest.mark.whole
def test_a_match_that_grows_over_any_word():
    """Homologous sequences: prefixes of thousands of symbols, in blocks of many starts."""
    rng = np.random.default_rng(3)
    alpha = rng.integers(0, 4, 2000, dtype=np.uint8)
    beta = alpha.copy()
    beta[np.arange(150, 2000, 190)] ^= 1
    beta = np.concatenate(
        [rng.integers(0, 4, 800, dtype=np.uint8), np.delete(beta, 1000), beta[:90]]
    )
    records = Alpha.of([alpha])
    for k in (2, 9):
        expected = primer.reaches(records, [beta], k, Choice("alternative-coarse", "cpu"))
        for method in ("windows", "hook-row", "seeds"):
            found = primer.reaches(records, [beta], k, Choice(method, "cpu"))
            np.testing.assert_array_equal(found, expected, err_msg=f"{method} k={k}")


def test_windows_settle_many_starts_at_once(monkeypatch):
    rng = np.random.default_rng(4)
    alpha = Alpha.of([rng.integers(0, 4, 3000, dtype=np.uint8)])
    text = rng.integers(0, 4, 60_000, dtype=np.uint8)
    searched = 0
    for name in ("hits", "nearest"):

        def counted(self, firsts, ends, search=getattr(CpuText, name)):
            nonlocal searched
            searched += firsts.size
            return search(self, firsts, ends)

        monkeypatch.setattr(CpuText, name, counted)
    reach = alpha.first_reaches(40)
    shared_windows.improve(CpuText(alpha, text, 40, 2), reach, shared_windows.Plan())
    assert 0 < searched < 1500


def test_keys_have_room_for_all_windows_of_a_table():
    windows = [0, 1, (1 << 23) - 1, 1 << 23, MOST_WINDOWS - 1]
    keys = [window << 40 | 3 << 12 | 2 for window in windows]
    hits = seeds.runs(np.array(keys[::-1], dtype=np.uint64), 1000)
    assert hits.window.tolist() == windows
    assert (set(hits.begin), set(hits.end), set(hits.slack)) == ({192}, {256}, {2})


@pytest.mark.whole
def test_more_windows_than_a_table_has(monkeypatch):
    rng = np.random.default_rng(9)
    alpha = Alpha.of([rng.integers(0, 4, size, dtype=np.uint8) for size in (200, 90)])
    beta = [rng.integers(0, 4, size, dtype=np.uint8) for size in (1500, 700)]
    expected = primer.reaches(alpha, beta, 3, Choice("hook-row", "cpu"))
    tables = []
    table_of = seeds.table_of

    def recorded(codes, firsts, shape):
        tables.append(firsts.size)
        return table_of(codes, firsts, shape)

    monkeypatch.setattr(seeds, "table_of", recorded)
    monkeypatch.setattr(seeds, "MOST_WINDOWS", 5)
    found = primer.reaches(alpha, beta, 3, Choice("seeds", "cpu"))
    np.testing.assert_array_equal(found, expected)
    assert max(tables) == 5


def test_known_primers_lie_where_all_letters_match():
    alpha = [encode("AACGNTTCGTTA"), encode("ACGNTT")]

    def found(letters):
        places = known.places(masks_of(letters, iupac=True), alpha)
        return [(one.alpha, one.start, one.end, one.strand) for one in places]

    assert found("AACG") == [(0, 0, 4, "+"), (0, 7, 11, "-")]
    assert found("AASW") == []
    assert found("AANG") == [(0, 0, 4, "+"), (0, 7, 11, "-")]
    assert found("CGNTT") == []


@pytest.mark.parametrize("seed", range(4))
def test_a_degenerate_primer_is_as_near_as_its_nearest_variant(seed):
    rng = np.random.default_rng(seed)
    host = "".join(rng.choice(list("ACGTN"), 400, p=[0.24, 0.24, 0.24, 0.24, 0.04]))
    primers = []
    for size in (1, 5, 12, 33, 70):
        start = int(rng.integers(0, 400 - size))
        letters = list(host[start : start + size].replace("N", "A"))
        for at in rng.integers(0, size, 3):
            letters[at] = rng.choice(list("RYKMSWBDHVN"))
        for at in rng.integers(0, size, 2):
            letters[at] = rng.choice(list("ACGT"))
        primers.append("".join(letters))
    for both, strands in ((False, "forward"), (True, "both")):
        sets = [masks_of(letters, iupac=True) for letters in primers]
        found = known.differences(sets, [encode(host)], 2, both=both)
        for letters, differences in zip(primers, found.tolist(), strict=True):
            assert differences == oracle.differences(letters, [host], strands), letters


def test_letters_of_any_form():
    expected = primer.find("ACTG", "AGCAAG", 2, device="cpu").tolist()
    for alpha in (b"actg", np.frombuffer(b"ACTG", dtype=np.uint8), ["ACUG"]):
        assert primer.find(alpha, [b"AGCAAG"], 2, device="cpu").tolist() == expected
    assert primer.find("ACNNTG", "ACNNTG", 3, device="cpu").tolist() == []
    assert primer.find("ACNNTG", "ACNNTG", 2, device="cpu")["end"].tolist() == [4, 4, 4]


@pytest.mark.parametrize("k", [5, 1001, 1 << 70])
@pytest.mark.parametrize("method", [name for name, has in primer.METHODS.items() if "cpu" in has])
def test_a_k_longer_than_alpha_gives_no_rows(method, k):
    for alpha in ("ACTG", ["", "ACTG", "A"], []):
        assert primer.find(alpha, "AGCAAG", k, method=method, device="cpu").size == 0
    with pytest.raises(InvalidBaseError):
        primer.find("ACTG", "AG!", k, method=method, device="cpu")


def test_what_is_out_of_range():
    for k in (0, -1, 1001):
        with pytest.raises(UsageError, match=r"1\.\.1000"):
            primer.find("A" * 1001, "A", k, device="cpu")
    with pytest.raises(UsageError, match="strands"):
        primer.find("A", "A", 1, strands="reverse", device="cpu")
    with pytest.raises(UsageError, match="method"):
        primer.find("A", "A", 1, method="best", device="cpu")
    with pytest.raises(InvalidBaseError):
        primer.find("A*", "A", 1, device="cpu")
    assert primer.find("ACGT", [], 5, device="cpu").size == 0
    assert primer.find([], "ACGT", 1, device="cpu").size == 0
    assert encode("ACGT").tolist() == [0, 1, 2, 3]

"""The GPU tables of ``scripts/bench``, on tiny inputs: on a GPU, or in the simulator."""

from __future__ import annotations

import pytest

from benchmarks import exact_on_gpu
from benchmarks.primer import Size
from gpu import hamming as plane_search
from gpu.card import device
from gpu.exact import bucket_table, chunk_match, device_tree, walk
from gpu.hamming import paper, sorting
from gpu.levenshtein import search
from gpu.ltb import sliced, sweeping
from tests.gpu import placement

pytestmark = [
    *placement.marks(),
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:Simulator timings"),
    pytest.mark.filterwarnings("ignore:overflow encountered in scalar"),
]


@pytest.fixture(scope="module", autouse=True)
def one_run_each():
    """Blocks that the simulator can carry, and no run twice: nothing is timed here."""
    from benchmarks import asm, hamming, lcs, levenshtein, ltb, primer

    def once(run, *_, **__):
        run()
        return 1.0

    modules = (
        bucket_table, device_tree, chunk_match, walk, plane_search, sorting, paper, sweeping,
        sliced,
    )  # fmt: skip
    with placement.small_blocks(32, *modules) as patch:
        for suite in (asm, exact_on_gpu, hamming, lcs, levenshtein, ltb, primer):
            for measure in ("median_on_gpu", "least_seconds"):
                patch.setattr(suite, measure, once, raising=False)
        if placement.SIMULATED:
            patch.setattr(search, "THREADS", 64)
            patch.setattr(
                device, "devices", lambda: [device.Device(0, "simulated", (9, 0), 1 << 30)]
            )
        yield patch


def asm(patch):
    from benchmarks import asm

    yield from asm.steps(600, ((8, 1),))
    yield from asm.steps(600, ((8, 1),), 2)


def hamming(patch):
    from benchmarks import hamming

    patch.setattr(hamming, "LONG", (("bit-sliced", 2, 7, 2, 8, 0.01),))
    rows = list(hamming.by_size(hamming.gpu_rate, ("bit-sliced", "naive"), (300,), 12))
    yield from hamming.ratios(rows, "cuda")
    yield from hamming.long_texts(1.0)
    yield from hamming.from_host(500)


def kernels(patch):
    patch.setattr(exact_on_gpu, "CANONICAL_KS", (7,))
    yield from exact_on_gpu.kernels(100, 200, (6,))


def engine(patch):
    yield from exact_on_gpu.frozen(100, 2000, (6,), (1 << 10,), (1,))
    yield from exact_on_gpu.growing_stages(600, 7, 1 << 8)
    yield from exact_on_gpu.thesis_stages((300, 7, 100))


def levenshtein(patch):
    from benchmarks import levenshtein

    patch.setattr(levenshtein, "DICTIONARIES", ((40, 12, 1),))
    patch.setattr(levenshtein, "ENGINES", ((40, 12, 1),))
    patch.setattr(levenshtein, "CHUNKS", ((1 << 8, 2),))
    yield from levenshtein.on_gpu(400)
    yield from levenshtein.engine(400)
    yield from levenshtein.growth(100, 12, device="cuda", ends=200)


def ltb(patch):
    from benchmarks import ltb

    patch.setattr(ltb, "KS", (4,))
    patch.setattr(ltb, "DICTIONARIES", ((20, 6, 1),))
    patch.setattr(ltb, "ENGINES", ((20, 6, 1, 1),))
    yield from ltb.dictionaries(200, True)
    yield from ltb.engine(200)


def lcs(patch):
    from benchmarks import lcs

    patch.setattr(lcs, "GPU_METHODS", {"systolic": 1e6})
    yield from lcs.gpu_lengths((150,), 1)


def primer(patch):
    from benchmarks import primer

    size = primer.Size(40, 120, 3)
    yield from primer.filtered((size,), "cuda", ("windows", "seeds"), "both")
    yield from primer.host_genome(primer.Size(40, 480, 3))


def primer_paper(patch):
    from benchmarks import primer

    size = primer.Size(60, 300, 4)
    yield from primer.on_gpu(size, 4)
    yield from primer.prefetch(size, 4, 1)
    yield from primer.block_sizes(primer.Size(1000, 3000, 50), 4, 1)


def _on_several(patch):
    """The suite with little work, and one device that stands for both."""
    from benchmarks import several_gpus as suite
    from streamer.batch import primer

    patch.setattr(suite, "PIECE", 300)
    patch.setattr(suite, "CHUNK", 1 << 9)
    patch.setattr(suite, "K", 6)
    patch.setattr(primer, "LEAST_STARTS", 16)
    return suite, {1: (0,), 2: (0, 0)}


def several_gpus(patch):
    suite, uses = _on_several(patch)
    yield from suite.hamming_texts(uses, 1, 600, ((1, 7, 1),))


def several_gpus_batch(patch):
    suite, uses = _on_several(patch)
    yield from suite.asm_texts(uses, 1, 600, ((2, 8, 1, 1),))
    yield from suite.primer_sizes(uses, 1, (Size(40, 120, 3),))


def several_gpus_exact(patch):
    suite, uses = _on_several(patch)
    yield from suite.exact_engine(uses, 1, 2000, 1 << 9)
    yield from suite.matchers(uses, 1, 1000)


SUITES = [asm, hamming, engine, levenshtein, ltb, lcs, primer, several_gpus]
if not placement.SIMULATED:
    # minutes in the simulator
    SUITES += [kernels, primer_paper, several_gpus_batch, several_gpus_exact]


@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.__name__)
def test_every_table_has_rows(suite, one_run_each):
    assert all(row for row in suite(one_run_each))

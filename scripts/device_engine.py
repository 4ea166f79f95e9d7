#!/usr/bin/env python3
"""Check the engine on CUDA devices against the CPU, then time it, and print short tables.

scripts/device_engine.py [check] [frozen] [thesis] [grow] [kernels] [ks] [daemon]
                         [--data FOLDER] [--timeline FILE]

Without arguments: check, frozen, thesis, grow. ``ks`` is ``frozen`` for several k. ``--data``
checks reads of that folder, ``--timeline`` draws one. ``small`` checks a few small inputs only, for
compute-sanitizer --tool memcheck|racecheck python scripts/device_engine.py small
``profile`` runs each kernel of the engine a few times: ncu python scripts/device_engine.py profile
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
import warnings
from contextlib import closing
from functools import partial
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402

from streamer.bench import cuda as bench  # noqa: E402
from streamer.dictionary.targets import Dictionary  # noqa: E402
from streamer.matching import Matcher  # noqa: E402
from streamer.sequences.read_batch import ReadBatch  # noqa: E402

# small inputs leave most of a card idle, which is no news here
warnings.filterwarnings("ignore", message=".*under-utilization.*")

STRANDS = ("forward", "canonical", "both")


def log(*words):
    print(*words, flush=True)


def compare(name, batches, dictionary, *, kernels=("auto",), depths=True, both=True, **options):
    """The same stream through the CPU and through the card: every array must be equal."""
    cards = options.pop("cards", None)
    for kernel in kernels:
        for streams in (1, 2) if both else (2,):
            for want in (False, True) if depths else (False,):
                cpu = Matcher(dictionary, **options)
                card = Matcher(
                    dictionary,
                    device="cuda",
                    kernel=kernel,
                    streams=streams,
                    cards=cards,
                    **options,
                )
                with closing(cpu), closing(card):
                    for batch in batches:
                        a = cpu.match(batch, want_depths=want)
                        b = card.match(batch, want_depths=want)
                        place = (name, kernel, streams, want, options)
                        assert card.device == "cuda", place
                        assert np.array_equal(a.events, b.events), place
                        assert np.array_equal(a.new_kmers, b.new_kmers), place
                        assert np.array_equal(a.new_starts, b.new_starts), place
                        assert (a.sets is None) == (b.sets is None), place
                        assert a.sets is None or np.array_equal(a.sets, b.sets), place
                        if want:
                            assert np.array_equal(a.depths.depths, b.depths.depths), place
                            assert np.array_equal(a.depths.nodes, b.depths.nodes), place
                            assert np.array_equal(a.depths.versions, b.depths.versions), place
                    assert cpu.kmers == card.kmers, place


def random_batches(total, seed, reads=40):
    """A repetitive random stream with gaps, as three batches."""
    rng = np.random.default_rng(seed)
    text = rng.integers(0, 4, total // 2).astype(np.uint8)
    bases = np.concatenate((text, (3 - text)[::-1][: total // 4], text[: total // 4]))
    bases[rng.integers(0, bases.size, total // 500)] = 4
    batches = []
    for part in np.array_split(bases, 3):
        cuts = np.sort(rng.integers(0, part.size + 1, reads - 1))
        offsets = np.concatenate(([0], cuts, [part.size])).astype(np.int64)
        batches.append(ReadBatch([f"r{i}" for i in range(reads)], offsets, part))
    return batches


def first_of(batch, symbols):
    """The first so many symbols of a batch, in reads as they are."""
    offsets = np.unique(np.clip(batch.offsets, 0, symbols))
    return ReadBatch([f"r{i}" for i in range(offsets.size - 1)], offsets, batch.bases[:symbols])


def check(ks=(1, 2, 3, 7, 12, 13, 15, 16, 21, 30, 31), total=120_000):
    begin = time.perf_counter()
    for at, k in enumerate(ks):
        batches = random_batches(total, k)
        for strands in STRANDS:
            some = Dictionary.from_batches([random_batches(total, k)[1]], k, strands)
            chunk = (70_001, 1_000_000, 65_536)[at % 3]
            compare("random", batches, some, mode="frozen", chunk=chunk)
            compare("random", batches, some, mode="grow", chunk=chunk)
            empty = Dictionary.empty(k, strands)
            compare("random", batches, empty, mode="grow", chunk=chunk, seed_bases=total // 5)
            compare("random", batches, empty, mode="frozen", chunk=chunk, seed_bases=total // 5)
        if k in (7, 15, 21):
            snapshots = ("walk", "shuffle", "buckets")
            compare("kernels", batches, some, mode="frozen", kernels=snapshots[:2], depths=False)
            compare("kernels", batches, some, mode="grow", kernels=snapshots, chunk=20_000)
            compare("cards", batches, some, mode="grow", cards=[0, 0], chunk=30_000, depths=False)
    log(f"random streams: all equal, {time.perf_counter() - begin:.0f} s")


def check_data(folder):
    from streamer.sequences.files import read_batches

    for path in sorted(Path(folder).glob("*.f[aq].gz")):
        begin = time.perf_counter()
        batches = list(read_batches([str(path)]))
        k = 21 if sum(batch.bases.size for batch in batches) > 10_000 else 11
        short, half = first_of(batches[0], 50_000), first_of(batches[0], 25_000)
        options = {"depths": False, "both": False}
        for strands in STRANDS if path.name.startswith("mt_") else STRANDS[1:2]:
            some = Dictionary.from_batches(batches[:1], k, strands)
            compare(path.name, batches, some, mode="frozen", kernels=("auto", "shuffle"), **options)
            empty = Dictionary.empty(k, strands)
            compare(path.name, batches, empty, mode="grow", kernels=("auto", "shuffle"), **options)
            naive = options | {"kernels": ("naive",), "chunk": 5_000}
            few = Dictionary.from_batches([half], 9, strands)
            compare(path.name, [short], few, mode="frozen", **naive)
            # several snapshots while it grows
            with mock.patch("streamer.matching.spans.SHORT_SPAN", 10_000):
                compare(path.name, [short], few, mode="grow", **naive)
        log(f"{path.name}: all equal, {time.perf_counter() - begin:.1f} s")


def table(rows):
    for row in rows:
        log("  " + ", ".join(f"{key} {_shown(value)}" for key, value in row.items()))


def _shown(value):
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def trace(path):
    from gpu.card.timeline_picture import draw

    bars = {}
    for title, streams in (("serial (one stream)", 1), ("concurrent (two streams)", 2)):
        bars[title] = bench.traced(streams)
        end = max(bar.end for bar in bars[title])
        log(f"{title}: {end - min(bar.begin for bar in bars[title]):.2f} ms")
        for row in ("HtoD", "kernel", "DtoH", "CPU"):
            log(f"  {row} {sum(b.end - b.begin for b in bars[title] if b.row == row):.2f} ms")
    draw(bars, path)


def small():
    few = random_batches(3_000, 5, reads=5)
    for k, kernel in ((3, "auto"), (15, "auto"), (15, "shuffle")):
        some = Dictionary.from_batches(few[:1], k, "canonical")
        options = {"kernels": (kernel,), "both": False, "chunk": 700}
        compare("small", few, some, mode="frozen", **options)
        compare("small", few, some, mode="grow", **options)
    log("small inputs: all equal")


def frozen():
    table(bench.frozen(10_000_000, 1 << 29, (15,), (1 << 22, 1 << 24), (2,)))


def thesis():
    table(bench.thesis())
    table(bench.thesis(("naive",), (50_000, 15, 5_000)))


def grow():
    table(bench.growing(200_000_000))
    table(bench.growing_rows(200_000_000))


def ks():
    table(bench.frozen(10_000_000, 1 << 28, (6, 9, 12, 15, 21, 31), (1 << 24,), (2,)))


def profile():
    bench.growing_rows(1 << 26, 21, 1 << 24)
    bench.frozen(10_000_000, 1 << 26, (15,), (1 << 24,), (2,))


def daemon():
    from streamer.bench.daemon import daemon as measured

    sizes = (1 << 20, 1 << 20, 1 << 22)  # the first also warms the machine's memory
    table(measured(device="cuda", bases=1 << 32, batch_bytes=sizes, transports=("tcp",)))


JOBS = {
    "check": check,
    "frozen": frozen,
    "thesis": thesis,
    "grow": grow,
    "kernels": lambda: table(bench.kernels(10_000_000, 1 << 27)),
    "ks": ks,
    "daemon": daemon,
    "small": small,
    "profile": profile,
}

USUAL = ("check", "frozen", "thesis", "grow")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("jobs", nargs="*", choices=list(JOBS))
    parser.add_argument("--data", help="a folder of reads, *.fa.gz and *.fq.gz, to check with")
    parser.add_argument("--timeline", help="a file to draw a timeline in: .svg, .png or .pdf")
    given = parser.parse_args()
    jobs = {name: JOBS[name] for name in given.jobs}
    if given.data:
        jobs["data"] = partial(check_data, given.data)
    if given.timeline:
        jobs["timeline"] = partial(trace, given.timeline)
    log(bench.device_line())
    failed = False
    for name, job in (jobs or {name: JOBS[name] for name in USUAL}).items():
        begin = time.perf_counter()
        try:
            job()
        except Exception:
            failed = True
            log(f"{name} FAILED\n{traceback.format_exc()[-2500:]}")
        log(f"-- {name}: {time.perf_counter() - begin:.1f} s")
    sys.exit(failed)


if __name__ == "__main__":
    main()

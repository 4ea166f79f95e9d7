"""The novelty curve and its report against the definition, for any batches."""

from __future__ import annotations

import json
import random
import threading
from contextlib import closing

import numpy as np
import pytest

from streamer.cli.app import main
from streamer.dictionary.targets import Dictionary
from streamer.matching import novelty
from streamer.matching.matcher import StreamMatcher
from streamer.matching.novelty import NOVELTY_COLUMNS, NoveltyCurve
from streamer.sequences.read_batch import ReadBatch
from tests.daemon_kit import random_dna
from tests.reference.novelty import novelty_curve


def some_reads(rng, count):
    genome = random_dna(rng, 900)
    starts = [rng.randrange(900) for _ in range(count)]
    lengths = [rng.choice((0, 0, 3, 20, 60)) for _ in range(count)]
    return [
        (f"r{n}", genome[start : start + length] + rng.choice(["", "N"]))
        for n, (start, length) in enumerate(zip(starts, lengths, strict=True))
    ]


def cut(rng, reads):
    while reads:
        size = rng.choice((0, 1, 2, 7, 50))
        yield ReadBatch.from_letters(
            [name for name, _ in reads[:size]],
            np.cumsum([0, *(len(letters) for _, letters in reads[:size])]),
            "".join(letters for _, letters in reads[:size]).encode(),
        )
        reads = reads[size:]


def rows_of(curve):
    return np.column_stack(list(curve.columns().values())).tolist()


@pytest.mark.parametrize("seed", [0, 2, 4, 6])
@pytest.mark.parametrize("options", [{"mode": "grow"}, {"mode": "frozen", "seed": 700}])
def test_the_curve_is_that_of_the_definition_for_any_batches(monkeypatch, seed, options):
    rng = random.Random(seed)
    points = rng.choice((2, 3, 16, 512))
    monkeypatch.setattr(novelty, "MAX_POINTS", points)
    reads, k = some_reads(rng, rng.choice((0, 1, 10, 150))), rng.choice((3, 11))
    known = Dictionary.empty(k, "canonical")
    spec = {"mode": options["mode"], "seed_bases": options.get("seed", 0)}
    curve, done = NoveltyCurve(), 0
    with closing(StreamMatcher.of(known, chunk=64, **spec)) as matcher:
        for batch in cut(rng, reads):
            result = matcher.match([batch])[0]
            curve.add(batch.offsets, result.new_starts)
            curve = rng.choice([curve, NoveltyCurve(curve.state)])
            done += len(batch)
            if rng.random() < 0.1:
                want = novelty_curve(reads[:done], k, points=points, **options)
                assert rows_of(curve) == want
    want = novelty_curve(reads, k, points=points, **options)
    assert rows_of(curve) == want
    assert len(want) <= points
    assert curve.last() == (want[-1] if want else None)
    assert curve.last() is None or curve.last()[2] == matcher.kmers


def test_a_lump_is_one_step():
    curve = NoveltyCurve()
    curve.add_lump(0, 0, 0)
    assert curve.last() is None
    curve.add_lump(3, 100, 40)
    curve.add(np.array([0, 10]), np.array([2, 3]))
    assert rows_of(curve) == [[3, 100, 40, 40], [4, 110, 42, 2]]


@pytest.mark.parametrize("strands", ["canonical", "both", "forward"])
@pytest.mark.parametrize("learning", ["grow", "seed", "known"])
def test_the_report(tmp_path, strands, learning):
    rng = random.Random(5)
    reads, k = some_reads(rng, 700), 9
    records = [("target", reads[7][1] * 3 + random_dna(rng, 50))] if learning == "known" else []
    for name, some in (("reads.fa", reads), ("ref.fa", records)):
        (tmp_path / name).write_text("".join(f">{n}\n{letters}\n" for n, letters in some))
    start, options = {
        "grow": (["--seed", "0"], {"mode": "grow"}),
        "seed": (["--seed", "900", "--mode", "frozen"], {"mode": "frozen", "seed": 900}),
        "known": (["-d", str(tmp_path / "ref.fa"), "--mode", "grow"], {"records": records}),
    }[learning]
    out = tmp_path / "out.jsonl"
    arguments = ["match", str(tmp_path / "reads.fa"), "-k", str(k), "--strands", strands, *start]
    arguments += ["--report", "novelty", "--format", "jsonl", "-q", "-o", str(out)]
    assert main(arguments) == 0
    found = [json.loads(line) for line in out.read_text().splitlines()]
    assert [list(row.values()) for row in found] == novelty_curve(
        reads, k, strands=strands, **options
    )
    assert all(tuple(row) == NOVELTY_COLUMNS for row in found)


def test_the_report_has_batches_in_their_order(tmp_path, monkeypatch):
    """Also if a thread is late with the first of them."""
    reads = some_reads(random.Random(6), 60)
    paths = [tmp_path / f"{number}.fa" for number in range(len(reads))]
    for path, (name, letters) in zip(paths, reads, strict=True):
        path.write_text(f">{name}\n{letters}\n")
    add, later, waited = NoveltyCurve.add, threading.Event(), []

    def late(curve, offsets, starts):
        if waited:
            later.set()
        else:
            waited.append(later.wait(0.2))  # in vain, unless another one overtakes it
        add(curve, offsets, starts)

    monkeypatch.setattr(NoveltyCurve, "add", late)
    out = tmp_path / "out.jsonl"
    arguments = [*map(str, paths), "-k", "9", "--seed", "0", "--threads", "4"]
    arguments += ["--report", "novelty", "--format", "jsonl", "-q", "-o", str(out)]
    assert main(["match", *arguments]) == 0
    found = [[*json.loads(line).values()] for line in out.read_text().splitlines()]
    assert found == novelty_curve(reads, 9, mode="grow")
    assert waited == [False]


def test_a_dictionary_that_is_fixed_has_no_curve(tmp_path, capsys):
    (tmp_path / "ref.fa").write_text(">a\nACGTACGTACGT\n")
    arguments = [str(tmp_path / "ref.fa"), "-k", "5", "-d", str(tmp_path / "ref.fa")]
    assert main(["match", *arguments, "--report", "novelty"]) == 2
    assert "--report novelty needs a dictionary that grows" in capsys.readouterr().err
    assert main(["match", *arguments, "--mode", "grow", "-D", "1", "--report", "novelty"]) == 2

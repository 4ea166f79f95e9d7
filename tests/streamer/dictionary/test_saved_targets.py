"""A saved dictionary is the dictionary: with it every report has the rows that the FASTA gives."""

from __future__ import annotations

import random

import pytest

from streamer.client import Intervals, Near
from streamer.client.message_tables import table
from tests.daemon_kit import feed_of, random_dna, settings
from tests.data_files import write_fasta
from tests.reference import exact as oracle

pytestmark = pytest.mark.whole

REPORTS = ("windows", "intervals", "reads")
SEED = 13


def records_of(rng):
    """Records that share stretches, one of them twelve records; some turned, two of one name."""
    common, turned = random_dna(rng, 20), random_dna(rng, 40)
    made = [(f"t{i}", random_dna(rng, 30) + common + random_dna(rng, 10)) for i in range(12)]
    made += [
        ("plus", turned),
        ("minus", oracle.reverse_complement(turned[5:])),
        ("third", turned[3:]),
    ]
    return [*made, ("t0", random_dna(rng, 30)), ("short", "ACG"), ("gaps", "ACGTNNNN" * 3)]


def reads_from(rng, records):
    """Parts of records on either strand with a few errors, and reads of no record."""
    reads = []
    for i, (_, letters) in enumerate(records * 2):
        text = list(random_dna(rng, 5) + letters + random_dna(rng, 5))
        text[rng.randrange(len(text))] = rng.choice("ACGTN")
        text = "".join(text)
        reads.append((f"r{i}", oracle.reverse_complement(text) if i % 2 else text))
    return [*reads, ("novel", random_dna(rng, 60)), ("empty", "")]


@pytest.fixture
def case(tmp_path):
    rng = random.Random(SEED)
    records = records_of(rng)
    half = len(records) // 2
    for name, part in (("all", records), ("a", records[:half]), ("b", records[half:])):
        write_fasta(tmp_path / f"{name}.fa", part)
    write_fasta(tmp_path / "reads.fa", reads_from(rng, records))
    write_fasta(tmp_path / "none.fa", [])
    write_fasta(tmp_path / "new.fa", [(f"n{i}", random_dna(rng, 50)) for i in range(6)])
    return tmp_path


@pytest.fixture
def rows(case, streamer):
    """Runs ``match`` on files of the case; the rows."""

    def run(reads, *options, **more):
        sources = [("-d", case / name) for name in more.get("sources", ())]
        arguments = [part for pair in sources for part in pair]
        code, out, err = streamer("match", case / reads, *arguments, *options, "-q")
        assert (code, err) == (0, "")
        return out

    return run


def reports_of(rows, k, strands, sources, *, mode="frozen"):
    """The rows of every report that goes with the strands."""
    options = ("-k", k, "--strands", strands, "--mode", mode)
    found = {
        report: rows("reads.fa", *options, "--report", report, sources=sources)
        for report in REPORTS
    }
    if strands != "canonical":
        for report in ("all", "best"):
            near = (*options, "--distance", 2, "--report", report)
            found[report] = rows("reads.fa", *near, sources=sources)
        found["ltb"] = rows(
            "reads.fa", *options, "--distance", 1, "--semantics", "ltb", sources=sources
        )
    return found


@pytest.mark.parametrize(
    ("k", "strands"),
    [(3, "canonical"), (3, "both"), (11, "forward"), (31, "canonical"), (31, "both")],
)
def test_the_same_rows(k, strands, case, rows):
    want = reports_of(rows, k, strands, ["all.fa"])
    assert "t0;t1;t2;t3;t4;t5;t6;t7;..." in want["windows"] or k == 31
    options = ("-k", k, "--strands", strands, "--save")
    rows("reads.fa", *options, case / "exact.idx", sources=["all.fa"])
    assert reports_of(rows, k, strands, ["exact.idx"]) == want
    # saved again, and by a run with a distance
    rows("none.fa", *options, case / "again.idx", sources=["exact.idx"])
    assert reports_of(rows, k, strands, ["again.idx"]) == want
    if strands != "canonical":
        rows("none.fa", "--distance", 1, *options, case / "near.idx", sources=["all.fa"])
        assert reports_of(rows, k, strands, ["near.idx"]) == want


def without(prefix, text):
    """Rows whose targets (the last column) with that prefix are left out."""
    found = []
    for line in text.splitlines():
        *row, targets = line.split("\t")
        kept = ";".join(t for t in targets.split(";") if not t.startswith(prefix))
        found.append((*row, kept or "."))
    return found


@pytest.mark.parametrize(
    ("way", "strands"),
    [("mode", "canonical"), ("mode", "both"), ("seed", "canonical"), ("seed", "forward"),
     ("distance", "forward"), ("distance", "both")],
)  # fmt: skip
def test_grown_kmers_have_no_target(strands, way, case, rows):
    grow = {
        "mode": ("--mode", "grow"),
        "seed": ("--seed", 10_000, "--mode", "frozen"),
        "distance": ("--mode", "grow", "--distance", 1),
    }[way]
    saved = ("-k", 11, "--strands", strands, "--save", case / "grown.idx")
    if way == "seed":
        # with --seed there is no dictionary: the records come in beside what was saved
        rows("new.fa", *saved, *grow)
        sources = ["b.fa", "grown.idx"]
    else:
        rows("new.fa", *saved, *grow, sources=["b.fa"])
        sources = ["grown.idx"]
    write_fasta(
        case / "reads.fa",
        [
            (name, letters if i % 2 else oracle.reverse_complement(letters))
            for i, (name, letters) in enumerate(
                [(head, text[:-4] + "ACGT") for head, text in read_records(case / "new.fa")]
                + read_records(case / "reads.fa")
            )
        ],
    )
    want = reports_of(rows, 11, strands, ["b.fa", "new.fa"])
    found = reports_of(rows, 11, strands, sources)
    for report in found:
        if report in ("windows", "all", "best"):
            assert without("n", found[report]) == without("n", want[report])
            assert without("n", found[report])[1:] == [
                tuple(line.split("\t")) for line in found[report].splitlines()[1:]
            ]
        if report == "ltb":
            assert found[report] == want[report]


def read_records(path):
    lines = path.read_text().splitlines()
    return [(head[1:], letters) for head, letters in zip(lines[::2], lines[1::2], strict=True)]


@pytest.mark.parametrize("strands", ["forward", "both"])
def test_a_daemon_that_starts_from_it(strands, case, rows):
    """The feed names the same targets, exactly and within a distance."""
    rows("none.fa", "-k", 11, "--strands", strands, "--save", case / "a.idx", sources=["a.fa"])
    reads = read_records(case / "reads.fa")
    fed = []
    for name in ("a.fa", "a.idx"):
        config = settings(case, f'sources = ["{name}"]\nk = 11\nstrands = "{strands}"\n')
        chosen = ["matching.distance=1", "matching.device=cpu"]
        messages = feed_of(config, chosen, reads, ["match", "near"])
        found = [table(m).records() for m in messages if isinstance(m, Intervals | Near)]
        targets = {str(row["target"]) for part in found for row in part}
        assert len(targets) > 3
        fed.append(found)
    assert fed[0] == fed[1]

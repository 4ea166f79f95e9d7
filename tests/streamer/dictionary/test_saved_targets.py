"""A saved dictionary is the dictionary: with it every report has the rows that the FASTA gives."""

from __future__ import annotations

import random
import shutil

import numpy as np
import pytest

from streamer.client import Intervals, Near
from streamer.client.message_tables import table
from tests.daemon_kit import feed_of, settings
from tests.data_files import write_fasta
from tests.reference import exact as oracle
from trie.snapshots import tree_bitmap

pytestmark = pytest.mark.whole

REPORTS = ("windows", "intervals", "reads")
SEED = 13


def random_dna(rng, size):
    return "".join(rng.choices("ACGT", k=size))


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
    rows("reads.fa", *options, case / "exact.npz", sources=["all.fa"])
    assert reports_of(rows, k, strands, ["exact.npz"]) == want
    # saved again, and by a run with a distance
    rows("none.fa", *options, case / "again.npz", sources=["exact.npz"])
    assert reports_of(rows, k, strands, ["again.npz"]) == want
    if strands != "canonical":
        rows("none.fa", "--distance", 1, *options, case / "near.npz", sources=["all.fa"])
        assert reports_of(rows, k, strands, ["near.npz"]) == want


@pytest.mark.parametrize("strands", ["canonical", "both"])
def test_several_files(strands, case, rows):
    for name in "ab":
        save = ("--strands", strands, "--save", case / f"{name}.npz")
        rows("none.fa", "-k", 11, *save, sources=[f"{name}.fa"])
    for order, mixes in (("ab", [("npz", "fa")]), ("ba", [("fa", "npz"), ("npz", "npz")])):
        want = reports_of(rows, 11, strands, [f"{name}.fa" for name in order])
        for kinds in mixes:
            sources = [f"{name}.{kind}" for name, kind in zip(order, kinds, strict=True)]
            assert reports_of(rows, 11, strands, sources) == want


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
    saved = ("-k", 11, "--strands", strands, "--save", case / "grown.npz")
    if way == "seed":
        # with --seed there is no dictionary: the records come in beside what was saved
        rows("new.fa", *saved, *grow)
        sources = ["b.fa", "grown.npz"]
    else:
        rows("new.fa", *saved, *grow, sources=["b.fa"])
        sources = ["grown.npz"]
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


def test_more_sets_than_a_byte_numbers(case, rows, streamer):
    """254, 255 and 256 sets of targets: the numbers with a meaning of their own stay apart."""
    rng = random.Random(SEED)
    for count in (254, 255, 300):
        write_fasta(case / "many.fa", [(f"m{i}", random_dna(rng, 14)) for i in range(count)])
        for strands in ("forward", "both"):
            save = ("-k", 13, "--strands", strands, "--save", case / "many.npz")
            rows("new.fa", "--mode", "grow", *save, sources=["many.fa"])
            run = ("-k", 13, "--strands", strands, "--report", "windows")
            assert rows("many.fa", *run, sources=["many.npz"]) == rows(
                "many.fa", *run, sources=["many.fa"]
            )


def test_a_file_of_the_first_format_is_read_without_targets(case, rows, streamer):
    rows("none.fa", "-k", 11, "--mode", "grow", "--save", case / "new.npz", sources=["a.fa"])
    old = case / "old.npz"
    tree_bitmap.save(tree_bitmap.load(case / "new.npz").tree, old, strands="canonical")
    code, out, err = streamer("match", case / "a.fa", "-k", 11, "-d", old, "--device", "cpu")
    assert code == 0
    events = {tuple(line.split("\t")[i] for i in (3, 5)) for line in out.splitlines()[1:]}
    assert events == {("match", ".")}
    (line,) = (line for line in err.splitlines() if "old.npz" in line)
    assert "saved by an earlier version, without targets" in line


def test_damage_is_one_line(case, rows, streamer):
    saved = case / "saved.npz"
    rows("none.fa", "-k", 11, "--mode", "grow", "--save", saved, sources=["a.fa"])
    whole = saved.read_bytes()
    rng = random.Random(SEED)
    # the end holds the labels, the archive's directory and the digest
    cuts = [*range(6), *rng.sample(range(len(whole)), 5), len(whole) - 1]
    flips = [*range(4), *rng.sample(range(len(whole)), 6), len(whole) - 70, len(whole) - 1]
    damaged = [whole[:cut] for cut in cuts]
    damaged += [whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :] for at in flips]
    for data in damaged:
        saved.write_bytes(data)
        code, out, err = streamer("match", case / "reads.fa", "-k", 11, "-d", saved, "-q")
        assert (code, out) == (1, "")
        assert len(err.splitlines()) == 1
        assert str(saved) in err


@pytest.mark.parametrize("change", ["set_members", "sets", "names", "set_starts"])
def test_labels_that_do_not_fit(change, case, rows, streamer):
    saved = case / "saved.npz"
    rows("none.fa", "-k", 11, "--mode", "grow", "--save", saved, sources=["a.fa"])
    whole = tree_bitmap.load(saved)
    labels = dict(whole.labels)
    labels[change] = {
        "set_members": labels["set_members"] + np.int32(1000),
        "sets": labels["sets"][:-1],
        "names": labels["names"][:2],
        "set_starts": labels["set_starts"][::-1].copy(),
    }[change]
    tree_bitmap.save(whole.tree, saved, strands=whole.strands, labels=labels)
    code, out, err = streamer("match", case / "reads.fa", "-k", 11, "-d", saved, "-q")
    assert (code, out) == (1, "")
    assert "damaged snapshot (its targets do not fit its k-mers)" in err


def test_another_k_or_strands_beside_records(case, rows, streamer):
    rows("none.fa", "-k", 11, "--save", case / "saved.npz", sources=["a.fa"])
    shutil.copy(case / "saved.npz", case / "copy.npz")
    for options in (["-k", 12], ["-k", 11, "--strands", "both"]):
        for sources in (["a.fa", "saved.npz"], ["copy.npz", "a.fa"]):
            given = [part for name in sources for part in ("-d", case / name)]
            code, out, err = streamer("match", case / "reads.fa", *options, *given, "-q")
            assert (code, out, len(err.splitlines())) == (1, "", 1)
            assert "was saved with -k 11 --strands canonical, not with" in err


@pytest.mark.parametrize("strands", ["forward", "both"])
def test_a_daemon_that_starts_from_it(strands, case, rows):
    """The feed names the same targets, exactly and within a distance."""
    rows("none.fa", "-k", 11, "--strands", strands, "--save", case / "a.npz", sources=["a.fa"])
    reads = read_records(case / "reads.fa")
    fed = []
    for name in ("a.fa", "a.npz"):
        config = settings(case, f'sources = ["{name}"]\nk = 11\nstrands = "{strands}"\n')
        chosen = ["matching.distance=1", "matching.device=cpu"]
        messages = feed_of(config, chosen, reads, ["match", "near"])
        found = [table(m).records() for m in messages if isinstance(m, Intervals | Near)]
        targets = {str(row["target"]) for part in found for row in part}
        assert len(targets) > 3
        fed.append(found)
    assert fed[0] == fed[1]

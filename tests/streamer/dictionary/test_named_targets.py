"""Targets by name: tables, files, folders and patterns, for commands, Python and daemons."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest

from streamer.cli.app import main
from streamer.client import Control, Producer
from streamer.dictionary.targets import Dictionary
from streamer.errors import StreamerError
from tests.daemon_kit import reads_of, running
from tests.data_files import write_fasta
from tests.reference.targets import targets_report
from tests.reload_kit import GENOME, K, configured, settle
from tests.waiting import DEADLINE

pytestmark = pytest.mark.whole

TABLE = "source\ttarget\tgroup\nrefs/b.fa.gz\tB\tG\ns1\tA\tG\ns2\tA\tG\n"


def pieces(rng):
    """Records by file, which share k-mers; a name is there twice."""
    starts = [rng.randrange(2_000) for _ in range(6)]
    cut = [GENOME[at : at + rng.randrange(300, 900)] for at in starts]
    names = ["s1", "other", "s2", "x", "other", "last"]
    records = list(zip(names, cut, strict=True))
    return {"a.fa": records[:3], "b.fa.gz": records[3:5], "c.fasta": records[5:]}


@pytest.fixture
def files(tmp_path):
    """A folder with references and other files, and their records."""
    folder = tmp_path / "refs"
    folder.mkdir()
    made = pieces(random.Random(7))
    for name, records in made.items():
        write_fasta(folder / name, records)
    (folder / "README.txt").write_text("x")
    (folder / "more").mkdir()
    (folder / ".hidden.fa").write_text("x")
    (tmp_path / "names.tsv").write_text(TABLE)
    return folder, made


def joined(made):
    """The records of each target of TABLE, in the order of their first ones, and of each group."""
    targets: dict[object, list[str]] = {}
    shown = {}
    for file, records in made.items():
        for at, (name, letters) in enumerate(records):
            target = "A" if name in ("s1", "s2") else "B" if file == "b.fa.gz" else (file, at)
            shown[target] = target if isinstance(target, str) else name
            targets.setdefault(target, []).append(letters)
    named = [(shown[target], "N".join(parts)) for target, parts in targets.items()]
    grouped: dict[str, list[str]] = {}
    for name, letters in named:
        grouped.setdefault("G" if name in "AB" else name, []).append(letters)
    return named, [(name, "N".join(parts)) for name, parts in grouped.items()]


def rows(text):
    return [line.split("\t") for line in text.splitlines()[1:]]


@pytest.mark.parametrize("strands", ["forward", "canonical", "both"])
@pytest.mark.parametrize("given", ["files", "folder", "pattern", "index", "mixed"])
def test_reports_are_by_named_targets_and_groups(given, strands, files, tmp_path, capsys):
    folder, made = files
    reads = reads_of(GENOME, random.Random(3), 40, "r")
    path = write_fasta(tmp_path / "reads.fa", reads)
    table = tmp_path / "names.tsv"
    paths = [str(folder / name) for name in made]
    sources = {"files": paths, "folder": [folder], "pattern": [folder / "[a-c].*"]}.get(given)
    if sources is None:
        whole = given == "index"
        saved = str(tmp_path / "r.idx")
        inside = paths if whole else paths[:1]
        options = ["-k", str(K), "--strands", strands, "-o", saved]
        assert main(["index", *inside, *options]) == 0
        sources = [saved] if whole else [saved, *paths[1:]]
        if whole:
            # of an index the records and the file itself can be named
            table.write_text(TABLE.replace("refs/b.fa.gz\tB\tG\n", ""))
            made = {"r": [record for records in made.values() for record in records]}
    options = [part for source in sources for part in ("-d", str(source))]
    options += ["-k", str(K), "--strands", strands, "--targets", str(table), "--device", "cpu"]
    named, groups = joined(made)
    for by, records in ((), named), (("--by", "group"), groups):
        capsys.readouterr()
        assert main(["match", path, *options, "--report", "targets", *by]) == 0
        out, err = capsys.readouterr()
        expected = targets_report(reads, K, records=records, strands=strands)
        assert rows(out) == [[str(cell) for cell in row] for row in expected]
        told = f"{folder}: 2 of its files and folders are not read, being no sequences by name: "
        told += "README.txt, more"
        assert (told in err) == (given == "folder")
    summary = tmp_path / "summary.json"
    kept = ["filter", path, *options, "--keep", "-o", str(tmp_path / "kept.fa")]
    assert main([*kept, "--summary", str(summary)]) == 0
    counted = json.loads(summary.read_text())["targets"]
    expected = targets_report(reads, K, records=named, strands=strands)
    found = {row["target"] or ".": row["reads_in"] for row in counted if row["reads_in"]}
    assert found == {row[0]: row[1] for row in expected if row[1]}


def test_a_file_is_a_target(files, tmp_path, capsys):
    folder, made = files
    by_name = {str(folder / name): records for name, records in made.items()}
    whole = Dictionary.from_files(folder, K, target_by="file")
    assert [*whole.targets.names] == [*by_name]
    for name in by_name:
        alone = Dictionary.from_files(name, K)
        assert whole.index.shares.kmers[[*by_name].index(name)] == alone.kmers
    table = tmp_path / "names.tsv"
    some = Dictionary.from_files([folder], K, targets=table, target_by="file")
    files_left = [str(folder / name) for name in ("a.fa", "c.fasta")]
    assert [*some.targets.names] == ["A", files_left[0], "B", files_left[1]]
    # a daemon calls its sources by their whole paths; a pattern and a folder add no file again
    again = Dictionary.from_files([files_left[0], folder / "*.fa*", folder], K)
    assert len(again.targets.names) == sum(map(len, made.values()))


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ("source\ttarget\nnone\tA\n", "no record or file has the name of a source: none"),
        ("source\ttarget\nx.fa\tA\n", "x.fa is the end of .*/p/x.fa and .*/q/x.fa: give more"),
        ("target\tsource\n", "line 1: the columns are source, target"),
        ("source\ttarget\na\tA\textra\n", "line 2: needs 2 cells"),
        ("source\ttarget\na\tA\na\tB\n", "line 3: a has two targets"),
        ("source\ttarget\tgroup\na\tA\tG\n\nb\tA\tH\n", "line 4: A has two groups"),
        ("source\ttarget\n", "names no target"),
        (b"source\ttarget\n\xff\tA\n", "is not UTF-8 text"),
    ],
)
def test_faults_of_a_table(table, problem, tmp_path):
    for name in "pq":
        (tmp_path / name).mkdir()
        write_fasta(tmp_path / name / "x.fa", [("a", GENOME[:50]), ("b", GENOME[50:90])])
    path = tmp_path / "t.tsv"
    path.write_bytes(table if isinstance(table, bytes) else table.encode())
    with pytest.raises(StreamerError, match=f"^{re.escape(str(path))}: {problem}"):
        Dictionary.from_files(str(tmp_path / "?" / "x.fa"), K, targets=path)


def test_what_stands_for_no_file_is_refused(tmp_path, streamer):
    reads = write_fasta(tmp_path / "r.fa", [("r", GENOME[:50])])
    (tmp_path / "empty").mkdir()
    for given, why in (("empty", "has no FASTA"), ("*.fna", "no such file")):
        code, _, err = streamer("match", reads, "-d", tmp_path / given, "-k", K)
        assert (code, err) == (1, err)
        assert f"{tmp_path / given}: {why}" in err
    # a name that looks like a pattern
    odd = write_fasta(tmp_path / "a[1].fa", [("t", GENOME[:90])])
    assert streamer("match", reads, "-d", odd, "-k", K)[0] == 0
    assert streamer("match", reads, "--seed", 9, "-k", K, "--target-by", "file")[0] == 2


def test_records_that_repeat_are_told_with_the_remedy(tmp_path, streamer):
    records = [("flu/Hong Kong/1", GENOME[:90]), ("flu/Hong Kong/2", GENOME[90:190])]
    path = write_fasta(tmp_path / "r.fa", records)
    run = ("match", path, "-d", path, "-k", K, "--report", "targets")
    told = "1 target names repeat, so rows do not tell their records apart: flu/Hong; "
    err = streamer(*run)[2]
    assert err.count(told) == 1
    assert "--target-by" in err
    assert "names repeat" not in streamer(*run, "--target-by", "file")[2]


def test_a_daemon_takes_its_table_again_and_a_report_counts_by_it(files, tmp_path):
    _, made = files
    config = configured(tmp_path, 'targets = "names.tsv"')
    text = Path(config).read_text().replace('"ref.fa"', '"refs"')
    Path(config).write_text(text + "[answers]\ntargets = true\n")
    reads = reads_of(GENOME, random.Random(4), 30, "r")

    def found(control):
        _, counted = control.targets()
        return [(row[0] or ".", row[1], row[4]) for row in counted]

    def expected(records):
        shown = targets_report(reads, K, records=records)
        return [(row[0], row[1], row[4] if row[0] != "." else None) for row in shown]

    with running(config) as daemon, Control(daemon.endpoints["control"]) as control:
        with Producer(daemon.endpoints["ingest"]) as producer:
            producer.send(reads)
            producer.flush(matched=True, timeout=DEADLINE)
        assert found(control) == expected(joined(made)[0])
        (tmp_path / "names.tsv").write_text(TABLE.replace("\tA\t", "\tnew\t"))
        control.reload()
        settle(control)
        renamed = [("new" if name == "A" else name, text) for name, text in joined(made)[0]]
        assert found(control) == expected(renamed)
    page = tmp_path / "page.html"
    assert main(["report", str(tmp_path / "journal"), "-o", str(page), "--quiet"]) == 0
    assert ">new<" in page.read_text()

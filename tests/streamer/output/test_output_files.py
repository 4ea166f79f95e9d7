"""Files that commands write: whole or not there, compressed by their names, the old one kept."""

from __future__ import annotations

import bz2
import ctypes
import gzip
import json
import lzma
import os
import random
import re
import resource
import shlex
import signal
import stat
import subprocess
import sys
from contextlib import contextmanager

import numpy as np
import pytest

from streamer import __version__
from streamer.client import Producer
from streamer.errors import StreamerError
from streamer.output import output_file
from streamer.output.output_file import END_BLOCK, OutputFile, OutputFiles
from streamer.sequences.bgzf import whole_blocks
from tests.daemon_kit import random_dna, reads_of, running
from tests.data_files import write_fasta
from tests.forked import Forked
from tests.waiting import DEADLINE, unread, until

pytestmark = pytest.mark.whole

PROGRAM = [sys.executable, "-m", "streamer"]
OLD = b"the result of last week\n"
GENOME = random_dna(random.Random(3), 3_000)
OTHER = "".join("ACGT"[("ACGT".index(c) + (i % 40 == 0)) % 4] for i, c in enumerate(GENOME))

KNOWN = [(f"p{i}", GENOME[i : i + 20]) for i in range(50)]

ROWS = {
    "match": "match {reads} -d {genome} -k 11 --report windows",
    "grow": "match {reads} --seed 0 -k 11",
    "near": "match {reads} -d {genome} -k 11 -D 1",
    "asm": "asm {reads} --pattern ACGTAC -k 2",
    "hamming": "hamming {reads} --pattern ACGTAC -k 3",
}
FILES = {
    "primer --bed": ("primer {genome} {other} -k 2", "--bed"),
    "primer --fasta": ("primer {genome} {other} -k 2", "--fasta"),
    "primer --known-table": ("primer {genome} {other} -k 2 --known {known}", "--known-table"),
    "primer -o": ("primer {genome} {other} -k 2", "-o"),
    "lcs --sequence": ("lcs {genome} {other}", "--sequence"),
    "lcs --blocks": ("lcs {genome} {other}", "--blocks"),
} | {f"{name} -o": (line, "-o") for name, line in ROWS.items()}
OTHERS = {
    "filter -o": ("filter {reads} -d {genome} -k 11 --keep", "-o"),
    "match --save": (ROWS["grow"], "--save"),
    "primer --plot": ("primer {genome} {other} -k 2", "--plot"),
    "lcs --plot": ("lcs {genome} {other}", "--plot"),
}


def plain_zstd(data):
    return subprocess.run(["zstd", "-dc"], input=data, capture_output=True, check=True).stdout


OTHER_SIGNALS = [
    pytest.param(number, marks=pytest.mark.slow) for number in (signal.SIGINT, signal.SIGHUP)
]
PLAIN = {".gz": gzip.decompress, ".bz2": bz2.decompress, ".xz": lzma.decompress, ".zst": plain_zstd}


@pytest.fixture
def line(tmp_path):
    """Words of a command line over these files; ``reads`` may be another one."""
    folder = tmp_path / "inputs"
    folder.mkdir()
    places = {
        "genome": write_fasta(folder / "genome.fa", [("g", GENOME)]),
        "other": write_fasta(folder / "other.fa", [("o", OTHER)]),
        "known": write_fasta(folder / "known.fa", KNOWN),
        "reads": write_fasta(folder / "reads.fa", reads_of(GENOME, random.Random(1), 60)),
    }

    def words(text, **others):
        return [*text.format(**places | others).split(), "-q", "--device", "cpu"]

    return words


@pytest.fixture
def folder(tmp_path):
    """Where outputs go: nothing else lies there."""
    folder = tmp_path / "outputs"
    folder.mkdir()
    return folder


def until_some(find):
    until(find, "there is one")
    return find()


@contextmanager
def small_disk(size):
    """No file of this process grows beyond so many bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("command", ROWS)
def test_a_data_error_leaves_the_old_result(command, line, folder, streamer):
    bad = write_fasta(folder.parent / "bad.fa", [("r", GENOME[:200]), ("s", "ACGTACG!")])
    words = line(ROWS[command], reads=bad)
    code, out, _ = streamer(*words)
    assert code == 1
    assert out.startswith("#"), "rows before the fault go to standard output"
    for name in ("old.tsv", "old.tsv.gz"):
        old = folder / name
        old.write_bytes(OLD)
        code, out, err = streamer(*words, "-o", old)
        assert (code, out) == (1, "")
        assert "bad.fa: record 2 (s), position 8" in err
        assert old.read_bytes() == OLD
        old.unlink()
        assert streamer(*words, "-o", old)[0] == 1
        assert list(folder.iterdir()) == [], "no result, and nothing beside it"


@pytest.mark.parametrize("output", FILES)
def test_names_choose_the_compression(output, line, folder, streamer):
    text, option = FILES[output]
    for format_ in ("tsv", "jsonl") if option == "-o" else ("tsv",):
        words = [*line(text), "--format", format_]
        plain = folder / "plain"
        assert streamer(*words, option, plain)[0] == 0
        assert len(plain.read_bytes()) > 30
        for suffix, decompressed in PLAIN.items():
            packed = folder / f"rows{suffix}"
            packed.write_bytes(OLD)
            assert streamer(*words, option, packed)[0] == 0
            assert decompressed(packed.read_bytes()) == plain.read_bytes()
    names = {path.name for path in folder.iterdir()}
    assert names == {"plain", *(f"rows{suffix}" for suffix in PLAIN)}


def test_a_saved_dictionary_is_not_compressed(line, folder, streamer):
    saved = folder / "known.npz.gz"
    code, _, err = streamer(*line(ROWS["grow"]), "--save", saved)
    assert code == 2
    assert f"--save {saved}: a dictionary is not compressed" in err
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("output", FILES | OTHERS)
def test_a_full_disk_is_one_line_with_the_name(output, line, folder, streamer):
    text, option = (FILES | OTHERS)[output]
    names = {"--plot": "old.svg", "filter -o": "old.fq"}
    old = folder / names.get(output, names.get(option, "old.tsv"))
    words = [*line(text), *(() if option == "-o" else ("-o", "/dev/null")), option, old]
    # compiled, and how much there is to write
    assert streamer(*words)[0] == 0
    limit = old.stat().st_size // 2
    old.write_bytes(OLD)
    with small_disk(limit):
        code, _, err = streamer(*words)
    assert (code, len(err.splitlines())) == (1, 1), err
    assert str(old) in err
    assert "File too large" in err
    assert old.read_bytes() == OLD
    assert list(folder.iterdir()) == [old]


@pytest.mark.parametrize("full", [0, 1, 2])
def test_several_files_are_replaced_together_or_not_at_all(full, folder):
    """A small content is in a buffer until the file is finished."""
    paths = [folder / name for name in ("a", "b.gz", "c.zst")]
    for path in paths:
        path.write_bytes(OLD)

    def write(sizes):
        with OutputFiles() as outputs:
            for path, size in zip(paths, sizes, strict=True):
                outputs.open(str(path)).write(random.Random(1).randbytes(size))

    sizes = [10, 10, 10]
    sizes[full] = 1_000
    with small_disk(500), pytest.raises(StreamerError, match=f"{paths[full]}: cannot write"):
        write(sizes)
    assert sorted(folder.iterdir()) == paths
    assert {path.read_bytes() for path in paths} == {OLD}
    write(sizes)
    assert sorted(folder.iterdir()) == paths
    assert OLD not in {path.read_bytes() for path in paths}


def test_a_rename_that_fails_does_not_hold_back_the_others(folder):
    paths = [folder / name for name in ("a", "b", "c")]
    outputs = OutputFiles()
    for path in paths:
        outputs.open(str(path)).write(b"new")
    paths[1].mkdir()
    with pytest.raises(StreamerError, match=r"/b: .*what was written is in"):
        outputs.commit()
    assert [path.read_bytes() for path in (paths[0], paths[2])] == [b"new", b"new"]
    (kept,) = folder.glob(".b.*.part")
    assert kept.read_bytes() == b"new"


def test_rows_stay_if_the_dictionary_cannot_be_saved(line, folder, streamer):
    rows, saved = folder / "rows.tsv", folder / "saved.npz"
    words = [*line("match {reads} --seed 0 -k 11 --report reads"), "-o", rows, "--save", saved]
    assert streamer(*words)[0] == 0
    expected = rows.read_bytes()
    assert saved.stat().st_size > 2 * len(expected)
    saved.unlink()
    rows.unlink()
    with small_disk(len(expected)):
        code, _, err = streamer(*words)
    assert code == 1
    assert str(saved) in err
    assert rows.read_bytes() == expected
    assert list(folder.iterdir()) == [rows]


@pytest.mark.parametrize("output", FILES | OTHERS)
def test_where_nothing_can_be_written_is_known_before_the_work(output, line, folder, streamer):
    text, option = (FILES | OTHERS)[output]
    bad = write_fasta(folder.parent / "bad.fa", [("s", "ACGTACG!")])
    words = line(text, reads=bad, genome=bad)
    suffix = {"--plot": ".svg", "filter -o": ".fq"}.get(
        option if option != "-o" else output, ".tsv"
    )
    # nobody may create a file in /sys
    for place in (folder / "none" / f"x{suffix}", f"/sys/x{suffix}", f"{folder}/x{suffix}/"):
        code, out, err = streamer(*words, option, place)
        assert (code, out) == (1, ""), (place, err)
        assert err.startswith(f"streamer: error: {place}: cannot write: "), err
    assert list(folder.iterdir()) == []


def obey_permissions():
    """Take from root, for what this process becomes, the right to pass over them (prctl(2))."""
    libc = ctypes.CDLL(None)
    for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
        libc.prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP


def test_a_file_or_folder_that_may_not_be_written(line, folder):
    words = line(ROWS["match"])
    old = folder / "old.tsv"
    old.write_bytes(OLD)
    for closed, mode in ((old, 0o444), (folder, 0o555)):
        closed.chmod(mode)
        done = subprocess.run(
            [*PROGRAM, *map(str, words), "-o", old],
            capture_output=True, text=True, timeout=DEADLINE, check=False,
            preexec_fn=obey_permissions,
        )  # fmt: skip
        closed.chmod(0o755)
        assert done.returncode == 1
        assert f"{old}: cannot write: Permission denied" in done.stderr
        assert old.read_bytes() == OLD


def test_permissions_and_links_stay(line, folder, streamer):
    words = line(ROWS["asm"])
    _, rows, _ = streamer(*words)
    before = os.umask(0o027)
    try:
        new, old, link = folder / "new.tsv", folder / "old.tsv", folder / "link.tsv"
        old.write_bytes(OLD)
        old.chmod(0o604)
        assert streamer(*words, "-o", new)[0] == 0
        link.symlink_to(old.name)
        assert streamer(*words, "-o", link)[0] == 0
        assert [stat.S_IMODE(path.stat().st_mode) for path in (new, old)] == [0o640, 0o604]
        assert link.is_symlink()
        assert old.read_text() == rows
        # a link to a file that is yet to come
        old.unlink()
        assert streamer(*words, "-o", link)[0] == 0
        assert link.is_symlink()
        assert old.read_text() == rows
    finally:
        os.umask(before)
    assert sorted(path.name for path in folder.iterdir()) == ["link.tsv", "new.tsv", "old.tsv"]


def test_what_is_no_regular_file_is_written_directly(line, folder, streamer):
    words = line(ROWS["hamming"])
    _, rows, _ = streamer(*words)
    assert streamer(*words, "-o", "/dev/null") == (0, "", "")
    code, _, err = streamer(*words, "-o", "/dev/full")
    assert code == 1
    assert "/dev/full: cannot write rows: No space left on device" in err
    for name, decompressed in (("pipe", bytes), ("pipe.gz", gzip.decompress)):
        pipe = folder / name
        os.mkfifo(pipe)
        with subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE) as reader:
            assert streamer(*words, "-o", pipe) == (0, "", "")
            assert decompressed(reader.stdout.read()).decode() == rows
        assert pipe.is_fifo()


@pytest.mark.parametrize(
    ("shell", "before"),
    [
        ('"$@" -o /dev/stdout > out', ""),
        ('"$@" -o /dev/fd/3 3>> out', "before\n"),
        ('"$@" -o >(cat > out) && until cmp -s out expected; do sleep 0.01; done', ""),
    ],
)
def test_open_descriptors_are_written_where_they_stand(shell, before, line, folder, streamer):
    words = line(ROWS["hamming"])
    _, rows, _ = streamer(*words)
    (folder / "expected").write_text(before + rows)
    (folder / "out").write_text("before\n")
    subprocess.run(
        ["bash", "-c", shell, "bash", *PROGRAM, *words],
        cwd=folder, check=True, timeout=DEADLINE, env=os.environ | {"PYTHONPATH": os.getcwd()},
    )  # fmt: skip
    assert (folder / "out").read_text() == before + rows


@pytest.mark.parametrize("number", [signal.SIGTERM, *OTHER_SIGNALS])
def test_signals_leave_the_old_result_and_nothing_else(number, line, folder):
    """Standard input stays open: more reads may come."""
    old = folder / "old.tsv.gz"
    old.write_bytes(OLD)
    words = line("match - --seed 0 -k 5 --report reads")
    process = Forked(
        [*PROGRAM, *words, "-o", str(old)], stdin=subprocess.PIPE, stderr=subprocess.PIPE
    )
    with process:
        process.stdin.write(b">r\nACGTTGC\n")
        process.stdin.flush()
        until(lambda: not unread(process.stdin), "it reads, and so has opened the file")
        assert len(list(folder.iterdir())) == 2
        process.send_signal(number)
        code = process.wait(DEADLINE)
        assert code == (130 if number == signal.SIGINT else -number)
        said = b"streamer: error: interrupted\n" if number == signal.SIGINT else b""
        assert process.stderr.read() == said
    assert old.read_bytes() == OLD
    assert list(folder.iterdir()) == [old]


@pytest.mark.parametrize(
    ("number", "name"),
    [
        (signal.SIGINT, "rows.tsv.gz"),
        pytest.param(signal.SIGTERM, "rows.tsv", marks=pytest.mark.slow),
    ],
)
def test_what_was_watched_is_kept(number, name, path, line, folder, tmp_path):
    """The feed cannot be asked again: rows up to an interrupt are the result."""
    rows = folder / name
    rows.write_bytes(OLD)
    words = ["watch", "--config", path, "--topic", "read", "-o", str(rows)]
    with running(path, ["feed.beat_seconds=0.05"]) as daemon:
        process = Forked([*PROGRAM, *words], stderr=subprocess.PIPE)
        with process:
            daemon.wait_for_subscriptions("read", "beat")
            (hidden,) = until_some(lambda: list(folder.glob(f".{name}.*.part")))
            if name == "rows.tsv":
                with Producer(daemon.endpoints["ingest"]) as producer:
                    producer.send([("first", GENOME[:100])])
                    producer.flush()
                until(lambda: b"\tfirst\t" in hidden.read_bytes(), "the row is there already")
            process.send_signal(number)
            assert process.wait(DEADLINE) == (130 if number == signal.SIGINT else -number)
    text = rows.read_bytes()
    text = (gzip.decompress(text) if name.endswith(".gz") else text).decode()
    assert text.startswith("#topic\t")
    assert name != "rows.tsv" or len(text.splitlines()) == 2
    assert list(folder.iterdir()) == [rows]


TABLES = ROWS | {
    "targets": "match {reads} -d {genome} -k 11 --report targets",
    "coverage": "match {reads} -d {genome} -k 11 --report coverage",
    "reads": "match {reads} -d {genome} -k 11 --report reads",
    "best": "match {reads} -d {genome} -k 11 -D 1 --report best",
    "ltb": "match {reads} -d {genome} -k 11 -D 1 --semantics ltb",
    "novelty": "match {reads} --seed 0 -k 11 --report novelty",
    "cigars": "asm {reads} --pattern ACGTAC -k 2 --report best",
    "primer": "primer {genome} {other} -k 2",
    "lcs": "lcs {genome} {other} --identity",
}


@pytest.mark.parametrize("name", TABLES)
def test_the_suffix_names_the_format(name, line, folder, streamer, monkeypatch):
    """The same rows in each, with the types of JSON."""
    import pyarrow as pa
    from pyarrow.parquet import read_table

    from streamer.output import arrow_rows

    # several batches
    monkeypatch.setattr(arrow_rows, "ROWS_A_BATCH", 50)
    words = line(TABLES[name])
    code, out, _ = streamer(*words, "--format", "jsonl")
    rows = [json.loads(row) for row in out.splitlines()]
    assert (code, rows == []) == (0, False)
    for suffix in ("jsonl", "arrow", "parquet", "ndjson.gz"):
        assert streamer(*words, "-o", folder / f"rows.{suffix}")[0] == 0
    assert (folder / "rows.jsonl").read_text() == out
    assert gzip.decompress((folder / "rows.ndjson.gz").read_bytes()).decode() == out
    with pa.OSFile(str(folder / "rows.arrow")) as file:
        assert pa.ipc.open_file(file).read_all().to_pylist() == rows
    assert read_table(folder / "rows.parquet").to_pylist() == rows


SOURCES = {"near": "genome reads", "grow": "reads", "primer": "genome other", "lcs": "genome other"}


@pytest.mark.parametrize("name", ["near", "grow", "asm", "hamming", "primer", "lcs"])
def test_rows_name_what_made_them(name, line, folder, streamer):
    import pyarrow as pa
    from pyarrow.parquet import read_schema

    words = line(TABLES[name])
    plain = streamer(*words)[1]
    sources = [line(f"{{{one}}}")[0] for one in SOURCES.get(name, "reads").split()]
    facts = {"command": words[0], "version": __version__}
    facts |= {"k": words[words.index("-k") + 1]} if "-k" in words else {}
    facts["sources"] = " ".join(sources)
    lines = "".join(f"## {key}: {text}\n" for key, text in facts.items())
    code, out, _ = streamer(*words, "--comments")
    assert (code, out.startswith(lines), out.endswith(plain)) == (0, True, True)
    said = f"\n## command line: streamer {shlex.join([*map(str, words), '--comments'])}\n## date: "
    assert re.search(re.escape(said) + r"\d{4}-\d\d-\d\d \d\d:\d\d UTC\n", out)
    assert streamer(*words, "--header", "plain")[:2] == (0, plain.removeprefix("#"))
    for suffix in ("arrow", "parquet"):
        assert streamer(*words, "-o", folder / f"rows.{suffix}")[0] == 0
    with pa.OSFile(str(folder / "rows.arrow")) as file:
        for schema in (pa.ipc.open_file(file).schema, read_schema(folder / "rows.parquet")):
            assert {key.decode(): text.decode() for key, text in schema.metadata.items()} == facts
    # the next command in this process writes what it is asked for
    assert streamer(*words)[1] == plain


@pytest.mark.parametrize("threads", [1, 3])
def test_arrow_of_several_threads(line, folder, threads, streamer):
    from pyarrow.parquet import read_table

    words = line(f"match {'{reads} ' * 9} -d {{genome}} -k 11 --threads {threads}")
    streamer(*words, "-o", folder / "rows.parquet")
    rows = [json.loads(row) for row in streamer(*words, "--format", "jsonl")[1].splitlines()]
    assert read_table(folder / "rows.parquet").to_pylist() == rows


@pytest.mark.parametrize("name", [*ROWS, "primer", "lcs"])
@pytest.mark.parametrize("suffix", [".csv", ".xlsx.gz"])
def test_an_unknown_suffix_is_refused(name, suffix, line, folder, streamer):
    words = line(TABLES[name])
    path = folder / f"rows{suffix}"
    code, out, err = streamer(*words, "-o", path)
    assert (code, out, path.exists()) == (2, "", False)
    assert err.startswith(
        f"streamer: error: {path}: {suffix.removesuffix('.gz')} is none of .tsv, "
    )
    assert err.count("\n") == 1
    assert streamer(*words, "-o", path, "--format", "tsv")[0] == 0
    assert path.exists()


@pytest.mark.parametrize("name", ["rows.TSV", ".rows", "rows.gz", "a.b/rows", "/dev/stdout"])
def test_no_suffix_is_tsv(name, line, folder, streamer):
    (folder / "a.b").mkdir()
    words = line(TABLES["targets"])
    code, out, err = streamer(*words, "-o", folder / name)
    assert code == 0, err
    packed = name.endswith(".gz")
    text = out or (gzip.decompress if packed else bytes)((folder / name).read_bytes()).decode()
    assert text.startswith("#target\t")


def test_arrow_without_pyarrow_is_one_line(line, folder, streamer, monkeypatch):
    monkeypatch.setattr(output_file, "find_spec", lambda name: None)
    words = line(TABLES["targets"])
    code, _, err = streamer(*words, "-o", folder / "rows.parquet")
    said = "Arrow and Parquet need pyarrow: pip install '.[arrow]' in a clone"
    assert (code, err) == (2, f"streamer: error: {said}\n")


@pytest.mark.parametrize("suffix", [".parquet", ".fq.lz4", ".tsv.gz"])
def test_filter_refuses_the_names_of_other_formats(suffix, line, folder, streamer):
    path = folder / f"kept{suffix}"
    words = [*line("filter {reads} -d {genome} -k 11 --keep"), "-o", path]
    code, _, err = streamer(*words)
    assert (code, path.exists(), err.count("\n")) == (2, False, 1)
    assert f"{path}: FASTQ, FASTA, SAM, BAM and CRAM are written, not ." in err


@pytest.mark.parametrize("suffix", [".bgz", ".bgzf"])
def test_bgz_is_bgzf(suffix, folder):
    path = folder / f"rows{suffix}"
    data = random.Random(5).randbytes(200_000)
    for parts in ([], [data], [data[:70_000], b"", data[70_000:]]):
        with OutputFile(str(path)) as file:
            for part in parts:
                file.write(part)
            file.write_all([b"end", b"of it"])
        packed = path.read_bytes()
        assert gzip.decompress(packed) == b"".join(parts) + b"endof it"
        assert packed.endswith(END_BLOCK)
        array = np.frombuffer(packed, np.uint8)
        assert whole_blocks(array, 0, array.size, 1 << 40)[0] == array.size

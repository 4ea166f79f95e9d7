"""Configurations: what passes, and what each fault is told as."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import pytest

from streamer.daemon.config import Config, load
from streamer.daemon.config.loading import key_lines
from streamer.daemon.jobs.jobs_worker import JobResults
from streamer.errors import ConfigError
from streamer.journal.disk import Disk
from streamer.protocol.endpoints import EndpointError, check_endpoint, claim, run_directory
from tests.data_files import DATA, ROOT

HERE = Path(__file__).parent
CONFIGS = HERE / "configs"
SHIPPED = sorted((ROOT / "configs").glob("*.toml"))


def names(folder):
    return sorted(path.stem for path in (CONFIGS / folder).glob("*.toml"))


@pytest.mark.parametrize("name", names("pass"))
def test_passes(name, streamer):
    assert streamer("validate", "--config", CONFIGS / "pass" / f"{name}.toml") == (0, "ok\n", "")


@pytest.mark.parametrize("name", names("fail"))
def test_every_fault_is_told_with_its_key(name, streamer):
    path = CONFIGS / "fail" / f"{name}.toml"
    code, out, err = streamer("validate", "--config", path)
    assert (code, out) == (1, "")
    lines = [line.removeprefix(f"streamer: error: {path}:") for line in err.splitlines()]
    told = [line.replace(str(path.parent), "HERE").lstrip() for line in lines]
    assert told == path.with_suffix(".txt").read_text().splitlines()


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_configs_are_valid_and_comment_every_key(path):
    load(str(path))
    text = path.read_text()
    held = tomllib.loads(text)
    for table, field in Config.model_fields.items():
        for key in field.annotation.model_fields:
            at = next(
                i
                for i, line in enumerate(text[text.index(f"[{table}]") :].splitlines())
                if line.removeprefix("# ").startswith(f"{key} = ")
            )
            above = text[text.index(f"[{table}]") :].splitlines()[at - 1]
            assert above.startswith("# "), f"{table}.{key}"
            assert key in held[table] or key in ("endpoint", "directory", "results")


def test_sources_are_relative_to_the_file():
    loaded = load(str(CONFIGS / "pass" / "every_key.toml"))
    assert loaded.dictionary.sources == [str(DATA / "lambda.fa.gz")]


def test_a_byte_order_mark_is_skipped(tmp_path):
    path = tmp_path / "config.toml"
    path.write_text('\ufeff[log]\nlevel = "debug"\n', encoding="utf-8")
    assert load(str(path)).log.level == "debug"


def test_mode_follows_from_the_sources():
    assert load(None).spec.grows
    assert not load(str(CONFIGS / "pass" / "every_key.toml")).spec.grows
    assert not load(str(CONFIGS / "pass" / "seeded.toml")).spec.grows


def test_targets_are_counted_if_metrics_are_served():
    here = [f"dictionary.sources=['{DATA}/lambda.fa.gz']"]
    served = ["metrics.endpoint=127.0.0.1:0"]
    for overrides, counted in (
        (here, False),
        (served, False),
        ([*here, *served], True),
        ([*here, *served, "answers.targets=false"], False),
        ([*here, *served, "answers.coverage=true"], True),
        ([*here, "answers.targets=true"], True),
    ):
        loaded = load(None, overrides)
        assert loaded.answers.targets is loaded.spec.counted is counted, overrides


def test_overrides_take_toml_values_and_bare_words():
    loaded = load(
        None,
        ["dictionary.k=15", "dictionary.mode=grow", 'log.level="error"', "feed.beat_seconds=2"],
    )
    assert (loaded.dictionary.k, loaded.dictionary.mode, loaded.log.level) == (15, "grow", "error")
    assert loaded.feed.beat_seconds == 2


def test_faults_of_overrides_are_told_by_key():
    with pytest.raises(ConfigError) as caught:
        load(None, ["dictionary.k=32", "dictionary.kk=1", "nothing", "log.level=3", "no.such=1"])
    levels = "'debug', 'info', 'warning' or 'error'"
    assert caught.value.lines() == [
        "--set nothing: must have the form table.key=value",
        "--set no.such=1: no: unknown table (known: " + ", ".join(Config.model_fields) + ")",
        "--set dictionary.k=32: dictionary.k: is 32, must be at most 31",
        "--set dictionary.kk=1: dictionary.kk: unknown key, did you mean 'k'?",
        f"--set log.level=3: log.level: is 3, must be {levels}",
    ]


def test_what_cannot_be_bound_or_stored_for_its_bytes_is_told_by_key(tmp_path, monkeypatch):
    """As given, from where the file lies, and from the environment."""
    folder = tmp_path / "\udcff"
    folder.mkdir()
    (folder / "ref.fa").write_text(">a\nACGT\n")
    path = folder / "c.toml"
    path.write_text("[dictionary]\nsources = ['ref.fa']\n[journal]\ndirectory = 'j'\n")
    assert load(str(path)).journal.durability == "none"
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    overrides = ["journal.durability=os", "jobs.directories=['.']", "jobs.results=r"]
    with pytest.raises(ConfigError) as caught:
        load(str(path), [*overrides, "feed.endpoint=ipc:///\udcff"])
    assert {key: what for _, key, what in caught.value.faults} == {
        "feed.endpoint": r"'ipc:///\udcff' is not UTF-8",
        "journal.directory": f"'{folder}/j' is not UTF-8",
        "dictionary.sources.0": f"'{folder}/ref.fa' is not UTF-8",
        "jobs.results": f"'{folder}/r' is not UTF-8",
    } | {
        f"{name}.endpoint": rf"'ipc://{tmp_path}/\udcff/kmer-streamer/{name}.sock' is not UTF-8"
        for name in ("ingest", "control", "sync")
    }


def test_a_fault_is_blamed_on_the_setting_that_makes_it(tmp_path):
    """An override that does not fit the file, or one key of the file that does not fit another."""
    path = tmp_path / "c.toml"
    path.write_text("[ingest]\nmax_batch_bytes = 16_777_216\n\n[matching]\nchunk_bases = 20\n")
    overrides = ["ingest.memory_bytes=2000000", "dictionary.sources=['none']"]
    with pytest.raises(ConfigError) as caught:
        load(str(path), overrides)
    places = [(place, key) for place, key, _ in caught.value.faults]
    assert places == [
        (f"--set {overrides[1]}", "dictionary.sources.0"),
        (f"--set {overrides[0]}", "ingest.max_batch_bytes"),
        (f"{path}:5", "matching.chunk_bases"),
    ]
    path.write_text("[ingest]\nmemory_bytes = 2_000_000\n")
    with pytest.raises(ConfigError, match=f"^{path}:2: ingest.max_batch_bytes: is 16777216"):
        load(str(path))


def test_every_key_has_the_line_of_its_own_part():
    text = (
        '# [no]\n"a b" = 1\n\n[ t . u ] # ]\nlist = [\n  "x]", # ]\n]\n'
        'd.e = """\n[no]\nk = 1\n"""\n'
        "f = { g = 1, h = [\n2] }\n[[l]]\nm = 1\n[[l]]\nn = '''\n'''\nm = 2"
    )
    lines = {"a b": 2, "t": 4, "t.u": 4, "t.u.list": 5, "t.u.d": 8, "t.u.d.e": 8, "t.u.f": 12}
    lines |= {"t.u.f.g": 12, "t.u.f.h": 12, "l": 14, "l.m": 15, "l.n": 17}
    assert key_lines(text) == key_lines(text.replace("\n", "\r\n")) == lines
    assert key_lines("") == {}


def test_missing_file_is_told(streamer):
    code, _, err = streamer("validate", "--config", "/nowhere/streamer.toml")
    assert code == 1
    expected = "/nowhere/streamer.toml: cannot be read: no such file or directory"
    assert err == f"streamer: error: {expected}\n"


def test_config_that_is_no_text(tmp_path):
    (tmp_path / "c.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load(str(tmp_path / "c.toml"))


def test_long_socket_path_is_refused():
    with pytest.raises(ValueError, match="at most 107 bytes"):
        check_endpoint("ipc:///" + "x" * 107)


@pytest.mark.parametrize("table", ["journal", "jobs"])
def test_one_folder_for_state_and_sockets(tmp_path_factory, monkeypatch, table):
    """Whoever makes it first, makes it private."""
    tmp_path = tmp_path_factory.mktemp(table)  # short enough for a socket
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    if table == "journal":
        Disk().make_directory(Path(Config().journal.directory))
    else:
        JobResults(Config().jobs.results).close()
    claim("control.endpoint", f"ipc://{run_directory()}/control.sock")
    assert run_directory().stat().st_mode & 0o777 == 0o700


def test_a_folder_of_jobs_has_a_name():
    with pytest.raises(ConfigError) as caught:
        load(str(CONFIGS / "pass" / "every_key.toml"), ["jobs.directories=['.','']"])
    problem = "is empty: name a folder, '.' for that of this file"
    assert [(key, what) for _, key, what in caught.value.faults] == [
        ("jobs.directories.1", problem)
    ]


def test_run_directory_must_be_private(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    endpoint = f"ipc://{run_directory()}/ingest.sock"
    claim("ingest.endpoint", endpoint)
    assert run_directory().stat().st_mode & 0o777 == 0o700
    os.chmod(run_directory(), 0o755)
    with pytest.raises(EndpointError, match="must be your own directory with mode 0700"):
        claim("ingest.endpoint", endpoint)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "[dictionary]\nk = " + "[" * 5000,
            "not valid TOML: arrays or tables are nested too deeply",
        ),
        ("[dictionary]\nk = " + "9" * 5000, "not valid TOML: Exceeds the limit"),
        (
            "[dictionary]\nk = 0x" + "f" * 5000,
            "is an integer of thousands of digits, must be at most",
        ),
        ('[dictionary]\nsources = ["a\\u0001\\rb\\n"]', r"no such file: 'a\x01\rb\n'"),
    ],
)
def test_what_no_parser_or_terminal_takes_is_told_in_a_line(text, said, tmp_path):
    path = tmp_path / "f.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(str(path))
    (line,) = caught.value.lines()
    assert said in line
    assert line.isprintable()


def test_a_setting_that_no_parser_takes_is_a_word():
    for text in ("[" * 5000, "9" * 5000):
        with pytest.raises(ConfigError, match="must be an integer, not a string"):
            load(None, [f"dictionary.k={text}"])

"""What the command line promises beside the results of a command."""

from __future__ import annotations

import json
import random

import pytest

from tests.daemon_kit import random_dna, running, settings, write_fasta

pytestmark = pytest.mark.whole


def test_debug_may_stand_anywhere_and_holds_for_one_line(streamer):
    line = ("match", "missing.fa", "--seed", 0, "-k", 4)
    for with_debug in (("--debug", *line), (*line, "--debug")):
        code, _, err = streamer(*with_debug)
        assert code == 1
        assert err.startswith("Traceback")
        assert err.endswith("streamer: error: missing.fa: no such file\n")
    assert streamer(*line) == (1, "", "streamer: error: missing.fa: no such file\n")


def test_debug_behind_two_dashes_is_a_file(streamer):
    code, _, err = streamer("match", "--seed", 0, "-k", 4, "--", "--debug")
    assert (code, err) == (1, "streamer: error: --debug: no such file\n")


def test_devices_in_either_form(streamer):
    _, out, _ = streamer("devices")
    header, *rows = [line.split("\t") for line in out.splitlines()]
    assert header == ["#device", "name", "cores", "memory_bytes"]
    _, out, _ = streamer("devices", "--format", "jsonl")
    objects = [json.loads(line) for line in out.splitlines()]
    shown = [["." if v is None else str(v) for v in one.values()] for one in objects]
    assert shown == rows
    assert rows[0][0] == "cpu"


def test_a_key_without_its_table(tmp_path, streamer):
    path = tmp_path / "streamer.toml"
    path.write_text("k = 11\nendpoint = 'ipc:///tmp/x'\nother = 1\n")
    code, out, err = streamer("validate", "--config", path)
    assert (code, out) == (1, "")
    lines = err.splitlines()
    assert lines[0].endswith(": k: is in no table, did you mean 'dictionary.k'?")
    assert lines[1].endswith(": endpoint: is in no table, did you mean 'ingest.endpoint'?")
    assert ": other: unknown table (known: dictionary," in lines[2]


def test_top_shows_the_status_again_and_again(tmp_path, streamer):
    write_fasta(tmp_path / "genome.fa", [("phage", random_dna(random.Random(3), 500))])
    path = settings(tmp_path, 'sources = ["genome.fa"]\nk = 11')
    with running(path):
        code, out, err = streamer("top", "--config", path, "--every", 0.01, "--count", 3)
        assert (code, err) == (0, "")
        assert out.count("k-mers, k=11, frozen, canonical, 1 targets") == 3


def test_top_without_a_daemon(tmp_path, streamer, monkeypatch):
    from streamer.client import Control

    monkeypatch.setitem(Control.__init__.__kwdefaults__, "answer_seconds", 0.05)
    endpoint = f"ipc://{tmp_path}/nobody"
    code, out, err = streamer("top", "--at", endpoint)
    assert (code, out) == (1, "")
    assert err.startswith(f"streamer: error: {endpoint}: no answer within")

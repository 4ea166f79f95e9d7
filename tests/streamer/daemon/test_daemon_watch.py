"""A daemon that watches the folder of a run by itself."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from streamer.cli.daemon_options import limit_records_by
from streamer.client import Control
from streamer.daemon import config
from streamer.errors import ConfigError
from streamer.sequences.record_limit import MOST_BASES, most_bases
from tests import forked
from tests.daemon_kit import running, settings, write_fasta
from tests.streamer.watching.kit import named, text_of, write
from tests.waiting import until

pytestmark = [pytest.mark.whole, pytest.mark.usefixtures("forked_children")]


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "run").mkdir()
    write_fasta(tmp_path / "target.fa", [("target", "ACGTTGCAGGATCC" * 5)])
    path = settings(tmp_path, 'k = 11\nsources = ["target.fa"]')
    journal = '[journal]\ndirectory = "journal"\ndurability = "os"\n'
    with open(path, "a") as file:
        file.write(f'{journal}[watch]\ndirectory = "run"\nsettle = 0.2\nname = "run7"\n')
    return path


def reads_of(daemon):
    with Control(daemon.endpoints["control"]) as control:
        return control.status()["totals"]["reads"]


def watchers():
    """Numbers of the watchers that this process has started."""
    found = []
    for thread in Path("/proc/self/task").iterdir():
        for process in (thread / "children").read_text().split():
            if "--watch" in forked.COMMANDS.get(int(process), ()):
                found.append(int(process))
    return found


@pytest.mark.slow  # in the quick lane any history with kills, in tests/streamer/watching
def test_reads_of_the_folder_count_once_over_kills_and_restarts(path, tmp_path):
    write(tmp_path / "run/a.fastq.gz", text_of(named("a", 20)))
    with running(path) as daemon:
        until(lambda: reads_of(daemon) == 20, "the reads that were there")
        (watcher,) = watchers()
        os.kill(watcher, signal.SIGKILL)
        write(tmp_path / "run/sub/b.fastq", text_of(named("b", 30)))
        until(lambda: reads_of(daemon) == 50, "the reads after the watcher's death")
    assert not watchers()
    write(tmp_path / "run/c.fastq", text_of(named("c", 7)))
    with running(path) as daemon:
        until(lambda: reads_of(daemon) == 57, "the reads of two lives")


def test_reads_count_once_over_restarts_with_another_port_each_time(path, tmp_path, monkeypatch):
    # as users start it
    monkeypatch.setattr("streamer.daemon.child.subprocess", subprocess)
    overrides = ["ingest.endpoint=tcp://127.0.0.1:*"]
    write(tmp_path / "run/a.fastq.gz", text_of(named("a", 20)))
    with running(path, overrides) as daemon:
        until(lambda: reads_of(daemon) == 20, "the reads that were there")
    write(tmp_path / "run/b.fastq", text_of(named("b", 30)))
    with running(path, overrides) as daemon:
        until(lambda: reads_of(daemon) == 50, "the reads of two lives")


def test_send_reads_no_longer_records_than_its_configuration_says(path, monkeypatch):
    monkeypatch.setattr("streamer.sequences.record_limit._most_bases", MOST_BASES)
    limit_records_by(path)
    assert most_bases() == MOST_BASES
    text = Path(path).read_text().replace("[ingest]\n", "[ingest]\nmax_record_bases = 5000\n")
    Path(path).write_text(text)
    limit_records_by(path)
    assert most_bases() == 5000


def test_a_run_that_is_over_is_watched_no_more(path, tmp_path):
    write(tmp_path / "run/a.fastq.gz", text_of(named("a", 20)))
    (tmp_path / "run/final_summary_x.txt").touch()
    with running(path, ['watch.until=["final_summary*"]']) as daemon:
        until(lambda: reads_of(daemon) == 20, "the reads")
        until(lambda: not daemon.service._watch.is_alive(), "the end of the watch")
        assert reads_of(daemon) == 20


@pytest.mark.parametrize(
    ("name", "fault"), [("nowhere", "no such folder: 'nowhere'"), ("target.fa", "is not a folder")]
)
def test_a_folder_that_is_none(path, name, fault):
    with pytest.raises(ConfigError, match=rf"watch\.directory: .*{fault}"):
        config.load(path, [f"watch.directory={name}"])
    assert config.load(path, [f"watch.directory={name}"], check_files=False).watch.directory == str(
        Path(path).parent / name
    )

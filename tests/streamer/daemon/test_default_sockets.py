"""Daemons and clients whose configurations set no endpoints: each finds its own, or says so."""

from __future__ import annotations

import json
import os
import pty
import shutil
import signal
import sys
import tempfile
from contextlib import contextmanager

import pytest

from streamer.client import Control
from streamer.protocol.endpoints import running_daemons
from tests import forked
from tests.daemon_kit import genome_settings, process, wait_for_line
from tests.data_files import ROOT
from tests.waiting import DEADLINE

pytestmark = pytest.mark.whole


@pytest.fixture(scope="module")
def configs(tmp_path_factory):
    """Two configurations without endpoints, and a place for default sockets of this module."""
    folder, sockets = tmp_path_factory.mktemp("configs"), tempfile.mkdtemp(prefix="default")
    genome_settings(folder)
    paths = [folder / "one.toml", folder / "two.toml"]
    for path in paths:
        path.write_text(f'[dictionary]\nsources = ["{folder}/genome.fa"]\n')
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", sockets)
        yield [str(path) for path in paths]
    shutil.rmtree(sockets)


@contextmanager
def started(*arguments):
    """A daemon as a process, once it is ready; it drains at the end unless it was killed."""
    with process(["run", *arguments]) as child:
        wait_for_line(child, '"ready"')
        yield child
        if child.poll() is None:
            child.send_signal(signal.SIGTERM)
            assert child.wait(DEADLINE) == 0


@pytest.fixture(scope="module")
def first(configs):
    """The process of a daemon with the first configuration."""
    with started("--config", configs[0]) as child:
        yield child


def test_clients_refuse_a_daemon_with_another_configuration(configs, first, streamer, tmp_path):
    one, two = configs
    reads = tmp_path / "reads.fa"
    reads.write_text(">r\nACGT\n")
    for command in (["status"], ["send", reads], ["watch"]):
        code, out, err = streamer(*command, "--config", two)
        assert (code, out) == (1, ""), command
        assert f"is that of the daemon with {one} (process {first.pid}), not of {two}" in err
        assert err.count("\n") == 1
    # its own, by whatever path, and any without a configuration
    (tmp_path / "link.toml").symlink_to(one)
    for own in (["--config", one], ["--config", tmp_path / "link.toml"], []):
        code, out, _ = streamer("status", *own, "--format", "jsonl")
        assert json.loads(out)["totals"]["reads"] == 0, own
    with Control() as control:
        assert control.status()["state"] == "running"


def test_a_daemon_without_a_configuration_is_not_that_of_one(configs, streamer, monkeypatch):
    with tempfile.TemporaryDirectory(prefix="other") as sockets:
        monkeypatch.setenv("XDG_RUNTIME_DIR", sockets)
        with started("--set", "dictionary.seed_bases=100"):
            code, _, err = streamer("status", "--config", configs[0])
    assert code == 1
    assert "is that of the daemon without a configuration" in err


@pytest.mark.usefixtures("first")
def test_clients_find_a_daemon_whose_endpoints_were_set_on_its_command_line(configs, streamer):
    one, two = configs
    anywhere = [
        f"--set={name}.endpoint=tcp://127.0.0.1:*" for name in ("ingest", "feed", "control")
    ]
    with started("--config", two, *anywhere) as child:
        code, out, _ = streamer("status", "--config", two, "--format", "jsonl")
        assert code == 0
        assert json.loads(out)["endpoints"]["control"].startswith("tcp://")
        # a daemon that was killed is not one that runs
        child.kill()
        child.wait(DEADLINE)
        code, _, err = streamer("status", "--config", two)
        assert code == 1
        assert f"is that of the daemon with {one}" in err


def test_a_second_daemon_says_who_is_there_on_the_terminal_though_its_log_is_elsewhere(
    configs, first, tmp_path
):
    one, two = configs
    at = next(d for d in running_daemons() if d.process == first.pid).endpoints["ingest"]
    terminal, end = pty.openpty()
    with open(tmp_path / "log", "w") as log:
        second = forked.run(
            [sys.executable, "-m", "streamer", "run", "--config", two,
             "--set", f"ingest.endpoint={at}", "--set", f"feed.endpoint=ipc://{tmp_path}/f",
             "--set", f"control.endpoint=ipc://{tmp_path}/c"],
            stdout=end, stderr=log, cwd=ROOT,
        )  # fmt: skip
    os.close(end)
    said = os.read(terminal, 1 << 16).decode().strip()
    os.close(terminal)
    assert second.returncode == 1
    assert said == (
        f"streamer: error: ingest.endpoint: {at}: endpoint in use by the daemon with {one} "
        f"(process {first.pid}): stop that one, or set other endpoints"
    )
    assert said.partition("error: ")[2] in (tmp_path / "log").read_text()

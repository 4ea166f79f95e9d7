"""A producer goes on over kills of a daemon with a journal: same epoch, every read once."""

from __future__ import annotations

import signal

import pytest

from streamer.client import Control, Producer
from tests.daemon_kit import DEADLINE, GENOME, process, settings, wait_for_line, write_fasta

pytestmark = pytest.mark.whole


def totals(folder):
    with Control(f"ipc://{folder}/control") as control:
        return control.status()["totals"]


def test_a_kill_while_batches_are_on_their_way(tmp_path):
    genome = write_fasta(tmp_path / "genome.fa", [("genome", GENOME)])
    config = settings(tmp_path, f'sources = ["{genome.name}"]\nk = 11\n')
    with open(config, "a") as file:
        file.write(f'[journal]\ndurability = "os"\ndirectory = "{tmp_path}/journal"\n')
    with Producer(f"ipc://{tmp_path}/ingest", name="x", answer_seconds=DEADLINE) as producer:
        epoch = producer.epoch
        for run in range(3):
            with process(["run", "--config", config]) as daemon:
                for i in range(100):
                    producer.send([(f"{run}-{i}", GENOME[:300])], mark=b"%d-%d" % (run, i))
                if run < 2:
                    daemon.send_signal(signal.SIGKILL)
                    daemon.wait(DEADLINE)
                    continue
                producer.flush(timeout=DEADLINE, matched=True)
                assert producer.epoch == epoch
                assert producer.reads_acknowledged == producer.reads_sent == 300
                assert totals(tmp_path)["reads"] == totals(tmp_path)["batches"] == 300
                with Producer(f"ipc://{tmp_path}/ingest", name="x") as later:
                    later.connect()
                    assert later.mark == b"2-99"
                daemon.send_signal(signal.SIGTERM)
                wait_for_line(daemon, '"ended"')
                assert daemon.wait(DEADLINE) == 0

"""The metrics of a running daemon: they agree with its status, are bounded, and do no harm."""

from __future__ import annotations

import gzip
import socket
import urllib.error

import pytest

from streamer.client import Control
from streamer.daemon import config
from streamer.daemon.metrics import metrics_server
from streamer.daemon.metrics.device_memory import DeviceMemory
from streamer.daemon.metrics.scrape import METRICS, STATES
from streamer.daemon.service import Service
from streamer.protocol.endpoints import EndpointError
from tests.daemon_kit import Raw, genome_settings, list_batch, running, send_reads
from tests.scraping import fetch, parsed, scrape, value
from tests.waiting import DEADLINE, until

pytestmark = pytest.mark.whole

ON = ["metrics.endpoint=127.0.0.1:0"]
COUNTED = [*ON, "answers.targets=true"]
JOURNAL = ["journal.durability=os", "journal.directory=journal"]


@pytest.fixture(scope="module")
def metered(tmp_path_factory):
    """A daemon with metrics, for tests that send nothing else to it."""
    path = genome_settings(tmp_path_factory.mktemp("metered"))
    limits = ["metrics.target_series=1", 'metrics.hosts=["scraped.example"]']
    with running(path, [*ON, *limits]) as daemon:
        send_reads(daemon)
        yield daemon


def test_the_memory_of_gpus_where_no_thread_can_be_started(monkeypatch):
    """What is known stays; a reply to ``status`` has no more of it."""
    memory = DeviceMemory()
    monkeypatch.setattr("gpu.card.device.memory_of", lambda number: (number, 10))
    assert memory.read([1]) == {1: (1, 10)}
    until(lambda: not memory._thread.is_alive(), "the end of the thread")

    def fail(_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("threading.Thread.start", fail)
    assert memory.read([1, 2]) == {1: (1, 10)}
    assert DeviceMemory().fields([1]) == {}


def check_agrees(samples, status, rows):
    """With the status, and with rows of targets by barcode."""
    totals = status["totals"]
    for name in ("batches", "reads", "bases", "new_kmers", "reads_on_target"):
        assert value(samples, f"streamer_{name}_total") == totals[name], name
    for event in ("match", "mismatch"):
        count = value(samples, "streamer_windows_total", event=event)
        assert count == totals[f"{event}es"]
    assert value(samples, "streamer_skipped_windows_total") == totals["skipped"]
    assert value(samples, "streamer_dictionary_kmers") == status["dictionary"]["kmers"]
    assert value(samples, "streamer_queue_bytes", stage="ingest") == 0
    assert value(samples, "streamer_refused_messages_total") == status["refused"]
    states = {state: value(samples, "streamer_state", state=state) for state in STATES}
    assert states == {state: state == status["state"] for state in STATES}
    found = {labels: n for (name, labels), n in samples.items() if "target_reads" in name}
    expected = {
        frozenset({("barcode", barcode or "."), ("target", target or ".")}): reads
        for barcode, target, reads, *_ in rows
        if reads
    }
    assert found == expected
    assert sum(found.values()) == totals["reads"]


def check_list(text):
    """Every metric of the list is there, and no other."""
    kinds = dict(line.split()[2:] for line in text.splitlines() if line.startswith("# TYPE"))
    own = {name: kind for name, kind in kinds.items() if name.startswith("streamer_")}
    assert own == {metric.name: metric.kind for metric in METRICS}
    assert {"process_resident_memory_bytes", "process_open_fds"} <= kinds.keys()
    labels = {metric.name: {*metric.labels} for metric in METRICS}
    for name, values in parsed(text):
        if name in labels:
            assert {label for label, _ in values} == labels[name]


def test_they_agree_with_status_and_targets_also_after_a_restart(path, tmp_path):
    overrides = [*COUNTED, *JOURNAL[:1], f"journal.directory={tmp_path}/journal"]
    before = 0
    for seed in (1, 2):
        with running(path, overrides) as daemon:
            send_reads(daemon, seed)
            with Control(daemon.endpoints["control"]) as control:
                status = control.status()
                _, rows = control.targets(by="barcode")
            endpoint = status["endpoints"]["metrics"]
            samples = scrape(endpoint)
            check_agrees(samples, status, rows)
            assert status["totals"]["reads"] == before + 120
            before = status["totals"]["reads"]
            batches = value(samples, "streamer_batch_duration_seconds_count")
            # those of before the start were not measured here
            assert batches == 3
            assert value(samples, "streamer_batch_duration_seconds_bucket", le="+Inf") == 3
            assert value(samples, "streamer_batch_duration_seconds_sum") > 0
            assert value(samples, "streamer_undurable_batches") == 0
            assert value(samples, "streamer_journal_disk_bytes") > 0
            assert ("streamer_gpu_memory_used_bytes", frozenset()) not in samples
            check_list(fetch(endpoint)[0].decode())
        with pytest.raises(OSError, match="refused"):
            fetch(endpoint)


def test_what_waits_and_what_is_refused_is_seen(path, tmp_path):
    overrides = [*ON, *JOURNAL[:1], f"journal.directory={tmp_path}/journal"]
    with running(path, overrides) as daemon, Raw(daemon.endpoints["ingest"]) as raw:
        endpoint = daemon.endpoints["metrics"]
        raw.open()
        raw.send(b"no header")
        assert raw.receive_type("refused")
        with daemon.engine_held():
            raw.send(*list_batch(1, [["r", "ACGT" * 10]]))
            raw.accepted(1)
            until(lambda: value(scrape(endpoint), "streamer_undurable_age_seconds") > 0, "an age")
            samples = scrape(endpoint)
            assert value(samples, "streamer_refused_messages_total") == 1
            assert value(samples, "streamer_queue_batches") == 1
            assert value(samples, "streamer_undurable_batches") == 1
            size = value(samples, "streamer_undurable_bytes")
            assert size == value(samples, "streamer_queue_bytes", stage="ingest") > 40
            until(lambda: value(scrape(endpoint), "streamer_queue_items", stage="engine") == 1,
                  "the engine has it")  # fmt: skip
        raw.accepted(1, durable=1)
        samples = scrape(endpoint)
        for name in ("batches", "bytes", "age_seconds"):
            assert value(samples, f"streamer_undurable_{name}") == 0


def test_formats(metered):
    endpoint = metered.endpoints["metrics"]
    plain, headers = fetch(endpoint)
    assert headers["Content-Type"].startswith("text/plain; version=0.0.4")
    packed, headers = fetch(endpoint, "/metrics?name=x", **{"Accept-Encoding": "gzip"})
    assert headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(packed)[:200] == plain[:200]
    kind = "application/openmetrics-text; version=1.0.0"
    text, headers = fetch(endpoint, Accept=kind)
    assert headers["Content-Type"].startswith(kind)
    assert text.endswith(b"# EOF\n")
    with pytest.raises(urllib.error.HTTPError, match="404"):
        fetch(endpoint, "/")
    samples = parsed(plain.decode())
    counts = [n for (name, _), n in samples.items() if name == "streamer_target_reads_total"]
    assert len(counts) == 2
    assert sum(counts) == value(samples, "streamer_reads_total") == 120
    value(samples, "streamer_target_reads_total", target="other", barcode="other")


def test_names_of_others_are_refused(metered):
    endpoint = metered.endpoints["metrics"]
    for host in ("localhost:1", "127.0.0.1", "scraped.example"):
        assert fetch(endpoint, Host=host)[0]
    for host in ("evil.example", "127.0.0.1.evil.example", "192.0.2.7", ""):
        with pytest.raises(urllib.error.HTTPError, match="421"):
            fetch(endpoint, Host=host)


def test_slow_scrapers_hold_up_nobody(metered, monkeypatch):
    host, _, port = metered.endpoints["metrics"].rpartition(":")
    silent = [socket.create_connection((host, int(port))) for _ in range(15)]
    for connection in silent[:8]:
        connection.sendall(b"GET /metrics HTTP/1.0\r\nA: ")
    assert value(scrape(metered.endpoints["metrics"]), "streamer_reads_total") == 120
    monkeypatch.setattr(metrics_server, "_CONNECTION_SECONDS", 0.0)
    for connection in silent:
        connection.settimeout(DEADLINE)
        while connection.recv(100):
            pass
        connection.close()


def test_too_many_connections_are_refused_and_the_daemon_goes_on(metered):
    def answered():
        try:
            return scrape(metered.endpoints["metrics"])
        except OSError:
            return None

    until(answered, "there is room")
    host, _, port = metered.endpoints["metrics"].rpartition(":")
    many = [socket.create_connection((host, int(port))) for _ in range(40)]
    ended = 0
    for connection in many[16:]:
        connection.settimeout(DEADLINE)
        ended += connection.recv(1) == b""
        connection.close()
    assert ended == 24
    for connection in many[:16]:
        connection.close()
    until(answered, "there is room again")


def test_a_scrape_that_fails_is_an_answer(metered, monkeypatch):
    monkeypatch.setattr(type(metered.service.status), "fields", lambda _: 1 // 0)
    with pytest.raises(urllib.error.HTTPError, match="500"):
        fetch(metered.endpoints["metrics"])
    monkeypatch.undo()
    scrape(metered.endpoints["metrics"])


def test_an_address_in_use_is_named_with_its_key(path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        service = Service(config.load(path, [f"metrics.endpoint={address}"]))
        with pytest.raises(EndpointError, match=f"^metrics.endpoint: {address}: address already"):
            service.start()


@pytest.mark.parametrize("host", ["203.0.113.1", "no.such.host.invalid"])
def test_an_address_of_another_machine(path, host):
    service = Service(config.load(path, [f"metrics.endpoint={host}:0"]))
    with pytest.raises(EndpointError, match=f"^metrics.endpoint: {host}:0: "):
        service.start()


def test_they_are_served_until_the_daemon_has_drained(path):
    with running(path, ON) as daemon:
        endpoint = daemon.endpoints["metrics"]
        assert value(scrape(endpoint), "streamer_state", state="running") == 1
    with pytest.raises(OSError, match="refused"):
        fetch(endpoint)

"""What is shipped and documented for Prometheus and Grafana is what a daemon really has."""

from __future__ import annotations

import json
import random
import re
import tomllib

import pytest
import yaml

from streamer.client import Producer
from streamer.daemon.metrics.scrape import METRICS
from tests.daemon_kit import GENOME, reads_of, running
from tests.data_files import ROOT
from tests.scraping import scrape
from tests.waiting import until

PAGE = (ROOT / "docs" / "metrics.md").read_text()
GRAFANA = ROOT / "configs" / "grafana"
NAME = re.compile(r"\b(?:streamer|process)_\w+")
SELECTED = re.compile(r"\b((?:streamer|process)_\w+|up)\{([^}]*)\}")
BY = re.compile(r"\b(?:by|on) \(([^)]*)\)")
# what Prometheus adds to every series
ADDED = {"instance", "job"}
# only where a GPU matches
WITH_GPU = {"streamer_gpu_memory_used_bytes", "streamer_gpu_memory_size_bytes"}


def panels():
    return [p for p in json.loads((GRAFANA / "dashboard.json").read_text())["panels"]
            if p["type"] != "row"]  # fmt: skip


def rules():
    (group,) = yaml.safe_load((GRAFANA / "alerts.yml").read_text())["groups"]
    return group["rules"]


def expressions():
    """Each with the text that shows its result."""
    for panel in panels():
        for target in panel["targets"]:
            yield target["expr"], target["legendFormat"].replace("{{", "$labels.")
    for rule in rules():
        yield rule["expr"], rule["annotations"]["summary"]


@pytest.mark.whole
def test_every_metric_and_label_is_in_a_scrape(path, tmp_path):
    overrides = ["metrics.endpoint=127.0.0.1:0", "answers.targets=true",
                 "journal.durability=os", f"journal.directory={tmp_path}/journal"]  # fmt: skip
    with running(path, overrides) as daemon:
        with Producer(daemon.endpoints["ingest"]) as producer:
            producer.send(reads_of(GENOME, random.Random(1), 40))
            producer.flush(matched=True)
        board = daemon.service.status
        until(lambda: board.stage_ages, "the watchdog has looked")
        labels = {}
        for name, values in scrape(daemon.endpoints["metrics"]):
            for label, said in values:
                labels.setdefault(name, {}).setdefault(label, set()).add(said)
            labels.setdefault(name, {})
    labels |= {name: {"gpu": {"0"}} for name in WITH_GPU}
    labels["up"] = {}
    for expression, shown in expressions():
        names = NAME.findall(expression)
        assert set(names) <= labels.keys(), expression
        known = ADDED.union(*(labels[name] for name in names))
        for name, selectors in SELECTED.findall(expression):
            for label, said in re.findall(r'(\w+)=~?"([^"]*)"', selectors):
                assert label in ADDED | labels[name].keys(), expression
                assert label in ADDED or said in labels[name][label], expression
        for group in BY.findall(expression):
            assert set(re.split(r",\s*", group)) <= known, expression
        assert set(re.findall(r"\$labels\.(\w+)", shown)) <= known, (expression, shown)


def test_counters_are_rated_and_gauges_are_not():
    kinds = {metric.name: metric.kind for metric in METRICS}
    for expression, _ in expressions():
        for rated in re.findall(r"(?:rate|increase)\((\w+)", expression):
            kind = kinds.get(rated.removesuffix("_bucket"), "counter")
            assert kind in ("counter", "histogram"), expression


def test_the_scrape_example_is_that_of_the_production_configuration():
    made = yaml.safe_load((GRAFANA / "prometheus.yml").read_text())
    (job,) = made["scrape_configs"]
    config = tomllib.loads((ROOT / "configs" / "production.toml").read_text())
    assert job["static_configs"][0]["targets"] == [config["metrics"]["endpoint"]]
    assert made["rule_files"] == ["alerts.yml"]
    assert f'up{{job="{job["job_name"]}"}}' in {rule["expr"].split(" ==")[0] for rule in rules()}


def rows(first):
    """The rows of the table with this first column, as cells."""
    _, _, table = PAGE.partition(f"| {first} |")
    lines = table.partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_every_metric_has_its_row():
    assert rows("metric") == [
        [f"`{m.name}`", m.kind, ", ".join(f"`{label}`" for label in m.labels) or "-", m.meaning]
        for m in METRICS
    ]

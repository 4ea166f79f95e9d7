"""The page of the metrics has the metrics, alerts and stages that there are."""

from __future__ import annotations

import yaml

from streamer.daemon.metrics.scrape import METRICS
from tests.data_files import ROOT

PAGE = (ROOT / "docs" / "metrics.md").read_text()


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


def test_names_follow_the_conventions():
    for metric in METRICS:
        assert metric.name.startswith("streamer_")
        assert metric.name.endswith("_total") == (metric.kind == "counter")
        assert metric.meaning.endswith(".")


def test_every_alert_has_its_row():
    (group,) = yaml.safe_load((ROOT / "configs" / "grafana" / "alerts.yml").read_text())["groups"]
    assert [row[0] for row in rows("alert")] == [f"`{rule['alert']}`" for rule in group["rules"]]

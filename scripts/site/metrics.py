"""The page of all metrics, from the list that scrapes are made from."""

from __future__ import annotations

from scripts.site.markdown import cell, code, table
from streamer.daemon.metrics.scrape import METRICS, STATES


def page() -> str:
    rows = [
        (code(m.name), m.kind, ", ".join(map(code, m.labels)) or "-", cell(m.meaning))
        for m in METRICS
    ]
    states = ", ".join(map(code, STATES))
    return f"The states are {states}.\n\n" + table(["Metric", "Kind", "Labels", "Meaning"], rows)

"""MultiQC's custom content: a table whose rows are the samples, ``NAME_mqc.json``."""

import json
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from streamer import __version__
from streamer.reporting.collection import Collection
from streamer.reporting.reports import ReadsReport, TargetReport

_SUFFIXES = (".gz", ".bz2", ".xz", ".zst")

# MultiQC cuts names at a slash, and may take the others for HTML
_PLAIN = str.maketrans("/<>&\"'", "______")

_MOST_ROWS = 500

_COUNT = {"format": "{:,.0f}", "min": 0}
_HEADERS: dict[str, dict[str, Any]] = {
    "reads": {"title": "Reads", "description": "Reads assigned to the target", "scale": "Blues"},
    "bases": {"title": "Bases", "description": "Bases of these reads", "scale": "Greens"},
    "breadth": {
        "title": "Breadth", "description": "Share of the target's k-mers that was seen",
        "min": 0, "max": 1, "format": "{:,.4f}", "scale": "RdYlGn",
    },
    "depth": {
        "title": "Depth", "description": "How often a k-mer of the target was matched on average",
        "min": 0, "format": "{:,.4f}", "scale": "Purples",
    },
    "matches": {
        "title": "Matches", "description": "Windows of any read whose k-mer the target holds",
        "scale": "Oranges", "hidden": True,
    },
    "kmers": {"title": "K-mers", "description": "Distinct k-mers of the target", "hidden": True},
    "seen": {
        "title": "Seen", "description": "Those that were matched at least once", "hidden": True
    },
    "unassigned": {
        "title": "Unassigned", "description": "Reads without a target", "scale": "Reds"
    },
    "verdict": {
        "title": "Verdict", "description": "By the thresholds of the panel", "scale": False,
        "cond_formatting_rules": {
            "pass": [{"s_eq": "detected"}], "warn": [{"s_eq": "more needed"}],
            "fail": [{"s_eq": "not detected"}],
        },
    },
    "control": {"title": "Control", "description": "By the sample sheet", "scale": False},
    "n50": {"title": "N50", "description": "N50 of read lengths", "scale": "Blues"},
    "windows": {"title": "Windows", "description": "Without an ambiguity code", "hidden": True},
}  # fmt: skip


def multiqc_path(path: str) -> str:
    """Return its path next to a page: ``NAME_mqc.json`` for ``NAME.html``."""
    place = PurePath(path)
    name = place.name
    for suffix in _SUFFIXES:
        name = name.removesuffix(suffix)
    return str(place.with_name(f"{PurePath(name).stem}_mqc.json"))


def multiqc(collection: Collection, sample: str) -> str:
    """Return the file's text; samples are named ``sample``, followed by barcode and target.

    If there are many targets, only those with the most reads are included, and the omitted ones are
    counted.
    """
    data, omitted = _samples(collection, sample)
    used = {name for row in data.values() for name in row}
    headers = {
        name: ({} if "format" in header or header.get("scale") is False else _COUNT) | header
        for name, header in _HEADERS.items() if name in used
    }  # fmt: skip
    description = (
        f"Reads matched against a dictionary of k-mers by kmer-streamer {__version__}: what was "
        "found of each target."
    )
    if "verdict" in used and collection.verdict_rule:
        description += f" Verdicts: {collection.verdict_rule}."
    description += "".join(f" Note: {line.translate(_PLAIN)}." for line in collection.alarms)
    if omitted:
        description += f" {omitted:,} rows with fewer reads are left out."
    return _table("", "targets", description, headers, data)


def _table(
    name: str, title: str, description: str, headers: Mapping[str, Any], data: Mapping[str, Any]
) -> str:
    """Return the text of a table; name: of the command, empty if it is a page's."""
    identity = f"kmer_streamer{name and f'_{name}'}"
    content = {
        "id": identity,
        "section_name": f"kmer-streamer {name}".strip(),
        "description": description,
        "plot_type": "table",
        "pconfig": {
            "id": f"{identity}_table",
            "title": f"kmer-streamer: {title}",
            "namespace": "kmer-streamer",
            "col1_header": "Sample",
            "no_violin": True,  # verdicts are to be read
        },
        "headers": headers,
        "data": data,
    }
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


_FILTERED: dict[str, dict[str, Any]] = {
    "reads_in": {"title": "Reads in", "scale": "Blues"},
    "reads_out": {"title": "Reads out", "scale": "Greens"},
    "removed": {
        "title": "Removed", "description": "Share of the reads that were not written",
        "min": 0, "max": 1, "format": "{:,.4f}", "scale": "Reds",
    },
    "bases_in": {"title": "Bases in", "scale": "Blues", "hidden": True},
    "bases_out": {"title": "Bases out", "scale": "Greens"},
}  # fmt: skip


def filter_table(samples: Mapping[str, Mapping[str, int]]) -> str:
    """Return the file's text for what a filter read and wrote, by sample."""
    data = {
        name.translate(_PLAIN): dict(counts)
        | {"removed": round(1 - counts["reads_out"] / max(counts["reads_in"], 1), 6)}
        for name, counts in samples.items()
    }
    description = f"Reads and bases before and after streamer filter {__version__}."
    headers = {name: _COUNT | header for name, header in _FILTERED.items()}
    return _table("filter", "filtered reads", description, headers, data)


def _samples(collection: Collection, sample: str) -> tuple[dict[str, dict[str, Any]], int]:
    """Return the rows, and how many are omitted."""
    rows: list[tuple[str, dict[str, Any]]] = []
    several = len(collection.sources) > 1
    omitted = 0
    for at, source in enumerate(collection.sources, 1):
        for report in source.reports:
            first = f"{sample} {at}" if several and _repeated(collection, report) else sample
            if isinstance(report, TargetReport):
                counted = _of_targets(report, first)
                omitted += max(0, len(counted) - _MOST_ROWS)
                rows += counted[:_MOST_ROWS]
            elif isinstance(report, ReadsReport) and not collection.targets(by_barcode=False):
                every = report.all
                rows.append((first, {
                    "reads": every.reads, "bases": every.bases, "unassigned": report.off.reads,
                    "n50": every.n50, "windows": report.windows, "matches": report.matches,
                }))  # fmt: skip
    data: dict[str, dict[str, Any]] = {}
    for name, values in rows:
        shown = plain = name.translate(_PLAIN)
        again = 2
        while shown in data:
            shown, again = f"{plain} ({again})", again + 1
        data[shown] = values
    return data, omitted


def _repeated(collection: Collection, report: object) -> bool:
    """Return whether other reports of this kind would give rows of the same names."""
    if isinstance(report, TargetReport):
        return len(collection.targets(by_barcode=report.by_barcode)) > 1
    return len([*collection.all(ReadsReport)]) > 1


def _of_targets(report: TargetReport, first: str) -> list[tuple[str, dict[str, Any]]]:
    """Rows, most reads first; with barcodes, only those with a match or a verdict."""
    rows: list[tuple[int, str, dict[str, Any]]] = []
    for barcode in report.barcodes:
        label = report.sheet.shown(barcode) if barcode else "no barcode"
        words = [first, *([label] if report.by_barcode else [])]
        verdicts = [*report.verdicts.get(barcode, [None] * len(report.names)), None]
        control = report.control(barcode)
        for line, verdict in zip(report.lines(barcode), verdicts, strict=True):
            values: dict[str, Any] = {"reads": line.reads, "bases": line.bases}
            if line.target is not None:
                values |= {"matches": line.matches, "kmers": line.kmers, "seen": line.seen}
                more = {"breadth": line.breadth, "depth": line.depth, "verdict": verdict,
                        "control": control}  # fmt: skip
                values |= {name: value for name, value in more.items() if value is not None}
            if report.by_barcode and not (line.reads or line.matches or verdict):
                continue
            name = " | ".join([*words, line.target or "unassigned"])
            rows.append((line.reads, name, values))
    rows.sort(key=lambda row: -row[0])
    return [(name, values) for _, name, values in rows]

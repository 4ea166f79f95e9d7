"""The current memory, descriptors, threads and disk use of a daemon, and its latency."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

Row = dict[str, float]

COLUMNS = (
    *("seconds", "daemon_mb", "children_mb", "children", "descriptors", "threads"),
    *("disk_mb", "batches", "p50_ms", "p99_ms", "clients_killed", "reloads", "load"),
)

_PANELS = {
    "daemon_mb": "memory of the daemon, MB",
    "children_mb": "memory of its children, MB",
    "descriptors": "open descriptors",
    "disk_mb": "disk use of the journal, MB",
    "p50_ms": "due to published, p50, ms",
    "p99_ms": "due to published, p99, ms",
}


def children_of(process: int) -> list[int]:
    """All descendants."""
    found = []
    # threads and processes come and go
    with suppress(OSError):
        for task in Path(f"/proc/{process}/task").iterdir():
            with suppress(OSError):
                for child in map(int, (task / "children").read_text().split()):
                    found += [child, *children_of(child)]
    return found


def sample(process: int, journal: Path, latencies: Sequence[float]) -> Row:
    """Current memory, descriptors, threads and disk use; quantiles of latencies, NaN if none."""
    children = children_of(process)
    family = [process, *children]
    p50, p99 = np.percentile(latencies, (50, 99)) if latencies else (np.nan, np.nan)
    return {
        "daemon_mb": memory(process),
        "children_mb": sum(map(memory, children)),
        "children": len(children),
        "descriptors": sum(_entries(one, "fd") for one in family),
        "threads": sum(_entries(one, "task") for one in family),
        "disk_mb": _disk(journal) / 1e6,
        "batches": len(latencies),
        "p50_ms": float(p50),
        "p99_ms": float(p99),
        "load": os.getloadavg()[0],
    }


def memory(process: int) -> float:
    """The resident megabytes of a process."""
    with suppress(OSError):
        pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
    return 0.0


def _entries(process: int, name: str) -> int:
    with suppress(OSError):
        return len(os.listdir(f"/proc/{process}/{name}"))
    return 0


def _disk(folder: Path) -> int:
    """Bytes that the files below a folder use on disk."""
    size = 0
    for path in folder.rglob("*"):
        # retention deletes files meanwhile
        with suppress(OSError):
            size += 512 * path.stat().st_blocks
    return size


def write_tsv(path: Path, rows: Sequence[Mapping[str, float]]) -> None:
    """Write one row for each sample, after a header."""
    lines = ["\t".join(COLUMNS), *("\t".join(f"{row[c]:.6g}" for c in COLUMNS) for row in rows)]
    path.write_text("\n".join(lines) + "\n")


def draw(path: Path, rows: Sequence[Mapping[str, float]], warm: float) -> None:
    """The series over time as an SVG; the first ``warm`` seconds are shaded."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 6.5), layout="constrained")
    axes = figure.subplots(3, 2, sharex=True)
    minutes = [row["seconds"] / 60 for row in rows]
    for axis, (column, title) in zip(axes.flat, _PANELS.items(), strict=True):
        axis.plot(minutes, [row[column] for row in rows], linewidth=0.9)
        axis.axvspan(0, warm / 60, color="0.9")
        axis.set_title(title, fontsize=9, loc="left")
        axis.set_ylim(bottom=0)
    for axis in axes[-1]:
        axis.set_xlabel("minutes; grey: warm-up, left out of the slopes", fontsize=8)
    FigureCanvasSVG(figure).print_svg(path, metadata={"Date": None})

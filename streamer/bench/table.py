"""Print rows of figures, with the machine they are from."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import typer

from trie.cpu.machine import processor_name
from trie.cpu.threads import usable_cores


def machine_line() -> str:
    """Processor, cores, Python and the packages that the figures depend on."""
    packages = []
    for name in ("numba", "numpy", "polars", "sshash"):
        try:
            packages.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return (
        f"{processor_name()}, {usable_cores()} cores, Python {platform.python_version()}, "
        + ", ".join(packages)
    )


def print_table(title: str, rows: list[dict[str, Any]]) -> None:
    """A Markdown table of the rows on standard output."""
    typer.echo(f"\n## {title}\n")
    if not rows:
        return
    cells = [list(rows[0])] + [[_shown(value) for value in row.values()] for row in rows]
    widths = [max(len(line[i]) for line in cells) for i in range(len(cells[0]))]
    for number, line in enumerate(cells):
        shown = " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        typer.echo(f"| {shown} |")
        if number == 0:
            typer.echo("| " + " | ".join("-" * width for width in widths) + " |")


def _shown(value: Any) -> str:
    if value is None:
        return "."
    if isinstance(value, float):
        if value >= 1e6:
            return f"{value / 1e6:,.1f} M"
        return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"
    if isinstance(value, int) and value >= 10_000:
        return f"{value:,}"
    return str(value)

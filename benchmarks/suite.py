"""Runs a suite: the machine, then one Markdown table after another, on standard output.

A suite is a module with ``tables(device, **options)``: methods measured on generated inputs.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Collection, Iterable
from functools import partial
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import typer

from streamer.cli.choices import say
from streamer.device_choice import choose_device
from trie.cpu.compiling import compile_notice
from trie.cpu.machine import processor_name
from trie.cpu.threads import usable_cores

Row = dict[str, Any]


class Sheet:
    """A table: its title, the function that measures its rows, and its section of the suite."""

    def __init__(
        self, title: str, rows: Callable[..., Iterable[Row]], *given: Any, section: str = ""
    ) -> None:
        self.title, self.section = title, section
        self.rows: Callable[[], Iterable[Row]] = partial(rows, *given)


def run(suite: str, device: str, sections: Collection[str] = (), **options: Any) -> None:
    """Print the tables of a suite, all or those of some sections."""
    chosen = choose_device(device, report=say)
    tables: Iterable[Sheet] = import_module(f"benchmarks.{suite}").tables(chosen, **options)
    typer.echo(machine_line())
    if chosen == "cuda":
        typer.echo(device_line())
    with compile_notice(quiet=False):
        for table in tables:
            if not sections or table.section in sections:
                print_table(table.title, list(table.rows()))


def machine_line() -> str:
    """Processor, cores, Python and the packages that the figures depend on."""
    return (
        f"{processor_name()}, {usable_cores()} cores, Python {platform.python_version()}, "
        + _versions("numba", "numpy", "sshash")
    )


def device_line() -> str:
    """The GPU and the packages that its figures depend on."""
    from gpu.card.intrinsics import cuda

    name = cuda.get_current_device().name
    name = name.decode() if isinstance(name, bytes) else str(name)
    packages = _versions("numba-cuda", "cupy-cuda13x", "numpy")
    return f"{name}, {usable_cores()} host cores, {packages}"


def _versions(*packages: str) -> str:
    found = []
    for name in packages:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return ", ".join(found)


def print_table(title: str, rows: list[Row]) -> None:
    """Print a Markdown table of the rows."""
    typer.echo(f"\n## {title}\n")
    if not rows:
        return
    cells = [list(rows[0])] + [[_shown(value) for value in row.values()] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    cells.insert(1, ["-" * width for width in widths])
    for line in cells:
        shown = " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        typer.echo(f"| {shown} |")


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

"""Pieces of Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def cell(text: str) -> str:
    """Escaped text for a cell of a table."""
    for sign in "\\`*_[]<>|{}":
        text = text.replace(sign, f"\\{sign}" if sign not in "<>" else f"&{'lg'[sign == '>']}t;")
    return " ".join(text.split())


def code(text: str) -> str:
    """Code for a cell of a table; `|` would end the cell."""
    return f"<code>{cell(text)}</code>" if "|" in text else f"`{text}`"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["--"] * len(head), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)

"""Pieces of Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def cell(text: str) -> str:
    """Text of a cell of a table, as it stands: nothing of it is markup."""
    for sign in "\\`*_[]<>|{}":
        text = text.replace(sign, f"\\{sign}" if sign not in "<>" else f"&{'lg'[sign == '>']}t;")
    return " ".join(text.split())


def code(text: str) -> str:
    """Text of a cell in the type of code; `|` would end the cell."""
    return f"<code>{cell(text)}</code>" if "|" in text else f"`{text}`"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["--"] * len(head), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)

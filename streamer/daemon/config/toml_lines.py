"""The lines of the keys of a TOML document, which ``tomllib`` does not report."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from typing import Any

# only a line with one of these can end a multi-line value
_CLOSING = ("]", "}", '"""', "'''")


def key_lines(text: str) -> dict[str, int]:
    """The line (from 1) on which each key and table of a valid document is first named.

    Keys are paths, ``table.key``. The document is cut into its shortest valid parts, each a table
    header or a key with its value, so ``tomllib`` alone defines the syntax.
    """
    lines = text.replace("\r\n", "\n").split("\n")
    found: dict[str, int] = {}
    table: tuple[str, ...] = ()
    start = 0
    while start < len(lines):
        end, content = _part(lines, start)
        paths = list(_paths(content))
        header = lines[start].lstrip().startswith("[")
        for path in paths:
            full = path if header else table + path
            for depth in range(1, len(full) + 1):
                found.setdefault(".".join(full[:depth]), start + 1)
        if header:
            table = paths[-1]
        start = end
    return found


def _part(lines: list[str], start: int) -> tuple[int, dict[str, Any]]:
    """The line after the part that begins on line ``start``, and the content of the part."""
    for end in range(start, len(lines)):
        if end > start and not any(sign in lines[end] for sign in _CLOSING):
            continue
        try:
            return end + 1, tomllib.loads("\n".join(lines[start : end + 1]))
        except tomllib.TOMLDecodeError:
            continue
    return len(lines), {}


def _paths(content: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """The path of every key, outer keys first."""
    for key, value in content.items():
        yield (key,)
        # [[table]] gives a list of one table
        inner = value[0] if isinstance(value, list) and value else value
        if isinstance(inner, dict):
            for path in _paths(inner):
                yield (key, *path)

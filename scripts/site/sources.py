"""Turns pages of docs/ into pages of the site.

In the repository, links lead to files; three pages of the reference have a mark where the site has
tables generated from the program; and titles of code blocks are not shown.
"""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePosixPath

from scripts.site import commands, configuration, metrics

ROOT = Path(__file__).parents[2]

MADE = {
    "reference/commands": commands.page,
    "reference/configuration": configuration.page,
    "reference/metrics": metrics.page,
}
"""Pages with a generated part, which replaces the mark only when the site is built."""

MARK = "*The tables are made from the program when the site is built: `scripts/docs`.*"

PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
}
"""Files of the repository, and the pages that replace them."""

_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)#\s:]+)(#[^)\s]*)?\)")
_TITLED = re.compile(r'^(```+)(\w+) title="([^"]+)"$', re.MULTILINE)


def complete(name: str, text: str) -> str:
    """The source of a page for the site; name: its path in docs/ without ``.md``."""
    if name in MADE:
        before, mark, after = text.partition(MARK)
        if not mark:
            raise ValueError(f"docs/{name}.md: the mark is missing: {MARK}")
        text = before + MADE[name]() + after
    return _TITLED.sub(r"\1{code-block} \2\n:caption: \3\n", relinked(text, f"docs/{name}.md"))


def relinked(text: str, path: str) -> str:
    """Markdown whose links lead to pages of the site or to files; links to folders become text."""
    folder = PurePosixPath(path).parent

    def link(found: re.Match[str]) -> str:
        shown, to, anchor = found.groups()
        target = os.path.normpath(folder / to)
        if (ROOT / target).is_dir():
            if (ROOT / target / "README.md").exists():
                return f"[{shown}]({to.rstrip('/')}/README.md{anchor or ''})"
            return shown if "`" in shown else f"`{shown}`"
        if target in PAGES:
            page = os.path.relpath(PurePosixPath("docs", PAGES[target]), folder)
            return f"[{shown}]({page}{anchor or ''})"
        return found[0]

    return _LINK.sub(link, text)

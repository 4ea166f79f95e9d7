"""The fenced blocks of a page of documentation.

A ``sh`` or ``python`` block is run. One that cannot run here has a title that begins with "needs",
as in ``sh title="needs a GPU"``. A block with another title is a file of that name. A block without
a language right behind one that runs is what that prints; ``...`` stands for anything.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from tests.data_files import ROOT

PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(path for path in (ROOT / "docs").rglob("*.md") if "performance" not in path.parts),
]

_FENCE = re.compile(r"^(```+)([\w-]*)(?: title=\"([^\"]+)\")?[^\n]*\n(.*?)^\1$", re.M | re.S)


class Block(NamedTuple):
    """line: of its first line of text. output: what it prints, None if the page does not say."""

    language: str
    title: str
    text: str
    line: int
    output: str | None = None

    @property
    def needs(self):
        """What a block that cannot run here needs, else empty."""
        return self.title if self.title.startswith("needs ") else ""

    @property
    def runs(self):
        return self.language in ("sh", "python") and not self.title


def blocks(path):
    """The blocks of a page, in order."""
    text = path.read_text()
    found = []
    end = -1
    for fence in _FENCE.finditer(text):
        _, language, title, body = fence.groups()
        follows = not text[end : fence.start()].strip() if found else False
        if not language and follows and found[-1].runs:
            found[-1] = found[-1]._replace(output=body)
        else:
            line = text.count("\n", 0, fence.start()) + 2
            found.append(Block(language, title or "", body, line))
        end = fence.end()
    return found


def shown(path):
    """A page's name in messages."""
    return str(path.relative_to(ROOT))

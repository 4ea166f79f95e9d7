"""``--help`` of every command says what is recorded; ``--update-golden`` records it again.

Borders and line breaks are left out: they belong to the package that draws the page.
"""

from __future__ import annotations

import re
from pathlib import Path

RECORD = Path(__file__).parent / "help.txt"
COMMAND = re.compile(r"^[a-z][a-z-]*(?= )")


def page(streamer, *command):
    """The lines of a help page, each of one argument, option or command."""
    code, out, said = streamer(*command, "--help")
    assert (code, said) == (0, "")
    lines = [" ".join(re.sub("[\u2500-\u257f]", " ", line).split()) for line in out.splitlines()]
    return [line for line in lines if line]


def pages(streamer, *command):
    """The page of a command and of all below it."""
    lines = page(streamer, *command)
    yield f"== {' '.join(['streamer', *command])}\n" + "\n".join(lines) + "\n"
    if "Commands" in lines:
        for line in lines[lines.index("Commands") + 1 :]:
            yield from pages(streamer, *command, COMMAND.match(line)[0])


def test_help(streamer, update_golden, monkeypatch):
    monkeypatch.setenv("COLUMNS", "1000")
    text = "\n".join(pages(streamer))
    if update_golden:
        RECORD.write_text(text)
    assert text == RECORD.read_text()

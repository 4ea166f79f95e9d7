"""The manual pages, made from the help of the program: one for it, and one for each command.

``setup.py`` calls ``write`` when a wheel is built.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from scripts.site.commands import apart
from streamer import __version__
from streamer.cli.app import COMMANDS, make_app

_EXIT = """\
0: done. 1: a data or run-time error, in one line. 2: a usage error. 130: interrupted."""


def write(folder: Path) -> list[Path]:
    """Write ``NAME.1`` of each command to a folder, which is created; returns the files."""
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for name, text in pages().items():
        files.append(folder / f"{name}.1")
        files[-1].write_text(text)
    return files


def pages() -> dict[str, str]:
    """The pages by name: ``streamer``, ``streamer-match``, ``streamer-journal-export``."""
    return dict(_pages("streamer", typer.main.get_command(make_app(COMMANDS)), None))


def _pages(path: str, command: Any, parent: Any) -> Iterator[tuple[str, str]]:
    name = path.rpartition(" ")[2]
    below = getattr(command, "commands", {})
    with command.make_context(name, [], resilient_parsing=True, parent=parent) as context:
        yield path.replace(" ", "-"), "\n".join(_lines(path, command, context, below)) + "\n"
        for word, further in below.items():
            yield from _pages(f"{path} {word}", further, context)


def _lines(path: str, command: Any, context: Any, below: dict[str, Any]) -> Iterator[str]:
    page = path.replace(" ", "-")
    short, _, _ = command.help.partition("\n\n")
    yield f'.TH {_text(page.upper())} 1 "" "kmer\\-streamer {__version__}" "User commands"'
    yield ".SH NAME"
    yield f"{_text(page)} \\- {_text(' '.join(short.split()).rstrip('.'))}"
    yield ".SH SYNOPSIS"
    usage = " ".join(command.get_usage(context).removeprefix("Usage: ").split())
    yield f".B {_text(path)}"
    yield _text(usage.removeprefix(path).strip() or "[OPTIONS]")
    yield ".SH DESCRIPTION"
    for number, part in enumerate(command.help.split("\n\n")):
        if number:
            yield ".PP"
        yield _text(" ".join(part.split()))
    parameters = command.get_params(context)
    for title, kind in (("ARGUMENTS", "argument"), ("OPTIONS", "option")):
        found = [p for p in parameters if p.param_type_name == kind]
        if found:
            yield f".SH {title}"
        for parameter in found:
            names, meaning = parameter.get_help_record(context)
            names, choices = apart(names)
            yield ".TP"
            yield f"\\fB{_text(names)}\\fR"
            yield _text(" ".join(meaning.split()) + (f" One of {choices}." if choices else ""))
    if below:
        yield ".SH COMMANDS"
        for word, further in sorted(below.items()):
            yield ".TP"
            yield f".BR {_text(page)}\\-{_text(word)} (1)"
            yield _text(" ".join(further.get_short_help_str(200).split()))
    yield ".SH EXIT STATUS"
    yield _text(_EXIT)
    if page != "streamer":
        yield ".SH SEE ALSO"
        yield ".BR streamer (1)"


def _text(text: str) -> str:
    """Text as it is in roff: backslashes, hyphens, and what would begin a request."""
    text = re.sub("``(.*?)``", r"\1", text)
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("`", "\\(ga")
    return "\\&" + text if text[:1] in (".", "'") else text

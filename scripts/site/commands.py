"""The page of all commands, generated from the program's definitions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import typer

from scripts.site.markdown import cell, code, table
from streamer.cli.app import COMMANDS, make_app


def page() -> str:
    return "\n".join(_command("streamer", typer.main.get_command(make_app(COMMANDS))))


def _command(path: str, command: Any, parent: Any = None) -> Iterator[str]:
    """The section of a command and those of its subcommands."""
    name = path.rpartition(" ")[2]
    with command.make_context(name, [], resilient_parsing=True, parent=parent) as context:
        yield f"## {path}\n"
        yield f"{_prose(command.help or '')}\n"
        usage = command.get_usage(context).removeprefix("Usage: ")
        yield f"```text\n{usage}\n```\n"
        parameters = command.get_params(context)
        for title, kind in (("Argument", "argument"), ("Option", "option")):
            rows = [_row(p, context) for p in parameters if p.param_type_name == kind]
            if rows:
                yield table([title, "Meaning", "Values"], rows)
        for below, further in getattr(command, "commands", {}).items():
            yield from _command(f"{path} {below}", further, context)


def _row(parameter: Any, context: Any) -> tuple[str, str, str]:
    names, meaning = parameter.get_help_record(context)
    # typer appends default and range in brackets
    meaning, _, notes = meaning.partition("  [")
    names, choices = apart(names)
    values = "; ".join(filter(None, [choices, notes.removesuffix("]")]))
    return code(names), cell(meaning), cell(values)


def apart(names: str) -> tuple[str, str]:
    """The names with a one-word type, and the choices if there are several."""
    found = re.search(r" <([^>]+)>$", names)
    if found is None:
        return names, ""
    names, kind = names[: found.start()], found[1]
    if "|" in kind:
        return names, kind.replace("|", ", ")
    plain = {"int range": "N", "int": "N", "float range": "X", "float": "X"}
    return f"{names} {plain.get(kind, '' if '[' in kind else kind.upper())}".strip(), ""


def _prose(text: str) -> str:
    """Help as Markdown: lines are joined to paragraphs, ``code`` and <words> stay as they are."""
    return "\n\n".join(cell(part).replace(r"\`\`", "``") for part in text.split("\n\n"))

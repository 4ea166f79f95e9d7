"""Command lines of jobs: parsed with the options of their commands, but not run."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import typer
from typer.exceptions import TyperException

from streamer.daemon.jobs.job_requests import ParsedLine, placed
from streamer.errors import UsageError

INPUTS = {
    "asm": ("text", "patterns"),
    "hamming": ("text", "patterns"),
    "primer": ("alpha", "beta"),
    "lcs": ("a", "b"),
}
"""The commands that can be jobs, and which of their parameters are input files."""

CLIENT = ("output", "format_", "quiet")
"""Parameters for the client that waits for the rows."""

_FILES = ("bed", "fasta", "plot", "known", "known_table", "sequence", "blocks")
NOT_FOR_JOBS = dict.fromkeys(_FILES, "a job only gives rows") | {
    "cluster": "a job runs on the daemon's machine"
}
"""Parameters that a job cannot have, and why."""


class JobLine(NamedTuple):
    """A parsed command line.

    arguments: those of the command, without those of CLIENT; each option is one word, so that no
    word can be taken for another option. own: those of CLIENT, by name.
    """

    command: str
    arguments: list[str]
    own: dict[str, Any]
    inputs: list[str]
    device: str


def parse_line(line: Sequence[str], folder: str) -> ParsedLine:
    """Check a line for the daemon; UsageError if invalid. folder: where relative paths start."""
    read = read_line(line, folder, helps=False)
    if read.own:
        raise UsageError(f"{_option(read.command, next(iter(read.own)))}: for clients, not jobs")
    return ParsedLine(read.arguments, read.inputs, read.device)


def read_line(line: Sequence[str], folder: str = "", *, helps: bool = True) -> JobLine:
    """Parse a command and its arguments as a user gives them; UsageError if they are invalid.

    folder: where relative paths of ``arguments`` start. helps: ``--help`` shows the help of the
    command and raises ``typer.Exit``.
    """
    command, *arguments = line or [""]
    if command not in INPUTS:
        raise UsageError(f"no job: {command!r} (known: {', '.join(INPUTS)})")
    context = _parsed(command, arguments, helps=helps)
    made: list[str] = []
    positional: list[str] = []
    parsed: dict[str, Any] = {}
    for param in context.command.params:
        name = str(param.name)
        source = context.get_parameter_source(name)
        if source is None or source.name != "COMMANDLINE":
            continue
        value = context.params[name]
        if name in INPUTS[command]:
            value = placed(value, folder)
        if name in NOT_FOR_JOBS:
            raise UsageError(f"{param.opts[-1]}: {NOT_FOR_JOBS[name]}")
        if name in CLIENT:
            parsed[name] = value
        elif param.param_type_name == "argument":
            positional.append(str(value))
        elif value is True:
            made.append(param.opts[-1])
        else:
            option = max(param.opts, key=len)
            joint = "=" if option.startswith("--") else ""
            for item in value if isinstance(value, (list, tuple)) else [value]:
                made.append(f"{option}{joint}{item}")
    dashed = any(item.startswith("-") for item in positional)
    inputs = [context.params[name] for name in INPUTS[command]]
    return JobLine(
        command,
        [*made, "--", *positional] if dashed else [*positional, *made],
        parsed,
        [item for item in inputs if item is not None],
        str(context.params["device"]),
    )


def _parsed(command: str, arguments: Sequence[str], *, helps: bool) -> Any:
    """The context of a command that was parsed but is not run."""
    made: Any = _command(command)
    made.add_help_option = helps
    try:
        context = made.make_context(command, list(arguments), resilient_parsing=False)
    except TyperException as error:
        raise UsageError(error.format_message().strip()) from None
    return context


def _command(name: str) -> Any:
    from streamer.cli.app import make_app

    return typer.main.get_command(make_app([name])).commands[name]  # type: ignore[attr-defined]


def _option(command: str, name: str) -> str:
    params = _command(command).params
    return str(next(max(param.opts, key=len) for param in params if param.name == name))

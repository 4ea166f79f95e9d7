"""The program ``streamer``: its commands, and errors turned into one line and an exit code.

Commands import what they need when they run, so that ``--help`` answers at once.
"""

from __future__ import annotations

import contextlib
import sys
import traceback
from collections.abc import Iterable, Sequence
from contextvars import copy_context
from importlib import import_module
from typing import Annotated

import typer
from typer.exceptions import TyperException

from streamer import __version__
from streamer.cli.choices import WORDS, say_error
from streamer.cli.streams import lose_messages
from streamer.errors import EXIT_INTERRUPTED, ReaderGoneError, StreamerError, start_warnings
from streamer.sequences.record_limit import MOST_BASES, limit_records
from trie.cpu import machine
from trie.cpu.interrupts import Interrupts, interrupts_as_such

COMMANDS = {
    "match": "match", "filter": "filter", "asm": "asm", "hamming": "hamming", "primer": "primer",
    "lcs": "lcs", "index": "index", "run": "daemon", "validate": "daemon", "send": "send",
    "play": "play", "status": "status", "top": "top", "watch": "watch",
    "targets": "targets", "regions": "regions", "reload": "reload", "report": "report_page",
    "submit": "jobs", "jobs": "jobs", "journal": "journal", "keygen": "keygen",
    "devices": "devices", "selftest": "selftest", "warm-up": "warm_up",
}  # fmt: skip
"""The commands, each with its module in ``streamer.cli``."""

# what follows the name of a command belongs to that command
_SETTINGS = {"submit": {"allow_interspersed_args": False}}


def make_app(names: Iterable[str]) -> typer.Typer:
    """The program with these commands. Each adds milliseconds to every start."""
    made = typer.Typer(
        name="streamer",
        help="Match DNA reads against a dictionary of k-mers, live over ZeroMQ or from files; "
        "search patterns, find primers, compare genomes.",
        no_args_is_help=True,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    made.callback()(_options)
    for name in names:
        module = import_module(f"streamer.cli.{COMMANDS[name]}")
        if name == "journal":
            made.add_typer(module.app, name=name)
            continue
        function = name.replace("-", "_")
        # a command named like a builtin has an underscore at the end
        command = getattr(module, function, None) or getattr(module, f"{function}_")
        made.command(name, context_settings=_SETTINGS.get(name))(command)
    return made


def _show_version(value: bool) -> None:
    if value:
        typer.echo(f"streamer {__version__}")
        raise typer.Exit


def _options(
    context: typer.Context,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error; may stand anywhere.")
    ] = False,
    max_record: Annotated[
        int,
        typer.Option(
            "--max-record",
            min=1,
            metavar="BASES",
            envvar="STREAMER_MAX_RECORD",
            help="Refuse a longer record, except where records are read in parts: those of "
            "dictionaries and of texts to search.",
        ),
    ] = MOST_BASES,
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    """Options of the program itself; ``--debug`` was removed from the line before."""
    machine.prepare()
    start_warnings()
    limit_records(max_record)
    if context.invoked_subcommand != "run":
        # the daemon's log counts lost lines itself
        lose_messages()


def main(argv: Sequence[str] | None = None, app: typer.Typer | None = None) -> int:
    """Run one command line; returns the exit code. An error is one line on standard error.

    ``app`` is another program than ``streamer`` that reports errors in the same way.
    """
    arguments, debug = _without_debug(sys.argv[1:] if argv is None else argv)
    lines, code = Interrupts().run(
        # what a command sets ends with it: there may be another one in this process
        lambda: copy_context().run(_outcome, arguments, debug, app),
        (["interrupted"], EXIT_INTERRUPTED),
    )
    with contextlib.suppress(OSError):
        for line in lines:
            say_error(line)
    return code


def _outcome(arguments: list[str], debug: bool, app: typer.Typer | None) -> tuple[list[str], int]:
    """Run one command line; returns the lines to report of an error, and the exit code."""

    def fail(lines: list[str], code: int) -> tuple[list[str], int]:
        if debug:
            # if nothing can be written, the exit code still tells
            with contextlib.suppress(OSError):
                traceback.print_exc()
        return lines, code

    WORDS.set(arguments)
    try:
        with interrupts_as_such():
            # without a command, the help lists all
            asked = [word for word in arguments[:1] if word in COMMANDS]
            made = app or make_app(asked or COMMANDS)
            result = typer.main.get_command(made).main(
                args=arguments, prog_name=made.info.name, standalone_mode=False, obj=debug
            )
    except ReaderGoneError as error:
        return [], error.exit_code
    except StreamerError as error:
        return fail(error.lines(), error.exit_code)
    except TyperException as error:
        # without a message, the help has been shown
        message = error.format_message().strip()
        for words, plain in _PLAIN_WORDS:
            message = message.replace(words, plain)
        return fail([message] if message else [], error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        return fail(["interrupted"], EXIT_INTERRUPTED)
    except MemoryError as error:
        return fail([f"out of memory: {error}" if str(error) else "out of memory"], 1)
    except RuntimeError as error:
        if str(error) != "can't start new thread":
            raise
        return fail(["cannot start a thread: raise the limit on memory or on processes"], 1)
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        return fail([f"{place}{error.strerror or error}"], 1)
    if result == EXIT_INTERRUPTED:
        # typer has turned the interrupt into its exit code
        return fail(["interrupted"], EXIT_INTERRUPTED)
    return [], result if isinstance(result, int) else 0


_PLAIN_WORDS = (("Value error, ", ""), ("Input should be", "must be"))
"""Terms of the library that checks options, and plain replacements."""


def _without_debug(argv: Sequence[str]) -> tuple[list[str], bool]:
    """The arguments without ``--debug``, which may stand anywhere, and whether it was present."""
    words = list(argv)
    end = words.index("--") if "--" in words else len(words)
    others = [word for word in words[:end] if word != "--debug"]
    return others + words[end:], len(others) < end

"""What ``streamer report`` does once its options are checked."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import PurePath
from typing import Any, BinaryIO

from streamer.cli.streams import progress
from streamer.output.output_file import OutputFiles
from streamer.reporting.collection import Collection, Given, ReadRows, of_journal, read_report
from streamer.reporting.kept_reads import Recount, count_again, is_journal
from streamer.reporting.multiqc import multiqc
from streamer.reporting.page import page
from streamer.sequences.source import STDIN, shown_name, size_of_files
from trie.cpu.compiling import compile_notice


@dataclass(frozen=True, slots=True)
class PageOptions:
    """The options. inputs: files and folders. aside: the file for MultiQC, if there is one."""

    inputs: list[str]
    output: str
    aside: str | None
    title: str | None
    recount: Recount


def write_report(options: PageOptions, *, quiet: bool) -> None:
    """Read all inputs, then write the page, and the file for MultiQC beside it."""
    names = _names(options.inputs)
    given = [_given(path, names[path], options.recount, quiet=quiet) for path in options.inputs]
    name = "report" if options.output == "-" else PurePath(options.output).name.split(".")[0]
    collection = Collection(options.title or name, given)
    html = page(collection, [])
    with OutputFiles() as outputs:
        outputs.open(options.output).write(html.encode("utf-8", "replace"))
        if options.aside is not None:
            table = multiqc(collection, options.title or name)
            outputs.open(options.aside).write(table.encode("utf-8", "replace"))


def _names(paths: list[str]) -> dict[str, str]:
    """Names for the page: without their folders, which may be private, if they stay distinct."""
    short = {path: PurePath(path).name or path for path in paths if path != STDIN}
    counts = Counter(short.values())
    return {
        path: shown_name(path) if path == STDIN or counts[short[path]] > 1 else short[path]
        for path in paths
    }


def _given(path: str, name: str, recount: Recount, *, quiet: bool) -> Given:
    if is_journal(path):
        with compile_notice(quiet=quiet), progress("counting", 100, quiet=quiet, unit="share") as s:
            return of_journal(name, count_again(path, recount, s))
    with ExitStack() as stack:
        opened, packed = _opened(path, stack)
        total = None if packed else size_of_files([path])
        show = stack.enter_context(progress(f"reading {name}", total, quiet=quiet))
        found = read_report(opened, shown_name(path), show)
    return Given(name, f"rows of --report {found.kind}", [found.report], [*_facts(path, found)])


def _opened(path: str, stack: ExitStack) -> tuple[BinaryIO, bool]:
    """The text of a file, and whether it is compressed."""
    from xopen import xopen

    if path == STDIN:
        return sys.stdin.buffer, False
    with open(path, "rb") as raw:
        packed = raw.read(1) not in (b"#", b"{", b"") if raw.seekable() else False
    file: Any = stack.enter_context(xopen(path, "rb", threads=0))
    return file, packed


def _facts(path: str, found: ReadRows) -> Iterator[tuple[str, str]]:
    yield "lines", f"{found.lines:,}"
    yield "bytes of text", f"{found.bytes:,}"
    if path != STDIN:
        changed = datetime.fromtimestamp(os.stat(path).st_mtime, UTC)
        yield "last changed", f"{changed:%Y-%m-%d %H:%M} UTC"

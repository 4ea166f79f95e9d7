"""The pages that are made from the program have all of it."""

from __future__ import annotations

import re

import pytest
import typer

from scripts.site import commands, configuration, metrics
from streamer.cli.app import COMMANDS, make_app
from streamer.daemon.config import Config
from streamer.daemon.metrics.scrape import METRICS
from tests.data_files import ROOT
from tests.pages.session import PAGES, shown

DOCS = [path for path in PAGES if path.is_relative_to(ROOT / "docs")]


def walk(path, command):
    """(path, command) of a command and of all below it."""
    yield path, command
    for name, below in getattr(command, "commands", {}).items():
        yield from walk(f"{path} {name}", below)


def sections(text):
    """The text below each heading of the second level."""
    parts = re.split(r"^## (.+)$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_every_command_and_option_is_there():
    found = sections(commands.page())
    program = dict(walk("streamer", typer.main.get_command(make_app(COMMANDS))))
    assert list(found) == list(program)
    for path, command in program.items():
        for parameter in command.params:
            names = parameter.opts if parameter.param_type_name == "option" else [parameter.metavar]
            for name in names:
                # alone in its cell, or followed by other names and a value
                assert re.search(
                    rf"^\| [^|]*(?<![\w-]){re.escape(name)}(?![\w-])", found[path], re.M
                )
            for choice in getattr(parameter.type_descriptor.annotation, "__args__", ()):
                if isinstance(choice, str):
                    assert choice in found[path]


def test_every_key_is_there_with_its_default():
    found = sections(configuration.page())
    assert list(found) == [f"[{name}]" for name in Config.model_fields]
    for name, field in Config.model_fields.items():
        rows = re.findall(
            r"^\| `(\w+)` \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", found[f"[{name}]"], re.M
        )
        assert [row[0] for row in rows] == list(field.annotation.model_fields)
        assert all(all(part.strip() for part in row) for row in rows)


def test_kinds_of_values_are_in_words():
    model = Config.model_fields["dictionary"].annotation.model_fields
    assert configuration.kind(model["k"]) == "integer, 1 to 31"
    assert configuration.kind(model["mode"]) == '"frozen", "grow"'
    assert configuration.kind(model["sources"]) == "list of texts"
    assert configuration.kind(model["max_kmers"]) == "integer, 0 or more"


def test_every_metric_is_there():
    page = metrics.page()
    assert re.findall(r"^\| `(\w+)` \|", page, re.M) == [metric.name for metric in METRICS]


@pytest.mark.parametrize("path", DOCS, ids=shown)
def test_files_that_a_page_links_to_are_there(path):
    for link in re.findall(r"\]\(([^)#\s:]+)[)#]", path.read_text()):
        assert (path.parent / link).exists(), link

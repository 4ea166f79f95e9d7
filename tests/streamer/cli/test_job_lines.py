"""Command lines of jobs: what runs is what was checked."""

from __future__ import annotations

import random
from typing import get_args, get_type_hints

import pytest

from streamer.cli import app
from streamer.cli.job_lines import CLIENT, INPUTS, NOT_FOR_JOBS, parse_line
from streamer.errors import UsageError

# each takes what follows as its value, and --debug is taken out of a line before that
SMUGGLED = ["--tm", "--debug", "--tm"]


@pytest.mark.parametrize(
    "line",
    [
        ["-k", "2", *SMUGGLED[:2], "a.fa", *SMUGGLED, "/etc/passwd", "--tm", "40-70", "b.fa"],
        ["-k", "2", *SMUGGLED, "--output=/etc/passwd", "a.fa", "b.fa", "--tm", "40-70"],
        ["-k", "2", *SMUGGLED, "--known=/etc/passwd", "a.fa", "b.fa", "--tm", "40-70"],
    ],
)
def test_a_value_cannot_become_an_option(line):
    found = parse_line(["primer", *line], "/data")
    assert found.inputs == ["a.fa", "b.fa"]
    assert found.arguments == ["/data/./a.fa", "/data/./b.fa", "-k2", "--tm=40-70"]


@pytest.mark.whole
def test_words_of_any_kind_mean_the_same_to_the_command():
    """The arguments that run, read again as the program reads them, are the same."""
    rng = random.Random(7)
    words = ["--tm", "--gc", "--debug", "-k", "-k2", "2", "--", "-", "-o", "--output=x", "-q"]
    words += ["a.fa", "b.fa", "/c.fa", "-d.fa", "--tm=--debug", "--strands", "both", "--pairs"]
    taken = 0
    for _ in range(300):
        line = ["-k3", *rng.choices(words, k=rng.randint(2, 6))]
        try:
            found = parse_line(["primer", *line], "/data")
        except UsageError:
            continue
        taken += 1
        arguments, debug = app._without_debug(["primer", *found.arguments])
        assert not debug, line
        again = parse_line(arguments, "")
        assert list(again.arguments) == list(found.arguments), line
        assert all(one.startswith(("/data/./", "/c.fa")) for one in again.inputs), line
    assert taken > 15


@pytest.mark.parametrize("word", ["--help", "-h"])
def test_nothing_is_shown_where_the_daemon_runs(word, capfd):
    with pytest.raises(UsageError, match=f"No such option: {word}"):
        parse_line(["lcs", "a", "b", word], "")
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    "line",
    [
        ["asm", "t.fa", "-k2", "--pattern", "ACGT"],
        ["hamming", "t.fa", "-k2", "--pattern", "ACGT"],
        ["primer", "a.fa", "b.fa", "-k2"],
        ["lcs", "a.fa", "b.fa"],
    ],
)
def test_a_job_stays_on_its_machine(line):
    assert parse_line(line, "/").inputs
    with pytest.raises(UsageError, match="--cluster: a job runs on the daemon's machine"):
        parse_line([*line, "--cluster", "host:6379"], "/")


def test_help_of_a_command_is_no_error(capsys):
    assert app.main(["submit", "lcs", "--help"]) == 0
    assert "Usage: lcs" in capsys.readouterr().out


@pytest.mark.parametrize("command", INPUTS)
def test_options_that_may_name_files_are_known(command):
    """A new option of text is either an input, or refused, or named here as no file."""
    known = {*INPUTS[command], *CLIENT, *NOT_FOR_JOBS, "pattern", "gc", "tm", "product"}
    hints = get_type_hints(getattr(__import__(f"streamer.cli.{command}", fromlist="x"), command))
    texts = {name for name, hint in hints.items() if _is_text(hint) and name != "return"}
    assert texts - known == set()
    assert texts & {*INPUTS[command]} == {*INPUTS[command]}


def _is_text(hint):
    return hint is str or any(_is_text(one) for one in get_args(hint))

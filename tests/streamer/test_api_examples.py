"""Everything that the pages of the API document has an example, and the examples are true."""

from __future__ import annotations

import doctest
import importlib
import inspect
import re
import shutil
import types

import pytest

from streamer.client import Sync
from tests.daemon_kit import running, settings
from tests.data_files import DATA, ROOT
from tests.waiting import DEADLINE

PAGES = ROOT / "docs" / "api"
DIRECTIVE = re.compile(r"^\.\. auto(function|class):: ([\w.]+)$", re.MULTILINE)
# what is only returned or raised needs none
RETURNED = re.compile(r"^## (Messages|Errors|Replies)$.*", re.MULTILINE | re.DOTALL)
ENDPOINTS = {"ingest": 5701, "feed": 5702, "control": 5703, "sync": 5704}
DAEMON = """
k = 21
sources = ["lambda.fa.gz"]
mode = "grow"
[answers]
targets = true
coverage = true
[decision]
enrich = ["gi|9626243|ref|NC_001416.1|"]
[jobs]
directories = ["."]
results = "results"
[journal]
durability = "os"
directory = "journal"
"""


TEXTS = [page.read_text() for page in sorted(PAGES.glob("*.md"))]
DOCUMENTED = [found[2] for text in TEXTS for found in DIRECTIVE.finditer(RETURNED.sub("", text))]
"""The names of functions and classes on the pages, each page in order."""


def resolve(name):
    module, _, attribute = name.rpartition(".")
    try:
        return getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        if error.name != "readfish":
            raise
        pytest.skip("readfish is not installed")


def methods(shown):
    """The names of a class's public methods, those of its bases in the project, too."""
    for each in shown.__mro__:
        if each.__module__.startswith(("streamer", "trie")):
            for name, value in vars(each).items():
                plain = isinstance(value, types.FunctionType | classmethod | staticmethod)
                if plain and not name.startswith("_"):
                    yield name


def members(name):
    """The methods that its page names; None: all."""
    options = "".join(TEXTS).partition(f":: {name}\n")[2].partition("```")[0]
    found = re.search(r":members: (.+)", options)
    return None if found is None else set(found[1].split(", "))


def examples(shown):
    """The source lines of the examples of a function, or of a class and its methods."""
    texts = [shown.__doc__ or ""]
    if inspect.isclass(shown):
        texts += [inspect.getdoc(getattr(shown, name)) or "" for name in methods(shown)]
    parser = doctest.DocTestParser()
    return [example for text in texts for example in parser.get_examples(text)]


@pytest.mark.parametrize("name", DOCUMENTED)
def test_every_function_has_an_example(name):
    shown = resolve(name)
    called = "".join(example.source for example in examples(shown))
    if inspect.isclass(shown):
        limited = members(name)
        asked = {method for method in methods(shown) if limited is None or method in limited}
        lacking = {method for method in asked if not re.search(rf"\b{method}\(", called)}
        assert not lacking
    else:
        assert f"{name.rpartition('.')[2]}" in called


def test_all_that_is_public_is_documented():
    for module in ("streamer", "streamer.client", "streamer.aio", "trie"):
        for name in importlib.import_module(module).__all__:
            if not name.startswith("__") and name != "Message":
                assert f":: {module}.{name}\n" in "".join(TEXTS)


def run(name, replaced=()):
    """Run the examples of a function or class, and compare what they print."""
    shown = resolve(name)
    texts = [inspect.getdoc(shown)]
    if inspect.isclass(shown):
        texts += [inspect.getdoc(getattr(shown, method)) or "" for method in methods(shown)]
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    said = []
    for text in texts:
        for old, new in replaced:
            text = text.replace(old, new)
        found = doctest.DocTestParser().get_doctest(text, {}, name, name, 0)
        runner.run(found, out=said.append)
    assert runner.failures == 0, "".join(said)
    assert runner.tries > 0


def is_client(name):
    return name.startswith(("streamer.client", "streamer.aio"))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for name in ("lambda.fa.gz", "ont_native_barcodes_24.fa.gz"):
        shutil.copy(DATA / name, tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", [name for name in DOCUMENTED if not is_client(name)])
def test_examples(name, folder):
    run(name)


@pytest.mark.whole
@pytest.mark.parametrize("name", [name for name in DOCUMENTED if is_client(name)])
def test_examples_of_clients(name, folder, monkeypatch):
    monkeypatch.setitem(Sync.__init__.__kwdefaults__, "answer_seconds", DEADLINE)
    patient = [
        (f"{before}{wait})", f"{before}{DEADLINE})")
        for before, wait in (("timeout=", 10), ("timeout=", 60), ("wait_for_daemon(", 10))
    ]
    with running(settings(folder, DAEMON)) as daemon:
        ports = [
            (f"tcp://127.0.0.1:{port}", daemon.endpoints[socket])
            for socket, port in ENDPOINTS.items()
        ]
        run(name, patient + ports)

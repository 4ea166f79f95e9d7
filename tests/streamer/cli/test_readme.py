"""What the README and the pages of commands tell to type does what it says, as it stands there."""

from __future__ import annotations

import gzip
import io
import re
import shlex
import shutil
from pathlib import Path

import pytest

from streamer.client import Producer
from tests.daemon_kit import running, settings
from tests.data_files import ROOT
from tests.waiting import DEADLINE

pytestmark = pytest.mark.whole

README = (ROOT / "README.md").read_text()
PAGES = README + "".join((ROOT / "docs" / page).read_text() for page in ("targets.md", "filter.md"))
COMMANDS = ("match", "filter", "asm", "hamming", "lcs", "primer")


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", PAGES, re.DOTALL)


def lines():
    """The command lines that need neither a daemon nor a card."""
    joined = "".join(blocks("sh")).replace("\\\n", " ").splitlines()
    found = [line for line in joined if re.search(rf"\bstreamer ({'|'.join(COMMANDS)}) ", line)]
    return [line for line in found if "cuda" not in line]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """What ``cp -r tests/data try`` makes, and the read that a block takes out, its beginning."""
    assert "cp -r tests/data try && cd try" in README
    assert "zcat lambda_nanopore.fq.gz | head -4 > read.fq" in README
    top = tmp_path_factory.mktemp("readme")
    shutil.copy(ROOT / "README.md", top)
    copy = Path(shutil.copytree(ROOT / "tests" / "data", top / "try"))
    with gzip.open(copy / "lambda_nanopore.fq.gz", "rb") as reads:
        read = [reads.readline().rstrip()[:1200] + b"\n" for _ in range(4)]
    (copy / "read.fq").write_bytes(b"".join(read))
    return copy


@pytest.mark.parametrize("line", lines())
def test_command_lines(line, streamer, folder, monkeypatch):
    monkeypatch.chdir(folder)
    words = shlex.split(line, comments=True)
    if words[0] == "zcat":
        reads = io.BytesIO(gzip.decompress(Path(words[1]).read_bytes()))
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(reads))
        words = words[words.index("|") + 1 :]
    words = words[: words.index(">")] if ">" in words else words
    assert words[0] == "streamer"
    code, out, said = streamer(*words[1:], "-q")
    assert (code, said) == (0, "")
    assert out.startswith("#") or words[1] == "filter"
    # comments that name columns name them as they are
    told = re.search(r"# ((?:read|text) (?:start|end) .*)$", line)
    assert told is None or out.splitlines()[0][1:].split("\t") == told[1].split()
    made = [
        words[i + 1]
        for i, word in enumerate(words)
        if word in ("--bed", "--plot", "--blocks", "-o")
    ]
    assert all((folder / name).stat().st_size for name in made)


def test_every_command_is_shown():
    assert {shlex.split(line)[shlex.split(line).index("streamer") + 1] for line in lines()} == {
        *COMMANDS
    }


@pytest.mark.parametrize("code", [code for code in blocks("python") if "Control" in code])
def test_python_of_a_daemon(code, capsys, tmp_path):
    """The novelty of a growing dictionary, as a daemon has it."""
    with running(settings(tmp_path, 'k = 5\nmode = "grow"')) as daemon:
        with Producer(daemon.endpoints["ingest"]) as producer:
            producer.send([("read", "ACGTACGGTTAACCGAT")])
            producer.flush(matched=True, timeout=DEADLINE)
        place = "ipc:///run/user/1000/kmer-streamer/control.sock"
        assert place in code
        exec(code.replace(place, daemon.endpoints["control"]), {})
    assert capsys.readouterr().out.splitlines()[-1].startswith("17 ")


@pytest.mark.parametrize(
    "code", [code for code in blocks("python") if "streamer.client" not in code]
)
def test_python(code, capsys, folder, monkeypatch):
    monkeypatch.chdir(folder)
    scope = {}
    exec(code, scope)
    if "found" in scope:
        assert scope["found"].targets()["reads"].tolist() == [1, 0]
    else:
        assert scope["hits"].size > 0

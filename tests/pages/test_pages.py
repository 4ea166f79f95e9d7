"""Every block of commands of every page runs, prints what its page shows, or says why it cannot."""

from __future__ import annotations

import gzip
import re
import tomllib

import pytest

from streamer.cli.app import COMMANDS
from streamer.daemon.config import Config, load
from tests.data_files import data_file
from tests.pages.session import PAGES, Reader, blocks, shown

CANNOT_RUN = {
    "README.md": {"needs the network": 1},
    "docs/cluster.md": {"needs the network": 1},
    "docs/filter.md": {"needs samtools": 1},
    "docs/scaling.md": {"needs minutes": 1},
    "docs/howto/gpu-host.md": {"needs a GPU": 3},
    "docs/howto/data-frames.md": {"needs pandas, polars and duckdb": 3, "needs R": 1},
    "docs/howto/host-removal.md": {"needs the network": 2},
    "docs/howto/notebook.md": {"needs the network": 1},
    "docs/install.md": {
        "needs Docker": 1, "needs a file": 1, "needs a terminal": 1, "needs minutes": 1,
        "needs systemd": 2, "needs the network": 1,
    },
    "docs/panel.md": {"needs the network": 1},
    "docs/report.md": {"needs a daemon": 1},
    "docs/security.md": {"needs the network": 1, "needs two machines": 1},
    "docs/top.md": {"needs a terminal": 1},
    "docs/tutorial.md": {"needs the network": 1},
    "docs/watch.md": {"needs dorado": 1},
}  # fmt: skip
"""How many blocks of a page need what a test does not have."""

RUN_ELSEWHERE = {"selftest", "top", "warm-up"}
"""Commands that take minutes or a terminal; they have tests of their own."""

# pages that begin elsewhere than in the folder try: in the clone, or in one of their own
OWN_FOLDER = {
    "README.md": "", "CONTRIBUTING.md": "", "docs/tutorial.md": "", "docs/panel.md": "panel",
    "docs/clinic.md": "clinic",
}  # fmt: skip
SARS = {
    "sarscov2_MN908947.3.fa.gz": "nCoV-2019.reference.fasta",
    "sarscov2_artic_v3_primers.bed.gz": "nCoV-2019.primer.bed",
}
RUNNABLE = [path for path in PAGES if any(block.runs for block in blocks(path))]


def parameters():
    for path in RUNNABLE:
        marks = [] if shown(path) == "README.md" else [pytest.mark.slow]
        if shown(path) == "docs/panel.md":
            marks.append(pytest.mark.data(*SARS))
        yield pytest.param(path, id=shown(path), marks=marks)


@pytest.fixture
def reader(tmp_path, request):
    made = Reader(tmp_path, RUNNABLE.index(request.getfixturevalue("path")))
    yield made
    made.close()


@pytest.mark.whole
@pytest.mark.parametrize("path", list(parameters()))
def test_a_page_runs(path, reader):
    if shown(path) in OWN_FOLDER:
        start = reader.clone / OWN_FOLDER[shown(path)]
        start.mkdir(exist_ok=True)
    else:
        start = reader.try_folder()
    if shown(path) == "docs/panel.md":
        for name, copy in SARS.items():
            (start / copy).write_bytes(gzip.decompress(data_file(name).read_bytes()))
    parts = blocks(path)
    for block in parts:
        if block.title and not block.needs:
            (start / block.title).write_text(reader.here(block.text))
    run = [block for block in parts if block.runs]
    for block, out in zip(run, reader.run(run, start), strict=True):
        if block.output is not None:
            assert fits(block.output, out), f"{shown(path)}:{block.line} printed\n{out}"
        check_columns(block.text, start)


def fits(page, out):
    """Whether lines are as a page shows them: blanks are equal, ``...`` is anything."""
    lines = [" ".join(line.split()) for line in page.splitlines()]
    pattern = "\n".join(re.escape(line).replace(r"\.\.\.", ".*") for line in lines)
    text = "\n".join(" ".join(line.split()) for line in out.splitlines())
    return re.fullmatch(pattern, text) is not None


def check_columns(text, folder):
    """A comment that names the columns of a file names them as they are."""
    for found in re.finditer(
        r"> (\w+\.tsv) +# ((?:read|text) (?:start|end) .*)$", text, re.MULTILINE
    ):
        (path,) = folder.rglob(found[1])
        first = path.read_text().partition("\n")[0]
        assert first[1:].split("\t") == found[2].split()


def test_blocks_that_cannot_run_are_known():
    found = {}
    for path in PAGES:
        for block in blocks(path):
            if block.needs:
                reasons = found.setdefault(shown(path), {})
                reasons[block.needs] = reasons.get(block.needs, 0) + 1
    assert found == CANNOT_RUN


def test_every_command_is_run_somewhere():
    text = "".join(block.text for path in PAGES for block in blocks(path) if block.runs)
    run = set(re.findall(r"(?:^|[|&;(] *|until )streamer ([a-z-]+)", text, re.MULTILINE))
    assert set(COMMANDS) - run <= RUN_ELSEWHERE


@pytest.mark.parametrize(
    ("path", "block"),
    [
        pytest.param(path, block, id=f"{shown(path)}:{block.line}")
        for path in PAGES
        for block in blocks(path)
        if block.language == "toml"
    ],
)
def test_settings_are_valid(path, block, tmp_path):
    tables = tomllib.loads(block.text)
    if set(tables) <= set(Config.model_fields):
        file = tmp_path / "streamer.toml"
        file.write_text(block.text)
        # a page shows the tables that it is about
        lacking = "sources" not in tables.get("dictionary", {})
        load(str(file), ['dictionary.sources=["targets.fa"]'] * lacking, check_files=False)
    else:
        assert "mapper_settings" in tables  # those of readfish

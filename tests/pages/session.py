"""Runs a page as a reader would: its blocks one after the other, in one shell.

The reader's machine is made up: a clone, a home, sockets, and a loopback address that no other test
has. ``pip`` installs nothing, but refuses what the project does not have; ``streamer`` is this one,
and waits for a daemon as long as tests do.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from tests.data_files import DATA, ROOT
from tests.waiting import DEADLINE

_PATIENT = f"""\
from streamer.client import Control, Producer, Subscriber, Sync
for each in (Control, Producer, Subscriber, Sync):
    each.__init__.__kwdefaults__["answer_seconds"] = {DEADLINE}
"""

_CELL = """
import os as _os, sys as _sys
_sys.stdout.flush()
_os.dup2(_os.open("{}", _os.O_WRONLY | _os.O_CREAT), 1)
"""

_STREAMER = f"""#!{sys.executable}
import sys
sys.path.insert(0, {str(ROOT)!r})
from streamer.cli import daemon_options
daemon_options.ANSWER_SECONDS = {DEADLINE}
{_PATIENT}
from streamer.__main__ import run
run()
"""

_PIP = f"""#!{sys.executable}
import re, sys, tomllib
project = tomllib.load(open({str(ROOT / "pyproject.toml")!r}, "rb"))["project"]
for word in sys.argv[2:]:
    found = re.fullmatch(r"(kmer-streamer|[.]+|.*/kmer-streamer)(?:[[]([a-z,]+)[]])?", word)
    extras = found and set((found[2] or "").split(",")) - {{""}}
    if sys.argv[1] != "install" or extras is None or extras - set(project["optional-dependencies"]):
        sys.exit(f"pip: cannot {{sys.argv[1]}} {{word}}")
"""

_PRELUDE = """\
set -mEeuo pipefail
trap 'echo "stopped in the block of line $block: $BASH_COMMAND" >&2' ERR
ended() { [ "$1" = 0 ] || { echo "the block of line $block ends with $1" >&2; exit 1; }; }
trap 'kill -KILL $(jobs -p) 2>/dev/null || true' EXIT
"""

# a daemon that still runs has the sockets that the next page needs
_ALL_ENDED = '[ -z "$(jobs -r)" ] || { echo "the page leaves running: $(jobs -r)" >&2; exit 1; }\n'


class Reader:
    """Somebody who has a clone of the project, and types what a page tells."""

    def __init__(self, folder: Path, number: int) -> None:
        self.folder = folder
        self.clone = folder / "kmer-streamer"
        self.address = f"127.{64 + number % 64}.{os.getpid() >> 8 & 255}.{os.getpid() & 255 or 1}"
        # paths of sockets are short
        self.sockets = tempfile.mkdtemp(prefix="page")
        self.clone.mkdir()
        for name in ("README.md", "pyproject.toml"):
            shutil.copy(ROOT / name, self.clone)
        for name in ("configs", "docs", "scripts"):
            shutil.copytree(ROOT / name, self.clone / name)
        shutil.copytree(DATA, self.clone / "tests" / "data")
        tools = folder / "bin"
        tools.mkdir()
        python = f'#!/bin/sh\nexec {sys.executable} "$@"\n'
        for name, text in (
            ("streamer", _STREAMER), ("pip", _PIP), ("python", python), ("python3", python)
        ):  # fmt: skip
            (tools / name).write_text(text)
            (tools / name).chmod(0o755)

    def close(self) -> None:
        shutil.rmtree(self.sockets)

    def try_folder(self) -> Path:
        """The folder ``try`` of the README, with its read, whose beginning will do here."""
        made = Path(shutil.copytree(DATA, self.clone / "try"))
        with gzip.open(made / "lambda_nanopore.fq.gz") as reads:
            lines = [reads.readline() for _ in range(4)]
        lines[1], lines[3] = lines[1][:1200] + b"\n", lines[3][:1200] + b"\n"
        (made / "read.fq").write_bytes(b"".join(lines))
        return made

    def here(self, text: str) -> str:
        """A block, with addresses of this reader, who waits as long as tests do."""
        text = text.replace("127.0.0.1", self.address)
        text = re.sub(r"--wait \d+", f"--wait {DEADLINE}", text)
        return re.sub(r"wait_for_daemon\(\d+\)", f"wait_for_daemon({DEADLINE})", text)

    def run(self, blocks, start: Path) -> list[str]:
        """Run blocks in a folder: what each has printed; AssertionError at the first that fails."""
        script = [_PRELUDE]
        results = []
        source = self.folder
        for number, block in enumerate(blocks):
            result = self.folder / f"{number}.out"
            results.append(result)
            if block.language == "python" and number and blocks[number - 1].language == "python":
                # as cells of a notebook, with the variables of those before
                with source.open("a") as cells:
                    cells.write(_CELL.format(result) + self.here(block.text))
                continue
            script.append(f"block={block.line}; exec >{result}\n")
            if block.language == "python":
                source = self.folder / f"{number}.py"
                source.write_text(_PATIENT + self.here(block.text))
                script.append(f"python {source}\n")
            else:
                script.append(self.here(block.text))
            # what fails in a list with && ends no shell
            script.append("ended $?\n")
        script.append(_ALL_ENDED)
        code, said = self._bash("".join(script), start)
        assert code == 0, said
        return [result.read_text() for result in results]

    def _bash(self, script: str, start: Path) -> tuple[int, str]:
        places = {
            "HOME": str(self.folder),
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "MPLCONFIGDIR": str(self.folder / "matplotlib"),
            "XDG_RUNTIME_DIR": self.sockets,
            "XDG_STATE_HOME": str(self.folder / "state"),
        }
        with (self.folder / "said").open("w+b") as said:
            shell = subprocess.Popen(
                ["bash", "-c", script], cwd=start, env=os.environ | places,
                stdin=subprocess.DEVNULL, stdout=said, stderr=said, start_new_session=True,
            )  # fmt: skip
            try:
                code = shell.wait(DEADLINE)
            except subprocess.TimeoutExpired:
                code = -1
            finally:
                self._end_session(shell.pid)
            shell.wait()
            said.seek(0)
            return code, said.read().decode()

    @staticmethod
    def _end_session(session: int) -> None:
        """End whatever still runs of a shell: each of its jobs has a group of its own."""
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    fields = (entry / "stat").read_text().rpartition(")")[2].split()
                    if int(fields[3]) == session:
                        os.kill(int(entry.name), signal.SIGKILL)


PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(path for path in (ROOT / "docs").rglob("*.md") if "performance" not in path.parts),
]

_FENCE = re.compile(r"^(```+)([\w-]*)(?: title=\"([^\"]+)\")?[^\n]*\n(.*?)^\1$", re.M | re.S)


class Block(NamedTuple):
    """line: of its first line of text. output: what it prints, None if the page does not say."""

    language: str
    title: str
    text: str
    line: int
    output: str | None = None

    @property
    def needs(self):
        """What a block that cannot run here needs, else empty."""
        return self.title if self.title.startswith("needs ") else ""

    @property
    def runs(self):
        return self.language in ("sh", "python") and not self.title


def blocks(path):
    """The blocks of a page, in order."""
    text = path.read_text()
    found = []
    end = -1
    for fence in _FENCE.finditer(text):
        _, language, title, body = fence.groups()
        follows = not text[end : fence.start()].strip() if found else False
        if not language and follows and found[-1].runs:
            found[-1] = found[-1]._replace(output=body)
        else:
            line = text.count("\n", 0, fence.start()) + 2
            found.append(Block(language, title or "", body, line))
        end = fence.end()
    return found


def shown(path):
    """A page's name in messages."""
    return str(path.relative_to(ROOT))

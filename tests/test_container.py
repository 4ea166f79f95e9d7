"""The steps of the Containerfile, run without a container engine: folders of the image are below a
folder of this test, and its programs are of this machine.

What needs a container is stood in for: ``useradd`` adds nobody, and ``chown`` takes the number.
Needs a package index, and compiles for some minutes: twice, for the image with CUDA, too.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.data_files import DATA, ROOT
from tests.waiting import DEADLINE, until

pytestmark = [pytest.mark.whole, pytest.mark.slow, pytest.mark.timeout(3600)]

BUILD_SECONDS = 3000


class Image:
    """What a Containerfile makes, below ``root``: its folders, its environment and its programs.

    given: arguments of the build.
    """

    def __init__(self, root: Path, given: dict[str, str]) -> None:
        self.root = root
        self.given = given
        self.arguments = {}
        self.environment = {}
        self.user = None
        self.said = {}
        for name in ("bin", "opt", "etc", "run", "var/lib", "var/cache"):
            (root / name).mkdir(parents=True)
        for name, script in {
            "python": f'exec {sys.executable} "$@"',
            "useradd": 'mkdir -p "$(echo "$*" | sed "s/.*--home-dir \\([^ ]*\\).*/\\1/")"',
            "chown": f"shift; [ $(id -u) != 0 ] || {shutil.which('chown')} 10001 $@",
        }.items():
            (root / "bin" / name).write_text(f"#!/bin/sh\n{script}\n")
            (root / "bin" / name).chmod(0o755)
        for step in re.sub(r"\\\n", " ", (ROOT / "Containerfile").read_text()).splitlines():
            name, _, rest = step.partition(" ")
            getattr(self, f"_{name.lower()}", self._note)(name, rest.strip())

    def here(self, text: str) -> str:
        """A text whose paths in the image are those below ``root``."""
        return re.sub(r"(?<![\w.-])/(?=(opt|source|etc|run|var)\b)", f"{self.root}/", text)

    def _from(self, _, base):
        # each stage begins with nothing but Python
        assert base.startswith("python:")

    def _copy(self, _, words):
        first, *names, place = shlex.split(words)
        if first == "--from=build":
            (name,) = names
            assert name == place
            assert Path(self.here(name)).is_dir()
            return
        for name in (first, *names):
            into = Path(self.here(place))
            if (ROOT / name).is_dir():
                shutil.copytree(
                    ROOT / name, into, ignore=shutil.ignore_patterns("__pycache__", "compiled")
                )
            else:
                into.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, into)

    def _arg(self, _, pair):
        name, _, value = pair.partition("=")
        self.arguments[name] = self.given.pop(name, value)

    def _run(self, _, script):
        words = ["bash", "-euo", "pipefail", "-c", self.here(script)]
        run(words, self.programs() | self.arguments, cwd=self.root)

    def _env(self, _, words):
        for pair in shlex.split(words):
            name, _, value = pair.partition("=")
            self.environment[name] = self.here(value).replace("$PATH", self.programs()["PATH"])

    def _user(self, _, number):
        self.user = number

    def _note(self, name, rest):
        self.said[name] = rest

    def programs(self):
        known = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
        return known | {"PATH": f"{self.root / 'bin'}:{os.defpath}", "HOME": str(self.root)}

    def command(self, *words):
        """How a command is started by the user of the image, if that one can run Python here."""
        become = ["setpriv", f"--reuid={self.user}", "--clear-groups"]
        python = [*become, "env", os.path.realpath(sys.executable), "-c", ""]
        if subprocess.run(python, capture_output=True, check=False).returncode:
            become = []
        entry = json.loads(self.said["ENTRYPOINT"])
        pairs = [f"{name}={value}" for name, value in self.environment.items()]
        return [*become, "env", "-i", "HOME=/nonexistent", *pairs, *entry, *words]


def run(words, environment=None, **options):
    done = subprocess.run(
        words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        check=False, timeout=BUILD_SECONDS, **options,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="module", params=[{}, {"GPU": "yes"}], ids=["plain", "GPU"])
def image(request):
    asked = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "setuptools>=77"]
    folder = tempfile.mkdtemp(prefix="image")  # below tmp_path nobody else can read
    try:
        if subprocess.run([*asked, "-d", folder], capture_output=True, check=False).returncode:
            pytest.skip("no package index")
        Path(folder).chmod(0o755)
        made = Image(Path(folder) / "root", dict(request.param))
        assert not made.given
        yield made
    finally:
        shutil.rmtree(folder)


def test_the_first_command_compiles_nothing(image):
    shutil.copytree(DATA, image.root / "data")
    for _ in range(2):
        out = run(image.command(
            "match", f"{image.root}/data/lambda_sim.fq.gz", "-d", f"{image.root}/data/lambda.fa.gz",
            "-k", "21", "--report", "reads",
        ), cwd=image.root)  # fmt: skip
        assert "r1\t122\t60\t46\t14\t42\t" in out
        assert "compiling" not in out
    assert not [*(image.root / "var/cache").rglob("*.nbi")]
    with_gpu = bool(image.arguments["GPU"])
    assert any(image.root.rglob("compiled/gpu/*.kernel")) == with_gpu
    assert any(image.root.rglob("site-packages/cupy")) == with_gpu


def test_its_daemon_is_healthy_and_drains(image):
    settings = image.root / "etc/kmer-streamer/streamer.toml"
    shutil.copy(DATA / "lambda.fa.gz", settings.parent)
    settings.write_text('[dictionary]\nk = 21\nsources = ["lambda.fa.gz"]\n')
    command = [image.here(word) for word in json.loads(image.said["CMD"])]
    health = re.sub(r".* CMD ", "", image.said["HEALTHCHECK"])
    program, *status = [image.here(word) for word in json.loads(health)]
    assert [program] == json.loads(image.said["ENTRYPOINT"])
    with (image.root / "log").open("w+") as log:
        daemon = subprocess.Popen(image.command(*command), stdout=log, stderr=log)
        try:

            def healthy():
                assert daemon.poll() is None, (image.root / "log").read_text()
                return not subprocess.run(image.command(*status), capture_output=True).returncode

            until(healthy, "the health check succeeds")
            daemon.send_signal(getattr(signal, image.said["STOPSIGNAL"]))
            assert daemon.wait(DEADLINE) == 0, (image.root / "log").read_text()
        finally:
            daemon.kill()
            daemon.wait()

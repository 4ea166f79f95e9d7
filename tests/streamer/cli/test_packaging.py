"""Packages for other tools: their commands run, and they agree with the project."""

from __future__ import annotations

import gzip
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from itertools import chain
from types import ModuleType, SimpleNamespace

import pytest
import typer
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from scripts.site import manual
from scripts.site.dependencies import DEVELOPERS
from streamer import __version__
from streamer.cli.app import COMMANDS, make_app
from tests.data_files import DATA, ROOT
from tests.pages.test_reference import walk

pytestmark = pytest.mark.whole

PACKAGING = ROOT / "packaging"
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
# on conda-forge
CONDA = {"msgpack": "msgpack-python", "prometheus-client": "prometheus_client"}


@pytest.fixture
def program(tmp_path, monkeypatch):
    """``streamer`` is this one, for shells, too."""
    folder = tmp_path / "bin"
    folder.mkdir()
    script = folder / "streamer"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -m streamer "$@"\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.chdir(tmp_path)
    for name in ("lambda.fa.gz", "lambda_sim.fq.gz"):
        shutil.copy(DATA / name, tmp_path)
    return tmp_path


def bash(text):
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", text], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_version_is_one_line(streamer):
    assert streamer("--version") == (0, f"streamer {__version__}\n", "")


EXTRAS = {
    "cupy-cuda13x": "cupy", "h11": "h11", "matplotlib": "matplotlib", "numba-cuda": "numba_cuda",
    "primer3-py": "primer3", "pyarrow": "pyarrow", "pysam": "pysam", "rapidgzip": "rapidgzip",
    "ray": "ray", "readfish": "readfish", "starlette": "starlette", "textual": "textual",
    "uvicorn": "uvicorn",
}  # fmt: skip
"""What the extras of the project install, and as what it is imported."""


def user_extras():
    """The extras for users, each with what it needs."""
    extras = PROJECT["optional-dependencies"].items()
    return {name: [*map(Requirement, needed)] for name, needed in extras if name not in DEVELOPERS}


@pytest.mark.parametrize("there", [True, False], ids=["with extras", "without extras"])
def test_commands_import_nothing_of_extras(tmp_path, there):
    named = {canonicalize_name(one.name) for needed in user_extras().values() for one in needed}
    assert named - {Requirement(one).name for one in PROJECT["dependencies"]} == {*EXTRAS}
    genome, reads = DATA / "lambda.fa.gz", DATA / "lambda_sim.fq.gz"
    searches = (
        ["match", f"{reads}", "-d", f"{genome}", "-k", "21"],
        ["asm", f"{genome}", "--pattern", "ACGTTGCA", "-k", "1"],
        ["lcs", f"{genome}", f"{genome}"],
    )
    program = f"""
import sys
names = {[*EXTRAS.values()]}
if not {there}:
    sys.modules |= dict.fromkeys(names)
import streamer.aio, streamer.client, streamer.daemon.service
from streamer.cli.app import COMMANDS, main, make_app
make_app(COMMANDS)
for words in {searches}:
    assert main([*words, "--device", "cpu", "-o", "rows.tsv"]) == 0, words
print([name for name in names if sys.modules.get(name)])
if not {there}:
    assert main([*words, "-o", "rows.parquet"]) == 2, "needs an extra"
"""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr
    assert there or "pip install" in done.stderr


def test_dependencies_have_sizes_and_licences():
    """``scripts/dependencies`` was run since a dependency was added."""
    page = (ROOT / "docs" / "dependencies.md").read_text()
    sizes = dict(re.findall(r"^\| `([\w-]+)` \| \d+ \| (\d+) \|$", page, re.M))
    assert {*sizes} == {*user_extras()}
    shown = (ROOT / "docs" / "install.md").read_text()
    assert dict(re.findall(r"^\| `([\w-]+)` \| .* \| (\d+) \|$", shown, re.M)) == sizes
    rows = re.findall(r"^\| ([\w.\\-]+) \| ([\w.]+) \| (.+) \| [\d.]+ \| (.+) \|$", page, re.M)
    listed = {canonicalize_name(name.replace("\\", "")): row for name, *row in rows}
    wanted = {"always": [*map(Requirement, PROJECT["dependencies"])]} | user_extras()
    for extra, needed in wanted.items():
        for one in needed:
            version, licence, comes_with = listed[canonicalize_name(one.name)]
            assert version in one.specifier
            assert licence
            assert extra in comes_with or "always" in comes_with


# ---- conda -----------------------------------------------------------------------------------


def recipe():
    """The recipe, with the version in its place."""
    text = (PACKAGING / "conda" / "recipe.yaml").read_text()
    made = yaml.safe_load(text)
    return yaml.safe_load(text.replace("${{ version }}", made["context"]["version"]))


def test_the_recipe_needs_what_the_project_needs():
    wanted = {f"python {PROJECT['requires-python']}", "zstandard"}  # that is what xopen[zstd] adds
    for line in PROJECT["dependencies"]:
        name, limit = re.fullmatch(r"([\w-]+)(?:\[\w+\])?(>=[\d.]+)", line).groups()
        wanted.add(f"{CONDA.get(name, name)} {limit}")
    made = recipe()
    assert {*made["requirements"]["run"]} == wanted
    builds = {"pip", f"python {PROJECT['requires-python']}"}
    builds |= {line.replace(">=", " >=") for line in PYPROJECT["build-system"]["requires"]}
    assert {*made["requirements"]["host"]} == builds
    assert made["package"] == {"name": PROJECT["name"], "version": __version__}
    (entry,) = made["build"]["python"]["entry_points"]
    assert entry.split(" = ") == ["streamer", PROJECT["scripts"]["streamer"]]
    assert made["about"]["license_file"] == PROJECT["license-files"]
    assert made["about"]["homepage"] == PROJECT["urls"]["Homepage"]


def test_the_commands_of_the_recipe_run(streamer):
    (commands,) = (part["script"] for part in recipe()["tests"] if "script" in part)
    for command in commands:
        code, out, _ = streamer(*shlex.split(command)[1:])
        assert code == 0
        assert out


MODULES = ("match", "index", "filter")


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize(
    "path", ["snakemake/{}/environment.yaml", "nf-core/streamer/{}/environment.yml"]
)
def test_environments_have_this_version(path, name):
    text = (PACKAGING / path.format(name)).read_text()
    (package,) = yaml.safe_load(text)["dependencies"]
    name, version = package.removeprefix("bioconda::").replace(" ", "").split("=")
    assert (name, version) == (PROJECT["name"], __version__)


# ---- manual pages ----------------------------------------------------------------------------


def test_every_command_has_a_manual_page(tmp_path):
    pages = {path.stem: path.read_text() for path in manual.write(tmp_path)}
    program = dict(walk("streamer", typer.main.get_command(make_app(COMMANDS))))
    assert list(pages) == [path.replace(" ", "-") for path in program]
    for path, command in program.items():
        for parameter in command.params:
            if parameter.param_type_name == "option":
                assert all(name.replace("-", "\\-") in pages[path.replace(" ", "-")]
                           for name in parameter.opts)  # fmt: skip


def test_manual_pages_are_made_where_only_typer_is(tmp_path):
    """A package is built in an environment that has what ``build-system`` requires, no more."""
    needed = [Requirement(line).name for line in PROJECT["dependencies"]]
    # typer needs these three
    absent = {"numba", "zmq", *needed} - {"typer", "pydantic", "rich"}
    program = f"""
import sys
sys.modules |= dict.fromkeys({absent})
from pathlib import Path
from scripts.site import manual
print(len(manual.write(Path({str(tmp_path)!r}))))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 20


@pytest.mark.skipif(shutil.which("groff") is None, reason="no groff")
def test_manual_pages_are_read_without_a_warning(tmp_path):
    files = [str(path) for path in manual.write(tmp_path)]
    done = subprocess.run(
        ["groff", "-man", "-ww", "-Tutf8", "-Kutf8", *files], capture_output=True, text=True,
        env=os.environ | {"GROFF_NO_SGR": "1"}, check=True,
    )  # fmt: skip
    assert done.stderr == ""
    shown = re.sub(".\b", "", done.stdout)  # bold
    assert "streamer match [OPTIONS] {READS}..." in shown
    assert "--report" in shown


# ---- workflows -------------------------------------------------------------------------------


class Files(dict):
    """Inputs, outputs or parameters of a rule: by name, by number, and as attributes."""

    __getattr__ = dict.__getitem__

    def __getitem__(self, key):
        return [*self.values()][key] if isinstance(key, int) else super().__getitem__(key)


def run_wrapper(name, monkeypatch, **values):
    """Run a wrapper with a stand-in for Snakemake, which has the values in its rule."""
    shell = ModuleType("snakemake.shell")

    def run(text):
        frame = sys._getframe(1).f_globals
        bash(text.format(command=frame["command"], extra=frame["extra"], log=frame["log"]))

    shell.shell = run
    monkeypatch.setitem(sys.modules, "snakemake", ModuleType("snakemake"))
    monkeypatch.setitem(sys.modules, "snakemake.shell", shell)
    rule = {key: Files(value) for key, value in values.items()}
    snakemake = SimpleNamespace(threads=2, log_fmt_shell=lambda **_: f"2> {name}.log", **rule)
    folder = PACKAGING / "snakemake" / name
    code = (folder / "wrapper.py").read_text()
    exec(compile(code, "wrapper.py", "exec"), {"snakemake": snakemake})
    about = yaml.safe_load((folder / "meta.yaml").read_text())
    assert {next(iter(entry)) for entry in about["params"]} >= {*values["params"]}
    told = (folder / "test" / "Snakefile").read_text()
    assert all(f"        {key}=" in told for key in values["input"])
    assert f"master/bio/streamer/{name}" in told


def test_the_snakemake_wrapper(program, monkeypatch):
    run_wrapper(
        "match", monkeypatch,
        input={"reads": ["lambda_sim.fq.gz"], "dictionary": "lambda.fa.gz"},
        output={"table": "targets.tsv"},
        params={"k": 15, "report": "targets", "extra": "--min-windows 2"},
    )  # fmt: skip
    made = (program / "targets.tsv").read_text()
    options = ["--report", "targets", "--min-windows", "2", "-q"]
    assert made == bash(shlex.join(
        ["streamer", "match", "lambda_sim.fq.gz", "-d", "lambda.fa.gz", "-k", "15", *options]
    ))  # fmt: skip


FILTERED = (
    "streamer index lambda.fa.gz -k 31 --subtract other.fa --target-by file -o own.idx && "
    "streamer filter R1.fq.gz R2.fq.gz --pairs -d own.idx -k 31 --deplete --preset host-short -q "
    "--output2 own_2.fastq.gz -o own_1.fastq.gz"
)


@pytest.fixture
def pairs(program):
    """Pairs, and a part of the host that is subtracted."""
    for mate in (1, 2):
        reads = gzip.decompress((program / "lambda_sim.fq.gz").read_bytes()).split(b"\n")
        reads[::4] = [name.split()[0] + b"/%d" % mate if name else name for name in reads[::4]]
        (program / f"R{mate}.fq.gz").write_bytes(gzip.compress(b"\n".join(reads)))
    letters = gzip.decompress((program / "lambda.fa.gz").read_bytes()).split(b"\n", 1)[1]
    (program / "other.fa").write_bytes(b">other\n" + letters[:20_000])
    return program


def same(folder, *names):
    return all((folder / one).read_bytes() == (folder / other).read_bytes() for one, other in names)


def test_the_wrappers_of_a_host(pairs, monkeypatch):
    """Their files are those of the commands, to the byte."""
    run_wrapper(
        "index", monkeypatch, params={}, output={"index": "host.idx"},
        input={"fasta": "lambda.fa.gz", "subtract": ["other.fa"]},
    )  # fmt: skip
    run_wrapper(
        "filter", monkeypatch, params={},
        input={"reads": ["R1.fq.gz", "R2.fq.gz"], "index": "host.idx"},
        output={"reads": ["clean_1.fq.gz", "clean_2.fq.gz"], "summary": "clean.json"},
    )  # fmt: skip
    bash(FILTERED)
    files = [(f"clean_{mate}.fq.gz", f"own_{mate}.fastq.gz") for mate in (1, 2)]
    assert same(pairs, ("host.idx", "own.idx"), *files)
    assert (pairs / "clean_mqc.json").exists()


def script_of(text, part, values):
    """The shell script of a process, as Nextflow would write it."""
    script = text.partition(f"    {part}:\n")[2].split('"""')[1]
    script = re.sub(r"(?<!\\)\$\{([\w.]+)\}", lambda match: values[match[1]], script)
    lines = script.replace("\\\\\n", "\\\n").replace("\\$", "$").splitlines()
    return "\n".join(line[4:] for line in lines)


def run_module(program, name, part, **values):
    """Run a module; return its texts, main.nf and meta.yml."""
    folder = PACKAGING / "nf-core" / "streamer" / name
    text = (folder / "main.nf").read_text()
    known = {"k": "31", "task.cpus": "2", "args": "", "prefix": "test", "task.process": name}
    # the here-document of the template loses its tabs; a script has none
    script = script_of(text, part, known | values)
    bash(re.sub(r"^ *(END_VERSIONS)$", r"\1", script, flags=re.MULTILINE))
    versions = yaml.safe_load((program / "versions.yml").read_text())
    assert versions == {name: {"streamer": __version__}}
    about = yaml.safe_load((folder / "meta.yml").read_text())
    named = [next(iter(entry)) for channel in about["input"] for entry in channel]
    told = re.findall(r"(?:val|path)\(?\s?(\w+)\b", text.partition("output:")[0])
    assert named == told
    assert [next(iter(entry)) for entry in about["output"]] == re.findall(r"emit: (\w+)", text)
    # what is promised is there
    for pattern in re.findall(r'path\(?\s?"(.+?)"', text.partition("output:")[2]):
        assert [*program.glob(pattern)], pattern


@pytest.mark.parametrize("part", ["script", "stub"])
def test_the_nextflow_module(program, part):
    run_module(
        program, "match", part, reads="lambda_sim.fq.gz", dictionary="lambda.fa.gz", k="21",
        args="--report reads",
    )  # fmt: skip
    table = gzip.decompress((program / "test.tsv.gz").read_bytes()).decode()
    if part == "script":
        told = "streamer match lambda_sim.fq.gz -d lambda.fa.gz -k 21 --report reads -q"
        assert table == bash(told)


@pytest.mark.parametrize("part", ["script", "stub"])
def test_the_modules_of_a_host(pairs, part):
    """Their files are those of the commands, to the byte."""
    fasta = {"fasta": "lambda.fa.gz", "minus": "--subtract other.fa", "args": "--target-by file"}
    run_module(pairs, "index", part, **fasta)
    outputs = "test.clean_1.fastq.gz", "test.clean_2.fastq.gz"
    run_module(
        pairs, "filter", part, reads="R1.fq.gz R2.fq.gz", index="test.idx",
        args="--deplete --preset host-short", names=" ".join(outputs),
        outputs=f"--pairs -o {outputs[0]} --output2 {outputs[1]}",
    )  # fmt: skip
    if part == "script":
        bash(FILTERED)
        pairs_of = zip(("own_1.fastq.gz", "own_2.fastq.gz"), outputs, strict=True)
        assert same(pairs, ("test.idx", "own.idx"), *pairs_of)


# ---- services --------------------------------------------------------------------------------


def test_the_unit_starts_what_there_is(streamer):
    unit = (ROOT / "configs" / "systemd" / "kmer-streamer.service").read_text()
    (line,) = re.findall("^ExecStart=(.*)", unit, re.MULTILINE)
    _, command, *options = shlex.split(line)
    assert command == "run"
    assert {*options[::2]} <= set(streamer("run", "--help")[1].split())
    assert "RestartPreventExitStatus=2" in unit


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze")
def test_the_unit_is_valid(tmp_path):
    unit = (ROOT / "configs" / "systemd" / "kmer-streamer.service").read_text()
    path = tmp_path / "kmer-streamer.service"
    path.write_text(unit.replace("/opt/kmer-streamer/bin/streamer", "/bin/true"))
    done = subprocess.run(
        ["systemd-analyze", "verify", str(path)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_container_runs_what_there_is(streamer):
    text = (ROOT / "Containerfile").read_text()
    for words in re.findall(r"^ *CMD (\[.*\])$", text, re.MULTILINE):
        command, *options = [word for word in yaml.safe_load(words) if word != "streamer"]
        known = streamer(command, "--help")[1].split()
        assert {word for word in options if word.startswith("--")} <= {*known}
    taken = re.findall(r"^COPY (?!--from)(\S+(?: \S+)*) \S+$", text, re.MULTILINE)
    allowed = (ROOT / ".containerignore").read_text().splitlines()
    for name in " ".join(taken).split():
        assert (ROOT / name).exists()
        assert f"!{name}" in allowed


@pytest.mark.parametrize("further", [(), ("gpu", "gpu-test")], ids=["requirements", "with a GPU"])
def test_the_lock_has_what_the_project_needs(further):
    """Each pin has hashes; those of dependencies, also of pages and jobs, are in their ranges."""
    text = (PACKAGING / f"requirements{'-gpu' if further else ''}.lock").read_text()
    entries = re.findall(r"^(\w.*?) \\\n((?: +--hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", text, re.M)
    assert len(entries) == len(re.findall(r"^[^#\s]", text, re.M))
    pins: dict[str, list[Requirement]] = {}
    for line, _ in entries:
        pin = Requirement(line)
        assert re.fullmatch(r"==[^*,]+", str(pin.specifier)), line
        pins.setdefault(canonicalize_name(pin.name), []).append(pin)
    extras = (PROJECT["optional-dependencies"][name] for name in ("arrow", "top", "web", *further))
    for line in chain(PROJECT["dependencies"], *extras):
        wanted = Requirement(line)
        found = pins[canonicalize_name(wanted.name)]
        for pin in found:
            (only,) = pin.specifier
            assert only.version in wanted.specifier, f"{line}: renew packaging/requirements.lock"
        for python in ("3.11", "3.12", "3.13"):
            here = {"python_version": python, "python_full_version": f"{python}.0"}
            fitting = [pin for pin in found if pin.marker is None or pin.marker.evaluate(here)]
            assert len(fitting) == 1, (line, python)


# ---- completion ------------------------------------------------------------------------------


def test_completion_in_a_real_shell(program):
    """The script that is shown makes bash complete."""
    shown = bash("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION=1 streamer --show-completion bash")
    ask = (
        'COMP_WORDS=(streamer sta); COMP_CWORD=1; _streamer_completion streamer; echo "$COMPREPLY"'
    )
    assert bash(f"{shown}\n{ask}").strip() == "status"

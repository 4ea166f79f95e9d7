"""Compiled kernels are stored where that is possible, and the work goes on where it is not."""

from __future__ import annotations

import os
import pickle
import shutil
import sys
import tempfile
import threading

import pytest

from tests import forked
from tests.data_files import ROOT
from tests.waiting import DEADLINE
from trie.cpu import compiling

pytestmark = pytest.mark.whole

EVERY_MODULE = """
import importlib, pkgutil
import streamer.batch, trie
for package in (trie, streamer.batch):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        for value in vars(importlib.import_module(module.name)).values():
            getattr(value, "dispatcher", None)
"""

GIVEN = ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME")

KERNEL = """
import logging, sys
from trie.cpu.jit import njit

@njit(cache=True)
def twice(x):
    return x + x

print(twice(21), sum(twice.dispatcher.stats.cache_hits.values()))
"""


@pytest.fixture
def installed(tmp_path):
    """The packages where nobody can write, with a home of that kind; and a temporary folder."""
    folder = tmp_path / "installed"
    for package in ("streamer", "trie", "gpu"):
        shutil.copytree(
            ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__")
        )
    (folder / "kernel.py").write_text(KERNEL)
    (folder / "home").mkdir()
    (tmp_path / "tmp").mkdir()
    folders = [folder, *(path for path in folder.rglob("*") if path.is_dir())]
    for path in folders:
        path.chmod(0o555)
    yield folder
    for path in folders:
        path.chmod(0o755)


LIMITED = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (500, -1)); "


def run(installed, *arguments, before="", **environment):
    """Python with the installed packages: (exit code, standard output, standard error)."""
    known = {key: value for key, value in os.environ.items() if key not in GIVEN}
    places = {"HOME": f"{installed}/home", "TMPDIR": f"{installed.parent}/tmp"}
    known |= {"PYTHONPATH": str(installed), **places, **environment}
    if arguments[0] not in ("-c", "-m"):
        path, *words = arguments
        code = f"{before}import runpy; runpy.run_path({str(path)!r}, None, '__main__')"
        arguments = ["-c", code, *words]
    done = forked.run(
        [sys.executable, *map(str, arguments)],
        bare=True, env={name: str(value) for name, value in known.items()}, cwd=installed.parent,
        text=True,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def other_bit(content):
    """A file of which one bit has changed: in the machine code of a kernel."""
    place = content.index(b"\x7fELF") + 1000
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


def test_every_kernel_can_be_defined_where_nothing_can_be_written(installed):
    assert run(installed, "-c", EVERY_MODULE) == (0, "", "")


def test_a_read_only_install_stores_under_the_temporary_directory(installed):
    kernel = installed / "kernel.py"
    code, out, err = run(installed, kernel)
    assert (code, out) == (0, "42 0\n")
    private = installed.parent / "tmp" / f"kmer-streamer-{os.getuid()}"
    assert err.count("\n") == 1
    assert f"compiled kernels are stored in {private}/" in err
    assert "; set NUMBA_CACHE_DIR" in err
    assert private.stat().st_mode & 0o777 == 0o700
    assert run(installed, kernel) == (0, "42 1\n", "")


LEVEL = "x86-64-v3"


def test_kernels_of_the_package_are_used_where_this_machine_has_none(installed):
    features = compiling.LEVELS[LEVEL]
    if LEVEL not in compiling.cpu_levels():
        pytest.skip(f"this CPU is below {LEVEL}")
    kernel = installed / "kernel.py"
    shipped = installed.parent / "shipped" / LEVEL
    settings = {
        "NUMBA_CPU_NAME": LEVEL, "NUMBA_CPU_FEATURES": features, compiling.SHIP: str(shipped),
    }  # fmt: skip
    assert run(installed, kernel, **settings) == (0, "42 0\n", "")
    made_for = "from trie.cpu.compiling import made_for; print(made_for(), end='')"
    (shipped / compiling.MADE_FOR).write_text(run(installed, "-c", made_for)[1])
    (installed / "trie").chmod(0o755)
    shutil.move(shipped.parent, installed / "trie" / compiling.SHIPPED.name)

    assert run(installed, kernel) == (0, "42 1\n", "")
    assert not list(installed.parent.glob("tmp/**/*.nbi"))

    # on another CPU, and of a damaged file
    code, out, err = run(installed, kernel, NUMBA_CPU_NAME="generic")
    assert (code, out) == (0, "42 0\n")
    assert "the package has no compiled kernels for generic\n" in err
    (file,) = installed.rglob("*.nbc")
    whole = file.read_bytes()
    file.write_bytes(other_bit(whole))
    code, out, err = run(installed, kernel)
    assert (code, out) == (0, "42 0\n")
    assert f"{file.parent}: a kernel is unreadable, so it is compiled: it is damaged\n" in err
    assert file.read_bytes() == other_bit(whole)
    shutil.rmtree(installed.parent / "tmp")
    (installed.parent / "tmp").mkdir()

    # another source
    with open(installed / "trie" / "codes.py", "a") as source:
        source.write("\n")
    code, out, err = run(installed, kernel)
    assert (code, out) == (0, "42 0\n")
    assert "the package's compiled kernels are not used, they are for Python" in err
    # its own kernels are used from then on
    assert run(installed, kernel)[1] == "42 1\n"


CALLER = (
    KERNEL.partition("print")[0]
    + """
@njit(cache=True)
def four_times(x):
    return twice(twice(x))

def parsed():
    return [made.library._shared_module is not None for made in twice.dispatcher.overloads.values()]

print(twice(21), parsed())
if "call" in sys.argv:
    print(four_times(21), sum(four_times.dispatcher.stats.cache_hits.values()), parsed())
"""
)


def test_code_for_callers_is_parsed_when_one_of_them_is_compiled(installed, tmp_path):
    kernel = tmp_path / "caller.py"
    kernel.write_text(CALLER)
    cache = {"NUMBA_CACHE_DIR": tmp_path / "cache"}
    assert run(installed, kernel, **cache) == (0, "42 [True]\n", "")
    assert run(installed, kernel, **cache) == (0, "42 [False]\n", "")
    assert run(installed, kernel, "call", **cache) == (0, "42 [False]\n84 0 [True]\n", "")
    assert run(installed, kernel, "call", **cache) == (0, "42 [False]\n84 1 [False]\n", "")


def test_sources_of_a_wheel_are_known_by_its_list_of_files(tmp_path, monkeypatch):
    """Kernels are compiled in a source tree, and used where its files are installed."""
    sizes = {"streamer/cli/app.py": 7, "trie/codes.py": 5, "trie/cpu/jit.py": 3, "gpu/a.py": 9}
    for name, size in sizes.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("#" * size)
    monkeypatch.setattr(compiling, "ROOT", tmp_path)
    made = compiling.made_for()
    record = tmp_path / "kmer_streamer-1.dist-info" / "RECORD"
    record.parent.mkdir()
    lines = [f"{name},sha256=x,{size}" for name, size in sizes.items()]
    record.write_text("\n".join([*lines[::-1], "trie/py.typed,sha256=x,0", "RECORD,,"]))
    (tmp_path / "gpu" / "a.py").write_text("")
    assert compiling.made_for() == made
    record.write_text(record.read_text().replace("x,5", "x,6"))
    assert compiling.made_for() != made


def test_a_command_says_so_in_one_line(installed, tmp_path):
    (tmp_path / "r.fa").write_text(">r\nACGTTGCATTAC\n")
    # the command that compiles least
    command = ["primer", "r.fa", "r.fa", "-k", "2", "--method", "conventional", "--device", "cpu"]
    first = run(installed, "-m", "streamer", *command)
    again = run(installed, "-m", "streamer", *command)
    assert first[:2] == again[:2]
    assert first[0] == 0
    # where it takes long, it also says that it compiles
    (line,) = [line for line in first[2].splitlines() if "compiling for" not in line]
    assert line.startswith("streamer: no other cache folder can be written: ")
    assert again[2] == ""


@pytest.mark.parametrize("trap", ["open to all", "a link", "a file"])
def test_a_folder_of_somebody_else_is_not_trusted(trap, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    private = tmp_path / f"kmer-streamer-{os.getuid()}"
    if trap == "open to all":
        private.mkdir()
        private.chmod(0o777)
    elif trap == "a link":
        (tmp_path / "elsewhere").mkdir()
        private.symlink_to(tmp_path / "elsewhere")
    else:
        private.touch()
    # nobody may create a folder in /proc
    path, warning = compiling._first_usable.__wrapped__(None, "/proc/self")
    assert path is None
    assert warning.startswith(f"compiled kernels cannot be stored ({private}: ")
    assert warning.endswith("; set NUMBA_CACHE_DIR to a folder that can be written")


def test_a_cache_folder_that_cannot_be_written_is_named(installed):
    code, out, err = run(installed, installed / "kernel.py", NUMBA_CACHE_DIR=f"{installed}/home")
    assert (code, out) == (0, "42 0\n")
    assert err.startswith(f"NUMBA_CACHE_DIR={installed}/home: cannot be written: compiled kernels ")
    assert err.count("\n") == 1


def test_where_nothing_can_be_written_one_line_says_so(installed):
    """A temporary folder is looked for in the current directory last."""
    script = (
        "import os, runpy, tempfile; tempfile._candidate_tempdir_list = lambda: ['/proc/self']; "
        f"runpy.run_path({str(installed / 'kernel.py')!r})"
    )
    code, out, err = run(installed, "-c", script)
    assert (code, out) == (0, "42 0\n")
    assert err == (
        "compiled kernels cannot be stored (no folder is writable); "
        "set NUMBA_CACHE_DIR to a folder that can be written\n"
    )


def test_kernels_are_never_beside_the_source(installed, tmp_path):
    """An uninstaller leaves what it has not installed, and the folder hides the package."""
    for path in (installed, *installed.rglob("*")):
        if path.is_dir():
            path.chmod(0o755)
    before = {path for path in installed.rglob("*") if path.suffix != ".pyc"}
    home = tmp_path / "home"
    home.mkdir()
    assert run(installed, installed / "kernel.py", HOME=home)[1] == "42 0\n"
    after = {path for path in installed.rglob("*") if path.suffix != ".pyc"}
    assert {path for path in after - before if path.name != "__pycache__"} == set()
    assert list(home.glob(".cache/kmer-streamer/*/*/*.nbc"))


def test_kernels_that_an_image_brings_are_loaded_though_nobody_can_write_there(installed, tmp_path):
    shipped = tmp_path / "shipped"
    assert run(installed, installed / "kernel.py", NUMBA_CACHE_DIR=shipped)[1] == "42 0\n"
    for path in (shipped, *shipped.rglob("*")):
        path.chmod(0o555)
    assert run(installed, installed / "kernel.py", NUMBA_CACHE_DIR=shipped) == (0, "42 1\n", "")


def test_folders_of_installations_that_are_gone_or_replaced_are_removed(
    installed, tmp_path, monkeypatch
):
    def stored():
        return {path.parent.name for path in (tmp_path / "cache").rglob("installation")}

    def compile_in(folder):
        code, _, err = run(
            installed, folder / "kernel.py", PYTHONPATH=folder, NUMBA_CACHE_DIR=tmp_path / "cache"
        )
        assert code == 0, err
        return stored()

    other = tmp_path / "other"
    shutil.copytree(installed, other)
    (first,) = compile_in(installed)
    (second,) = compile_in(other) - {first}
    # the same packages, installed again
    os.utime(other / "streamer" / "__init__.py", ns=(1, 1))
    (third,) = compile_in(other) - {first, second}
    assert stored() == {first, third}
    shutil.rmtree(other)
    copy = tmp_path / "copy"
    shutil.copytree(installed, copy)
    (fourth,) = compile_in(copy) - {first, third}
    assert stored() == {first, fourth}


def test_the_same_wheel_installed_again_compiles_nothing(installed, tmp_path):
    kernel, record = installed / "kernel.py", installed / "kmer_streamer-1.dist-info" / "RECORD"
    record.parent.mkdir()
    for number, files in enumerate(["one", "one", "other"]):
        record.write_text(files)
        for path in installed.rglob("*.py"):
            os.utime(path, ns=(number, number))
        out = run(installed, kernel, NUMBA_CACHE_DIR=tmp_path / "cache")[1]
        assert out == f"42 {number % 2}\n"


def test_a_full_disk_stops_nothing_and_is_named(installed, tmp_path):
    """The size of a file is limited in its place: a write fails in the same way."""
    kernel, folder = tmp_path / "kernel.py", tmp_path / "cache"
    kernel.write_text(KERNEL)
    # an older kernel of the same name must not be taken for this one
    kernel.write_text(KERNEL.replace("x + x", "x + x + 1"))
    assert run(installed, kernel, NUMBA_CACHE_DIR=folder)[1] == "43 0\n"
    kernel.write_text(KERNEL)
    code, out, err = run(installed, kernel, NUMBA_CACHE_DIR=folder, before=LIMITED)
    assert (code, out) == (0, "42 0\n")
    assert err.startswith(f"{folder}/")
    assert "cannot store compiled kernels: File too large; set NUMBA_CACHE_DIR" in err
    assert err.count("\n") == 1
    assert run(installed, kernel, NUMBA_CACHE_DIR=folder)[:2] == (0, "42 0\n")
    assert run(installed, kernel, NUMBA_CACHE_DIR=folder)[:2] == (0, "42 1\n")


def test_damaged_files_are_written_anew(installed, tmp_path):
    kernel, folder = installed / "kernel.py", tmp_path / "cache"
    run(installed, kernel, NUMBA_CACHE_DIR=folder)
    (code,) = folder.rglob("*.nbc")
    for kind, damage in (
        ("nbi", b""), ("nbi", pickle.dumps("0.0")[:-1]), ("nbc", b"garbage"),
        ("nbc", other_bit(code.read_bytes())),
    ):  # fmt: skip
        (file,) = folder.rglob(f"*.{kind}")
        file.write_bytes(damage)
        code, out, err = run(installed, kernel, NUMBA_CACHE_DIR=folder)
        assert (code, out, err.count("\n")) == (0, "42 0\n", 1)
        assert "a kernel is unreadable, so it is compiled: " in err
        assert run(installed, kernel, NUMBA_CACHE_DIR=folder) == (0, "42 1\n", "")


def test_a_kernel_is_known_to_others_before_it_is_called():
    from trie.cpu import jit

    @jit.njit(inline="always")
    def inlined(x):
        return x + 1

    @jit.inner
    def called(x):
        return 2 * x

    @jit.njit
    def both(x):
        return called(inlined(x))

    def compiled(kernel):
        return bool(getattr(kernel, "_made", None) and kernel.dispatcher.signatures)

    if jit.config.DISABLE_JIT:
        assert both(20) == 42
        return
    assert both._made is None
    assert both(20) == 42
    assert [compiled(one) for one in (inlined, called, both)] == [False, True, True]


def test_threads_that_call_a_kernel_first_use_the_same_one():
    from concurrent.futures import ThreadPoolExecutor

    from trie.cpu import jit

    together = threading.Barrier(4)
    kernel = jit.njit(lambda x: x)

    def made(_):
        together.wait(DEADLINE)
        return getattr(kernel, "dispatcher", kernel)

    with ThreadPoolExecutor(4) as pool:
        assert len({id(one) for one in pool.map(made, range(4))}) == 1


def test_a_kernel_is_compiled_again_if_what_it_calls_has_changed(tmp_path):
    (tmp_path / "called.py").write_text(
        "from trie.cpu.jit import inner\nTIMES = 2\n\n@inner\ndef more(x):\n    return TIMES * x\n"
    )
    kernel = KERNEL.replace("x + x", "called.more(x)")
    kernel = kernel.replace("import njit", "import njit\nimport called")
    (tmp_path / "kernel.py").write_text(kernel)
    places = {"NUMBA_CACHE_DIR": tmp_path / "cache", "PYTHONPATH": f"{tmp_path}:{ROOT}"}

    def answer():
        return run(tmp_path, tmp_path / "kernel.py", **places)[1]

    assert [answer(), answer()] == ["42 0\n", "42 1\n"]
    text = (tmp_path / "called.py").read_text()
    (tmp_path / "called.py").write_text(text.replace("TIMES * x", "TIMES * x + 100"))
    assert [answer(), answer()] == ["142 0\n", "142 1\n"]

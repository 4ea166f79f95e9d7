"""Build the conda package from a source archive with rattler-build, without a conda channel:
``python packaging/conda/build_here.py ARCHIVE FOLDER``.

The channel that it uses is made here: its ``python`` is a virtual environment of the Python that
runs this, with all that the recipe needs to build. So the build script, the files and the metadata
of the package are real. Whether the channel of a release has the dependencies is not shown.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml
from rattler_build import Stage0Recipe, ToolConfiguration, assemble_package

RECIPE = Path(__file__).with_name("recipe.yaml")
PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"


def channel(folder: Path, needed: list[str]) -> str:
    """A channel with stand-ins for what the recipe needs to build; returns its URL."""
    files = folder / "files"
    binaries = files / "bin"
    binaries.mkdir(parents=True)
    (binaries / "python").symlink_to(Path(sys.executable).resolve())
    (files / "pyvenv.cfg").write_text(f"home = {Path(sys.executable).resolve().parent}\n")
    packages = files / "lib" / f"python{PYTHON}" / "site-packages"
    names = [line.replace(" ", "") for line in needed if not line.startswith("python ")]
    uv = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", sys.executable]
    subprocess.run([*uv, "--target", str(packages), *names], check=True)
    made = {}
    for name in (line.split()[0] for line in needed):
        is_python = name == "python"
        version = f"{PYTHON}.0" if is_python else "999"
        package = assemble_package(
            name, version, "linux-64", "0", folder / "linux-64",
            files_dir=files if is_python else None, detect_prefix=False, compression_level=1,
        )  # fmt: skip
        content = Path(package.path).read_bytes()
        made[Path(package.path).name] = {
            "name": name, "version": version, "build": "0", "build_number": 0, "depends": [],
            "subdir": "linux-64", "sha256": hashlib.sha256(content).hexdigest(),
            "size": len(content),
        }  # fmt: skip
    for part, found in (("linux-64", made), ("noarch", {})):
        (folder / part).mkdir(exist_ok=True)
        listed = {"info": {"subdir": part}, "packages": {}, "packages.conda": found}
        (folder / part / "repodata.json").write_text(json.dumps(listed))
    return folder.as_uri()


def main(archive: Path, output: Path) -> None:
    recipe = yaml.safe_load(RECIPE.read_text())
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    recipe["source"] = {"path": str(archive), "sha256": digest}
    needed = recipe["requirements"]["host"]
    with tempfile.TemporaryDirectory() as folder:
        (built,) = Stage0Recipe.from_dict(recipe).run_build(
            channels=[channel(Path(folder), needed)],
            output_dir=output,
            tool_config=ToolConfiguration(test_strategy="skip"),
        )
    print(f"{built.packages[0]}; sha256 of {archive.name}: {digest}")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve())

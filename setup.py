"""The manual pages are made when a wheel is built; everything else is in pyproject.toml."""

import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build import build

ROOT = Path(__file__).parent


class BuildWithManual(build):
    """Packages, then ``share/man/man1``."""

    def run(self) -> None:
        super().run()
        sys.path.insert(0, str(ROOT))
        from scripts.site.manual import write

        pages = write(Path(self.build_base) / "man")
        self.distribution.data_files = [("share/man/man1", [str(page) for page in pages])]


setup(cmdclass={"build": BuildWithManual})

"""The documentation as a site, made by Sphinx: `scripts/docs` builds it into site/."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from scripts.site.sources import complete  # noqa: E402
from streamer import __version__  # noqa: E402

project = "kmer-streamer"
author = "The kmer-streamer developers"
copyright = author
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_copybutton"]
source_suffix = {".md": "markdown"}
root_doc = "index"
highlight_language = "text"
myst_heading_anchors = 4
smartquotes = False  # options begin with two hyphens

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented_params"
autodoc_mock_imports = ["readfish"]  # an extra
add_module_names = False
python_use_unqualified_type_names = True

html_theme = "furo"
html_title = f"kmer-streamer {version}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
copybutton_prompt_text = ">>> |\\.\\.\\. "
copybutton_prompt_is_regexp = True


def setup(app):
    """Complete the text of each page when it is read."""
    app.connect("source-read", lambda _, name, source: source.append(complete(name, source.pop())))

"""Plots of the batch solvers' results, drawn with matplotlib if it is installed."""

import io
import warnings
from pathlib import Path
from typing import Any

from streamer.errors import StreamerError, UsageError


def check_plot(path: str, formats: tuple[str, ...], extra: str) -> None:
    """Raise UsageError for a name with an unknown suffix; StreamerError if matplotlib is missing.

    formats: suffixes, such as ".png". extra: the extra of this package that installs matplotlib.
    """
    if Path(path).suffix.lower() not in formats:
        raise UsageError(f"--plot {path}: the name must end in {', '.join(formats)}")
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise StreamerError(f"plots need matplotlib: pip install '.[{extra}]' in a clone") from None


def drawn(figure: Any, path: str, dpi: int) -> bytes:
    """Return a matplotlib figure in the format given by the suffix of ``path``."""
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        text.set_parse_math(False)  # a name may have dollar signs
    picture = io.BytesIO()
    with warnings.catch_warnings():
        # characters that the font lacks are drawn as boxes
        warnings.simplefilter("ignore")
        figure.savefig(picture, format=Path(path).suffix[1:].lower(), dpi=dpi)
    return picture.getvalue()

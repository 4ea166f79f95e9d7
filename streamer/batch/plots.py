"""Plots of the batch problems' results, drawn with matplotlib where it is installed."""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import Any

from streamer.errors import StreamerError, UsageError


def check_plot(path: str, formats: tuple[str, ...], extra: str) -> None:
    """UsageError for a name that ends in no format; StreamerError if matplotlib is missing.

    formats: suffixes, as ".png". extra: the extra of this package that installs matplotlib.
    """
    if Path(path).suffix.lower() not in formats:
        message = f"--plot {path}: the name must end in {', '.join(formats)}"
        raise UsageError(message)
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        message = f"plots need matplotlib: pip install 'kmer-streamer[{extra}]'"
        raise StreamerError(message) from None


def drawn(figure: Any, path: str, dpi: int) -> bytes:
    """A matplotlib figure in the format that the name ``path`` ends in."""
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        text.set_parse_math(False)  # a name may have dollar signs
    picture = io.BytesIO()
    with warnings.catch_warnings():
        # letters that the font lacks are boxes
        warnings.simplefilter("ignore")
        figure.savefig(picture, format=Path(path).suffix[1:].lower(), dpi=dpi)
    return picture.getvalue()

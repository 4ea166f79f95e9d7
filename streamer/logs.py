"""What the daemon says: lines for people on a terminal, JSON lines otherwise; always on stderr."""

from __future__ import annotations

import logging
import sys
from typing import Literal

import structlog

Level = Literal["debug", "info", "warning", "error"]
Format = Literal["auto", "console", "json"]


def configure(level: Level = "info", format_: Format = "auto") -> None:
    """Set up structlog for this process; ``auto`` is ``console`` on a terminal."""
    human = format_ == "console" or (format_ == "auto" and sys.stderr.isatty())
    stamp = structlog.processors.TimeStamper(
        fmt="%H:%M:%S" if human else "iso", utc=not human, key="timestamp"
    )
    renderer = (
        structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
        if human
        else structlog.processors.JSONRenderer()
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            stamp,
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        # standard error is looked up anew for each line, wherever it points by then
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),
        cache_logger_on_first_use=False,
    )

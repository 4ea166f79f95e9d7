"""Options that several commands share."""

from __future__ import annotations

from enum import StrEnum


class StrandsChoice(StrEnum):
    """Which orientations of a k-mer are one."""

    FORWARD = "forward"
    CANONICAL = "canonical"
    BOTH = "both"


class DeviceChoice(StrEnum):
    """Where to match."""

    AUTO = "auto"
    CPU = "cpu"
    CUDA = "cuda"


class FormatChoice(StrEnum):
    """The form of rows."""

    TSV = "tsv"
    JSONL = "jsonl"

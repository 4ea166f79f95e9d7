"""Which orientations of a sequence count: the choices of every command, and their signs in rows."""

from __future__ import annotations

from typing import Literal, get_args

Strands = Literal["forward", "canonical", "both"]
"""Of the k-mers of a dictionary: ``canonical`` stands for a k-mer and its reverse complement."""

PatternStrands = Literal["forward", "reverse", "both"]
"""Of the patterns that a text is searched for."""

PrimerStrands = Literal["forward", "both"]  # of the texts that a primer must differ from
STRANDS: tuple[Strands, ...] = get_args(Strands)
PATTERN_STRANDS: tuple[PatternStrands, ...] = get_args(PatternStrands)
PRIMER_STRANDS: tuple[PrimerStrands, ...] = get_args(PrimerStrands)

SIGNS = ("+", "-")  # a strand in a row, by its number

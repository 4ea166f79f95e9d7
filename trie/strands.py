"""Which orientations of a sequence count: the choices of each command, and their signs in rows."""

from typing import Literal, get_args

Strands = Literal["forward", "canonical", "both"]
"""For k-mers of a dictionary: ``canonical`` stands for a k-mer and its reverse complement."""

PatternStrands = Literal["forward", "reverse", "both"]
"""For the patterns of a search."""

PrimerStrands = Literal["forward", "both"]  # for the texts that a primer must differ from
STRANDS: tuple[Strands, ...] = get_args(Strands)
PATTERN_STRANDS: tuple[PatternStrands, ...] = get_args(PatternStrands)
PRIMER_STRANDS: tuple[PrimerStrands, ...] = get_args(PrimerStrands)

SIGNS = ("+", "-")  # shown in rows, by strand number

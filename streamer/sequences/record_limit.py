"""The most bases of a record that is read as a whole: a small compressed file may hold a huge one.

References and texts to search are read in parts: their FASTA records may have any length.
"""

MOST_BASES = 500_000_000
"""The limit unless ``limit_records`` sets another one: reads and most chromosomes are shorter."""

LONGEST_HEADER = 1 << 24
"""The most bytes of a header of FASTA, and of what else a record holds besides its bases."""

_most_bases = MOST_BASES


def limit_records(bases: int) -> None:
    """Set the limit for this process and those that it forks."""
    global _most_bases
    _most_bases = bases


def most_bases() -> int:
    """Return the limit."""
    return _most_bases


def most_text() -> int:
    """Return the most bytes of a record in FASTQ, SAM or BAM: bases, qualities and the rest."""
    return 2 * _most_bases + LONGEST_HEADER


def over_limit() -> str:
    """Return what is wrong with a longer record."""
    return (
        f"more than {_most_bases:,} bases: cut the record into parts, or raise the limit: "
        "streamer --max-record BASES COMMAND ..."
    )

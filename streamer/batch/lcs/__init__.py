"""The longest common subsequence of two whole genomes, or of any two texts (LCS paper).

    length      how long it is
    sequence    one such subsequence
    match       which symbols of both it uses: blocks, identity, the subsequence

A gap code (any ambiguity letter) matches nothing. Memory is linear in the two lengths for every
method except ``dp``, which stores the whole table to find a subsequence.
"""

from streamer.batch.choice import Device, choose
from streamer.batch.lcs.solve import length_of, matching_of
from streamer.batch.lcs.symbols import DNA_SYMBOLS, TEXT_SYMBOLS, Matching
from streamer.batch.records import Codes, Letters
from trie.codes import as_letters, decode, encode
from trie.cpu.interrupts import interrupts_as_such
from trie.cpu.threads import usable_cores

__all__ = ["DEFAULT", "METHODS", "Matching", "length", "match", "sequence"]

METHODS: dict[str, tuple[Device, ...]] = {
    "adaptive": ("cpu", "cuda"),
    "systolic": ("cpu", "cuda"),
    "diff": ("cpu",),
    "bit-parallel": ("cpu",),
    "block-step": ("cuda",),
    "hirschberg": ("cpu",),
    "dp": ("cpu",),
}
"""The methods by name, and their devices. The last four are the paper's (Listings 1-4)."""

DEFAULT = "adaptive"


@interrupts_as_such()
def length(
    a: Letters, b: Letters, *, method: str | None = None, device: str = "auto",
    threads: int | None = None, text: bool = False,
) -> int:  # fmt: skip
    """Return the length of the longest common subsequence of two sequences of letters.

    a, b: bytes, str or uint8 arrays. ``text`` compares the bytes as they are (a str as UTF-8)
    instead of bases. ``method``: one of METHODS; all give the same length. ``threads``: CPU
    threads, None or 0 for every core. Raises InvalidBaseError (a ValueError) for a byte that is not
    a base, UsageError for an unknown method or device or an unsupported combination, StreamerError
    if CUDA is unavailable.

    >>> from streamer.batch import lcs
    >>> lcs.length("ACGTTGCA", "AGTTCA")
    6
    >>> lcs.length("kitten", "sitting", text=True)
    4
    """
    choice = choose(METHODS, DEFAULT, method, device, gpus=1)
    return length_of(*_coded(a, b, text), choice, threads or usable_cores())


@interrupts_as_such()
def match(
    a: Letters, b: Letters, *, method: str | None = None, device: str = "auto",
    threads: int | None = None, text: bool = False,
) -> Matching:  # fmt: skip
    """Return the symbols of both in one longest common subsequence; arguments as for ``length``.

    Errors as for ``length``; also StreamerError for ``dp`` on a table that does not fit into
    memory.

    >>> from streamer.batch import lcs
    >>> found = lcs.match("ACGTTGCA", "AGTTCA")
    >>> len(found), found.identity()
    (6, 0.75)
    """
    choice = choose(METHODS, DEFAULT, method, device, gpus=1)
    return matching_of(*_coded(a, b, text), choice, threads or usable_cores())


@interrupts_as_such()
def sequence(
    a: Letters, b: Letters, *, method: str | None = None, device: str = "auto",
    threads: int | None = None, text: bool = False,
) -> bytes:  # fmt: skip
    """Return one longest common subsequence: upper-case bases, or the bytes of a ``text``.

    Arguments and errors as for ``match``.

    >>> from streamer.batch import lcs
    >>> lcs.sequence("ACGTTGCA", "AGTTCA")
    b'AGTTCA'
    """
    matching = match(a, b, method=method, device=device, threads=threads, text=text)
    return subsequence(codes_of(a, text), matching, text=text)


def subsequence(codes: Codes, matching: Matching, *, text: bool) -> bytes:
    """Return the letters of a matching in its first sequence, given as codes."""
    taken = codes[matching.in_a]
    return (taken if text else decode(taken)).tobytes()


def codes_of(letters: Letters, text: bool) -> Codes:
    """Return base codes of letters, or the bytes of a text."""
    if not text:
        return encode(letters)
    return as_letters(letters.encode() if isinstance(letters, str) else letters)


def _coded(a: Letters, b: Letters, text: bool) -> tuple[Codes, Codes, int]:
    return codes_of(a, text), codes_of(b, text), TEXT_SYMBOLS if text else DNA_SYMBOLS

"""Base codes, gap codes and k-mer codes.

A sequence is a uint8 array of base codes: A=0 C=1 G=2 T=3 (``U`` counts as ``T``), and
``GAP`` = 4 for every IUPAC ambiguity letter. A k-mer (1 <= k <= 31) is a uint64: its base-4
number, first base most significant. A gap code equals nothing, so no k-mer contains one.

Base codes for storage: two bits per base, plus the positions of gap codes.

byte i   | code 4i+3 | code 4i+2 | code 4i+1 | code 4i |      a gap code is stored as 0

Encode lines of letters while searching for their ends, 64 letters at a time.

Cost of 64 letters that are all bases: one load, about fifteen vector operations, one store, one
branch. Other letters and the end of a line are handled one by one.
"""

from typing import Any, Final

import numpy as np
from numba import types
from numpy.typing import NDArray

from trie.cpu import llvm
from trie.cpu.intrinsics import trailing_zeros, word_at
from trie.cpu.jit import inner, njit
from trie.cpu.llvm import BYTES, I64, INDEX, instruction
from trie.cpu.threads import GIL_BYTES
from trie.cpu.vectors import copy_line, equals

GAP = 4
INVALID = 255
MAX_K = 31
MAX_DISTANCE = 4

LETTERS = b"ACGT"
_WORDS = 256  # words of eight letters in a block
IUPAC_AMBIGUOUS = b"NRYKMSWBDHV"


def _letter_table() -> NDArray[np.uint8]:
    table = np.full(256, INVALID, dtype=np.uint8)
    for code, letters in enumerate((b"Aa", b"Cc", b"Gg", b"TtUu")):
        table[list(letters)] = code
    table[list(IUPAC_AMBIGUOUS + IUPAC_AMBIGUOUS.lower())] = GAP
    return table


LETTER_TO_CODE = _letter_table()


class InvalidBaseError(ValueError):
    """A byte that is neither a base nor an ambiguity letter, at a 0-based ``position``."""

    def __init__(self, byte: int, position: int) -> None:
        self.byte = byte
        self.position = position
        super().__init__(f"{shown_byte(byte)} is not a base (1-based position {position + 1})")


def shown_byte(byte: int) -> str:
    """A byte of a sequence, formatted for an error message."""
    return f"'{chr(byte)}'" if 32 < byte < 127 else f"byte 0x{byte:02x}"


@njit(cache=True, nogil=True)
def _translate(letters, table, codes):
    """Translate every letter; the returned OR of all codes reveals an invalid byte."""
    seen = np.uint8(0)
    for i in range(letters.size):
        code = table[letters[i]]
        codes[i] = code
        seen |= code
    return seen


@njit(cache=True, nogil=True, inline="always")
def eight_codes(word):
    """The codes of eight letters, one per byte, and a word that is 0 if all of them are bases.

    In upper and lower case bits 2-1 of A, C, T, G are 00, 01, 10, 11; XORed with their upper bit
    they are the codes. With these bits masked out, A, C and G are 0x41, and T and U are 0x50 and
    0x51.
    """
    word &= np.uint64(0xDFDFDFDFDFDFDFDF)
    pair = (word >> np.uint64(1)) & np.uint64(0x0303030303030303)
    high = (pair >> np.uint64(1)) & np.uint64(0x0101010101010101)
    thymine = high & ~pair
    rest = (word & np.uint64(0xF9F9F9F9F9F9F9F9)) ^ np.uint64(0x4141414141414141)
    return pair ^ high, (rest ^ thymine ^ (thymine << np.uint64(4))) & ~thymine


@njit(cache=True, nogil=True)
def _encode_words(letters, words):
    """Encode eight letters per word; the result is nonzero if some are not bases."""
    other = np.uint64(0)
    for i in range(words.size):
        word = word_at(letters, 8 * i)
        words[i], strange = eight_codes(word)
        other |= strange
    return other


@njit(cache=True, nogil=True)
def _encode(letters, table, codes, words):
    """Encode block by block; a block with letters other than bases is encoded letter by letter.

    words: a view of the whole words of ``codes``. Returns the OR of the codes of the latter blocks.
    """
    seen = np.uint8(0)
    whole = words.size
    for first in range(0, whole, _WORDS):
        stop = min(first + _WORDS, whole)
        if _encode_words(letters[8 * first :], words[first:stop]):
            seen |= _translate(letters[8 * first : 8 * stop], table, codes[8 * first : 8 * stop])
    return seen | _translate(letters[8 * whole :], table, codes[8 * whole :])


@njit(cache=True)
def _encode_few(letters, table, codes, words):
    return _encode(letters, table, codes, words)


def as_letters(
    sequence: bytes | bytearray | memoryview | str | NDArray[np.uint8],
) -> NDArray[np.uint8]:
    """The letters of a sequence as a uint8 array, without a copy if possible."""
    if isinstance(sequence, np.ndarray):
        if sequence.ndim != 1:
            raise ValueError(f"a sequence has one dimension, not the shape {sequence.shape}")
        return np.ascontiguousarray(sequence, dtype=np.uint8)
    if isinstance(sequence, str):
        sequence = sequence.encode("latin-1", "replace")
    return np.frombuffer(sequence, dtype=np.uint8)


def encode(
    sequence: bytes | bytearray | memoryview | str | NDArray[np.uint8],
    out: NDArray[np.uint8] | None = None,
) -> NDArray[np.uint8]:
    """Base codes (uint8, same length) of the letters of a sequence, in ``out`` if they fit in it.

    Raises InvalidBaseError at the first byte that is neither a base nor an ambiguity letter.
    """
    letters = as_letters(sequence)
    if out is None or out.size < letters.size:
        out = np.empty(letters.size, dtype=np.uint8)
    codes = out[: letters.size]
    words = codes[: codes.size // 8 * 8].view(np.uint64)
    run = _encode if letters.size > GIL_BYTES else _encode_few
    if run(letters, LETTER_TO_CODE, codes, words) > 7:
        position = int(np.argmax(codes == INVALID))
        raise InvalidBaseError(int(letters[position]), position)
    return codes


_A, _C, _G, _T = map(np.uint8, LETTERS)
_N = np.uint8(ord("N"))


@njit(cache=True, nogil=True)
def _decode(codes, letters):
    """Comparisons compile to vector instructions; a table look-up takes six times as long."""
    for i in range(codes.size):
        code = codes[i]
        letters[i] = (
            _A if code == 0 else _C if code == 1 else _G if code == 2 else _T if code == 3 else _N
        )


def decode(codes: NDArray[np.uint8], out: NDArray[np.uint8] | None = None) -> NDArray[np.uint8]:
    """The letters of base codes (uint8, same length), in ``out`` if given; ``N`` for the gap."""
    letters = np.empty(codes.size, dtype=np.uint8) if out is None else out
    _decode(codes, letters)
    return letters


def reverse_complement(codes: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The reverse complement of base codes; gap codes stay."""
    out = np.empty(codes.size, dtype=np.uint8)
    _reverse_complement(np.ascontiguousarray(codes), out)
    return out


@njit(cache=True, nogil=True)
def _reverse_complement(codes, out):
    last = codes.size - 1
    for i in range(codes.size):
        code = codes[last - i]
        out[i] = code if code >= GAP else np.uint8(3) - code


@njit(cache=True, nogil=True, inline="always")
def reverse_complement_code(code, k):
    """The code of the reverse complement of a k-mer code: complement, then reverse 2-bit groups."""
    x = ~np.uint64(code)
    x = ((x >> np.uint64(2)) & np.uint64(0x3333333333333333)) | (
        (x & np.uint64(0x3333333333333333)) << np.uint64(2)
    )
    x = ((x >> np.uint64(4)) & np.uint64(0x0F0F0F0F0F0F0F0F)) | (
        (x & np.uint64(0x0F0F0F0F0F0F0F0F)) << np.uint64(4)
    )
    x = ((x >> np.uint64(8)) & np.uint64(0x00FF00FF00FF00FF)) | (
        (x & np.uint64(0x00FF00FF00FF00FF)) << np.uint64(8)
    )
    x = ((x >> np.uint64(16)) & np.uint64(0x0000FFFF0000FFFF)) | (
        (x & np.uint64(0x0000FFFF0000FFFF)) << np.uint64(16)
    )
    x = (x >> np.uint64(32)) | (x << np.uint64(32))
    return x >> np.uint64(64 - 2 * k)


def bases_of_kmers(codes: NDArray[np.uint64], k: int) -> NDArray[np.uint8]:
    """The base codes of many k-mer codes: uint8[k-mers, k]."""
    shifts = np.arange(2 * (k - 1), -1, -2, dtype=np.uint64)
    return (codes[:, None] >> shifts[None, :] & np.uint64(3)).astype(np.uint8)


def decode_kmers(codes: NDArray[np.uint64], k: int) -> list[str]:
    """The letters of many k-mer codes."""
    letters = np.frombuffer(LETTERS, dtype=np.uint8)[bases_of_kmers(codes, k)]
    return letters.view(f"S{k}").ravel().astype(str).tolist()


def with_reverse_complements(codes: NDArray[np.uint64], k: int) -> NDArray[np.uint64]:
    """The codes followed by the codes of their reverse complements, uint64[2n]."""
    codes = np.ascontiguousarray(codes, dtype=np.uint64)
    both = np.empty(2 * codes.size, dtype=np.uint64)
    both[: codes.size] = codes
    _reverse_complements(codes, k, both[codes.size :])
    return both


@njit(cache=True, nogil=True)
def _reverse_complements(codes, k, out):
    for i in range(codes.size):
        out[i] = reverse_complement_code(codes[i], k)


def check_k(k: int) -> None:
    """Raise ValueError unless 1 <= k <= 31."""
    if not 1 <= k <= MAX_K:
        raise ValueError(f"k is {k}, it must lie in 1..{MAX_K}")


def check_distance(distance: int, k: int) -> None:
    """Raise ValueError unless 0 <= distance <= 4 and distance < k."""
    most = min(MAX_DISTANCE, k - 1)
    if not 0 <= distance <= most:
        raise ValueError(f"the distance is {distance}, it must lie in 0..{most} for k = {k}")


_GAPS = np.uint64(0x0404040404040404)


def pack_codes(codes: NDArray[np.uint8]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """uint8[(n + 3) // 4] and the ascending positions of gap codes, of uint8[n] base codes."""
    packed = np.empty((codes.size + 3) // 4, dtype=np.uint8)
    gaps = (_pack if codes.size > GIL_BYTES else _pack_few)(codes, packed)
    return packed, np.flatnonzero(codes == GAP) if gaps else np.zeros(0, np.int64)


def unpack_codes(
    packed: NDArray[np.uint8], gaps: NDArray[np.int64], size: int
) -> NDArray[np.uint8]:
    """The uint8[size] base codes that ``pack_codes`` packed."""
    codes = np.empty(4 * packed.size, dtype=np.uint8)
    _unpack(packed, codes)
    codes[gaps] = GAP
    return codes[:size]


@njit(cache=True, nogil=True)
def _pack(codes, packed):
    """Pack the codes; whether there is a gap code."""
    words = codes.size // 8
    seen = np.uint64(0)
    pairs = packed[: 2 * words].view(np.uint16)
    packed[2 * words :] = 0
    for i in range(words):  # no `if` and no byte stores, so LLVM vectorizes it
        word: np.uint64 = word_at(codes, 8 * i)
        seen |= word & _GAPS
        x = word & np.uint64(0x0303030303030303)
        x = (x | (x >> np.uint64(6))) & np.uint64(0x000F000F000F000F)
        x = (x | (x >> np.uint64(12))) & np.uint64(0x000000FF000000FF)
        pairs[i] = np.uint16((x | (x >> np.uint64(24))) & np.uint64(0xFFFF))
    for i in range(8 * words, codes.size):
        seen |= np.uint64(codes[i]) & _GAPS
        packed[i // 4] |= (codes[i] & np.uint8(3)) << np.uint8(2 * (i % 4))
    return seen != 0


@njit(cache=True)
def _pack_few(codes, packed):
    return _pack(codes, packed)


@njit(cache=True, nogil=True)
def _unpack(packed, codes):
    for i in range(packed.size):
        value = packed[i]
        for j in range(4):
            codes[4 * i + j] = (value >> np.uint8(2 * j)) & np.uint8(3)


@njit(cache=True, nogil=True)
def reverse_codes(words, reversed_words):
    """Reverse uint32[n] words of 16 codes each: from first code highest to first code lowest."""
    for i in range(reversed_words.size):
        x = words[i]
        x = ((x >> np.uint32(2)) & np.uint32(0x33333333)) | (
            (x & np.uint32(0x33333333)) << np.uint32(2)
        )
        x = ((x >> np.uint32(4)) & np.uint32(0x0F0F0F0F)) | (
            (x & np.uint32(0x0F0F0F0F)) << np.uint32(4)
        )
        x = ((x >> np.uint32(8)) & np.uint32(0x00FF00FF)) | (
            (x & np.uint32(0x00FF00FF)) << np.uint32(8)
        )
        reversed_words[i] = np.uint32((x >> np.uint32(16)) | (x << np.uint32(16)))


LF: Final = np.uint8(10)
CR: Final = np.uint8(13)


@instruction(types.uint64, None, INDEX, None, INDEX)
def put_codes(builder: Any, letters: Any, at: Any, codes: Any, to: Any) -> Any:
    """codes[to : to + 64] from 64 letters; returns uint64, a bit for each that is not a base.

    In upper and lower case bits 2-1 of A, C, T, G are 00, 01, 10, 11; XORed with their upper bit
    they are the codes.
    """

    def every(number: int) -> Any:
        return llvm.constant(BYTES, number)

    upper = builder.and_(llvm.load(builder, letters, at, BYTES), every(0xDF))
    pair = builder.and_(builder.lshr(upper, every(1)), every(3))
    llvm.store(builder, builder.xor(pair, builder.lshr(pair, every(1))), codes, to)
    other = None
    for letter in b"ACGTU":
        differs = builder.icmp_unsigned("!=", upper, every(letter))
        other = differs if other is None else builder.and_(other, differs)
    return builder.bitcast(other, I64)


@inner
def encode_line(text, at, stop, codes, to, table, cr, raw):
    """The codes of a line's letters, from text[at] to its end; unchanged bytes if ``raw``.

    The line ends at LF, with ``cr`` also at CR. table: uint8[256], the code of each byte, INVALID
    for one that is not a letter. Both arrays need 64 bytes of slack after what is read and written.
    Returns the end of the line (``stop`` or more if there is none) and the first byte that is not a
    letter.
    """
    first = at
    bad = np.int64(text.size)
    while at < stop:
        if raw:
            copy_line(text, at, codes, to + at - first)
            other = ~np.uint64(0)
        else:
            other = put_codes(text, at, codes, to + at - first)
        if other:
            ends = equals(text, at, LF)
            if cr:
                ends |= equals(text, at, CR)
            count = np.int64(64)
            if ends:
                count = np.int64(trailing_zeros(ends))
                other &= (np.uint64(1) << np.uint64(count)) - np.uint64(1)
            if raw:
                other = np.uint64(0)
            while other:
                i = at + np.int64(trailing_zeros(other))
                code = table[text[i]]
                codes[to + i - first] = code
                if code == INVALID and i < bad:
                    bad = i
                other &= other - np.uint64(1)
            if ends:
                return at + count, bad
        at += 64
    return at, bad

"""Letters to codes: words of eight letters against the table, every byte at every place."""

from __future__ import annotations

import numpy as np
import pytest

from trie.codes import GAP, InvalidBaseError, encode

CODES = {letter: code for code, pair in enumerate(("Aa", "Cc", "Gg", "TtUu")) for letter in pair}
CODES |= dict.fromkeys("NRYKMSWBDHVnrykmswbdhv", GAP)


@pytest.mark.parametrize("size", [1, 7, 8, 9, 17, 2047, 2048, 2049, 4104])
def test_every_byte_at_any_place(size: int) -> None:
    rng = np.random.default_rng(size)
    for byte in range(256):
        letters = rng.choice(np.frombuffer(b"ACGTUacgtu", dtype=np.uint8), size)
        at = int(rng.integers(size))
        letters[at] = byte
        if chr(byte) in CODES:
            want = [CODES[chr(letter)] for letter in letters]
            assert encode(letters).tolist() == want, (byte, at)
            assert encode(letters.tobytes()).tolist() == want, (byte, at)
        else:
            with pytest.raises(InvalidBaseError) as caught:
                encode(letters)
            assert (caught.value.byte, caught.value.position) == (byte, at)


def test_the_first_of_two_bad_letters_is_told() -> None:
    letters = bytearray(b"ACGT" * 2_000)
    letters[5_000:5_000] = b"N"
    letters[3_001] = letters[7_000] = ord("!")
    with pytest.raises(InvalidBaseError) as caught:
        encode(letters)
    assert caught.value.position == 3_001

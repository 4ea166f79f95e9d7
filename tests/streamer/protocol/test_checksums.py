"""CRC-32C against its definition, sums of parts, and the last frame of a message."""

from __future__ import annotations

import random

import msgpack
import numpy as np
import pytest

from streamer.protocol import checksum_kernels, header
from streamer.protocol.checksum_kernels import combine, continue_crc32c
from streamer.protocol.header import Reason, WireError, crc32c, crc32c_address, seal, unseal
from tests.reference import crc32c as definition
from trie.cpu.intrinsics import array_address

# around a table's byte, what is summed without releasing the GIL, and the lanes of the kernels
SIZES = [0, 1, 2, 7, 8, 9, 63, 64, 65, 255, 256, 1000, 4096, 12_289]
LARGE = [(1 << 18) - 1, 1 << 18, (1 << 18) + 1, 300_001]


def test_the_check_value():
    assert definition.crc32c(b"123456789") == 0xE3069283
    assert crc32c([b"123456789"]) == crc32c([b"", b"1234", b"5678", b"9"]) == 0xE3069283


@pytest.mark.parametrize("missing", [False, True], ids=["ISA-L", "plain"])
@pytest.mark.parametrize("size", [*SIZES, *LARGE])
def test_any_length(size, missing, monkeypatch):
    if missing:
        monkeypatch.setattr(header.ISA_L, "missing", ["crc32_iscsi"])
    data = random.Random(size).randbytes(size)
    want = definition.crc32c(data)
    assert crc32c([data]) == crc32c([memoryview(data)]) == want
    assert crc32c([data[size // 3 :]], crc32c([data[: size // 3]])) == want


@pytest.mark.parametrize("size", [*SIZES, *LARGE])
def test_the_sum_of_a_kernel(size, monkeypatch):
    data = random.Random(size).randbytes(size + 1)[1:]
    array = np.frombuffer(data, np.uint8)
    address = np.uint64(array_address(array) if size else 0)
    found = continue_crc32c(np.uint64(crc32c_address()), np.uint32(7), address, size)
    assert found == crc32c([data], 7)


def test_a_kernel_sums_in_calls_that_an_int_of_c_can_count():
    """As over 2 GiB, with the size of a call lowered."""
    data = np.frombuffer(random.Random(1).randbytes(1000), np.uint8)
    plain = getattr(continue_crc32c, "py_func", continue_crc32c)
    taken = []

    def sum_of(_, address, size, state):
        taken.append(int(size))
        begin = int(address) - array_address(data)
        part = data[begin : begin + int(size)].tobytes()
        return np.uint32(crc32c([part], int(state) ^ 0xFFFFFFFF) ^ 0xFFFFFFFF)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checksum_kernels, "_crc32_iscsi", sum_of)
        patch.setattr(checksum_kernels, "CALL_BYTES", 300)
        found = plain(0, 0, array_address(data), data.size)
    assert taken == [300, 300, 300, 100]
    assert found == crc32c([data.tobytes()])


def test_a_frame_is_summed_in_calls_that_an_int_of_c_can_count(monkeypatch):
    data = random.Random(2).randbytes(LARGE[-1])
    want = crc32c([data], 7)
    monkeypatch.setattr(header, "CALL_BYTES", 100_000)
    assert crc32c([data], 7) == want


@pytest.mark.parametrize("seed", range(30))
def test_the_sum_of_parts(seed):
    rng = random.Random(seed)
    data = rng.randbytes(rng.choice([0, 1, 10, 1000, 5000, 1 << 18]))
    cut = rng.randint(0, len(data))
    first, second, whole = (crc32c([part]) for part in (data[:cut], data[cut:], data))
    assert combine(first, second, len(data) - cut) == whole
    assert combine(first, whole, len(data) - cut) == second


def test_the_sum_of_parts_that_are_huge():
    """In front of 2^45 bytes of value 0, which are halves of halves."""
    zeros, size = crc32c([b"\0"]), 1
    while size < 1 << 45:
        zeros, size = combine(zeros, zeros, size), 2 * size
    head = crc32c([b"head"])
    step = combine(head, zeros, size)
    for _ in range(2):
        size //= 2
        half = crc32c([b"\0"])
        at = 1
        while at < size:
            half, at = combine(half, half, at), 2 * at
        assert combine(combine(head, half, size), half, size) == step
        step = combine(head, half, size)


HEADER = msgpack.packb({"v": 2, "type": "hello"})


def test_a_sealed_message_is_unsealed():
    frames = [HEADER, b"", b"data"]
    sealed = seal(frames)
    assert sealed[:-1] == frames
    assert sealed[-1] == definition.crc32c(b"".join(frames)).to_bytes(4, "little")
    assert unseal(sealed) == frames
    assert unseal([memoryview(frame) for frame in sealed]) == frames
    assert unseal(seal(frames, 5), crc=5) == frames


def refusal(frames, **options):
    with pytest.raises(WireError) as caught:
        unseal(frames, **options)
    return caught.value.reason


def test_every_flipped_bit_is_noticed():
    sealed = seal([HEADER, b"ab"])
    for at, frame in enumerate(sealed):
        for bit in range(8 * len(frame)):
            damaged = bytearray(frame)
            damaged[bit // 8] ^= 1 << bit % 8
            assert refusal([*sealed[:at], bytes(damaged), *sealed[at + 1 :]]) == Reason.CHECKSUM
    assert refusal(sealed, crc=1) == Reason.CHECKSUM


@pytest.mark.parametrize(
    "frames",
    [[], [b""], [b"1234"], [HEADER], [HEADER, b""], [HEADER, b"123"], [HEADER, b"12345"]],
)
def test_messages_without_a_checksum(frames):
    assert refusal(frames) == Reason.MALFORMED


@pytest.mark.parametrize("frames", [[], [b"data"], [b"1234"], [b"data", b"5678"]])
def test_version_1_is_refused_by_name(frames):
    """It had no last frame with a checksum."""
    old = msgpack.packb({"v": 1, "type": "hello"})
    with pytest.raises(WireError, match="protocol version 1") as caught:
        unseal([old, *frames])
    assert caught.value.reason == Reason.VERSION
    assert refusal([b"topic", old, *frames], header=1) == Reason.VERSION


@pytest.mark.parametrize("version", [True, 1.0, "1", 0, 3, None])
def test_what_is_not_version_1_is_damage(version):
    assert refusal([msgpack.packb({"v": version}), b"1234"]) == Reason.CHECKSUM

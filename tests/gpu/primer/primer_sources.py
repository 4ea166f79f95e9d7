"""Every kernel of the primer problem: the plain function and its argument types."""

from __future__ import annotations

from gpu.primer import paper, seeds, window_scan


def sources(words=7, threads=64, k=100):
    """By name, for windows and prefixes of ``words`` words and blocks of ``threads`` threads."""
    conventional_types = (
        "uint8[::1]", "uint8[::1]", "int32", "int64[::1]", "int32[:, ::1]", "int32[::1]",
        "uint64[::1]",
    )  # fmt: skip
    alternative_types = (
        "uint8[::1]", "uint8[::1]", "int32", "int64[::1]", "int32[::1]", "uint64[::1]",
    )  # fmt: skip
    scan_types = (
        "uint32[::1]", "uint32", "uint32", "uint8[::1]", "int64[:, ::1]", "uint32", "int32",
        "int32", "uint64[::1]", "uint32[::1]",
    )  # fmt: skip
    variants_types = (
        "uint32[:, ::1]", "int64[:, ::1]", "int32", "int32", "int32", "uint32[::1]", "uint32[::1]",
        "int32",
    )  # fmt: skip
    seeds_types = (
        "uint32[::1]", "uint32[::1]", "int64", "int64", "uint32[::1]", "int32", "int32", "int32",
        "uint32[::1]", "uint32[::1]", "uint64[::1]", "uint32[::1]",
    )  # fmt: skip
    extend_types = (
        "uint32[::1]", "int64", "uint32[:, ::1]", "int64[::1]", "int32", "int64[:, ::1]",
        "uint64[:, ::1]", "int64", "int64[::1]", "int32", "int32", "int64[::1]", "uint64[:, ::1]",
        "uint64[:, ::1]", "uint32[:, ::1]", "int32",
    )  # fmt: skip
    pack_types = ("uint8[::1]", "int64", "uint32[::1]", "uint32[::1]", "uint32[::1]")
    windows_types = ("uint8[::1]", "int64[:, ::1]", "int32", "uint32[:, ::1]")
    return {
        "conventional": (paper.conventional_kernel(threads), conventional_types),
        "alternative": (paper.alternative_kernel(threads, k, 3, False), alternative_types),
        "alternative_counted": (paper.alternative_kernel(threads, k, 1, True), alternative_types),
        "pack": (window_scan.pack, pack_types),
        "scan": (window_scan.kernel(words), scan_types),
        "windows_of": (seeds.windows_of, windows_types),
        "variants": (seeds.variants, variants_types),
        "seeds": (seeds.seeds, seeds_types),
        "extend": (window_scan.extend(words, max(0, words - 2), False), extend_types),
        "extend_gaps": (window_scan.extend(words, 0, True), extend_types),
    }

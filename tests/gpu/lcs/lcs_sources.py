"""Every kernel of the longest common subsequence: the plain function and its argument types."""

from __future__ import annotations

from gpu.lcs import paper, systolic


def sources(shape):
    """By name; only ``systolic`` depends on the shape."""
    systolic_types = (
        "uint32[:,::1]", "uint32", "int64", "uint64[::1]", "int64[:,::1]", "uint32[:,::1]",
        "uint32[::1]", "uint64[::1]", "uint32[::1]",
    )  # fmt: skip
    arrange_types = (
        "uint8[::1]", "int64[:,::1]", "uint32", "uint32", "uint32[::1]", "uint64[::1]",
    )  # fmt: skip
    match_vectors_types = (
        "uint8[::1]", "int64", "int64", "int64", "uint32[:,::1]", "uint32[::1]",
    )  # fmt: skip
    block_step_types = (
        "uint8[::1]", "int64", "int64", "int64", "int64", "uint32[:,::1]", "uint32[::1]",
        "uint8[:,:,::1]", "int64",
    )  # fmt: skip
    return {
        "systolic": (systolic.systolic(shape), systolic_types),
        "planes": (systolic.planes, ("uint8[::1]", "uint32[:,::1]")),
        "arrange": (systolic.arrange, arrange_types),
        "cut": (systolic.cut, ("uint32[::1]", "int64[:,::1]", "int64[:,::1]")),
        "match_vectors": (paper.match_vectors, match_vectors_types),
        "block_step": (paper.block_step, block_step_types),
    }

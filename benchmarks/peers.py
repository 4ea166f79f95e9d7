"""Other programs that the suites measure in the same run; None for one that is not installed."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Run = Callable[[], Any]


def missing(name: str) -> str:
    """The cell of a table for a peer that is not installed."""
    return f"{name} is not installed: pip install '.[bench]' in a clone"


def _imported(name: str) -> Any | None:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def sassy(patterns: Sequence[bytes], text: bytes, k: int) -> Run | None:
    """All matches of each pattern on one strand, with start, end, cost and CIGAR."""
    module = _imported("sassy")
    if module is None:
        return None
    searcher = module.Searcher("dna", rc=False)
    return lambda: [searcher.search_all(pattern, text, k) for pattern in patterns]


def dnaio(paths: Sequence[str]) -> Run | None:
    """Every record of read files as an object."""
    module = _imported("dnaio")
    if module is None:
        return None

    def run() -> None:
        for path in paths:
            with module.open(path, open_threads=1) as records:
                for _ in records:
                    pass

    return run


def edlib(patterns: Sequence[bytes], text: bytes, k: int) -> Run | None:
    """The best distance of each pattern."""
    module = _imported("edlib")
    if module is None:
        return None
    return lambda: [module.align(p, text, mode="HW", task="distance", k=k) for p in patterns]


def hyperscan(patterns: Sequence[bytes], text: bytes, **limit: int) -> tuple[Run | None, str]:
    """Ends without distances; None and the reason if it is missing or refuses the patterns.

    limit: ``edit_distance`` or ``hamming_distance``.
    """
    module = _imported("hyperscan")
    if module is None:
        return None, missing("hyperscan")
    flags = sum(getattr(module, f"HS_EXT_FLAG_{name.upper()}") for name in limit)
    database = module.Database()
    try:
        database.compile(
            expressions=list(patterns),
            ids=list(range(len(patterns))),
            elements=len(patterns),
            flags=[0] * len(patterns),
            ext=[module.ExpressionExt(flags=flags, **limit)] * len(patterns),
        )
    except module.error as error:
        return None, " ".join(str(error).split())[:60]
    ends: list[int] = []

    def scan() -> None:
        ends.clear()
        database.scan(text, match_event_handler=lambda number, start, end, *_: ends.append(end))

    return scan, ""


def rapidfuzz(a: bytes, b: bytes) -> Run | None:
    """The length of the longest common subsequence."""
    module = _imported("rapidfuzz.distance")
    return None if module is None else lambda: module.LCSseq.similarity(a, b)


def sshash(texts: Sequence[str], k: int) -> Any | None:
    """A streaming query over the k-mers of texts, none of which may occur twice."""
    module = _imported("sshash")
    if module is None:
        return None
    # minimizers a little longer than log4 of the text, as its authors recommend
    shortest = int(np.ceil(np.log(max(4, sum(map(len, texts)))) / np.log(4))) + 1
    config = module.BuildConfig(k, max(1, min(k - 2, shortest)))
    config.verbose = False
    config.threads = 1
    return config.build(texts).streaming_query()

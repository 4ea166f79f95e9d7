"""The fields of a run, as ``RunModel.everything`` has them, always the same."""

from __future__ import annotations

import math


def run_fields(**status):
    """A run of ten minutes with two barcodes, a stuck stage and a GPU."""
    history = [
        [1000.0 + n, 100 * n, round(1e5 * n + 4e5 * math.sin(n / 9)), 0, 0.002, 1e-3 * (4 + n % 5)]
        for n in range(120)
    ]
    names = [f"amplicon_{n}" for n in range(1, 31)]
    reads = {name: 400 - 13 * n for n, name in enumerate(names)}
    said = {
        "state": "running", "uptime_seconds": 612.0, "durability": "fsync", "refused": 0,
        "dictionary": {"k": 21, "mode": "grow", "strands": "canonical", "targets": 30,
                       "kmers": 31_234, "limited": False, "version": 12},
        "totals": {"reads": 11_900, "bases": 11_912_345, "windows": 11_600_000,
                   "matches": 10_200_000, "reads_on_target": 10_700},
        "queue": {"batches": 3, "bytes": 61_000_000, "limit_bytes": 268_435_456},
        "undurable": {"batches": 2, "bytes": 40_000, "age_seconds": 0.2},
        "feed": {"bytes": 1200, "limit_bytes": 67_108_864, "slow": 1},
        "producers": {"known": 2, "active": 1}, "revision": None,
        "stuck": {"journal": {"waits_for": "the disk", "seconds": 12.4}},
        "gpus": {"0": {"used_bytes": 3_200_000_000, "size_bytes": 80_000_000_000}},
        "durations": {"bounds": [0.001, 0.0025, 0.005, 0.01, 0.025],
                      "counts": [10, 400, 700, 80, 0, 2]},
        "published": ["targets.", "barcodes.", "novelty."],
    }  # fmt: skip
    targets = [[n, r, 1000 * r, 900 * r, 980, 970, 0.9898, r * 0.9] for n, r in reads.items()]
    cells = [[r // 2, 0.98, r / 2, int(r > 200)] for r in reads.values()]
    enough = sum(cell[3] for cell in cells)
    rows = {
        "targets": targets,
        "unassigned": [None, 1200, 1_200_000, *[None] * 5],
        "map_targets": names,
        "map": [["barcode01", cells], ["barcode02", [[*cell[:3], 0] for cell in cells]]],
        "rule": "detected: ...", "alarms": [], "run": "run 7",
        "samples": [
            ["barcode02", "patient 2", None, 5900, 5.9e6, 30, 0, 30, 0, 5300, [], 840.0],
            ["barcode01", "barcode01", None, 6000, 6e6, 30, enough, 30 - enough, 0, 5400, ["spike"],
             42.0],
        ],
    }  # fmt: skip
    curve = [[100 * n, 100_000 * n, round(30_000 * (1 - 0.95**n)), 0] for n in range(1, 60)]
    return {
        "problem": "", "gaps": 0, "now": 1119.0, "status": said | status, "history": history,
        "rows": rows, "novelty": curve,
        "producers": [["minion-1", 900, 9000, 9_000_000, 1118.0],
                      ["minion-2\x1b[31m", 290, 2900, 2_912_345, 1020.0]],
    }  # fmt: skip

"""Kernels of approximate pattern search: one module a method, ``sources`` names them all."""

from __future__ import annotations

from collections.abc import Callable

from gpu.asm import counting, listing, order, slicing
from gpu.asm import pasm as rows
from gpu.asm import sliced_kernels as sliced
from gpu.asm import wspasm as warps

Source = tuple[Callable[..., None], tuple[str, ...]]

STRIPS = (
    sliced.Strip(rows=32, first=True, planes=6, letters=4),
    sliced.Strip(rows=8, first=False, planes=0, letters=4),
    sliced.Strip(rows=5, first=False, planes=11, letters=16),
)
"""Some of what the bit-sliced kernel is made for."""


def sources() -> dict[str, Source]:
    """The plain functions and the names of their argument types."""
    table: dict[str, Source] = {
        "last_in_piece": (rows.last_in_piece, rows.signature_last_in_piece()),
        "carry_over": (rows.carry_over(rows.THREADS), rows.signature_carry_over()),
        "last_positions": (rows.last_positions, rows.signature_last_positions()),
        "first_row": (rows.first_row, rows.signature_first_row()),
        "pasm_row": (rows.pasm_row, rows.signature_pasm_row()),
        "collect": (rows.collect, rows.signature_collect()),
        "wspasm": (warps.wspasm(warps.THREADS, 1, False), warps.signature()),
        "wspasm_shared": (warps.wspasm(warps.THREADS, 1, True), warps.signature()),
        "wspasm_shared_2": (warps.wspasm(warps.THREADS, 2, True), warps.signature()),
        "slice_text": (slicing.slice_text(sliced.TILE, False), slicing.signature(False)),
        "slice_packed": (slicing.slice_text(sliced.TILE, True), slicing.signature(True)),
        "count_sliced": (
            counting.count(counting.THREADS, sliced.TILE),
            counting.signature(),
        ),
        "emit_sliced": (listing.emit(sliced.TILE, listing.LISTED), listing.signature()),
        "places": (order.places(order.THREADS), order.signature_places()),
        "count": (order.count(order.THREADS), order.signature_count()),
        "emit": (order.emit(order.THREADS), order.signature_emit()),
    }
    for strip in STRIPS:
        table[f"scan_{strip.rows}_{strip.planes}_{strip.letters}"] = (
            sliced.scan(strip, sliced.THREADS),
            sliced.signature(),
        )
    return table

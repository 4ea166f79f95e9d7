"""Human-readable numbers, and round numbers along an axis."""

from __future__ import annotations

import math

_UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def short(value: float) -> str:
    """Format with at most four characters and a unit: 950, 1.2 k, 48.5 M."""
    for size, unit in _UNITS:
        # otherwise 999,950 would be 1000.0 k
        if value >= size * 0.9995:
            return f"{_three(value / size)} {unit}"
    return _three(value)


def _three(value: float) -> str:
    digits = 0 if value >= 99.95 else 1 if value >= 9.995 else 2
    shown = f"{value:.{digits}f}"
    return shown.rstrip("0").rstrip(".") if "." in shown else shown


def counted(value: int) -> str:
    """Format in full up to six digits."""
    return f"{value:,}" if value < 1_000_000 else short(value)


def percent(part: float, whole: float) -> str:
    """Format as percent with one decimal; 0 and 100 only where they are exact."""
    if not whole:
        return "–"
    share = 100 * part / whole
    if 0 < share < 0.1:
        return "< 0.1 %"
    if 99.9 < share < 100:
        return "> 99.9 %"
    return f"{share:.1f} %"


def ratio(value: float | None) -> str:
    """Format with four decimals, as in rows."""
    return "–" if value is None else f"{value:,.4f}"


def ticks(most: float, count: int = 4) -> list[float]:
    """Return about ``count`` round numbers up to ``most``, and 0."""
    if most <= 0:
        return [0.0]
    rough = most / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(s * power for s in (1, 2, 2.5, 5, 10) if s * power >= rough * 0.999)
    return [at * step for at in range(int(most / step * 1.0001) + 1)]

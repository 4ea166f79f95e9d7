"""Numbers, sizes, times, bars and curves as text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_EIGHTHS = " ▏▎▍▌▋▊▉█"
_LEVELS = "▁▂▃▄▅▆▇█"
_UNITS = "", " k", " M", " G", " T", " P", " E"

NONE = "."
"""What stands for no value, as in all tables of the program."""


def plain(name: str | None) -> str:
    """A name as text that cannot steer the terminal."""
    if name is None:
        return NONE
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in name)


def count(value: float | None) -> str:
    """An integer with separators."""
    return NONE if value is None else f"{value:,.0f}"


def short(value: float | None) -> str:
    """Three or four digits with a unit of a thousand: 999, 1.23 k, 45.6 M."""
    if value is None:
        return NONE
    for unit in _UNITS:
        if abs(value) < 999.5 or unit == _UNITS[-1]:
            break
        value /= 1000
    digits = 0 if not unit or abs(value) >= 99.95 else 1 if abs(value) >= 9.995 else 2
    return f"{value:.{digits}f}{unit}"


def size(value: float) -> str:
    """Bytes: 12 B, 1.23 MB."""
    text = short(value)
    return f"{text}B" if " " in text else f"{text} B"


def seconds(value: float | None) -> str:
    """A short time: 0.42 ms, 12 ms, 3.4 s."""
    if value is None:
        return NONE
    value *= 1000
    if value < 1000:
        return f"{value:.2g} ms" if value < 10 else f"{value:.0f} ms"
    return f"{value / 1000:.3g} s"


def duration(value: float) -> str:
    """A long time: 42 s, 12 min, 3 h 5 min, 2 d 4 h."""
    whole = int(value)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def share(part: float | None, whole: float | None) -> str:
    """A percentage."""
    return f"{100 * part / whole:.1f} %" if part is not None and whole else NONE


def bar(part: float, width: int) -> str:
    """A bar of up to ``width`` cells for a share from 0 to 1, in eighths of a cell."""
    eighths = round(8 * width * min(max(part, 0.0), 1.0))
    if part > 0:
        # something is not nothing
        eighths = max(eighths, 1)
    full, rest = divmod(eighths, 8)
    return ("█" * full + (_EIGHTHS[rest] if rest else "")).ljust(width)


def curve(values: Iterable[float | None], width: int) -> str:
    """The last ``width`` values as columns, the largest of these as the highest; None is a gap."""
    last = list(values)[-width:] if width > 0 else []
    most = max((value for value in last if value is not None), default=0.0)
    return "".join(
        " " if value is None else _LEVELS[min(int(8 * value / most), 7) if most > 0 else 0]
        for value in last
    )


def rates(times: Sequence[float], counts: Sequence[float]) -> list[float | None]:
    """How fast counts rise, a second, between each two of their times."""
    found: list[float | None] = []
    for at in range(1, len(times)):
        passed = times[at] - times[at - 1]
        rise = counts[at] - counts[at - 1]
        # counts of another daemon begin anew
        found.append(rise / passed if passed > 0 and rise >= 0 else None)
    return found

"""The upper part of the page: state, throughput, latency, queues, GPUs, and what is wrong."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.text import Text

from streamer.terminal.wording import (
    bar,
    count,
    curve,
    duration,
    plain,
    rates,
    seconds,
    share,
    short,
    size,
)

Fields = Mapping[str, Any]

# the colours of the terminal itself, such as are read on light and on dark
_LABEL, _VALUE, _RATE, _LATENCY, _WRONG = "dim", "bold", "green", "magenta", "bold red"
_GAP = "  "
_BAR = 8
_LEAST_CURVE = 10


def overview(fields: Fields, width: int) -> Text:
    """Lines of at most ``width`` cells, for what ``RunModel.everything`` has."""
    status: Fields = fields.get("status") or {}
    if "totals" not in status:
        waiting = str(fields.get("problem") or "waiting for the daemon")
        return Text("\n").join(_wrong(waiting, width))
    lines = [
        *_flow(_state(status), width),
        *_flow(_sums(status["totals"]), width),
        *_speeds(fields["history"], width),
        *_flow([*_queues(status), *_cards(status)], width),
        *_novelty(fields.get("novelty") or (), width),
        *(line for warning in _warnings(fields, status) for line in _wrong(warning, width)),
    ]
    return Text("\n").join(lines)


def _state(status: Fields) -> Iterable[Text]:
    state = str(status["state"])
    yield Text.assemble((state, _VALUE if state == "running" else _WRONG))
    yield _part("up", duration(status["uptime_seconds"]))
    of = status["dictionary"]
    yield _part(f"k={of['k']}", str(of["mode"]))
    yield _part("targets", count(of["targets"]))
    yield _part("k-mers", count(of["kmers"]))
    yield _part("version", str(of["version"]))


def _sums(totals: Fields) -> Iterable[Text]:
    yield _part("reads", count(totals["reads"]))
    yield _part("bases", short(totals["bases"]))
    yield _part("matched", share(totals["matches"], totals["windows"]))
    yield _part("on target", share(totals["reads_on_target"], totals["reads"]))


def _speeds(points: Sequence[Sequence[Any]], width: int) -> list[Text]:
    """Throughput and latency, each with a curve over the last points of the history."""
    times = [point[0] for point in points]
    reads = rates(times, [point[1] for point in points])
    bases = rates(times, [point[2] for point in points])
    tails = [point[5] for point in points]
    last = points[-1] if points else (0, 0, 0, 0, None, None)
    speeds = [
        _part("reads/s", short(reads[-1] if reads else None).rjust(6)),
        _part("bases/s", short(bases[-1] if bases else None).rjust(6)),
    ]
    late = [
        _part("latency p50", seconds(last[4]).rjust(7)),
        _part("p99", seconds(last[5]).rjust(7)),
    ]
    return [
        _with_curve(speeds, bases, _RATE, width),
        _with_curve(late, tails, _LATENCY, width),
    ]


def _with_curve(
    parts: Sequence[Text], values: Sequence[float | None], style: str, width: int
) -> Text:
    line = Text(_GAP).join(parts)
    room = width - line.cell_len - len(_GAP)
    if room >= _LEAST_CURVE:
        line.append(_GAP).append(curve(values, room), style)
    line.truncate(width)
    return line


def _queues(status: Fields) -> Iterable[Text]:
    queue = status["queue"]
    yield _part("queue", f"{count(queue['batches'])} batches")
    yield _level("ingest", queue["bytes"], queue["limit_bytes"])
    undurable = status["undurable"]
    if status["durability"] != "none":
        waits = f", {undurable['age_seconds']:.1f} s" if undurable["batches"] else ""
        yield _part("undurable", f"{count(undurable['batches'])} batches{waits}")
    if feed := status.get("feed"):
        yield _level("feed", feed["bytes"], feed["limit_bytes"])
        yield _part("drops", count(feed["slow"]), _WRONG if feed["slow"] else _VALUE)
    yield _part("refused", count(status["refused"]), _WRONG if status["refused"] else _VALUE)
    yield _part("producers", f"{status['producers']['active']} active")


def _cards(status: Fields) -> Iterable[Text]:
    for number, memory in sorted((status.get("gpus") or {}).items()):
        yield _level(f"GPU {number}", memory["used_bytes"], memory["size_bytes"])


def _novelty(points: Sequence[Sequence[Any]], width: int) -> list[Text]:
    """The share of new k-mers, over the bases so far."""
    news = [
        1000 * (point[2] - before[2]) / max(point[1] - before[1], 1)
        for before, point in zip([(0, 0, 0), *points], points, strict=False)
    ]
    if not news:
        return []
    parts = [_part("new k-mers", f"{short(points[-1][2])}, {news[-1]:.2f} a 1,000 bases")]
    return [_with_curve(parts, news, _RATE, width)]


def _warnings(fields: Fields, status: Fields) -> Iterable[str]:
    if fields.get("problem"):
        yield str(fields["problem"])
    for stage, stuck in (status.get("stuck") or {}).items():
        waited = f"no progress for {stuck['seconds']:.0f} s"
        yield f"stuck: {stage}: {waited}, waits for {stuck['waits_for']}"
    if status["dictionary"]["limited"]:
        yield "the dictionary is at its limit"
    if revision := status.get("revision"):
        left = count(revision["batches"])
        yield f"revision to version {revision['version']}: {left} batches left"
    if fields.get("gaps"):
        yield f"messages of the feed missed: {count(fields['gaps'])} gaps"


def _wrong(warning: str, width: int) -> list[Text]:
    text = plain(warning)
    parts = [text[at : at + width] for at in range(0, len(text), width)]
    return [Text.assemble((part, _WRONG)) for part in parts]


def _part(label: str, value: str, style: str = _VALUE) -> Text:
    return Text.assemble((f"{label} ", _LABEL), (value, style))


def _level(label: str, part: int, whole: int) -> Text:
    """How much of a limit is in use."""
    style = _WRONG if whole and part >= 0.9 * whole else _VALUE
    made = _part(label, f"{size(part)} of {size(whole)}" if whole else size(part), style)
    if whole:
        made.append(" ▕", _LABEL).append(bar(part / whole, _BAR), _RATE).append("▏", _LABEL)
    return made


def _flow(parts: Iterable[Text], width: int) -> list[Text]:
    """Parts one after the other, on as many lines as they need."""
    lines: list[Text] = []
    for part in parts:
        if lines and lines[-1].cell_len + len(_GAP) + part.cell_len <= width:
            lines[-1].append(_GAP).append_text(part)
        else:
            part = part.copy()
            part.truncate(width)
            lines.append(part)
    return lines

"""A frame with axes as inline SVG that fits any width.

The SVG has no viewBox: horizontal positions are percentages, so text keeps its size. Curves are in
a nested SVG that is stretched, 1000 units in either direction.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from streamer.reporting.markup import Markup, joined, tag

Tick = tuple[float, str]
"""A tick: position from 0 to 1, and label."""


def place(share: float) -> str:
    """Return a horizontal position in a frame."""
    return f"{100 * share:.3f}%"


def plot(
    identity: str,
    title: str,
    description: str,
    body: Markup,
    *,
    height: int,
    across: Sequence[Tick] = (),
    up: Sequence[Tick] = (),
) -> Markup:
    """Draw axes around ``body``, which is drawn from (0, 0) to (100 %, height).

    identity: unique id of this figure on the page. title, description: for screen readers.
    """
    lines, labels = [], []
    for share, label in up:
        y = round(height * (1 - share), 1)
        lines.append(tag("line", x1=0, x2="100%", y1=y, y2=y, class_="grid"))
        labels.append(tag("text", label, x=-8, y=y + 4, text_anchor="end"))
    for share, label in across:
        anchor = "start" if share < 0.02 else "end" if share > 0.98 else "middle"
        lines.append(
            tag("line", x1=place(share), x2=place(share), y1=height, y2=height + 4, class_="tick")
        )
        labels.append(tag("text", label, x=place(share), y=height + 18, text_anchor=anchor))
    svg = tag(
        "svg",
        tag("title", title, id=f"{identity}-title"),
        tag("desc", description, id=f"{identity}-desc"),
        *lines, body,
        tag("line", x1=0, x2="100%", y1=height, y2=height, class_="axis"),
        tag("g", *labels, class_="labels", aria_hidden="true"),
        role="img", aria_labelledby=f"{identity}-title {identity}-desc",
        width="100%", height=height + 24, xmlns="http://www.w3.org/2000/svg",
    )  # fmt: skip
    return tag("div", svg, class_="frame" if up else "frame bare")


def stretched(*paths: Markup, height: int) -> Markup:
    """Stretch paths in a square of 1000 units over a whole frame of this height."""
    return tag(
        "svg", *paths, viewBox="0 0 1000 1000", preserveAspectRatio="none",
        width="100%", height=height,
    )  # fmt: skip


def outline(points: Iterable[tuple[float, float]]) -> str:
    """Return the ``d`` attribute of a line through points from 0 to 1, y upwards."""
    words = [f"{1000 * x:.1f} {1000 * (1 - y):.1f}" for x, y in points]
    return "M" + "L".join(words) if words else ""


def figure(caption: str, drawing: Markup, *below: Markup) -> Markup:
    """Return a drawing with its caption, and ``below`` beneath it."""
    return tag("figure", tag("figcaption", caption), drawing, *below)


def folded(label: str, *inside: Markup, shown: bool = False) -> Markup:
    """Return a collapsible element."""
    opened = {"open": ""} if shown else {}
    return tag("details", tag("summary", label), joined(*inside), **opened)

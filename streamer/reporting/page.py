"""The page: one self-contained HTML file without scripts."""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib.resources import files

from streamer import __version__
from streamer.reporting.collection import Collection
from streamer.reporting.markup import Markup, joined, tag
from streamer.reporting.sections import sections

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; form-action 'none'; base-uri 'none'"


def page(collection: Collection, options: Iterable[tuple[str, str]]) -> str:
    """Return the whole file; options: names and values, shown at the end with the files' facts."""
    found = [*sections(collection)]
    links = [tag("a", heading, href=f"#{identity}") for identity, heading, _ in found]
    about = "about", "Version and parameters", _about(collection, options)
    content = [
        tag("section", tag("h2", heading, id=identity), inside, aria_labelledby=identity)
        for identity, heading, inside in (*found, about)
    ]
    links.append(tag("a", about[1], href=f"#{about[0]}"))
    style = Markup(files("streamer.reporting").joinpath("page.css").read_text("utf-8"))
    head = tag(
        "head", tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="generator", content=f"streamer {__version__}"),
        tag("title", collection.title), tag("style", style),
    )  # fmt: skip
    body = tag(
        "body",
        tag("header", tag("h1", collection.title),
            tag("p", ", ".join(given.name for given in collection.given)),
            tag("nav", *links, aria_label="Sections")),
        tag("main", *content),
        tag("footer", tag("p", f"Made by streamer {__version__} on {_now()}.")),
    )  # fmt: skip
    return "<!DOCTYPE html>\n" + tag("html", head, body, lang="en") + "\n"


def _about(collection: Collection, options: Iterable[tuple[str, str]]) -> Markup:
    parts = [_facts([("streamer", __version__), *options])]
    for given in collection.given:
        parts += [tag("h3", given.name), _facts([("what it is", given.kind), *given.facts])]
    return joined(*parts)


def _facts(facts: Iterable[tuple[str, str]]) -> Markup:
    pairs = (joined(tag("dt", name), tag("dd", value)) for name, value in facts)
    return tag("dl", *pairs, class_="facts")


def _now() -> str:
    """Return the time now, or SOURCE_DATE_EPOCH, so that pages can be reproduced exactly."""
    given = os.environ.get("SOURCE_DATE_EPOCH", "")
    when = datetime.fromtimestamp(int(given), UTC) if given.isdecimal() else datetime.now(UTC)
    return f"{when:%Y-%m-%d %H:%M} UTC"

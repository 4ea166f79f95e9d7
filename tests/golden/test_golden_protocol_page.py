"""The tables of docs/protocol.md have what the schema has, and what is sent."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from streamer.protocol.schema import FEED, NAMES, TOPICS

# fields that the recorded sessions leave out
VARYING = {"stream", "time", "message"}
PAGE = Path(__file__).parents[2] / "docs" / "protocol.md"


def table(head):
    """The cells of each row of the table of the page with this head."""
    rows = PAGE.read_text().partition(f"| {' | '.join(head)} |\n")[2].partition("\n\n")[0]
    return [line.strip("| ").split(" | ") for line in rows.splitlines()[1:]]


def test_the_page_has_the_topics_and_columns_of_the_schema():
    topics = table(["topic", "when", "further keys of the header"])
    assert [topic for topic, *_ in topics] == [f"`{topic.wire}`" for topic in FEED]
    columns = table(["topic", "column", "type", "unit", "meaning"])
    assert [tuple(cells[:3]) for cells in columns] == [
        (f"`{topic.wire}`", f"`{column.name}`", column.type_name)
        for topic in FEED
        # the page says of the others which topics' columns they have
        for column in (topic.columns + topic.optional)[: 0 if topic.parts else None]
    ]


def recorded(socket):
    """The headers of the recorded sessions, as sent over one of the sockets."""
    for path in sorted(PAGE.parents[1].glob("tests/golden/session_*.txt")):
        for line in path.read_text().splitlines():
            if line.startswith(socket):
                yield ast.literal_eval(line[line.index("{") :])


def test_headers_of_the_feed_have_the_fields_of_the_page():
    text = PAGE.read_text()
    start = text.index("The header of every message has")
    tables = text[start : text.index("A topic may add fields of its own")]
    always = {"v", "topic", *re.findall(r"^\| `(\w+)`", tables, re.MULTILINE)}
    assert len(always) == 18
    own = {
        topic: set(re.findall(r"`(\w+)`:", further))
        for topic, _, further in table(["topic", "when", "further keys of the header"])
    }
    for header in recorded("feed "):
        topic = TOPICS[NAMES[header["topic"]]]
        assert always - VARYING <= header.keys() <= always | own[f"`{topic.wire}`"]


def test_answers_of_ingest_have_the_fields_of_the_page():
    text = PAGE.read_text()
    section = text[text.index("### From the daemon") : text.index("### The producer's states")]
    both, refusals, _ = [part.split("\n\n")[0] for part in section.split("| -- |\n")[1:]]
    state, refused = (
        {key for line in table.splitlines() for key in re.findall(r"`(\w+)`", line.split(" | ")[0])}
        for table in (both, refusals)
    )
    welcome = {"max_batch_bytes", "durability", "version", "mark"}
    for header in recorded("ingest "):
        if header["type"] == "ack":
            assert header.keys() == state - welcome - VARYING
        else:
            assert header["type"] == "refused"
            assert state - welcome - VARYING <= header.keys() <= (state - welcome) | refused

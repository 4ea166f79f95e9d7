"""The tables of docs/protocol.md are those of the schema; ``--update-golden`` rewrites them."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from streamer.protocol.schema import BATCH_CONTEXT, FEED, NAMES, ORIGIN, STAMP, TOPICS

# fields that the recorded sessions leave out
VARYING = {"stream", "time", "message"}
PAGE = Path(__file__).parents[2] / "docs" / "protocol.md"
BLOCK = r"(<!-- tables of streamer/protocol/schema.py: {} -->\n)(.*?)(<!-- end -->)"


def markdown(head, rows):
    lines = [head, ["--"] * len(head), *rows]
    return "\n" + "".join(f"| {' | '.join(cells)} |\n" for cells in lines) + "\n"


def fields(described):
    return markdown(["key", "value"], [(f"`{field.name}`", field.meaning) for field in described])


def topics():
    rows = []
    for topic in FEED:
        further = "; ".join(f"`{field.name}`: {field.meaning}" for field in topic.fields)
        rows.append((f"`{topic.wire}`", topic.when, further or "none"))
    return markdown(["topic", "when", "further keys of the header"], rows)


def columns():
    rows = [
        (f"`{topic.wire}`", f"`{column.name}`", column.type_name, column.unit, column.meaning)
        for topic in FEED
        # the page says of the others which topics' columns they have
        for column in (topic.columns + topic.optional)[: 0 if topic.parts else None]
    ]
    return markdown(["topic", "column", "type", "unit", "meaning"], rows)


TABLES = {
    "context": lambda: fields(BATCH_CONTEXT),
    "stamp": lambda: fields(STAMP),
    "origin": lambda: fields(ORIGIN),
    "topics": topics,
    "columns": columns,
}


@pytest.mark.parametrize("name", TABLES)
def test_the_page_has_the_tables_of_the_schema(name, update_golden):
    page, want = PAGE.read_text(), TABLES[name]()
    block = re.compile(BLOCK.format(name), re.DOTALL)
    if update_golden:
        PAGE.write_text(block.sub(lambda found: found[1] + want + found[3], page))
    found = block.search(PAGE.read_text())
    assert found is not None
    assert found[2] == want


def recorded(socket):
    """The headers of the recorded sessions, as sent over one of the sockets."""
    for path in sorted(PAGE.parents[1].glob("tests/golden/session_*.txt")):
        for line in path.read_text().splitlines():
            if line.startswith(socket):
                yield ast.literal_eval(line[line.index("{") :])


def test_headers_of_the_feed_have_the_fields_of_the_schema():
    for header in recorded("feed "):
        topic = TOPICS[NAMES[header["topic"]]]
        always = {"v", "topic"} | {field.name for field in STAMP + ORIGIN}
        own = {field.name for field in topic.fields}
        assert always - VARYING <= header.keys() <= always | own


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

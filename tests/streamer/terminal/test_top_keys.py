"""What the keys and the mouse do on the page of a terminal."""

from __future__ import annotations

import asyncio
import importlib.util

import pytest

from tests.streamer.terminal.run_fields import run_fields
from tests.terminal_kit import text_of

pytest.importorskip("textual", reason="streamer top as a page needs textual")


def page_after(*keys, size=(100, 30), clicks=(), draws=0):
    """The lines of the page after these keys, then clicks at (column, line), then more data."""
    from streamer.terminal.top_page import TopPage

    async def look():
        page = TopPage(run_fields, lambda: False)
        async with page.run_test(size=size) as pilot:
            await pilot.press(*keys)
            for place in clicks:
                await pilot.click(offset=place)
            for _ in range(draws):
                page.draw()
                await pilot.pause()
            await pilot.pause()
            return text_of(page.export_screenshot(simplify=True)).splitlines()

    return asyncio.run(look())


def place_of(lines, word):
    """Where a word is, as (column, line)."""
    return next((line.index(word), at) for at, line in enumerate(lines) if word in line)


def first_column(lines):
    start = next(at for at, line in enumerate(lines) if line.startswith("  target")) + 1
    return [line.split()[0] for line in lines[start:-1] if line.strip()]


def test_sorting_by_the_next_column_and_back():
    by_reads = page_after()
    assert first_column(by_reads)[:3] == [".", "amplicon_1", "amplicon_2"]
    by_bases = page_after("s")
    assert "bases ▼" in "\n".join(by_bases)
    assert page_after("s", "S") == by_reads
    # names begin with the first; the row of unassigned reads is the smallest
    by_name = page_after("S")
    assert first_column(by_name)[:3] == [".", "amplicon_1", "amplicon_10"]
    assert page_after(*"sssssss") == by_reads


def test_turning_the_order_round():
    turned = page_after("r")
    assert first_column(turned)[:2] == ["amplicon_30", "amplicon_29"]
    assert "reads ▲" in "\n".join(turned)
    assert page_after("r", "r") == page_after()


def test_each_table_keeps_its_order():
    assert page_after("r", "right", "left") == page_after("r")
    assert page_after(*["tab"] * 5) == page_after()


def test_a_click_on_a_title_sorts_and_on_a_name_shows_that_table():
    lines = page_after()
    title = place_of(lines, "breadth")
    assert page_after(clicks=[title]) == page_after(*"sss")
    latency = place_of(lines, "Latency")
    assert page_after(clicks=[latency]) == page_after(*["right"] * 3)


def test_the_end_of_a_long_table_is_reached():
    shown = first_column(page_after("end"))
    assert shown[-1] == "amplicon_30"
    assert "amplicon_1" not in shown
    # new data leaves the place as it is
    assert first_column(page_after("end", draws=2)) == shown
    assert page_after("end", "home") == page_after()
    assert page_after("end", "right", "left") == page_after()


def test_leaving_and_what_is_over_end_the_page():
    from streamer.terminal.top_page import TopPage

    async def run(*keys, over=False):
        page = TopPage(run_fields, lambda: over)
        async with page.run_test() as pilot:
            await pilot.press(*keys)
            while page.is_running:
                await asyncio.sleep(0)
        return page.interrupted

    assert asyncio.run(run("q")) is False
    assert asyncio.run(run("ctrl+c")) is True
    assert asyncio.run(run(over=True)) is False


def test_new_data_while_the_page_closes():
    from streamer.terminal.top_page import TopPage

    async def run():
        page = TopPage(run_fields, lambda: False)
        async with page.run_test() as pilot:
            await pilot.pause()
            await page.screen.query("*").remove()
            page.note_change()
            page._look()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        ([], 1, "--format page needs the package textual: pip install 'kmer-streamer[top]'"),
        (["--count", "2"], 2, "--count is for --format table and jsonl"),
    ],
)
def test_a_page_that_cannot_be(options, code, said, streamer, monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "textual" else found(name)
    )
    told = streamer("top", "--at", "ipc:///nowhere", "--format", "page", *options)
    assert told == (code, "", f"streamer: error: {said}\n")


def test_a_page_without_a_terminal(streamer):
    told = streamer("top", "--at", "ipc:///nowhere", "--format", "page")
    assert told == (2, "", "streamer: error: --format page needs a terminal\n")

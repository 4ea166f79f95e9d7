"""The page of ``streamer top`` looks as it is recorded: its text, at several sizes.

``--update-golden`` records it anew. Text alone is compared: how a picture of it is written belongs
to the package that draws.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.streamer.terminal.run_fields import run_fields
from tests.terminal_kit import text_of

pytest.importorskip("textual", reason="streamer top as a page needs textual")

RECORDS = Path(__file__).parent / "top"
SIZES = [(80, 24), (60, 24), (200, 60)]


def pages(width, height):
    """The text of all tables at this size."""
    from streamer.terminal.top_page import TopPage

    async def look():
        page = TopPage(run_fields, lambda: False)
        async with page.run_test(size=(width, height)) as pilot:
            for _ in range(5):
                await pilot.pause()
                yield text_of(page.export_screenshot(simplify=True))
                await pilot.press("right")

    async def all_pages():
        return [shown async for shown in look()]

    return asyncio.run(all_pages())


@pytest.mark.whole
@pytest.mark.parametrize(("width", "height"), SIZES)
def test_the_page(width, height, update_golden):
    shown = pages(width, height)
    text = f"\n{'=' * width}\n".join(shown)
    record = RECORDS / f"{width}x{height}.txt"
    if update_golden:
        record.parent.mkdir(exist_ok=True)
        record.write_text(text)
    assert text == record.read_text()
    for one in shown:
        assert len(one.splitlines()) <= height
        assert max(map(len, one.splitlines())) <= width

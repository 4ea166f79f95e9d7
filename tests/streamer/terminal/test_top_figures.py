"""The page of ``top``: its figures and its keys."""

from __future__ import annotations

import asyncio
import importlib.util
import random

import pytest
from rich.cells import cell_len

from streamer.terminal import listings
from streamer.terminal.listings import LATENCY, LISTINGS, NOVELTY, SAMPLES, TARGETS, laid, overview
from tests.streamer.terminal.run_fields import run_fields
from tests.terminal_kit import text_of


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "."), (0, "0"), (999, "999"), (999.6, "1.00 k"), (1000, "1.00 k"), (12_345, "12.3 k"),
     (99_960, "100 k"), (999_499, "999 k"), (999_500, "1.00 M"), (4.5e12, "4.50 T")],
)  # fmt: skip
def test_short_numbers(value, text):
    assert listings.short(value) == text


def test_short_numbers_are_near():
    rng = random.Random(1)
    for _ in range(2000):
        value = 10 ** rng.uniform(0, 18)
        digits, _, unit = listings.short(value).partition(" ")
        factor = 1000 ** ["", "k", "M", "G", "T", "P", "E"].index(unit)
        assert float(digits) * factor == pytest.approx(value, rel=0.006, abs=0.5)
        assert len(digits) <= 4


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "."), (0.00042, "0.42 ms"), (0.0123, "12 ms"), (0.9994, "999 ms"), (3.44, "3.44 s")],
)
def test_seconds(value, text):
    assert listings.seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(59.9, "59 s"), (60, "1 min"), (11_100, "3 h 5 min"), (187_200, "2 d 4 h")],
)
def test_durations(value, text):
    assert listings.duration(value) == text


def test_a_bar_shows_that_there_is_something():
    assert listings.bar(0, 4) == "    "
    assert listings.bar(1e-9, 4) == "▏   "
    assert listings.bar(0.5, 4) == "██  "
    assert listings.bar(7, 4) == listings.bar(1, 4) == "████"


def test_a_curve_has_the_last_values():
    assert listings.curve([9, 0, None, 8, 4, 0.5], 4) == " █▅▁"
    assert listings.curve([0, 0], 5) == "▁▁"
    assert listings.curve([], 5) == listings.curve([1], 0) == ""


def test_rates_are_those_between_two_looks():
    assert listings.rates([0, 2, 2, 3, 4], [0, 10, 20, 5, 8]) == [5, None, None, 3]


def test_a_name_cannot_steer_the_terminal():
    assert listings.plain("a\x1b[2J\n\x9b1mé読") == "a\ufffd[2J\ufffd\ufffd1mé読"


# ---- tables ------------------------------------------------------------------------------------


def rows_of(count, barcodes=3):
    """Fields as ``TargetRows.fields`` makes them, with what is enough."""
    names = [f"target{n}" for n in range(count)]
    targets = [[name, 9 - n % 7, 900, 1000 + n, 50, 25, 0.5, 20.0] for n, name in enumerate(names)]
    cells = [[3, 0.5, 20.0, int(n % 2 == 0)] for n in range(count)]
    return {
        "targets": targets, "unassigned": [None, 5, 500, *[None] * 5], "map_targets": names,
        "map": [[f"barcode0{n}", cells] for n in range(barcodes)],
        "rule": "detected: ...",
        "samples": [[f"barcode0{n}", "a", None, 10 * n, 100 * n, 4, 6, n, 6 - n, 7 * n, ["g"], None]
                    for n in range(barcodes)],
    }  # fmt: skip


def everything(**more):
    durations = {"bounds": [0.001, 0.01, 0.1], "counts": [0, 30, 10, 0]}
    status = {"durations": durations, "published": [f"{one}." for one in ("targets", "barcodes")]}
    return {"now": 100.0, "rows": rows_of(12), "status": status} | more


@pytest.mark.parametrize("width", [30, 58, 60, 78, 80, 120, 198])
@pytest.mark.parametrize("listing", LISTINGS, ids=lambda one: one.name)
def test_a_table_is_as_wide_as_the_page(listing, width):
    long = "a target with a very long name 読み取り" * 4
    fields = everything(
        producers=[[long, 3, 40, 4000, 90.0]],
        novelty=[[10, 1000, 500, 500], [20, 2000, 600, 100]],
    )
    fields["rows"]["targets"][0][0] = long
    made = laid(listing, fields, width, listing.order, descending=listing.descending)
    assert made.rows
    for line in [made.titles, *made.rows]:
        for cell, room in zip(line, made.widths, strict=True):
            assert cell_len(cell.plain) <= room
    if width >= 58:
        assert sum(made.widths) + 2 * len(made.widths) == width


def column(listing, fields, at):
    rows = listing.sorted_rows(fields, listing.order, descending=listing.descending)
    return [row[at] for row in rows]


def test_targets_come_with_the_most_reads_first_and_say_where_there_is_enough():
    fields = everything()
    reads = column(TARGETS, fields, 1)
    assert reads == sorted(reads, reverse=True)
    assert sum(reads) == sum(row[1] for row in fields["rows"]["targets"]) + 5
    marks = dict(zip(column(TARGETS, fields, 0), column(TARGETS, fields, 6), strict=True))
    assert marks.pop(". (unassigned)") is None
    assert marks == {f"target{n}": (3 if n % 2 == 0 else 0, 3) for n in range(12)}


def test_a_value_that_is_missing_comes_last_in_either_order():
    fields = everything()
    for descending in (True, False):
        rows = TARGETS.sorted_rows(fields, 3, descending=descending)
        assert rows[-1][0] == ". (unassigned)"
        values = [row[3] for row in rows[:-1]]
        assert values == sorted(values, reverse=descending)


def test_samples_that_need_more_come_first():
    fields = everything()
    assert column(SAMPLES, fields, 0) == [f"a (barcode0{n})" for n in (2, 1, 0)]
    assert column(SAMPLES, fields, 1) == [2, 1, 0]
    assert column(SAMPLES, fields, 7) == [70.0, 70.0, None]


def test_the_histogram_of_durations():
    assert [*LATENCY.rows(everything())] == [(0.01, 30, 0.75, 0.75), (0.1, 10, 0.25, 1.0)]


def test_new_kmers_between_points():
    points = [[10, 1000, 500, 7], [20, 2000, 600, 7]]
    assert [*NOVELTY.rows({"novelty": points})] == [
        (10, 1000, 500, 500, 500.0),
        (20, 2000, 600, 100, 100.0),
    ]


def test_why_a_table_is_empty():
    fields = everything()
    assert not TARGETS.missing(fields)
    assert "dictionary.mode = grow" in NOVELTY.missing(fields)
    fields["status"]["published"] = []
    assert "answers.targets = true" in SAMPLES.missing(fields)


def test_before_the_daemon_is_heard_the_page_says_so():
    assert overview({"problem": "nobody there"}, 80).plain == "nobody there"


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


@pytest.mark.whole
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


@pytest.mark.whole
def test_turning_the_order_round():
    turned = page_after("r")
    assert first_column(turned)[:2] == ["amplicon_30", "amplicon_29"]
    assert "reads ▲" in "\n".join(turned)
    assert page_after("r", "r") == page_after()


def test_each_table_keeps_its_order():
    assert page_after("r", "right", "left") == page_after("r")
    assert page_after(*["tab"] * 5) == page_after()


@pytest.mark.whole
def test_a_click_on_a_title_sorts_and_on_a_name_shows_that_table():
    lines = page_after()
    title = place_of(lines, "breadth")
    assert page_after(clicks=[title]) == page_after(*"sss")
    latency = place_of(lines, "Latency")
    assert page_after(clicks=[latency]) == page_after(*["right"] * 3)


@pytest.mark.whole
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
        ([], 1, "--format page needs the package textual: pip install '.[top]' in a clone"),
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

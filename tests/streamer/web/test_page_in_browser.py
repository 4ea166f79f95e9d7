"""The live page in a real Chromium: what it shows, in which widths and colours, and for whom.

With STREAMER_TEST_SCREENSHOTS=DIR the pictures are left there. STREAMER_TEST_AXE names the file
``axe.min.js`` of the npm package axe-core, which checks accessibility.
"""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path

import pytest

from streamer.client import Producer
from tests.browser import CHROMIUM, browsing
from tests.daemon_kit import GENOME, reads_of, running
from tests.waiting import until

pytest.importorskip("uvicorn", reason="the live page needs starlette and uvicorn")
pytestmark = [
    pytest.mark.whole,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium (Debian's package chromium)"),
]

ON = [
    "web.endpoint=127.0.0.1:0", "answers.targets=true", "answers.coverage=true",
    "panel.enough_reads=5",
]  # fmt: skip
AXE = os.environ.get("STREAMER_TEST_AXE", "")
READY = "document.documentElement.dataset.ready === 'running'"
READS = "document.querySelector('#figures dd').textContent"
PANELS = (
    "Samples", "Targets by barcode", "Coverage along a target", "Reads and bases", "Throughput",
    "Latency", "Read lengths", "Top targets", "Novelty", "Producers",
)  # fmt: skip


@pytest.fixture
def browser(tmp_path):
    with browsing(tmp_path / "profile") as made:
        yield made


def send(daemon, name="<b>sender</b>"):
    with Producer(daemon.endpoints["ingest"], name=name) as producer:
        for seed in range(3):
            producer.send(reads_of(GENOME, random.Random(seed), 40))
        producer.flush(matched=True)


def open_page(browser, daemon):
    browser.open(f"http://{daemon.endpoints['web']}/")
    browser.until(READY)
    daemon.wait_for_subscriptions("read", "targets", "barcodes", "beat", "status", "novelty")


def test_every_panel_shows_the_run(path, browser, evil):
    with running(path, ON) as daemon:
        browser.look(1280, dark=False)
        open_page(browser, daemon)
        send(daemon)
        browser.until(f"{READS} === '120'")
        browser.until("document.querySelectorAll('.map tbody tr').length === 1")
        columns = "document.querySelectorAll('.map tbody td').length"
        every = browser.evaluate(columns)
        for text, left in (("no such", 0), ("", every)):
            browser.evaluate(
                f"(f => (f.value = '{text}', f.dispatchEvent(new Event('input'))))"
                "(document.getElementById('filter'))"
            )
            assert browser.evaluate(columns) == left
        assert every
        browser.until("document.querySelector('#coverage canvas') !== null")
        browser.until("document.querySelector('#lengths .note').textContent.startsWith('120 of')")
        headings = browser.evaluate("[...document.querySelectorAll('h2')].map(h => h.textContent)")
        assert tuple(headings) == PANELS
        for panel in ("yield", "speed", "latency", "lengths", "coverage"):
            label = f"document.querySelector('#{panel} [role=img]').getAttribute('aria-label')"
            assert browser.evaluate(label)
            # drawn: not of one colour
            pixels = (
                "(c => new Set(c.getContext('2d').getImageData(0, 0, c.width, c.height).data))"
                f"(document.querySelector('#{panel} canvas')).size"
            )
            assert browser.evaluate(pixels) > 4, panel
        # names are text
        text = browser.evaluate("document.body.textContent")
        assert evil in text
        assert "<b>sender</b>" in text
        assert browser.evaluate("document.querySelectorAll('main img, main b').length") == 0
        # the table behind a chart
        browser.evaluate("document.querySelector('#yield details').open = true")
        browser.until(
            "document.querySelector('#yield tbody tr:last-child').textContent.endsWith('120')"
        )
        assert not browser.log
        own = f"http://{daemon.endpoints['web']}/"
        assert {request for request in browser.requests if not request.startswith(own)} <= {
            "about:blank"
        }


def test_it_fits_and_is_drawn_in_light_and_dark(path, browser, tmp_path):
    folder = Path(os.environ.get("STREAMER_TEST_SCREENSHOTS", tmp_path))
    with running(path, ON) as daemon:
        browser.look(1280, dark=False)
        open_page(browser, daemon)
        send(daemon)
        browser.until("document.querySelector('#coverage canvas') !== null")
        colours = set()
        for name, width, dark in (
            ("light", 1280, False),
            ("dark", 1280, True),
            ("360", 360, False),
        ):
            browser.look(width, dark=dark)
            browser.until(f"innerWidth === {width}")
            browser.until("document.documentElement.scrollWidth <= innerWidth")
            browser.until(
                "[...document.querySelectorAll('canvas')].every(c => c.clientWidth < innerWidth)"
            )
            assert len(browser.screenshot(folder / f"{name}.png")) > 10_000
            colours.add(browser.evaluate("getComputedStyle(document.body).backgroundColor"))
        assert len(colours) == 2
        assert not browser.log


@pytest.mark.skipif(not AXE, reason="no axe-core (STREAMER_TEST_AXE)")
@pytest.mark.parametrize("dark", [False, True])
def test_axe_finds_no_violation(path, browser, dark):
    with running(path, ON) as daemon:
        browser.look(1280, dark=dark)
        open_page(browser, daemon)
        send(daemon)
        browser.until("document.querySelector('#coverage canvas') !== null")
        browser.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
        browser.evaluate(Path(AXE).read_text() + "; true")
        found = browser.evaluate(
            "axe.run().then(r => r.violations.map(v => [v.id, v.nodes.map(n => n.html)]))"
        )
        assert found == []


def test_the_keyboard_reaches_everything(path, browser):
    with running(path, ON) as daemon:
        open_page(browser, daemon)
        send(daemon)
        browser.until("document.querySelectorAll('.map tbody tr').length === 1")
        reached = []
        while len(reached) < 50:
            browser.press("Tab")
            place = browser.evaluate(
                "(e => e.id || e.getAttribute('aria-label') || e.className || e.tagName)"
                "(document.activeElement)"
            )
            if place == "BODY":
                break
            outline = browser.evaluate("getComputedStyle(document.activeElement).outlineStyle")
            assert outline != "none", place
            reached.append(place)
        assert reached[0] == "skip"
        assert {"metric", "target", "SUMMARY", "Targets by barcode"} <= {*reached}
        # the coverage of another target
        browser.evaluate("document.getElementById('target').focus()")
        browser.evaluate("document.getElementById('target').value = 'none such'")
        browser.press("Enter")
        browser.until(
            "document.querySelector('#coverage [role=status]').textContent.includes('no target')"
        )


def test_it_heals_when_the_daemon_restarts(path, browser):
    with running(path, ON) as daemon:
        endpoint = daemon.endpoints["web"]
        open_page(browser, daemon)
        send(daemon)
        browser.until(f"{READS} === '120'")
    browser.until("document.getElementById('status').classList.contains('bad')")
    with running(path, [*ON, f"web.endpoint={endpoint}"]):
        browser.until(READY)
        browser.until(f"{READS} === '0'")
        browser.until("document.getElementById('status').textContent === 'The daemon is running.'")


def test_it_says_when_nothing_comes_any_more(path, browser):
    status = "document.getElementById('status')"
    with running(path, ON) as daemon:
        open_page(browser, daemon)
        process = daemon.service._web.process
        # the connection stays open, and nothing comes: as after a laptop has slept
        os.kill(process, signal.SIGSTOP)
        try:
            browser.evaluate("void (past = Date.now, Date.now = () => past() + 60000)")
            browser.until(f"{status}.textContent.includes('lost')")
        finally:
            os.kill(process, signal.SIGCONT)
        browser.until(f"{READY} && {status}.textContent === 'The daemon is running.'")


def test_a_page_that_nobody_sees_leaves_its_connection_to_others(path, browser):
    def see(seen):
        browser.evaluate(
            f"Object.defineProperty(document, 'hidden', {{value: {str(not seen).lower()}, "
            "configurable: true}), document.dispatchEvent(new Event('visibilitychange'))"
        )

    with running(path, ON) as daemon:
        open_page(browser, daemon)
        pages = connections_to(daemon.endpoints["web"])
        assert pages
        see(False)
        until(lambda: not pages & connections_to(daemon.endpoints["web"]), "it has hung up")
        send(daemon)
        see(True)
        browser.until(f"{READY} && {READS} === '120'")


def connections_to(endpoint):
    """The ports of clients of an address of this machine, of connections that are established."""
    port = f":{int(endpoint.rpartition(':')[2]):04X}"
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {line[1] for line in lines if line[2].endswith(port) and line[3] == "01"}


def test_the_token_is_asked_for_once(path, browser):
    token = "0123456789-abcdef"
    with running(path, [*ON, f"web.token={token}"]) as daemon:
        url = f"http://{daemon.endpoints['web']}/"
        browser.open(url)
        browser.evaluate(f"document.getElementById('token').value = '{token}'")
        browser.evaluate("document.forms[0].requestSubmit()")
        browser.until(f"document.documentElement && {READY}")
        assert browser.evaluate("location.href") == url
        assert browser.evaluate("document.cookie") == ""
        browser.open(url + f"?token={token}")
        until(lambda: browser.evaluate("location.href") == url, "an address without the token")


def test_samples_by_name_those_that_lack_most_first(path, browser, tmp_path):
    """Two barcodes of the sheet have no read; the reads of the test have no barcode at all."""
    (tmp_path / "sheet.csv").write_text(
        "barcode,sample_id,alias,type\nbarcode01,clinic,NTC,no_template_control\n"
        "barcode02,clinic,<i>patient</i>,\n"
    )
    sheet = f"samples.sheet={tmp_path / 'sheet.csv'}"
    folder = Path(os.environ.get("STREAMER_TEST_SCREENSHOTS", tmp_path))
    with running(path, [*ON, sheet, "panel.sample_reads=7"]) as daemon:
        open_page(browser, daemon)
        send(daemon)
        browser.until(f"{READS} === '120'")
        rows = "[...document.querySelectorAll('[aria-labelledby=h-samples] tbody tr')]"
        texts = f"{rows}.map(row => [...row.cells].map(cell => cell.textContent))"
        browser.until(f"{texts}.at(1)?.[5] === '120'")
        shown = browser.evaluate(texts)
        assert [[row[0], row[5]] for row in shown] == [
            ["<i>patient</i> (barcode02)", "0"],
            ["none", "120"],
            ["NTC (barcode01), negative control", "0"],
        ]
        more, lacking, found = zip(*(map(int, row[1:4]) for row in shown), strict=True)
        targets = more[0]
        assert (more[0], lacking[0], found[0]) == (targets, 0, 0)  # fewer than 7 reads
        assert (more[2], lacking[2], found[2]) == (0, targets, 0)  # a control needs no more
        assert found[1] > 0
        assert more[1] + lacking[1] + found[1] == targets
        names = browser.evaluate(
            "[...document.querySelectorAll('.map tbody th')].map(h => h.title || h.textContent)"
        )
        assert names == ["<i>patient</i> (barcode02)", "none", "NTC (barcode01)"]
        for width, dark in ((1280, False), (360, True)):
            browser.look(width, dark=dark)
            browser.until(f"innerWidth === {width}")
            browser.until("document.documentElement.scrollWidth <= innerWidth")
            # what is missing is seen without a scroll to the side
            right = f"{rows}.map(row => row.cells[2].getBoundingClientRect().right)"
            assert max(browser.evaluate(right)) < width
            browser.screenshot(folder / f"samples-{width}.png")

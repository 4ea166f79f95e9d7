"""The page in a real Chromium: what it asks for, at which widths, in light and dark, on paper.

With STREAMER_TEST_SCREENSHOTS=DIR the pictures are left there. STREAMER_TEST_AXE names the file
``axe.min.js`` of the npm package axe-core, which checks accessibility.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from streamer.cli.app import main
from tests.browser import CHROMIUM, browsing

pytestmark = [
    pytest.mark.whole,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium (Debian's package chromium)"),
]
AXE = os.environ.get("STREAMER_TEST_AXE", "")
EVIL = "<img/src=x/onerror=alert(1)>"
# of each sample's row of what is missing: is all of it on the page, and where that is narrow each
# cell below the one before, after the name of its column?
WHOLE = """[...document.querySelectorAll('.names tbody tr')].map(row => {
  const [narrow, cells] = [innerWidth < 600, [...row.cells]];
  const boxes = cells.map(cell => cell.getBoundingClientRect());
  return boxes.every((box, at) => box.left >= 0 && box.right <= innerWidth
    && (at === 0 || box.top >= boxes[at - 1].bottom) === (at === 0 || narrow)
    && (getComputedStyle(cells[at], '::before').content !== 'none') === (at > 0 && narrow));
})"""


@pytest.fixture
def page(tmp_path):
    """A page with every section."""
    rng = random.Random(3)
    names = [*(f"target-{at}" for at in range(12)), EVIL, "x" * 90]
    heads = "target\treads\tbases\tmatches\tkmers\tseen\tbreadth\tdepth\n"
    texts = {name: "#" + head for name, head in {
        "t": heads, "b": "barcode\t" + heads,
        "c": "target\tstart\tend\tkmers\tseen\tmatches\n",
        "r": "read\tlength\twindows\tmatches\tmismatches\tskipped\tbest_target\n",
        "n": "reads\tbases\tkmers\tnew\n",
    }.items()}  # fmt: skip
    barcodes = [f"barcode{at:02d}" for at in range(1, 13)]
    for barcode in [None, *barcodes]:
        for name in names:
            seen = max(0, rng.randrange(-300, 1001))
            row = f"{name}\t{seen}\t{9 * seen}\t{3 * seen}\t1000\t{seen}"
            row += f"\t{seen / 1000:.4f}\t{3 * seen / 1000:.4f}\n"
            texts["b" if barcode else "t"] += (f"{barcode}\t" if barcode else "") + row
        last = ".\t7\t70\t.\t.\t.\t.\t.\n"
        texts["b" if barcode else "t"] += (f"{barcode}\t" if barcode else "") + last
    for name in names:
        for at in range(100):
            seen = rng.randrange(90)
            texts["c"] += f"{name}\t{100 * at}\t{100 * at + 100}\t100\t{seen}\t{seen * 3}\n"
    for at in range(400):
        length = int(rng.lognormvariate(7.5, 1)) + 30
        target = rng.choice([names[0], EVIL, "."])
        texts["r"] += f"r{at}\t{length}\t20\t12\t8\t0\t{target}\n"
    kmers = 0
    for at in range(1, 60):
        kmers += 6000 // at
        texts["n"] += f"{at}\t{900 * at}\t{kmers}\t{6000 // at}\n"
    for name, text in texts.items():
        (tmp_path / f"{name}.tsv").write_text(text)
    out = tmp_path / "page.html"
    assert main(["report", *(str(tmp_path / f"{n}.tsv") for n in texts), "-o", str(out)]) == 0
    return out


def test_the_page_in_a_browser(page, tmp_path):
    kept = Path(os.environ.get("STREAMER_TEST_SCREENSHOTS") or tmp_path)
    with browsing(tmp_path / "profile") as browser:
        browser.open(f"file://{page}")
        assert browser.evaluate("document.querySelectorAll('h2').length") == 7
        found = browser.evaluate("[...document.querySelectorAll('th')].map(e => e.textContent)")
        assert EVIL in found
        for width in (1280, 360):
            for dark in (False, True):
                browser.look(width, dark=dark)
                assert browser.evaluate("document.documentElement.scrollWidth") <= width
                assert browser.evaluate(WHOLE) == [True] * 10
                # texts keep their size, and no figure is without one
                sizes = browser.evaluate(
                    "[...document.querySelectorAll('svg[role=img]')].map(s =>"
                    " [s.getBoundingClientRect().height, s.querySelectorAll('text').length])"
                )
                assert all(height > 60 and texts for height, texts in sizes)
                picture = browser.screenshot(
                    kept / f"report-{width}-{'dark' if dark else 'light'}.png"
                )
                assert len(picture) > 20_000
        paper = browser.call("Page.printToPDF", printBackground=True)
        assert len(paper["data"]) > 20_000
        if AXE:
            browser.evaluate(
                f"document.documentElement.dataset.x = '1'; {Path(AXE).read_text()}; 1"
            )
            for dark in (False, True):
                browser.look(1280, dark=dark)
                bad = browser.evaluate(
                    "axe.run().then(r => r.violations.map(v =>"
                    " [v.id, v.nodes.slice(0, 3).map(n => n.html)]))"
                )
                assert bad == []
        assert browser.log == []
        assert browser.requests == [f"file://{page}"]

"""What a page says, read with the standard library's parser and nothing of the project."""

from __future__ import annotations

from html.parser import HTMLParser

VOID = {"meta", "br", "col", "img", "input", "link"}


class PageReader(HTMLParser):
    """tables: rows of texts by caption, the heading first. facts: dt and dd in pairs.

    fetched: every attribute that would make a browser ask for something. words: all texts.
    """

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tables: dict[str, list[list[str]]] = {}
        self.facts: list[tuple[str, str]] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.fetched: list[str] = []
        self.words: list[str] = []
        self.open: list[str] = []
        self._cell: list[str] | None = None
        self._rows: list[list[str]] = []
        self._caption = ""
        self._term = ""
        self.feed(page)
        self.close()
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        assert len(found) == len(attributes), f"an attribute twice: {attributes}"
        self.tags.append((tag, found))
        if tag not in VOID:
            self.open.append(tag)
        self.fetched += [v for k, v in attributes if k in ("src", "href", "data", "action")
                         and not v.startswith("#")]  # fmt: skip
        if tag == "tr":
            self._rows.append([])
        if tag in ("th", "td", "caption", "dt", "dd"):
            self._cell = []
        if tag == "table":
            self._rows = []

    def handle_endtag(self, tag):
        assert self.open.pop() == tag
        said = " ".join("".join(self._cell or []).split())
        if tag in ("th", "td"):
            self._rows[-1].append(said)
        elif tag == "caption":
            self._caption = said
        elif tag == "table":
            assert self._caption not in self.tables or self.tables[self._caption] == self._rows
            self.tables[self._caption] = self._rows
        elif tag == "dt":
            self._term = said
        elif tag == "dd":
            self.facts.append((self._term, said))

    def handle_data(self, data):
        self.words.append(data)
        if self._cell is not None:
            self._cell.append(data)

    @property
    def ids(self):
        return [found["id"] for _, found in self.tags if "id" in found]

    def table(self, beginning):
        """The rows below the heading of the table whose caption begins so."""
        captions = [caption for caption in self.tables if caption.startswith(beginning)]
        assert len(captions) == 1, (beginning, [*self.tables])
        return self.tables[captions[0]][1:]


def check_page(page):
    """It is complete, asks for nothing, runs nothing, and says what its figures show."""
    read = PageReader(page)
    assert page.startswith("<!DOCTYPE html>\n<html")
    assert not read.fetched
    assert "url(" not in page
    assert "@import" not in page
    names = [tag for tag, _ in read.tags]
    assert not {"script", "link", "img", "iframe", "object"} & set(names)
    assert not [name for _, found in read.tags for name in found if name.startswith("on")]
    assert len(read.ids) == len(set(read.ids))
    for tag, found in read.tags:
        if tag == "svg" and found.get("role") == "img":
            assert set(found["aria-labelledby"].split()) <= set(read.ids)
    figures = [found for tag, found in read.tags if tag == "svg" and found.get("role") == "img"]
    assert names.count("desc") == len(figures)
    return read


def number(text):
    """A number as the page writes it."""
    return float(text.replace(",", ""))

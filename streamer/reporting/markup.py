"""HTML and SVG as text, escaped so that no data can become markup."""

from __future__ import annotations

from html import escape

_VOID = {"meta", "col", "br"}


class Markup(str):
    """Text that is HTML already; any other text is escaped."""

    __slots__ = ()


Child = str | int | None


def tag(name: str, /, *children: Child, **attributes: str | int | float | None) -> Markup:
    """Return an element. None is omitted; ``class_`` is class, ``aria_label`` is aria-label."""
    words = [name]
    for key, value in attributes.items():
        if value is not None:
            words.append(f'{key.rstrip("_").replace("_", "-")}="{text(str(value))}"')
    opening = f"<{' '.join(words)}>"
    if name in _VOID:
        return Markup(opening)
    return Markup(f"{opening}{joined(*children)}</{name}>")


def joined(*children: Child) -> Markup:
    """Concatenate children."""
    return Markup("".join(child if isinstance(child, Markup) else text(child)
                          for child in children if child is not None))  # fmt: skip


def text(value: Child) -> Markup:
    """Escape text; U+FFFD replaces characters that are unprintable or reverse text direction."""
    shown = str(value)
    if not shown.isprintable():
        shown = "".join(letter if letter.isprintable() else "\ufffd" for letter in shown)
    return Markup(escape(shown))


def table(
    head: list[Child], rows: list[list[Child]], *, caption: str, numbers_from: int = 1
) -> Markup:
    """A table; columns from ``numbers_from`` on are aligned as numbers, the first is a heading."""
    kinds = [None if at < numbers_from else "n" for at in range(len(head))]
    heads = [tag("th", cell, scope="col", class_=kind)
             for cell, kind in zip(head, kinds, strict=True)]  # fmt: skip
    body = []
    for first, *rest in rows:
        cells = [tag("td", cell, class_=kind) for cell, kind in zip(rest, kinds[1:], strict=True)]
        body.append(tag("tr", tag("th", first, scope="row"), *cells))
    return tag(
        "div",
        tag("table", tag("caption", caption), tag("thead", tag("tr", *heads)),
            tag("tbody", *body)),
        class_="scroll", tabindex=0, role="region", aria_label=caption,
    )  # fmt: skip

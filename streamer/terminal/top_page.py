"""The page of one daemon: what is drawn where, what the keys do, and when it ends."""

import asyncio
import contextlib
from collections.abc import Callable, Collection, Mapping
from typing import Any, ClassVar, Literal

from rich.style import Style
from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.css.query import NoMatches
from textual.widgets import DataTable, Static

from streamer.client.client_errors import DaemonFailedError
from streamer.client.control import Control
from streamer.protocol.endpoints import reachable
from streamer.protocol.keys import ClientKeys
from streamer.terminal.listings import LISTINGS, Listing, laid, overview
from streamer.web.follower import Follower, steady
from streamer.web.model import RunModel

Fields = Mapping[str, Any]

_LOOK_SECONDS = 0.1
_MARGIN = 1
_KEYS = (("q", "quit"), ("←→", "table"), ("↑↓", "row"), ("s", "sort by"), ("r", "reverse"))

_THEMES = "ansi-dark", "textual-ansi"
"""Themes of textual that leave colours to the terminal, in its later and its earlier versions.

``CSS`` leaves them no dark ones.
"""


class TopPage(App[None]):
    """read: the fields of ``RunModel.everything`` as they are now.

    over: whether there is nothing more to show; it is asked ten times a second.
    """

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    Screen { background: ansi_default; color: ansi_default; }
    #overview, #tabs, #note, #keys { height: auto; padding: 0 1; background: ansi_default; }
    #tabs { margin-top: 1; link-style: none; link-color: ansi_default;
            link-background: ansi_default; link-style-hover: underline;
            link-color-hover: ansi_default; link-background-hover: ansi_default; }
    #keys { dock: bottom; height: 1; }
    DataTable { height: 1fr; padding: 0 1; background: ansi_default; color: ansi_default;
                background-tint: transparent; scrollbar-size: 1 1; overflow-x: hidden; }
    DataTable:focus { background-tint: transparent; }
    DataTable > .datatable--header, DataTable:ansi > .datatable--header,
    DataTable:focus > .datatable--header, DataTable > .datatable--header-hover,
    DataTable > .datatable--header-cursor
        { background: ansi_default; color: ansi_default; text-style: bold underline;
          background-tint: transparent; }
    DataTable > .datatable--odd-row, DataTable > .datatable--even-row, DataTable > .datatable--hover
        { background: ansi_default; color: ansi_default; }
    DataTable > .datatable--cursor, DataTable:focus > .datatable--cursor
        { background: ansi_default; color: ansi_default; text-style: reverse; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "quit"),
        Binding("ctrl+c", "interrupt", "interrupt", priority=True),
        Binding("ctrl+z", "suspend_process", "suspend"),
        Binding("left,shift+tab", "turn(-1)", "table before", priority=True),
        Binding("right,tab", "turn(1)", "next table", priority=True),
        Binding("home", "edge('top')", "first row", priority=True),
        Binding("end", "edge('bottom')", "last row", priority=True),
        Binding("s", "order(1)", "sort by the next column"),
        Binding("S,shift+s", "order(-1)", "sort by the column before"),
        Binding("r", "reverse", "reverse the order"),
    ]

    def __init__(self, read: Callable[[], Fields], over: Callable[[], bool]) -> None:
        super().__init__()
        self.interrupted = False
        self._read = read
        self._over = over
        self._fields: Fields = {}
        self._at = 0
        # of each table, the column that it is sorted by, and whether the largest is the first
        self._order = {listing.name: (listing.order, listing.descending) for listing in LISTINGS}
        self._laid_out: tuple[object, ...] = ()
        self._stale = True

    def compose(self) -> ComposeResult:
        """From above to below."""
        yield Static(id="overview")
        yield Static(id="tabs")
        yield DataTable[Text](id="table", cursor_type="row")
        yield Static(id="note")
        yield Static(self._help(), id="keys")

    def on_mount(self) -> None:
        """Draw, and look ten times a second whether there is something new."""
        self.theme = next(name for name in _THEMES if name in self.available_themes)
        self.draw()
        self.query_one(DataTable).focus()
        self.set_interval(_LOOK_SECONDS, self._look)

    def on_resize(self) -> None:
        """Lay out anew."""
        self._stale = True

    def note_change(self) -> None:
        """There is something new to show; from any task of this loop."""
        self._stale = True

    def _look(self) -> None:
        if self._over():
            self.exit()
        elif self._stale:
            # while the page closes there is nothing left to draw on
            with contextlib.suppress(NoMatches):
                self.draw()

    # ---- what is drawn -------------------------------------------------------------------------

    @property
    def listing(self) -> Listing:
        """The table that is shown."""
        return LISTINGS[self._at]

    def draw(self) -> None:
        """Show what there is now."""
        self._stale = False
        self._fields = self._read()
        width = max(self.size.width - 2 * _MARGIN, 1)
        self.query_one("#overview", Static).update(overview(self._fields, width))
        self.query_one("#tabs", Static).update(self._tabs())
        missing = self.listing.missing(self._fields)
        rows = 0 if missing else self._draw_table(width)
        self.query_one(DataTable).display = bool(rows)
        note = self.query_one("#note", Static)
        note.display = not rows
        note.update(Text(missing or "Nothing yet."))

    def _draw_table(self, width: int) -> int:
        """Draw the rows; how many there are."""
        table: DataTable[Text] = self.query_one(DataTable)
        order, descending = self._order[self.listing.name]
        # a column beside each other one, and the scroll bar
        page = laid(self.listing, self._fields, width - 1, order, descending=descending)
        layout = (self.listing.name, *page.widths, *(title.plain for title in page.titles))
        row, top = table.cursor_row, table.scroll_offset.y
        if layout == self._laid_out:
            table.clear()
        else:
            same = self._laid_out[:1] == layout[:1]
            row, top = (row, top) if same else (0, 0)
            table.clear(columns=True)
            for at, (title, room) in enumerate(zip(page.titles, page.widths, strict=True)):
                table.add_column(title, width=room, key=str(self._chosen()[at]))
            self._laid_out = layout
        table.add_rows(page.rows)
        table.move_cursor(row=min(row, len(page.rows) - 1), scroll=False)
        table.scroll_to(y=top, animate=False)
        return len(page.rows)

    def _chosen(self) -> list[int]:
        return self.listing.visible(max(self.size.width - 2 * _MARGIN, 1) - 1)

    def _tabs(self) -> Text:
        made = Text(no_wrap=True, overflow="ellipsis")
        for at, listing in enumerate(LISTINGS):
            style = Style(bold=True, reverse=True) if at == self._at else Style(dim=True)
            made.append(f" {listing.name} ", style + Style(meta={"@click": f"app.choose({at})"}))
        return made

    def _help(self) -> Text:
        made = Text(no_wrap=True, overflow="ellipsis")
        for key, what in _KEYS:
            made.append(key, "bold").append(f" {what}   ", "dim")
        return made

    # ---- what keys and the mouse do ------------------------------------------------------------

    def action_interrupt(self) -> None:
        """Ctrl-C, which comes as a key here."""
        self.interrupted = True
        self.exit()

    def action_turn(self, step: int) -> None:
        """Show the next table, or the one before."""
        self.action_choose((self._at + step) % len(LISTINGS))

    def action_choose(self, at: int) -> None:
        """Show this table."""
        self._at = at
        self.draw()

    def action_edge(self, edge: Literal["top", "bottom"]) -> None:
        """Go to the first row, or to the last."""
        table: DataTable[Text] = self.query_one(DataTable)
        table.move_cursor(row=0 if edge == "top" else table.row_count - 1, animate=False)

    def action_order(self, step: int) -> None:
        """Sort by the next column that is shown, or the one before."""
        chosen, (order, _) = self._chosen(), self._order[self.listing.name]
        at = chosen.index(order) if order in chosen else -step
        self._sort_by(chosen[(at + step) % len(chosen)])

    def action_reverse(self) -> None:
        """Turn the order round."""
        order, descending = self._order[self.listing.name]
        self._order[self.listing.name] = order, not descending
        self.draw()

    def on_data_table_header_selected(self, event: DataTable.HeaderSelected) -> None:
        """Sort by the column that was clicked; once more turns the order round."""
        order = int(str(event.column_key.value))
        if order == self._order[self.listing.name][0]:
            self.action_reverse()
        else:
            self._sort_by(order)

    def _sort_by(self, order: int) -> None:
        # numbers begin with the largest, names with the first
        self._order[self.listing.name] = order, self.listing.headings[order].number
        self.draw()


def reader(model: RunModel) -> Callable[[], Fields]:
    """Reads a ``RunModel``: what has not changed is not made again."""
    fields: dict[str, Any] = {}

    def read() -> Fields:
        # the first has everything
        made = model.tick(steady()) if fields else model.everything(steady())
        fields.update(made, history=model.history.points)
        return fields

    return read


def show(
    control: Control, keys: ClientKeys | None, seconds: float, signals: Collection[int]
) -> bool:
    """Show the page of the daemon that answers on ``control``; whether the daemon has ended.

    keys: of this client, also for the feed. seconds: between two requests. signals: the page ends
    once there is one.

    DaemonError: nobody answers, or the daemon is lost or has failed. KeyboardInterrupt: by Ctrl-C.
    """
    status = control.status()
    model = RunModel()
    feed = reachable(status["endpoints"]["feed"], control.endpoint)
    asyncio.run(_show(model, feed, control, keys, seconds, signals))
    if model.ended == "failed":
        raise DaemonFailedError(feed)
    return bool(model.ended)


async def _show(
    model: RunModel,
    feed: str,
    control: Control,
    keys: ClientKeys | None,
    seconds: float,
    signals: Collection[int],
) -> None:
    page = TopPage(
        reader(model),
        lambda: bool(signals or model.ended or follower.error or following.done()),
    )
    follower = Follower(model, feed, control.endpoint, page.note_change, keys, seconds=seconds)
    following = asyncio.create_task(follower.run())
    try:
        await page.run_async()
    finally:
        following.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await following
    if page.interrupted:
        raise KeyboardInterrupt
    if follower.error is not None and not model.ended:
        raise follower.error

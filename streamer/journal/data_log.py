"""The data files as one sequence of groups, from which the index is made."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from streamer.journal.data_files import (
    DataGroup,
    DataReader,
    data_file,
    data_file_numbers,
)
from streamer.journal.index_tables import ForgottenRow, RecordRow, Row, State, lost
from streamer.journal.journal_errors import JournalDamage, JournalError
from streamer.journal.record_index import Index
from streamer.journal.sizes import Sizes

_TOGETHER = 500  # groups in a transaction

Change = tuple[DataGroup, list[Row | ForgottenRow]]


class DataLog:
    """Reads the groups of a directory. notes: each place where something is damaged.

    incomplete: the last group, if it is not whole, as a power failure may leave it. Raises
    JournalError for files of another format.
    """

    def __init__(self, directory: Path, sizes: Sizes) -> None:
        self.notes: list[JournalDamage] = []
        self.incomplete: list[JournalDamage] = []
        self.numbers = data_file_numbers(directory)
        self.seal: bytes | None = None
        self._directory, self._sizes = directory, sizes
        self._files = DataReader(directory)
        for number in self.numbers:
            if self._files.is_of_before(number):
                message = (
                    f"{data_file(directory, number)}: format 2, this version of the program reads "
                    "3: use another directory or another version"
                )
                raise JournalError(message)
            if self.seal is None and (group := self._files.group(number, 0)) is not None:
                self.seal = group.seal

    def has(self, state: State) -> bool:
        """Whether the last group of a state is where the state says."""
        group = self._files.group(state.file, state.begin)
        if group is None:
            return False
        there = group.seal, group.serial, group.sum
        return there == (state.seal, state.serial, state.sum)

    def changes(self, state: State | None = None) -> Iterator[Change]:
        """Yield the groups after a state, or all, with their rows; in order, the last one whole."""
        last: Change | None = None
        for change in self._changes(state):
            if last is not None:
                yield last
            last = change
        if last is None:
            return
        if self._is_whole(last):
            yield last
            return
        group, rows = last
        at = [row.at for row in rows if isinstance(row, RecordRow)]
        problem = f"records {at[0]} to {at[-1]} are incomplete: never acknowledged, or damaged"
        self.incomplete.append(self._damage(group.file, group.begin, problem))

    def _changes(self, state: State | None) -> Iterator[Change]:
        serial, before = (0, 0) if state is None else (state.serial, state.sum)
        page = self._sizes.page_bytes
        for number in self.numbers:
            if state is not None and number < state.file:
                continue
            begin = 0
            if state is not None and number == state.file:
                begin = self._sizes.page_after(state.end)
            at: int | None = begin
            first = self._first_serial(number)
            while at is not None:
                group = self._files.group(number, at)
                rows = None if group is None else self._files.rows(group)
                if group is None or rows is None or not self._follows(group, serial):
                    found = self._files.search(number, at + page, page)
                    # it may have been written meanwhile
                    was = group is None and self._files.was_group(number, at, self.seal)
                    again = group or self._files.group(number, at)
                    if (found or was) and rows is None and again and self._files.rows(again):
                        continue
                    if was:
                        self._note(number, at, "the header of a group is damaged: left out")
                    elif group is not None and rows is None and self._follows(group, serial):
                        problem = "a group is incomplete: never acknowledged, or damaged"
                        self.incomplete.append(self._damage(number, at, problem))
                    at = found
                    continue
                if first is not None and group.serial >= first:
                    break  # never committed: the next file has another one in its place
                if (group.serial, group.before) != (serial + 1, before) and (serial or state):
                    self._note(number, at, f"groups {serial + 1} to {group.serial - 1} are missing")
                # a group is written once the one in front of it is whole
                self.notes += self.incomplete
                self.incomplete.clear()
                yield group, rows
                serial, before = group.serial, group.sum
                at = self._sizes.page_after(group.end)

    def _follows(self, group: DataGroup, serial: int) -> bool:
        """Whether a group is of this journal, and not one that was written over."""
        return group.seal == self.seal and group.serial > serial

    def _first_serial(self, number: int) -> int | None:
        """Return the serial at the beginning of the next file that has one."""
        for other in self.numbers:
            if other > number and (group := self._files.group(other, 0)) is not None:
                return group.serial
        return None

    def _is_whole(self, change: Change) -> bool:
        try:
            for row in change[1]:
                if isinstance(row, RecordRow) and lost(row) is None:
                    self._files.frames(row)
        except JournalDamage:
            return False
        return True

    def _note(self, number: int, offset: int, problem: str) -> None:
        self.notes.append(self._damage(number, offset, problem))

    def _damage(self, number: int, offset: int, problem: str) -> JournalDamage:
        path = str(data_file(self._directory, number))
        return JournalDamage(problem, file=path, offset=offset)

    def replay(self, index: Index, state: State | None = None) -> State | None:
        """Bring an index up to date from its state, or fill an empty one; return the last state."""
        changes = self.changes(state)
        done = False
        while not done:
            with index.transaction():
                for _ in range(_TOGETHER):
                    change = next(changes, None)
                    if change is None:
                        done = True
                        break
                    group, rows = change
                    if not group.begin:
                        index.clear("producers")
                        index.clear("snapshots")
                    index.put(*rows)
                    state = next((row for row in rows if isinstance(row, State)), state)
                if state is not None:
                    index.delete_records(state.oldest - 1)
        return state

    def close(self) -> None:
        """Close all files."""
        self._files.close()

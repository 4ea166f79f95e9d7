"""``streamer filter --watch``: the files of a run, filtered into a second folder as they come.

An output has the path of its input, and the time of its last change. So both folders tell what is
done: after any end the same command goes on, and an input that has changed is filtered again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any, BinaryIO

from streamer.cli.choices import say, say_error
from streamer.cli.filter_files import FilterRun, filter_one, matcher_of, write_summary
from streamer.errors import DataError, ReportedError, StreamerError, UsageError
from streamer.matching.target_counts import FilterCounts
from streamer.output.output_file import OutputFiles
from streamer.watching.folder import UNTIL, Folder, Hints, Sighting, has_end, mate_of, other_mate
from streamer.watching.watcher import CHANGING, LASTING, SETTLED, FolderWatch, Pending


class _FilteredFolder(FolderWatch[tuple[str, FilterCounts]]):
    """Files, or R1 and R2, filtered one after the other: the folder of each, and its counts."""

    def __init__(
        self,
        run: FilterRun,
        work: Callable[[FilterRun], FilterCounts],
        *given: Any,
        **options: Any,
    ) -> None:
        super().__init__(*given, follows=False, **options)
        self._run = run
        self._work = work
        # of this process; the file system may round the times of outputs
        self._states: dict[str, Sighting] = {}
        self.before = 0

    def _outputs(self, path: str) -> list[str]:
        folders = self._run.output, self._run.removed
        return [os.path.join(folder, path) for folder in folders if folder is not None]

    def _was_done(self, path: str) -> bool:
        return path in self._states

    def _size_before(self, path: str) -> int:
        return self._states[path].size if path in self._states else 0

    def _is_same(self, path: str, seen: Sighting) -> bool:
        known = self._states.get(path)
        if known is not None:
            return (known.size, known.changed) == (seen.size, seen.changed)
        try:
            same = all(os.stat(name).st_mtime_ns == seen.changed for name in self._outputs(path))
        except OSError:
            return False
        if same and path not in self._pending:
            self.before += 1
            self._states[path] = seen
        return same

    def _read(
        self, path: str, file: Pending, opened: BinaryIO, stage: int
    ) -> Iterator[tuple[str, FilterCounts]]:
        paths = self._with_mate(path, file, stage)
        if not paths:
            return
        try:
            found = self._folder.look(paths)
            counts = self._work(self._run_of(paths))
        except DataError as error:
            for name in paths:
                # once for both mates
                mate = self._pending.get(name, file)
                mate.visited = mate.seen, stage
            if stage != LASTING:
                # what is written now may lack its end
                file.problem = str(error)
                return
            self.given_up.update(paths)
            self.given_up.discard(path)
            raise
        for name in paths:
            for output in self._outputs(name):
                os.utime(output, ns=(found[name].changed, found[name].changed))
            self._states[name] = found[name]
            self._done(name)
        self._note(f"{' and '.join(paths)}: {counts}")
        yield os.path.dirname(path) or ".", counts

    def _with_mate(self, path: str, file: Pending, stage: int) -> list[str]:
        """The file and the one of its mates, R1 first; nothing while that is not complete."""
        other = other_mate(path)
        if other is None:
            return [path]
        found = self._folder.look([other])
        if not found:
            if self._over is None:
                # it may still come
                file.visited = file.seen, SETTLED
                return []
            if mate_of(path) == "R2":
                problem = f"the run is over, and there is no {other}, R1 of its pairs"
                raise DataError(problem, file=self._folder.absolute(path))
            return [path]
        if (waiting := self._pending.get(other)) is not None:
            if self._stage(waiting, self._clock()) == CHANGING or waiting.seen != found[other]:
                # it brings this one along when its turn has come
                file.visited = file.seen, stage
                return []
            with open(self._folder.absolute(other), "rb") as opened:
                if not has_end(opened, patient=stage == LASTING):
                    file.problem = f"{self._folder.absolute(path)}: {other} lacks its end"
                    file.visited = file.seen, stage
                    return []
        return sorted([path, other], key=mate_of)

    def _run_of(self, paths: Sequence[str]) -> FilterRun:
        outputs = [self._outputs(path) for path in paths]
        for one in outputs:
            for name in one:
                os.makedirs(os.path.dirname(name), exist_ok=True)
        last: Sequence[str | None] = outputs[1] if len(paths) > 1 else (None, None)
        removed = self._run.removed is not None
        run = replace(
            self._run,
            reads=[self._folder.absolute(path) for path in paths],
            pairs=len(paths) > 1,
            output=outputs[0][0],
            output2=last[0],
            removed=outputs[0][1] if removed else None,
            removed2=last[1] if removed else None,
            summary=None,
            context=self._run.summary is not None,
        )
        try:
            run.check_outputs()
        except UsageError as error:
            raise DataError(str(error), file=run.reads[0]) from None
        return run.settled(quiet=True)


def filter_folder(
    run: FilterRun,
    path: str,
    settle: float,
    until: Sequence[str] | None,
    *,
    quiet: bool,
    profile: bool,
) -> None:
    """Filter the files of a folder until its run is over; a summary has a sample for each folder.

    ReportedError if files or folders were given up.
    """

    def note(line: str) -> None:
        if not quiet:
            say(line)

    folder = Folder(path, until or UNTIL)
    sums: dict[str, FilterCounts] = {}
    with matcher_of(run, [], quiet) as matcher, closing(Hints(path, note)) as hints:
        watch = _FilteredFolder(
            run, partial(filter_one, matcher=matcher, quiet=True, profile=profile),
            folder, hints, settle, stopped=lambda: False, note=note, fault=say_error,
        )  # fmt: skip
        note(f"watches {path}, and writes to {run.output}")
        for below, counts in watch:
            if below in sums:
                sums[below].merge(counts)
            else:
                sums[below] = counts
    if watch.before:
        note(f"{watch.before:,} files had been filtered before")
    if run.summary is not None:
        told = {
            name: (replace(run, reads=[path], sample=name), counts) for name, counts in sums.items()
        }
        with OutputFiles() as files:
            write_summary(files, run.summary, told)
    if watch.given_up:
        problem = f"files or folders given up: {len(watch.given_up)}"
        raise ReportedError(StreamerError(problem))

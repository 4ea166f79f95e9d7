"""Visit a file: yield the records that have not been sent, with their marks."""

import os
from collections.abc import Callable, Generator, Iterable
from itertools import chain
from os.path import isfile
from typing import BinaryIO, NamedTuple, TypedDict

from streamer.client.producer import Piece, part_of
from streamer.errors import DataError
from streamer.protocol.wire import crc32c
from streamer.sequences.fastq import WholeRecords
from streamer.sequences.files import read_batches
from streamer.sequences.read_batch import ReadBatch
from streamer.watching.folder import mate_of, state_of
from streamer.watching.ledger import NOT_DONE, Digest, Ledger, Visit, digest_of_first


class Beginning(NamedTuple):
    """The known records that a file begins with.

    longest: the known visit with the most records that the file begins with, if any. total: digest
    of all records of the file, if it ended before some of the known visits, which are ``longer``.
    fault: what is wrong after these records.
    """

    longest: Visit | None
    total: Digest
    longer: list[Visit]
    fault: DataError | None


def sent_before(batches: Iterable[ReadBatch], known: list[Visit]) -> Beginning:
    """Find which of the visits ``known``, which share its first record, a file begins with.

    batches: all records of the file.
    """
    at, longest = Digest(), None
    try:
        for reads in batches:
            unmatched = []
            for visit in known:
                count = visit.sent.records - at.records
                if count > len(reads):
                    unmatched.append(visit)
                elif at.after(reads, count) == visit.sent and (
                    longest is None or visit.sent.records > longest.sent.records
                ):
                    longest = visit
            at, known = at.after(reads), unmatched
            if not known:
                break
    except DataError as error:
        return Beginning(longest, at, known, error)
    return Beginning(longest, at, known, None)


def begins_with(batches: Iterable[ReadBatch], sent: Digest, part: Digest) -> bool | None:
    """Return whether the records of ``sent`` begin with those of ``part``; None if unknown.

    batches: of a file that had the records of ``sent`` at the time, but may have changed since.
    """
    at, begins = Digest(), None
    try:
        for reads in batches:
            count = part.records - at.records
            if 0 < count <= len(reads):
                begins = at.after(reads, count) == part
            count = sent.records - at.records
            if count <= len(reads):
                return begins if at.after(reads, count) == sent else None
            at = at.after(reads)
    except (DataError, OSError):
        # no proof either way
        pass
    return None


_END_BYTES = 4096


def digest_of_ends(file: BinaryIO, size: int) -> int:
    """Return a checksum of the beginning and the end of the first ``size`` bytes of a file."""
    file.seek(0)
    begin = file.read(min(size, _END_BYTES))
    file.seek(max(0, size - _END_BYTES))
    return crc32c([begin, file.read(min(size, _END_BYTES))])


class BatchSizes(TypedDict):
    """Limits of a batch, not counting its last read."""

    batch_bases: int
    batch_reads: int


class FileVisit:
    """A file, open as ``file``, which the ledger calls ``path``.

    absolute: returns the path of a file in the ledger. grows: it is uncompressed FASTQ, whose whole
    records are read. complete: it is not expected to grow; lasting: it certainly will not. note:
    called with a line for people. ``problem`` says what its end lacks, ``done`` whether nothing is
    left in it. ``undecided``: whether its records were sent cannot be proved; the decision waits
    until the file is lasting.
    """

    def __init__(
        self,
        ledger: Ledger,
        path: str,
        file: BinaryIO,
        *,
        absolute: Callable[[str], str],
        grows: bool,
        complete: bool,
        lasting: bool,
        sizes: BatchSizes,
        note: Callable[[str], None],
    ) -> None:
        self.problem: DataError | None = None
        self.done = self.undecided = False
        self._ledger = ledger
        self._path = path
        self._absolute = absolute
        self._place = absolute(path)
        self._file = file
        # as it was before it is read: a change meanwhile is a reason for another visit
        self._seen = state_of(os.fstat(file.fileno()))
        self._grows = grows
        self._complete = complete
        self._lasting = lasting
        self._sizes = sizes
        self._note = note
        self._growing: WholeRecords | None = None
        self._unproved = False

    def __iter__(self) -> Generator[Piece]:
        """Iterate once, and close it; DataError as in ``read_batches``, or if reading fails."""
        before = self._ledger.files.get(self._path)
        if before is not None and self._goes_on(before):
            content, batches, skipped = before, self._batches(before), before.sent.records
        else:
            skipped = 0
            restart = self._from_start(before)
            if restart is None:
                return
            content, batches = restart
        visit, sent = content, content.sent
        begun = False
        try:
            for reads in batches:
                first = max(0, sent.records - skipped)
                skipped += len(reads)
                if first >= len(reads):
                    continue
                if not begun:
                    visit = self._ledger.begin(self._path, content.content, content.first, sent)
                    begun = True
                rest = part_of(reads, first, len(reads)) if first else reads
                after = sent.after(rest)
                piece = Piece(
                    rest,
                    self._marks(visit.number, sent, rest, after),
                    self._place,
                    sent.records,
                )
                # if closed at the yield, the piece has been delivered
                sent = after
                yield piece
            visit = visit._replace(sent=sent, size=self._seen.size, offset=0)
            if self._growing is not None:
                visit = self._where_it_grows(visit, skipped)
            visit = self._with_state(visit)
            # the records to send may have vanished meanwhile
            self.done = visit.size != NOT_DONE and bool(visit.content or not sent.records)
        finally:
            if begun or (self.done and visit != before):
                self._ledger.end(visit._replace(path=self._path, sent=sent))

    def _marks(
        self, visit: int, sent: Digest, reads: ReadBatch, after: Digest
    ) -> Callable[[int], bytes]:
        def mark(done: int) -> bytes:
            upto = after if done == len(reads) else sent.after(reads, done)
            return self._ledger.mark(visit, upto)

        return mark

    def _batches(self, going_on: Visit | None = None) -> Iterable[ReadBatch]:
        """Return the records from the beginning, or those after the visit ``going_on``."""
        if not self._grows:
            return read_batches([self._place], context=True, **self._sizes)
        offset, records = (going_on.offset, going_on.sent.records) if going_on else (0, 0)
        self._growing = WholeRecords(
            self._place, self._file, offset, records, last=self._complete, **self._sizes
        )
        return self._growing

    def _with_state(self, visit: Visit) -> Visit:
        """Return the visit with the state of the file."""
        end, (_, changed, touched) = visit.offset or visit.size, self._seen
        tail = digest_of_ends(self._file, end) if end > 0 else 0
        return visit._replace(tail=tail, changed=changed, touched=touched)

    def _goes_on(self, before: Visit) -> bool:
        """Return whether the file has only grown since it was read, so reading can resume."""
        size, changed, _ = self._seen
        if not (self._grows and before.offset and size >= before.offset):
            return False
        if size == before.offset and changed != before.changed:
            return False
        content = self._ledger.contents.get(before.content)
        whole = content is not None and before.sent == content.sent
        return whole and before.tail == digest_of_ends(self._file, before.offset)

    def _where_it_grows(self, visit: Visit, records: int) -> Visit:
        """Return the visit to a growing file after so many records were read."""
        growing = self._growing
        assert growing is not None
        self.problem = growing.problem
        size = NOT_DONE if growing.rest else growing.offset
        # otherwise another copy has more records
        all_sent = records == visit.sent.records
        return visit._replace(size=size, offset=growing.offset if all_sent else 0)

    def _from_start(self, before: Visit | None) -> tuple[Visit, Iterable[ReadBatch]] | None:
        """Which of its records were sent, and all of them; None if there is nothing to do."""
        new = Visit(0, self._path, 0, 0, NOT_DONE, 0, 0, Digest())
        batches = iter(self._batches())
        head = next(batches, None)
        if head is None:
            return new, ()
        new = new._replace(first=digest_of_first(head))
        known = self._without_mates(self._ledger.beginning(new.first))
        if not known:
            return self._other(before, new), chain([head], batches)
        longest, total, longer, fault = sent_before(chain([head], batches), known)
        whole = longest is not None and self._is_whole(longest)
        if longer and not whole:
            part_of = longest if longest is not None and longest.sent == total else None
            if not self._is_new(part_of, total, longer, fault):
                return None
        if longest is None:
            return self._other(before, new), self._batches()
        if before is None and longest.path != self._path:
            self._note(
                f"{self._place}: begins with the {longest.sent.records:,} records of "
                f"{longest.path}: they count once"
            )
        if not whole:
            # the file continues differently from the content
            longest = self._other(before, longest)._replace(content=0)
        return longest._replace(number=0, path=self._path), self._batches()

    def _without_mates(self, known: list[Visit]) -> list[Visit]:
        """Drop visits to mates' files, whose reads may be equal: all G where there is no signal."""
        if not (own := mate_of(self._path)):
            return known
        return [
            visit
            for visit in known
            if all(mate_of(path) in ("", own) for path in self._ledger.paths(visit.content))
        ]

    def _is_whole(self, visit: Visit) -> bool:
        return visit.sent == self._ledger.contents[visit.content].sent

    def _is_new(
        self,
        same: Visit | None,
        total: Digest,
        longer: list[Visit],
        fault: DataError | None,
    ) -> bool:
        """Return whether to send the records of a file that may be only a part of another.

        same: a visit to exactly these records. total, longer, fault: as in ``Beginning``. Raises
        DataError for a fault after records that are not sent now.
        """
        contents = {visit.content for visit in longer}
        if self._complete and same is None:
            proofs = {content: self._proof(content, total) for content in contents}
            part_of = next((content for content, proof in proofs.items() if proof), None)
            if part_of is None:
                unproved = [content for content, proof in proofs.items() if proof is None]
                if not unproved:
                    return True
                if self._lasting:
                    self._unproved = True
                    self._note(
                        f"{self._place}: may be a part of {self._ledger.contents[unproved[0]].path}"
                        ", which is no longer there as it was sent: its records are sent, too"
                    )
                    return True
                self.undecided = True
        else:
            part_of = same.content if same is not None else None
        if fault is not None:
            raise fault
        if self._growing is not None and self._growing.problem is not None:
            self.problem = self._growing.problem
        elif self._complete and part_of is not None:
            self._end_of_part(self._ledger.contents[part_of], total)
        return False

    def _proof(self, content: int, part: Digest) -> bool | None:
        """Whether a content begins with these records, by its files; None if none proves it."""
        sent = self._ledger.contents[content].sent
        for path in self._ledger.holders(content):
            place = self._absolute(path)
            if path == self._path or not isfile(place):
                continue
            proof = begins_with(read_batches([place], **self._sizes), sent, part)
            if proof is not None:
                return proof
        return None

    def _other(self, before: Visit | None, new: Visit) -> Visit:
        if before is not None and before.content and not self._unproved:
            self._note(f"{self._place}: has other records than before: they are sent, too")
        return new

    def _end_of_part(self, content: Visit, total: Digest) -> None:
        self._note(f"{self._place}: is a part of {content.path}, whose records have been sent")
        self.done = True
        visit = content._replace(number=0, path=self._path, offset=0, sent=total)
        self._ledger.end(self._with_state(visit._replace(size=self._seen.size)))

"""``Control``: asks the daemon for its status and sends it commands."""

import secrets
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
import zmq

from streamer.client.client_errors import DaemonError, DaemonSilentError, RefusedError
from streamer.client.connection import Connection, Context, Keys
from streamer.client.messages import NAMED, check_columns
from streamer.errors import UsageError
from streamer.protocol import wire
from streamer.protocol.endpoints import default_endpoint
from streamer.protocol.payloads import decode_columns, encode_reads
from streamer.protocol.schema import ACTIONS, TOPICS
from streamer.protocol.transport.curve import Handshake

# between two checks whether a daemon that takes long is still there
_ASK_SECONDS = 1.0
# how long to wait for a daemon that may have done what it was asked for: after a restart it may
# first load a dictionary
_PATIENCE_SECONDS = 60.0


_DECISION = TOPICS["decision"]


class ReadDecision(NamedTuple):
    """The decision on a read: ``proceed``, ``stop_receiving`` or ``unblock``.

    target: the one that the read is on, or None. matches: windows that match its best target.
    windows: those without an ambiguity code. Both are of the first ``bases`` symbols of the read.
    """

    read: str
    action: str
    target: str | None
    matches: int
    windows: int
    bases: int


class NoveltyPoint(NamedTuple):
    """A point of the novelty curve: reads, their bases and their new k-mers so far.

    new: new k-mers since the previous point.
    """

    reads: int
    bases: int
    kmers: int
    new: int


class CoverageBin(NamedTuple):
    """A part of a target, from base ``start`` to ``end``, exclusive.

    kmers: windows of the target without an ambiguity code that start there. seen: those whose
    k-mer was matched at least once. matches: how often these k-mers were matched in total.
    """

    start: int
    end: int
    kmers: int
    seen: int
    matches: int


_Row = TypeVar("_Row", NoveltyPoint, CoverageBin)


class Control(Connection):
    """Sends requests to the daemon's control socket at ``endpoint``, one at a time.

    Without an endpoint, to the default one, where a daemon is whose configuration sets none.

    >>> from streamer.client import Control, Producer
    >>> with Producer("tcp://127.0.0.1:5701") as producer:
    ...     producer.send([("read1", "GGGCGGCGACCTCGCGGGTTTTCGCTATTTAT")])
    ...     producer.flush(matched=True)
    >>> control = Control("tcp://127.0.0.1:5703")
    >>> status = control.status()
    >>> status["state"], status["dictionary"]["k"]
    ('running', 21)
    >>> control.request("status")["status"]["state"]  # any command of docs/protocol.md
    'running'
    >>> columns, rows = control.targets()
    >>> dict(zip(columns, rows[0]))["reads"]
    1
    >>> control.coverage("gi|9626243|ref|NC_001416.1|", bins=2)[0]
    CoverageBin(start=0, end=24251, kmers=24251, seen=12, matches=12)
    >>> control.panel()["groups"]  # of the configuration
    {}
    >>> control.samples()  # of its sample sheet
    []
    >>> control.run()  # its name
    ''
    >>> control.novelty()[-1].kmers
    0
    >>> control.ask([("read3", "GGGCGGCGACCTCGCGGGTTTTCGCTATTTAT")])[0].action
    'stop_receiving'
    >>> import os, time
    >>> line = ["lcs", "lambda.fa.gz", "lambda.fa.gz"]
    >>> first, second = (control.submit(line, os.getcwd())["id"] for _ in range(2))
    >>> control.cancel(second)["state"]
    'cancelled'
    >>> while control.job(first)["state"] in ("waiting", "running"):
    ...     time.sleep(0.1)
    >>> [job["state"] for job in control.jobs()]
    ['done', 'cancelled']
    >>> path, size = control.result(first)
    >>> sum(len(part) for part in control.result_parts(first)) == size
    True
    >>> control.retry(second)["attempt"]
    2
    >>> control.reload()["version"]
    1
    >>> control.drain()  # the daemon ends
    >>> control.close()
    """

    def __init__(
        self,
        endpoint: str | None = None,
        *,
        answer_seconds: float = 5.0,
        context: Context | None = None,
        keys: Keys = None,
    ) -> None:
        super().__init__(
            endpoint or default_endpoint("control"), answer_seconds, context, zmq.DEALER, {}, keys
        )
        self._requests = 0

    def status(self, *, subscriptions: bool = False) -> dict[str, Any]:
        """The daemon's status (docs/protocol.md, section Control).

        subscriptions: with ``prefixes``, what the feed's connections subscribe to.
        """
        asked = {"subscriptions": True} if subscriptions else {}
        return dict(self.request("status", **asked)["status"])

    def targets(
        self,
        *,
        by: Literal["barcode", "group"] | None = None,
        found: bool = False,
        more: bool = False,
    ) -> tuple[list[str], list[list[Any]]]:
        """Columns and rows of ``match --report targets``, over all reads so far.

        by: as with ``--by``. found: only rows with a count other than 0; a daemon without this
        option sends all rows. more: also the columns of its sample sheet, and verdicts, if it has
        them. The rows come in several replies, each with the counts of its moment. RefusedError if
        the daemon does not count or is still starting.
        """
        asked = {"by": by, "found": found, "more": more}
        asked = {name: value for name, value in asked.items() if value}
        reply = self.request("targets", first=0, **asked)
        rows = list(reply["rows"])
        while reply["next"] is not None:
            of = reply.get("of")
            reply = self.request("targets", first=reply["next"], **asked)
            if reply.get("of") != of:
                # a new barcode has moved the rows: start again
                reply, rows = self.request("targets", first=0, **asked), []
            rows += reply["rows"]
        return reply["columns"], rows

    def panel(self) -> dict[str, Any]:
        """When there is enough of a target: the fields of ``streamer.matching.panel.Panel``.

        RefusedError if the daemon is older than this command.
        """
        return dict(self.request("panel")["panel"])

    def samples(self) -> list[list[str | None]]:
        """Barcode, sample, alias and control of each line of the daemon's sample sheet."""
        return list(self.request("panel").get("samples", []))

    def run(self) -> str:
        """The name of the run; empty if it has none."""
        return str(self.request("panel").get("run", ""))

    def novelty(self) -> list[NoveltyPoint]:
        """The novelty curve of all reads so far, up to its current end.

        RefusedError if the dictionary learns nothing from reads.
        """
        return self._rows(NoveltyPoint, *self._reply(self._ask("novelty")))

    def coverage(
        self, target: str, bins: int = 100, barcode: str | None = None
    ) -> list[CoverageBin]:
        """Rows of ``match --report coverage`` for one target, over all reads so far.

        bins: at most 10,000. barcode: of its reads alone (``answers.coverage = "barcode"``).
        RefusedError if there is no such target, if the daemon does not count
        coverage (``answers.coverage``), or is still starting.
        """
        return self._rows(
            CoverageBin,
            *self._reply(self._ask("coverage", target=target, bins=bins, barcode=barcode)),
        )

    def _rows(
        self, kind: type[_Row], reply: wire.Header, frames: Sequence[wire.Buffer]
    ) -> list[_Row]:
        """Rows of integers whose columns are the frames of a reply."""
        try:
            columns = decode_columns(reply, frames)
            values = [columns.get(name) for name in kind._fields]
            sizes = {-1 if v is None or v.dtype != np.int64 else v.size for v in values}
            if len(sizes) > 1 or -1 in sizes:
                raise wire.malformed(f"its columns are not {', '.join(kind._fields)}")
        except wire.WireError as error:
            raise self._invalid(error) from None
        rows = zip(*(v.tolist() for v in values if v is not None), strict=True)
        return [kind(*row) for row in rows]

    def drain(self) -> None:
        """Tell the daemon to finish what it has accepted and end."""
        self.request("drain")

    def reload(self) -> wire.Header:
        """Have the daemon read the sources of its dictionary again, however long that takes.

        The reply describes the dictionary now in use (docs/protocol.md, section Control).
        RefusedError if the old dictionary stays. If the daemon does not reply or is restarted
        meanwhile, it is asked again, which reads the sources only once more; DaemonSilentError
        after a minute of silence, or sooner if none ever answered.
        """
        return self._late_reply("reload", key=secrets.token_hex(8))

    def ask(self, reads: Iterable[tuple[str, str | bytes]]) -> list[ReadDecision]:
        """Decide on these reads by the daemon's table ``decision``; they are not counted.

        A read may be asked about again as it grows. At most a million letters a call. RefusedError
        if the daemon decides nothing, or not now.
        """
        reads = list(reads)
        number = self._ask("ask", encode_reads(reads), form="columns")
        reply, frames = self._reply(number)
        try:
            names, _ = NAMED.of("decision", reply)
            columns = decode_columns(reply, frames)
            keys = {"targets": names}
            check_columns(_DECISION, columns, reads=len(reads), k=0, keys=keys, distance=0)
        except wire.WireError as error:
            raise self._invalid(error) from None
        rows = zip(*(columns[column.name].tolist() for column in _DECISION.columns), strict=True)
        return [
            ReadDecision(reads[read][0], ACTIONS[action], names.get(target), *counts)
            for read, _, _, action, target, *counts in rows
        ]

    def submit(self, line: Sequence[str], folder: str = "") -> dict[str, Any]:
        """Have the daemon run a command on files; returns its job (docs/protocol.md, section Jobs).

        line: ``asm``, ``hamming``, ``primer`` or ``lcs`` and its arguments, without options for
        output. folder: where relative paths start, on the daemon's machine. RefusedError if it is
        refused.

        If the daemon does not reply or is restarted meanwhile, it is asked again for the same job.
        DaemonSilentError after a minute of silence, or sooner if none ever answered. All requests
        about jobs are repeated in this way.
        """
        key = secrets.token_hex(8)
        return self._job("submit", line=list(line), folder=folder, key=key)

    def jobs(self) -> list[dict[str, Any]]:
        """The jobs that this client may see, in the order of submission."""
        listed: list[dict[str, Any]] = []
        first = again = 0
        while True:
            reply = self._late_reply("jobs", first=first)
            page = reply["jobs"]
            if again and (not page or page[0]["id"] != listed[-1]["id"]):
                # a job that was forgotten or runs again has moved the others
                listed, first, again = [], 0, 0
                continue
            listed += page[again:]
            if reply["next"] is None:
                return listed
            # repeat the last one, to notice if jobs have moved
            again = int(len(page) > 1)
            first = reply["next"] - again

    def job(self, id_: str) -> dict[str, Any]:
        """A job; RefusedError if there is none."""
        return self._job("job", job=id_)

    def cancel(self, id_: str) -> dict[str, Any]:
        """Cancel a job that waits or runs, which may take seconds.

        RefusedError if it has ended, unless it is cancelled already.
        """
        return self._job("cancel", job=id_)

    def retry(self, id_: str) -> dict[str, Any]:
        """Run a failed, cancelled or interrupted job again. RefusedError for other jobs."""
        attempt = self.job(id_)["attempt"] + 1
        return self._job("retry", job=id_, attempt=attempt)

    def result(self, id_: str) -> tuple[str, int]:
        """The path of a result on the daemon's machine, and its size. RefusedError if none."""
        reply = self._late_reply("result", job=id_)
        return str(reply["path"]), int(reply["bytes"])

    def result_parts(self, id_: str) -> Iterator[wire.Buffer]:
        """The result of a job, an Arrow IPC file, in parts. RefusedError if there is none."""
        offset, size = 0, 1
        while offset < size:
            try:
                reply, frames = self._reply(self._ask("result", job=id_, offset=offset))
            except DaemonSilentError:
                # wait for the daemon, as all other requests about jobs do
                self.job(id_)
                continue
            size = int(reply["bytes"])
            part = frames[0] if frames else b""
            if not len(part):
                raise DaemonError(
                    self.endpoint, f"the result of job {id_} ends after {offset} of {size} bytes"
                )
            yield part
            offset += len(part)

    def request(self, command: str, **fields: Any) -> wire.Header:
        """The reply to one command.

        RefusedError if the daemon refuses it, DaemonSilentError if it does not reply in time.
        """
        return self._reply(self._ask(command, **fields))[0]

    def _reply(self, number: int) -> tuple[wire.Header, Sequence[wire.Buffer]]:
        """The reply to a request, and its further frames."""
        deadline = time.monotonic() + self._answer_seconds
        while (remaining := deadline - time.monotonic()) > 0:
            reply, *frames = self._receive(remaining)
            # no late reply to a request that was given up; one without a number is about a request
            # that could not be read
            if reply and reply.get("id", number) == number:
                return self._accepted(reply), frames
        raise DaemonSilentError(self.endpoint, self._answer_seconds)

    def _job(self, command: str, **fields: Any) -> dict[str, Any]:
        return dict(self._late_reply(command, **fields)["job"])

    def _late_reply(self, command: str, **fields: Any) -> wire.Header:
        """The reply to a command, however long it takes, as long as the daemon is alive.

        The command has no second effect if it is repeated. It is sent again if the daemon is there
        but does not reply, or was restarted; and a daemon that was there may be silent for a
        minute.
        """
        numbers, first = [self._ask(command, **fields)], self._ask("status")
        # the request that this daemon may still answer while it is too busy for a repeated one
        early = numbers[0]
        heard = asked = sent = time.monotonic()
        daemon: object = None
        while True:
            now = time.monotonic()
            was_there = daemon is not None or self._outcome is Handshake.ADMITTED
            seconds = max(self._answer_seconds, _PATIENCE_SECONDS if was_there else 0.0)
            if now >= heard + seconds:
                raise DaemonSilentError(self.endpoint, seconds)
            if now > asked + _ASK_SECONDS:
                self._ask("status")
                asked = now
            reply, *_ = self._receive(_ASK_SECONDS)
            if not reply:
                continue
            heard = time.monotonic()
            number = reply.get("id", numbers[0])
            if number in numbers:
                if number == early or reply.get("reason") != wire.Reason.BUSY:
                    return self._accepted(reply)
                continue
            if number not in range(first, self._requests + 1):
                continue
            status = reply.get("status", {})
            there = status.get("stream"), status.get("epoch")
            restarted = number != first and there != daemon
            daemon = there
            if restarted or heard > sent + self._answer_seconds:
                numbers.append(self._ask(command, **fields))
                sent = heard
                # a daemon that starts is too busy for a reload
                if restarted and command != "reload":
                    early = numbers[-1]

    def _ask(self, command: str, frames: Sequence[wire.Buffer] = (), **fields: Any) -> int:
        self._requests += 1
        request = {"v": wire.PROTOCOL, "id": self._requests, "command": command} | fields
        try:
            packed = wire.pack(request)
        except UnicodeEncodeError as error:
            raise UsageError(f"{error.object!r} is not UTF-8") from None
        if len(packed) > wire.MAX_HEADER_BYTES:
            # if a message is far larger, the daemon ends the connection without an answer
            raise UsageError(
                f"'{command}' with {len(packed)} bytes: at most {wire.MAX_HEADER_BYTES} can be sent"
            )
        self._post(wire.seal([packed, *frames]))
        return self._requests

    def _receive(self, seconds: float) -> tuple[wire.Header, *tuple[wire.Buffer, ...]]:
        """The next reply and its further frames; an empty reply if none comes in time."""
        if not self._poll(seconds):
            return ({},)
        try:
            header, *frames = wire.unseal(self._socket.recv_multipart())
            # a decision names all targets, so its header may be large
            return wire.unpack(header, limited=False), *frames
        except wire.WireError as error:
            raise self._invalid(error) from None

    def _invalid(self, error: wire.WireError) -> DaemonError:
        return DaemonError(self.endpoint, f"invalid reply: {error}")

    def _accepted(self, reply: wire.Header) -> wire.Header:
        if not reply.get("ok"):
            raise RefusedError(self.endpoint, reply)
        return reply

"""The life of the daemon: start, run, drain, end; and a daemon as a process."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

import structlog
import zmq

from streamer.cluster.connecting import abandon
from streamer.daemon import logs, watched_stages
from streamer.daemon.batch_record import Accepted, Matched
from streamer.daemon.child import WatchWorker, WebWorker
from streamer.daemon.config import Config
from streamer.daemon.connections import Connections
from streamer.daemon.control import ControlWorker
from streamer.daemon.core.life import Life
from streamer.daemon.core.producers import KnownProducer, ProducerState
from streamer.daemon.core.rights import Rights
from streamer.daemon.daemon_status import DaemonStatus
from streamer.daemon.engine import EngineWorker, make_matcher
from streamer.daemon.feed import FeedWorker
from streamer.daemon.ingest import IngestWorker, decode_batches
from streamer.daemon.jobs.job_requests import Parse
from streamer.daemon.jobs.jobs_worker import JobsWorker
from streamer.daemon.journal import JournalWorker, open_journal
from streamer.daemon.kept_batches import KeptBatches
from streamer.daemon.listener import parked_path
from streamer.daemon.process import keep_freed_memory, raise_limit
from streamer.daemon.publish import Group
from streamer.daemon.reload import Reloader
from streamer.daemon.restore import Restored, restored_of
from streamer.daemon.security.gatekeeper import Gatekeeper
from streamer.daemon.socket_worker import SocketWorker
from streamer.daemon.sync import SyncWorker
from streamer.daemon.worker import Inbox, Worker
from streamer.dictionary.targets import Dictionary
from streamer.errors import StreamerError
from streamer.journal.record import JournalError, Key
from streamer.matching.spec import MatchSpec
from streamer.protocol.endpoints import reachable, socket_path
from streamer.protocol.keys import ClientKeys
from streamer.protocol.payloads import decode_batch, encode_reads
from streamer.protocol.wire import pack, seal, size_of
from streamer.sequences.read_batch import ReadBatch

if TYPE_CHECKING:
    from streamer.daemon.metrics.metrics_server import MetricsServer

_KNOWN = [("warm-up", "ACGT" * 16), ("none", ""), ("another", "AACC" * 16)]
_FOREIGN = [("foreign", "G" * 64)]


def warm_up(config: Config, spec: MatchSpec, targets: int = 1) -> None:
    """Decode, match, publish and store reads, with a small dictionary of one target or of two.

    This compiles every kernel on the way of a batch, and wakes a GPU and its driver.
    """
    known = _KNOWN if targets > 1 else _KNOWN[:2]
    few = ReadBatch.from_sequences(*zip(*known, strict=True))
    stored = Dictionary.from_batches([few], spec.k, "forward" if spec.near else spec.strands)
    matcher = make_matcher(config, stored, spec)
    header, accepted = {"form": "columns"}, []
    producer, now = ProducerState("warm-up", 0), time.monotonic()
    key = Key(producer.name, 0, 1, 0, b"")
    try:
        # batches that wait are matched together
        for reads in (known, _FOREIGN):
            frames = [memoryview(frame) for frame in encode_reads(reads)]
            decoded = decode_batch(header, frames, matcher.make_batch)
            accepted.append(Accepted(0, producer, key, size_of(frames), *decoded, now))
            if matcher.make_together is not None:
                message = [memoryview(frame) for frame in seal([pack(header), *frames])]
                decode_batches([(header, message)], matcher.make_together)
        results = matcher.match([item.batch for item in accepted])
    finally:
        matcher.close()
    kept = stored if spec.near else None
    matched = [
        Matched(0, item, result, matcher.dictionary, kept)
        for item, result in zip(accepted, results, strict=True)
    ]
    for publication in Group({}, matched).publications(intervals=True):
        for topic in publication.prev:
            publication.message(topic, {})
        if config.journal.durability != "none":
            publication.record(0)


# longer than both parts of the self-test with keys, which reports what is wrong
_BIND_SECONDS = 30.0
# one thread moves 2 to 3 GB a second; connections are spread over them
_IO_THREADS = 4
_LEAST_DESCRIPTORS = 64
# for the engine to end, or if it still loads; and the least for each of the other threads
_JOIN_SECONDS, _LOAD_SECONDS, _LEAST_SECONDS = 10.0, 0.5, 2.0
# SocketWorker.release gives messages in flight a second
_TERM_SECONDS = 5.0
# after this long a waiting thread requests the GIL; in the default 5 ms a GPU matches 100 batches
_SWITCH_SECONDS = 0.0005
_LOOK_SECONDS = 0.5
# how long a producer is silent before its name is forgotten, without keep_hours
_KEEP_HOURS = 720

log = structlog.get_logger("daemon")


class Service:
    """A daemon in this process: ``start``, then ``wait`` until it has drained or failed.

    accept_loss: start without the damaged parts of the journal. parse_job: checks command lines of
    jobs; without it jobs are disabled. StreamerError if the journal cannot be continued.
    """

    def __init__(
        self, config: Config, *, accept_loss: bool = False, parse_job: Parse | None = None
    ) -> None:
        self._changed: Inbox[None] = Inbox()
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context(_IO_THREADS)
        notify, keys = self._changed.wake, config.security.keys
        self._gate = gate = Gatekeeper(keys, self._context, notify) if keys else None
        self._journal = open_journal(config, accept_loss=accept_loss)
        restored = restored_of(self._journal)
        self.status = DaemonStatus(config, self._journal, restored.counts, restored.novelty)
        self._life = Life(self.status.enter)
        self._drain_wanted = ""
        self._feed = FeedWorker(
            self.status,
            self._context,
            notify,
            self._finished,
            at=restored.at,
            heads=restored.heads,
            gate=gate,
        )
        self._recorder: JournalWorker | None = None
        self._sync: SyncWorker | None = None
        journal = self._journal
        if journal is not None:
            self._sync = SyncWorker(self.status, notify, gate)
            self._recorder = JournalWorker(
                self.status,
                notify,
                journal,
                replayed=restored.replayed,
                forward=self._feed.inbox.put,
                committed=self._sync.committed,
                begun=lambda epochs: self._ingest.tell(self._ingest.core.begun, epochs),
                forgotten=lambda names: self._ingest.tell(self._ingest.core.forgotten, names),
                full=self._full,
            )
        self._engine = EngineWorker(
            self.status,
            notify,
            restored,
            kept=KeptBatches(journal) if journal is not None else None,
            forward=(self._recorder or self._feed).inbox.put,
            wants=self._feed.wants,
            warm_up=warm_up,
        )
        self._ingest = IngestWorker(
            self.status,
            self._context,
            notify,
            forward=self._engine.inbox.put,
            makers=lambda: (self._engine.make_batch, self._engine.make_together),
            gate=gate,
            **self._known(restored),
        )
        self._reloader = Reloader(config, self._engine.prepare, self._engine.reload)
        self._jobs: JobsWorker | None = None
        if config.jobs.directories and parse_job is not None:
            self._jobs = JobsWorker(self.status, notify, parse_job)
        self._control = ControlWorker(
            self.status,
            self._context,
            notify,
            drain=self.drain,
            reload=self._reloader.begin,
            ask=self._engine.ask,
            jobs=None if self._jobs is None else self._jobs.ask,
            gate=gate,
        )
        self._sockets: list[SocketWorker | SyncWorker] = [self._feed, self._control, self._ingest]
        self._sockets += filter(None, [self._sync])
        further = self._engine, gate, self._recorder, self._jobs
        self._workers: list[Worker] = [*self._sockets, *filter(None, further)]
        if gate is not None:
            self.status.key_counts = gate.counts
        self._watch: WatchWorker | None = None
        self._connections: Connections | None = None
        self._stages = stages = self._watched()
        self._metrics: MetricsServer | None = None
        self._web: WebWorker | None = None
        self._guard_of_stages = watched_stages.StageGuard(
            self.status,
            {name: stage.look for name, stage in stages.items()}
            | {"gpu": watched_stages.GpuStage(self._engine).look},
        )
        self._limit_announced = False

    def start(self) -> dict[str, str]:
        """Bind all sockets and begin to load the dictionary; returns the endpoints as bound.

        StreamerError if a socket cannot be bound; nothing is then left behind.
        """
        try:
            self._start()
        except StreamerError:
            self._life.fail()
            self._stop()
            raise
        return dict(self.status.endpoints)

    def _start(self) -> None:
        keep_freed_memory()
        if (limit := raise_limit()) < _LEAST_DESCRIPTORS:
            # libzmq would abort the process
            problem = f"too few file descriptors: {limit} are allowed: raise the limit "
            raise StreamerError(problem + "(ulimit -n 1024)")
        sys.setswitchinterval(_SWITCH_SECONDS)
        if self._gate is not None:
            self._gate.begin()
        for worker in self._sockets:
            worker.start()
            if not worker.ready.wait(_BIND_SECONDS):
                worker.error = TimeoutError(f"not bound within {_BIND_SECONDS:g} s")
            if worker.error is not None:
                raise _as_streamer_error(worker, worker.error)
            self.status.endpoints[worker.name] = worker.endpoint
        self._guard(limit)
        self._serve_metrics()
        self._serve_page()
        log.info("listening", **self.status.endpoints)
        if self._recorder is not None:
            self._recorder.start()
        if self._jobs is not None:
            self._jobs.start()
        self._engine.start()

    def _guard(self, limit: int) -> None:
        """From now on, refuse connections that would take the last descriptors."""
        # control is shut last
        order = (self._feed, self._ingest, self._control)
        listeners = [worker.listener for worker in order if worker.listener is not None]
        self._connections = Connections(self._changed.wake, listeners, limit)
        self._workers.append(self._connections)
        self._connections.start()

    def _serve_metrics(self) -> None:
        if not self.status.config.metrics.endpoint:
            return
        # this import takes a fifth of a second, so only daemons with metrics pay for it
        from streamer.daemon.metrics.metrics_server import MetricsServer

        self._metrics = MetricsServer(self.status, self._stages)
        self.status.endpoints["metrics"] = self._metrics.endpoint
        self._metrics.start()

    def _watch_folder(self) -> None:
        watch = self.status.config.watch
        if watch.directory:
            endpoint = reachable(self.status.endpoints["ingest"])
            keys = self._issue(Rights("watcher", send=("*",)))
            bound_as = self.status.config.ingest.endpoint
            self._watch = WatchWorker(self.status, endpoint, self._changed.wake, keys, bound_as)
            self._workers.append(self._watch)
            self._watch.start()

    def _serve_page(self) -> None:
        if not self.status.config.web.endpoint:
            return
        asks = ("status", "targets", "coverage", "novelty", "panel")
        keys = self._issue(Rights("page", watch=("*",), control=asks))
        self._web = web = WebWorker(self.status, self._changed.wake, keys)
        self._workers.append(web)
        self.status.endpoints[web.name] = web.endpoint
        web.start()

    def _issue(self, rights: Rights) -> ClientKeys | None:
        """A key for a client that the daemon starts, None if it needs none."""
        return None if self._gate is None else self._gate.issue(rights)

    def drain(self, why: str) -> None:
        """Finish the accepted batches, accept nothing more, then end; from any thread."""
        # a signal handler calls this, too, so it must not take a lock that the main thread may hold
        self._drain_wanted = why
        self._changed.wake()

    def wait(self) -> None:
        """Return once the daemon has drained; StreamerError if one of its threads failed."""
        try:
            while not (self._ingest.drained and self._life.drained()):
                self._changed.wait(_LOOK_SECONDS)
                self._changed.take()
                self._check()
                self._advance()
        except BaseException:
            # from here on nothing is accepted
            self._life.fail()
            lost = "batches_lost" if self._journal is None else "batches_to_be_sent_again"
            log.error("failed", **{lost: self.status.queued_batches})
            raise
        finally:
            self._stop()
        totals = self.status.totals.fields()
        log.info("ended", **totals)

    @property
    def stuck(self) -> list[str]:
        """Threads that have not ended although they were asked to."""
        reload = ["reload"] if self._reloader.reading else []
        return [worker.name for worker in self._workers if worker.is_alive()] + reload

    def leave(self, code: int) -> NoReturn:
        """End the process at once, without leaving socket files or a cluster behind."""
        for endpoint in self.status.endpoints.values():
            path = socket_path(endpoint)
            for file in (path, parked_path(path)) if path is not None else ():
                with contextlib.suppress(OSError):
                    file.unlink()
        abandon()
        os._exit(code)

    def _watched(self) -> dict[str, watched_stages.MeasuredStage]:
        stages: dict[str, watched_stages.MeasuredStage] = {
            "ingest": watched_stages.WatchedStage(self._ingest, self._ingest.inbox),
            "engine": watched_stages.EngineStage(self._engine),
            "tree": watched_stages.TreeStage(self._engine),
            "feed": watched_stages.WatchedStage(self._feed, self._feed.inbox),
        }
        if self._recorder is not None and self._sync is not None:
            stages["journal"] = watched_stages.WatchedStage(self._recorder, self._recorder.inbox)
            stages["sync"] = self._sync
        return stages

    def _known(self, restored: Restored) -> dict[str, Any]:
        forget_seconds = 3600 * (self.status.config.journal.keep_hours or _KEEP_HOURS)
        if self._journal is None or self._recorder is None:
            return {"forget_seconds": forget_seconds}
        now, clock = time.monotonic(), time.time_ns()
        return {
            "forget_seconds": forget_seconds,
            "begin": self._recorder.inbox.put,
            "forget": self._recorder.forget,
            "known": [
                KnownProducer(*stored[:4], now - max(0, clock - stored.time) / 1e9)
                for stored in self._journal.producers()
            ],
            "number": restored.number,
            "content_of": self._content_of,
        }

    def _content_of(self, *key: Any) -> int | None:
        """The stored checksum of a batch; called by ingest."""
        assert self._journal is not None
        try:
            return self._journal.content(*key)
        except JournalError as error:
            log.error("damaged record", why=str(error))
            return None

    def _full(self, full: bool) -> None:
        """The journal has no room, or has room again; called in its thread."""
        self.status.journal_full = full
        self._ingest.tell(self._ingest.core.journal_full, full)
        self._changed.wake()

    def _finished(self, group: Group) -> None:
        self._engine.slots.release()
        group.done()
        if group.matched:
            items = [matched.accepted for matched in group.matched]
            self._ingest.tell(self._ingest.core.published, items)

    def _check(self) -> None:
        for worker in self._workers:
            if worker.error is not None:
                raise _as_streamer_error(worker, worker.error)

    def _advance(self) -> None:
        if self.status.limited and not self._limit_announced:
            self._limit_announced = True
            if self.status.config.dictionary.at_limit == "freeze":
                self.status.announce()
            else:
                self._life.at_limit()
                self._ingest.tell(self._ingest.core.at_limit)
        if self._engine.ready.is_set() and self._life.ready():
            self._ingest.inbox.wake()
            log.info("ready", **self.status.fields()["dictionary"])
            self._watch_folder()
        self._life.journal_full(self.status.journal_full)
        if self._drain_wanted and self._life.drain():
            log.info("draining", why=self._drain_wanted, batches=self.status.queued_batches)
            self._ingest.inbox.wake()
            self._reloader.end()
            if self._watch is not None:
                self._watch.stop()
            if self._jobs is not None:
                self._jobs.end()
        self._guard_of_stages.look()

    def _stop(self) -> None:
        deadline = time.monotonic() + _JOIN_SECONDS
        loading = [worker for worker in self._workers if worker.loading]
        if self._jobs is not None:
            # this takes some seconds
            self._jobs.end()
        # the engine first, the feed late: it announces the end, which sync still delivers
        order = (
            self._watch, self._engine, self._jobs, self._recorder, self._ingest, self._control,
            # the page shows the end
            self._feed, self._sync, self._web, self._connections, self._gate,
        )  # fmt: skip
        inboxes = [worker.inbox for worker in self._workers if hasattr(worker, "inbox")]
        if self._metrics is not None:
            self._metrics.stop()
        for worker in filter(None, order):
            worker.stop()
            for inbox in inboxes:
                inbox.wake()
            if worker.ident is not None:
                remaining = max(_LEAST_SECONDS, deadline - time.monotonic())
                worker.join(_LOAD_SECONDS if worker in loading else remaining)
        late = [each.name for each in self._workers if each.is_alive() and each not in loading]
        if late:
            log.warning("threads did not end", threads=late)
        if not self.stuck:
            for inbox in inboxes:
                inbox.close()
            self._changed.close()
            if self._web is not None:
                self._web.close()
            if self._journal is not None:
                self._journal.close()
        if any(worker.is_alive() for worker in self._sockets):
            return
        # in case libzmq does not return, although SocketWorker.bind should prevent that
        ending = threading.Thread(target=self._context.term, name="sockets", daemon=True)
        ending.start()
        ending.join(_TERM_SECONDS)
        if ending.is_alive():
            log.warning("libzmq did not end", seconds=_TERM_SECONDS)


def _as_streamer_error(worker: Worker, error: BaseException) -> StreamerError:
    if isinstance(error, StreamerError):
        return error
    wrapped = StreamerError(f"the {worker.name} thread failed: {type(error).__name__}: {error}")
    wrapped.__cause__ = error
    return wrapped


@logs.unfailing()
def run(
    config: Config,
    *,
    accept_loss: bool = False,
    ready: Callable[[dict[str, str]], None] | None = None,
    parse_job: Parse | None = None,
) -> None:
    """Run a daemon until SIGINT, SIGTERM or ``drain`` on its control socket has drained it.

    Call it in the main thread. A second signal ends the process at once. ``ready`` is called with
    the endpoints as bound. accept_loss: start without the damaged parts of the journal. Log lines
    that cannot be written are dropped. parse_job: checks command lines of jobs.
    StreamerError if the daemon cannot start or one of its threads fails.
    """
    service: Service | None = None
    signalled = False

    def on_signal(number: int, frame: FrameType | None) -> None:
        nonlocal signalled
        if service is None:
            # the journal is being read: it survives this, as it does a kill, and nothing is bound
            os._exit(0)
        if signalled:
            service.leave(128 + number)
        signalled = True
        service.drain(signal.Signals(number).name)

    previous: dict[int, Any] = {
        n: signal.signal(n, on_signal) for n in (signal.SIGINT, signal.SIGTERM)
    }
    # the caller may have ignored SIGCHLD; then exit codes of child processes would be lost
    previous[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        service = Service(config, accept_loss=accept_loss, parse_job=parse_job)
        endpoints = service.start()
        if ready is not None:
            ready(endpoints)
        service.wait()
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    if service.stuck:
        logs.finish()
        service.leave(0)

"""``Subscriber``: follows the feed, checks it, and notices which messages it missed."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from math import ceil

import zmq

from streamer.client.feed_reader import FeedReader, Steps, T
from streamer.client.messages import Message


class Subscriber(FeedReader):
    """Receives the messages on ``topics`` from the feed at ``endpoint``, as typed objects.

    The arrays of a message are parts of one block of memory, which lives as long as any of them:
    copy those that you keep longer than their message.

    Messages that are damaged or do not follow docs/protocol.md are dropped and counted in
    ``damaged``; ``damage`` is the last such error. Like any lost message they lead to a Gap;
    ``gaps`` counts these. With the endpoint of ``sync``, missing messages are pulled from there:
    each message comes once, by topic in order. A Gap then remains only where the journal is
    damaged, and for ``word``, which is not stored. ``cursor``: where to begin, by default with the
    next live message; a cursor that the stream cannot continue from gives a Reset. Topics, columns
    and fields of later daemons are ignored.

    ``state`` is the last known state of the daemon. ``ended``: it has announced its end.
    ``failed``: it ended without publishing everything that it accepted. Without a beat for
    ``answer_seconds`` it is ``lost``; if it sends again, its messages are received as before.
    ``published``: the topics that the daemon can have messages on, None while unknown.

    >>> from streamer.client import Producer, ReadSummaries, Subscriber
    >>> feed = Subscriber("tcp://127.0.0.1:5702", topics=["read"])
    >>> feed.wait_for_daemon(10)  # messages before that are missed
    True
    >>> with Producer("tcp://127.0.0.1:5701") as producer:
    ...     producer.send([("read2", "GGGCGGCGACCTCGCGGGTTTTCGCTATTTAT")])
    ...     producer.flush()
    >>> message = feed.receive(timeout=10)
    >>> isinstance(message, ReadSummaries), message.origin.names[0], message.matches
    (True, 'read2', array([12]))
    >>> feed.close()

    ``for message in feed`` continues until the daemon ends. With ``sync`` and a cursor nothing is
    missed, from the first record on if it is still kept:

    >>> from streamer.client import Cursor
    >>> feed = Subscriber("tcp://127.0.0.1:5702", topics=["read"],
    ...                   sync="tcp://127.0.0.1:5704", cursor=Cursor("", 0))
    >>> feed.receive(timeout=10).origin.names[0]
    'read2'
    >>> feed.close()
    """

    def receive(self, timeout: float | None = None) -> Message | None:
        """The next message on the topics, or notice about them; None if none came in time.

        timeout: in seconds. Without a timeout: DaemonLostError once the daemon is ``lost``.
        """
        return self._run(self._receiving(timeout))

    def wait_for_daemon(self, timeout: float) -> bool:
        """Whether a message, at least a beat, came within ``timeout`` seconds.

        Then all subscriptions are in effect: nothing that is sent to the daemon afterwards is
        missed.
        """
        return self._run(self._hearing(timeout))

    def __iter__(self) -> Iterator[Message]:
        """Messages until the daemon announces its end; DaemonLostError if it is ``lost``."""
        while (message := self._run(self._going_on())) is not None:
            yield message

    @cached_property
    def _poller(self) -> zmq.Poller:
        poller = zmq.Poller()
        for socket in self._sockets:
            poller.register(socket, zmq.POLLIN)
        return poller

    def _run(self, steps: Steps[T]) -> T:
        try:
            seconds = next(steps)
            while True:
                seconds = steps.send(bool(self._poller.poll(ceil(seconds * 1000))))
        except StopIteration as done:
            result: T = done.value
            return result

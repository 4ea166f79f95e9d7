"""``Producer`` and ``Subscriber`` for asyncio: like the blocking ones except in how they wait.

Each object belongs to one task. Cancelling a call has the effect of an interrupt on the blocking
one: batches that were handed over stay and are sent with the next call.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import closing
from typing import Self

import zmq

from streamer.client.messages import Message
from streamer.client.producer import EncodedBatch, Mark, ProducerSteps, Reads
from streamer.client.producer import Steps as ProducerStep
from streamer.client.subscriber import FeedReader, Steps, T
from streamer.sequences.read_batch import ReadBatch

__all__ = ["Producer", "Subscriber"]


class Producer(ProducerSteps):
    """``streamer.client.Producer`` for asyncio; used in ``async with``, it flushes at the end.

    >>> import asyncio
    >>> from streamer.aio import Producer
    >>> async def main():
    ...     async with Producer("tcp://127.0.0.1:5701") as producer:
    ...         await producer.connect()
    ...         await producer.send([("read4", "GGGCGGCGACCTCGCGGGTTTTCGCTATTTAT")])
    ...         await producer.settle(timeout=60)
    ...         await producer.flush(matched=True)
    ...         return producer.reads_matched
    >>> asyncio.run(main())
    1
    """

    async def connect(self, *, timeout: float | None = None) -> None:
        """Return once the daemon has answered."""
        await self._run(self._connecting(timeout))

    async def send(
        self,
        reads: EncodedBatch | ReadBatch | Reads,
        *,
        timeout: float | None = None,
        mark: bytes | Mark = b"",
        growing: bool = False,
    ) -> None:
        """Send a batch; returns once it is sent, which requires credit."""
        await self._run(self._sending(reads, timeout, mark, growing))

    async def flush(self, *, timeout: float | None = None, matched: bool = False) -> None:
        """Return once everything sent is durable, and with ``matched``, matched and published."""
        await self._run(self._flushing(timeout, matched))

    async def settle(self, *, timeout: float | None = None) -> None:
        """Send nothing more; return once the daemon has answered for everything sent."""
        await self._run(self._settling(timeout))

    async def _run(self, steps: ProducerStep) -> None:
        with closing(steps):
            for seconds in steps:
                await _wait([self._socket], seconds, self._awaited())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                await self.flush()
        finally:
            self.close()


class Subscriber(FeedReader):
    """``streamer.client.Subscriber`` for asyncio, with ``async for``.

    >>> import asyncio
    >>> from streamer.aio import Producer, Subscriber
    >>> async def main():
    ...     async with Subscriber("tcp://127.0.0.1:5702", topics=["read"]) as feed:
    ...         await feed.wait_for_daemon(10)
    ...         async with Producer("tcp://127.0.0.1:5701") as producer:
    ...             await producer.send([("read5", "GGGCGGCGACCTCGCGGGTTTTCGCTATTTAT")])
    ...         first = await feed.receive(timeout=10)
    ...         return first.origin.names[0]
    >>> asyncio.run(main())
    'read5'

    ``async for message in feed`` continues until the daemon ends.
    """

    async def receive(self, timeout: float | None = None) -> Message | None:
        """The next message on the topics, or notice about them; None if none came in time.

        timeout: in seconds. Without a timeout: DaemonLostError once the daemon is ``lost``.
        """
        return await self._run(self._receiving(timeout))

    async def wait_for_daemon(self, timeout: float) -> bool:
        """Whether a message, at least a beat, came within ``timeout`` seconds."""
        return await self._run(self._hearing(timeout))

    async def __aiter__(self) -> AsyncIterator[Message]:
        """Messages until the daemon announces its end; DaemonLostError if it is ``lost``."""
        while (message := await self._run(self._going_on())) is not None:
            yield message

    async def _run(self, steps: Steps[T]) -> T:
        try:
            seconds = next(steps)
            while True:
                seconds = steps.send(await _wait(self._sockets, seconds))
        except StopIteration as done:
            result: T = done.value
            return result
        finally:
            # messages may come without a pause: let other tasks run
            await asyncio.sleep(0)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()


async def _wait(
    sockets: Sequence[zmq.Socket[bytes]], seconds: float, events: int = int(zmq.POLLIN)
) -> bool:
    """Whether a socket is ready for one of the events within this many seconds.

    Its descriptor becomes readable when libzmq has something to process, and stays so until that is
    done: here, or when a message is sent or received. Other tasks run meanwhile.
    """
    if not seconds:
        await asyncio.sleep(0)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    changed = asyncio.Event()
    descriptors = [int(socket.getsockopt(zmq.FD)) for socket in sockets]
    for descriptor in descriptors:
        loop.add_reader(descriptor, changed.set)
    try:
        while not any(int(socket.getsockopt(zmq.EVENTS)) & events for socket in sockets):
            changed.clear()
            remaining = deadline - loop.time()
            if remaining <= 0:
                return False
            try:
                # wait_for of Python 3.11 may lose a cancellation
                async with asyncio.timeout(remaining):
                    await changed.wait()
            except TimeoutError:
                return False
        return True
    finally:
        for descriptor in descriptors:
            loop.remove_reader(descriptor)

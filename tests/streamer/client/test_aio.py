"""The asyncio clients: the same messages as the blocking ones, and the loop goes on meanwhile."""

from __future__ import annotations

import asyncio
import random

import pytest
import zmq

from streamer import aio
from streamer.client import Beat, DaemonLostError, ReadSummaries, StalledError, Subscriber
from streamer.client.message_tables import table
from tests.daemon_kit import GENOME, follow, reads_of, running
from tests.waiting import DEADLINE

pytestmark = pytest.mark.whole


def batches(count):
    return [reads_of(GENOME, random.Random(i), 30, prefix=f"{i}_") for i in range(count)]


def shown(messages):
    return [(m.stamp.topic, m.stamp.at, table(m).records()) for m in messages]


async def produce(endpoint, what, **options):
    async with aio.Producer(endpoint, name="p", answer_seconds=DEADLINE, **options) as producer:
        for reads in what:
            await producer.send(reads)
        await producer.flush(matched=True)
        return producer.reads_acknowledged


async def consume(feed, count):
    assert await feed.wait_for_daemon(DEADLINE)
    found, seen = [], 0
    while seen < count:
        message = await feed.receive(DEADLINE)
        assert message is not None
        seen += isinstance(message, ReadSummaries)
        found.append(message)
    return found


def test_both_clients_beside_each_other_in_one_loop(path):
    topics = ("match", "read")

    async def session(endpoints):
        async with aio.Subscriber(endpoints["feed"], topics, answer_seconds=DEADLINE) as feed:
            reading = asyncio.create_task(consume(feed, 12))
            assert await feed_heard(feed)
            sent = await produce(endpoints["ingest"], batches(12))
            return sent, await reading

    async def feed_heard(feed):
        while not feed.heard:
            await asyncio.sleep(0.01)
        return True

    with running(path) as made, Subscriber(made.endpoints["feed"], topics) as blocking:
        assert blocking.wait_for_daemon(DEADLINE)
        made.wait_for_subscriptions(*topics)
        sent, found = asyncio.run(session(made.endpoints))
        assert sent == 12 * 30
        assert shown(found) == shown(follow(blocking, 12))


def test_the_loop_goes_on_while_a_call_waits(tmp_path):
    """Nobody answers: both clients wait, and neither keeps the loop."""
    turns = 0

    async def count():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0.01)

    async def session():
        counting = asyncio.create_task(count())
        producer = aio.Producer(f"ipc://{tmp_path}/nobody", answer_seconds=DEADLINE)
        with pytest.raises(StalledError):
            await producer.connect(timeout=0.3)
        producer.close()
        async with aio.Subscriber(f"ipc://{tmp_path}/nobody") as feed:
            assert not await feed.wait_for_daemon(0.3)
            assert await feed.receive(0.1) is None
        counting.cancel()

    asyncio.run(session())
    assert turns > 10


def test_a_call_that_is_cancelled_can_be_made_again(path):
    async def session(made):
        producer = aio.Producer(made.endpoints["ingest"], answer_seconds=DEADLINE)
        await producer.connect()
        with made.engine_held():
            await producer.send([("a", GENOME)])
            waiting = asyncio.create_task(producer.flush(matched=True))
            await asyncio.sleep(0.1)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        await producer.settle()
        await producer.send([("b", GENOME)])
        await producer.flush(matched=True)
        assert producer.reads_matched == 2
        producer.close()

    with running(path) as made:
        asyncio.run(session(made))


@pytest.mark.parametrize("steps", range(8))
def test_a_cancel_at_the_moment_in_which_something_comes(monkeypatch, steps):
    """So many steps of the loop behind it."""

    async def take(socket):
        while True:
            await aio._wait([socket], DEADLINE)
            socket.recv()

    async def session(context):
        with context.socket(zmq.PULL) as there, context.socket(zmq.PUSH) as here:
            there.bind("inproc://there")
            here.connect("inproc://there")
            taking = asyncio.create_task(take(there))

            def later(count):
                if count:
                    asyncio.get_running_loop().call_soon(later, count - 1)
                else:
                    taking.cancel()

            class Noticed(asyncio.Event):
                def set(self):
                    super().set()
                    later(steps)

            monkeypatch.setattr(aio.asyncio, "Event", Noticed)
            await asyncio.sleep(0)
            here.send(b"")
            await asyncio.wait({taking}, timeout=10)
            ended = taking.cancelled()
            taking.cancel()
            return ended

    with zmq.Context() as context:
        assert asyncio.run(session(context))


def test_a_daemon_that_falls_silent_and_one_that_ends(path):
    async def session(made):
        async with aio.Subscriber(made.endpoints["feed"], ["read"], answer_seconds=0.5) as feed:
            assert await feed.wait_for_daemon(DEADLINE)
            feed._socket.disconnect(made.endpoints["feed"])
            with pytest.raises(DaemonLostError):
                async for _ in feed:
                    pass
        async with aio.Subscriber(made.endpoints["feed"], ["beat"]) as feed:
            found = []
            async for message in feed:
                if not found:
                    made.service.drain("the test says so")
                found.append(message)
            assert feed.ended
            return found

    with running(path) as made:
        assert {type(message) for message in asyncio.run(session(made))} == {Beat}

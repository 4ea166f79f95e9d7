"""``Producer`` and ``Subscriber`` for asyncio."""

from streamer.client.aio import Producer, Subscriber

__all__ = ["Producer", "Subscriber"]

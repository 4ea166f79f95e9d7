"""``Producer`` and ``Subscriber`` for asyncio."""

from streamer.client.coroutines import Producer, Subscriber

__all__ = ["Producer", "Subscriber"]

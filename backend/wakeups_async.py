"""Wake-ups for async views (`wakeups` has what they are): one subscription for all who wait in a process, whatever they
wait for.

A connection to Redis for each open event stream would be a thousand connections, and as many buffers in this process.
Here one connection has a channel for each topic that somebody waits for; an announcement wakes all who wait for its
topic in the same turn of the event loop, so that they may share one look (`Subscription.n_announced` tells which
announcements a look comes after).
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from uuid import UUID
from weakref import WeakKeyDictionary

import redis
import redis.asyncio
from django.conf import settings
from redis.backoff import NoBackoff
from redis.retry import Retry

from backend.valkey import pause

_CONNECT_S = 1.0
_AWAY_S = 0.5  # how often those who wait look by themselves while Redis is away
_IDLE_S = 5.0


@dataclass(slots=True, eq=False)
class _Topic:
    """`n_announced` counts announcements; `next` is done at the next one."""

    n_waiting: int = 0
    n_announced: int = 0
    is_subscribed: asyncio.Event = field(default_factory=asyncio.Event)
    next: "asyncio.Future[None]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def announce(self) -> None:
        self.n_announced += 1
        done, self.next = self.next, asyncio.get_running_loop().create_future()
        if not done.done():
            done.set_result(None)


class Subscription:
    """The subscription of somebody who waits for a topic. Called, it returns at the next announcement, at once for one
    that came since it last returned, or after `timeout_s`."""

    def __init__(self, hub: "_Hub", topic: _Topic) -> None:
        self._hub, self._topic = hub, topic
        self.n_announced = topic.n_announced

    async def __call__(self, timeout_s: float) -> None:
        if self._topic.n_announced == self.n_announced:
            # a Valkey that hangs keeps its connection, and says nothing of what is announced
            is_listening = self._hub.is_connected and not pause.is_on
            timeout_s = timeout_s if is_listening else min(timeout_s, _AWAY_S)
            await asyncio.wait([self._topic.next], timeout=timeout_s)
        self.n_announced = self._topic.n_announced


class _Hub:
    """The subscription of one event loop. It is there while somebody waits."""

    def __init__(self) -> None:
        self.is_connected = False
        self._topics: dict[str, _Topic] = {}
        self._pubsub: redis.asyncio.client.PubSub | None = None
        self._task: asyncio.Task[None] | None = None

    def enter(self, channel: str) -> _Topic:
        """Note at once who waits: whoever is canceled while it waits for the subscription leaves as one who came."""
        topic = self._topics.setdefault(channel, _Topic())
        topic.n_waiting += 1
        return topic

    async def subscribe(self, channel: str, topic: _Topic) -> None:
        """Wait until the subscription stands, or Redis is away."""
        if self._task is None:
            self._task = asyncio.create_task(self._read())
        elif topic.n_waiting == 1 and self.is_connected and self._pubsub is not None:
            with contextlib.suppress(redis.RedisError):  # the reading task meets the same error and begins anew
                await self._pubsub.subscribe(channel)
        if pause.is_on:  # with Redis away the waits are short, that is all
            return
        try:
            async with asyncio.timeout(_CONNECT_S):
                await topic.is_subscribed.wait()
        except TimeoutError:
            pause.note_failure()

    async def leave(self, channel: str, topic: _Topic) -> None:
        topic.n_waiting -= 1
        if topic.n_waiting:
            return
        del self._topics[channel]
        if self._topics:
            if self.is_connected and self._pubsub is not None:
                with contextlib.suppress(redis.RedisError):
                    await self._pubsub.unsubscribe(channel)
            return
        _hubs.pop(asyncio.get_running_loop(), None)  # whoever comes now begins anew
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _read(self) -> None:
        client = redis.asyncio.Redis.from_url(
            settings.REDIS_URL, socket_connect_timeout=_CONNECT_S, retry=Retry(NoBackoff(), 0)
        )
        try:
            while True:
                self._pubsub = client.pubsub()
                try:
                    await self._listen(self._pubsub)
                except redis.RedisError:
                    await self._lose()
                finally:
                    await self._pubsub.aclose()  # type: ignore[no-untyped-call]
        finally:
            self.is_connected = False
            await client.aclose()

    async def _listen(self, pubsub: "redis.asyncio.client.PubSub") -> None:
        known = set(self._topics)
        await pubsub.subscribe(*known)
        self.is_connected = True
        if came_meanwhile := set(self._topics) - known:
            await pubsub.subscribe(*came_meanwhile)
        while True:
            message = await pubsub.get_message(timeout=_IDLE_S)
            topic = self._topics.get(message["channel"].decode()) if message else None
            if message is None or topic is None:
                continue
            if message["type"] == "subscribe":
                topic.is_subscribed.set()
                topic.announce()  # what was announced before the subscription stood is looked for once more
            elif message["type"] == "message":
                topic.announce()

    async def _lose(self) -> None:
        """Redis is away: nobody is kept from looking, neither those who wait nor those who come."""
        self.is_connected = False
        for topic in self._topics.values():
            topic.is_subscribed.set()
            topic.announce()
        await asyncio.sleep(_AWAY_S)


_hubs: "WeakKeyDictionary[asyncio.AbstractEventLoop, _Hub]" = WeakKeyDictionary()


def _hub() -> _Hub:
    loop = asyncio.get_running_loop()
    if loop not in _hubs:
        _hubs[loop] = _Hub()
    return _hubs[loop]


@asynccontextmanager
async def listening_async(topic: UUID | str) -> AsyncIterator[Subscription]:
    """Listen as `wakeups.listening` does, for async views. When it is entered, the subscription stands or Redis is
    away."""
    hub = _hub()
    channel = f"kolm:wake:{topic}"  # as `wakeups.announce` has it
    joined = hub.enter(channel)
    try:
        await hub.subscribe(channel, joined)
        yield Subscription(hub, joined)
    finally:
        await hub.leave(channel, joined)

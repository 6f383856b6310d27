"""Wake-ups over Redis pub/sub: "look again now", for those who wait on rows of Postgres.

Nothing depends on them. Whoever waits looks at the rows first and again after every wait, and a wait ends by itself;
with Redis away the waits are only longer. Subscribe before looking, or a change between the look and the wait goes
unheard.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import cache
from typing import Protocol
from uuid import UUID

import redis
import redis.asyncio
from django.conf import settings

log = logging.getLogger("kolm.wakeups")

RUNNERS = "runners"
_CONNECT_S = 1.0


class AsyncWait(Protocol):
    async def __call__(self, timeout_s: float) -> None: ...


class Wait(Protocol):
    def __call__(self, timeout_s: float) -> None: ...


@cache
def _client() -> redis.Redis:
    return redis.Redis.from_url(settings.REDIS_URL, socket_connect_timeout=_CONNECT_S, socket_timeout=_CONNECT_S)


def announce(topic: UUID | str) -> None:
    """Wake who listens to this topic. Never raises for a Redis that is away."""
    try:
        _client().publish(_channel(topic), b"1")
    except redis.RedisError:
        log.warning("redis is away; those who wait will look again by themselves")


@contextmanager
def listening(topic: UUID | str) -> Iterator[Wait]:
    """A function that returns at the next announcement or after `timeout_s`."""
    subscription = _client().pubsub(ignore_subscribe_messages=True)
    try:
        subscription.subscribe(_channel(topic))
    except redis.RedisError:
        yield _sleep
        return

    def wait(timeout_s: float) -> None:
        try:
            subscription.get_message(timeout=timeout_s)
        except redis.RedisError:
            _sleep(timeout_s)

    try:
        yield wait
    finally:
        subscription.close()


@asynccontextmanager
async def listening_async(topic: UUID | str) -> AsyncIterator[AsyncWait]:
    """As `listening`, for async views."""
    client = redis.asyncio.Redis.from_url(settings.REDIS_URL, socket_connect_timeout=_CONNECT_S)
    subscription = client.pubsub(ignore_subscribe_messages=True)

    async def wait(timeout_s: float) -> None:
        try:
            await subscription.get_message(timeout=timeout_s)
        except redis.RedisError:
            await asyncio.sleep(min(timeout_s, 0.5))

    async def sleep(timeout_s: float) -> None:
        await asyncio.sleep(min(timeout_s, 0.5))

    try:
        try:
            await subscription.subscribe(_channel(topic))
        except redis.RedisError:
            yield sleep
        else:
            yield wait
    finally:
        await subscription.aclose()  # type: ignore[no-untyped-call]
        await client.aclose()


def _sleep(timeout_s: float) -> None:
    time.sleep(min(timeout_s, 0.2))


def _channel(topic: UUID | str) -> str:
    return f"kolm:wake:{topic}"

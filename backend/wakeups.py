"""Wake-ups over Redis pub/sub: "look again now", for those who wait on rows of Postgres.

Nothing depends on them. Whoever waits looks at the rows first and again after every wait, and a wait ends by itself;
with Redis away the waits are only longer. Subscribe before looking, or a change between the look and the wait goes
unheard. Async views listen with `wakeups_async`.
"""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Protocol
from uuid import UUID

import redis
from django.conf import settings
from redis.backoff import NoBackoff
from redis.retry import Retry

from backend.valkey import PausingRedis, pause

log = logging.getLogger("kolm.wakeups")

RUNNERS = "runners"
_CONNECT_S = 1.0


class Wait(Protocol):
    def __call__(self, timeout_s: float) -> None: ...


@cache
def _client() -> PausingRedis:
    return PausingRedis.from_url(
        settings.REDIS_URL,
        socket_connect_timeout=_CONNECT_S,
        socket_timeout=_CONNECT_S,
        retry=Retry(NoBackoff(), 0),
    )


def announce(topic: UUID | str) -> None:
    """Wake who listens to this topic. Never raises for a Redis that is away."""
    try:
        _client().publish(_channel(topic), b"1")
    except redis.RedisError:
        log.warning("redis is away; those who wait will look again by themselves")


@contextmanager
def listening(topic: UUID | str) -> Iterator[Wait]:
    """A function that returns at the next announcement or after `timeout_s`."""
    if not pause.may_ask():
        yield _sleep
        return
    subscription = _client().pubsub(ignore_subscribe_messages=True)
    try:
        subscription.subscribe(_channel(topic))
    except redis.RedisError:
        pause.note_failure()
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


def _sleep(timeout_s: float) -> None:
    time.sleep(min(timeout_s, 0.2))


def _channel(topic: UUID | str) -> str:
    return f"kolm:wake:{topic}"

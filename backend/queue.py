"""How the web process starts work and wakes those who wait: by name and ids, over Redis, as hints.

Postgres is the truth; anything sent here may be lost or doubled. Nothing here raises when Redis is away: the outbox relay sends the hint
again, and whoever waits for a bell looks at the database from time to time all the same.
"""

import functools
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from uuid import UUID

import redis
from celery import Celery
from django.conf import settings
from kombu.exceptions import OperationalError

logger = logging.getLogger(__name__)

SEND_TIMEOUT_S = 0.5
BREAK_S = 1.0  # how long a Redis that failed to answer is left alone: no caller should wait for it twice


QUEUE = "compiles"  # the Celery queue that workers read


class TaskName(StrEnum):
    """Every task there is; `workers.main` registers each (a test compares)."""

    ADVANCE = "compile.advance"
    RELAY = "outbox.relay"


def send_hint(name: TaskName, **ids: str) -> bool:
    """Tell the workers to look at something. False when the message could not be sent."""
    return _quietly(f"the hint {name}", lambda: _app().send_task(name, kwargs=ids, retry=False, ignore_result=True))


def announce(id: UUID) -> bool:
    """Wake whoever is `listening` to what happens to this object."""
    return _quietly("an announcement", lambda: _redis().publish(_changes_of(id), ""))


def wake_runners(kind: str) -> bool:
    """Wake the runners that wait for a job of this kind."""
    return _quietly("a call for runners", lambda: _redis().publish(_jobs_of(kind), ""))


class Bell:
    """Rings when something was announced. Wakes early at times and, without Redis, late: always look at the database afterwards."""

    def __init__(self, subscription: redis.client.PubSub | None) -> None:
        self._subscription = subscription

    def wait(self, timeout_s: float) -> None:
        """Return when it rang since the last wait, or after `timeout_s`."""
        until = time.monotonic() + timeout_s
        while self._subscription is not None and (rest := until - time.monotonic()) > 0:
            try:
                if self._subscription.get_message(ignore_subscribe_messages=True, timeout=rest):
                    return
            except redis.RedisError:
                self._subscription = None
        time.sleep(max(0.0, min(until - time.monotonic(), 1.0)))


@contextmanager
def listening(*, changes_of: UUID | None = None, jobs_of: tuple[str, ...] = ()) -> Iterator[Bell]:
    """A bell for one object's changes or for jobs of some kinds. Listen first, then look, then wait: nothing falls between."""
    channels = [_changes_of(changes_of)] if changes_of else []
    channels += [_jobs_of(kind) for kind in jobs_of]
    subscription: redis.client.PubSub | None = None
    try:
        try:
            subscription = _redis().pubsub()
            subscription.subscribe(*channels)
        except redis.RedisError:
            subscription = None
        yield Bell(subscription)
    finally:
        if subscription is not None:
            subscription.close()


_silent_until = 0.0


def _quietly(what: str, send: Callable[[], object]) -> bool:
    global _silent_until
    if time.monotonic() < _silent_until:
        return False
    try:
        send()
    except (redis.RedisError, OperationalError, OSError) as fault:
        _silent_until = time.monotonic() + BREAK_S
        logger.warning("%s was not sent: %s", what, type(fault).__name__)
        return False
    return True


def _changes_of(id: UUID) -> str:
    return f"kolm:changes:{id}"


def _jobs_of(kind: str) -> str:
    return f"kolm:jobs:{kind}"


@functools.cache
def _redis() -> redis.Redis:
    return redis.Redis.from_url(
        settings.REDIS_URL, socket_connect_timeout=SEND_TIMEOUT_S, socket_timeout=SEND_TIMEOUT_S
    )


@functools.cache
def _app() -> Celery:
    """A sender only: it knows the broker and no task."""
    app = Celery("kolm", broker=settings.REDIS_URL, set_as_current=False)
    app.conf.update(
        task_default_queue=QUEUE,
        broker_connection_timeout=SEND_TIMEOUT_S,
        broker_connection_max_retries=0,
        broker_transport_options={
            "socket_timeout": SEND_TIMEOUT_S,
            "socket_connect_timeout": SEND_TIMEOUT_S,
            "max_retries": 0,
        },
        task_ignore_result=True,
    )
    return app

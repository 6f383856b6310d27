"""The queue by which the web process starts work: a task's name and ids, as a message over Redis that wakes a worker.

Postgres is the truth; a wake-up may be lost or doubled. Nothing here raises when Redis is away: the outbox relay sends
it again.
"""

import functools
import logging
from enum import StrEnum

import redis
from celery import Celery
from django.conf import settings
from kombu.exceptions import OperationalError

from backend.valkey import pause

logger = logging.getLogger(__name__)

SEND_TIMEOUT_S = 0.5


QUEUE = "compiles"  # the Celery queue that workers read


class TaskName(StrEnum):
    """Every task there is; `workers.main` registers each (a test compares)."""

    ADVANCE = "compile.advance"
    DRAFTS_PREVIEW = "drafts.preview"
    DRAFTS_REEMBED = "drafts.reembed"
    PREFLIGHT_ASK = "preflight.ask"
    UPLOAD_CURVE = "upload.curve"
    PLAYGROUND_ASK = "playground.ask"
    SHADOW_COMPARE = "shadow.compare"
    BILLING_EVENTS = "billing.events"
    BILLING_TURN = "billing.turn"


def enqueue(name: TaskName, **ids: str) -> bool:
    """Put a task into the workers' queue. False when the message could not be sent."""
    if not pause.may_ask():
        return False
    try:
        _app().send_task(name, kwargs=ids, retry=False, ignore_result=True)
    except (redis.RedisError, OperationalError, OSError) as fault:
        pause.note_failure()
        logger.warning("the wake-up %s was not sent: %s", name, type(fault).__name__)
        return False
    pause.note_answer()
    return True


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

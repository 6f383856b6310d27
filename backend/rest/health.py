"""The health of the process, for load balancers and supervisors: is it alive, and can it do its work.

Each part is looked at in a thread of its own, once at a time whoever asks, and for LIMIT_S at most: a store that hangs
instead of failing (a stopped process, a network disk) holds one thread, and no answer.
"""

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import wait as wait_for

import redis
from django.conf import settings
from django.db import DatabaseError, connection, transaction
from django.http import HttpRequest, JsonResponse
from redis.backoff import NoBackoff
from redis.retry import Retry

from backend.blobs import probe_store
from backend.domain.errors import Unavailable

logger = logging.getLogger(__name__)

LIMIT_S = 3.0
VALKEY_LIMIT_S = 0.4  # without it web is ready: a probe that gives up after a second must hear so


@transaction.non_atomic_requests
def healthz(request: HttpRequest) -> JsonResponse:
    """Alive: touches nothing outside the process, so that a database outage restarts no web process."""
    return JsonResponse({"status": "ok"})


@transaction.non_atomic_requests
def readyz(request: HttpRequest) -> JsonResponse:
    """503 while the database or the blob store does not answer. Without Valkey the process is degraded and goes on:
    reads work, hints are lost and upkeep finds the work."""
    looks = {part: _begin(part, look) for part, look in _LOOKS.items()}
    wait_for(looks.values(), timeout=LIMIT_S)
    parts = {part: look.done() and look.result() for part, look in looks.items()}
    is_ready = parts["database"] and parts["blobs"]
    body = {
        "status": "ready" if all(parts.values()) else "degraded" if is_ready else "not_ready",
        **{part: "ok" if ok else "down" for part, ok in parts.items()},
    }
    return JsonResponse(body, status=200 if is_ready else 503)


def _begin(part: str, look: Callable[[], bool]) -> "Future[bool]":
    """The look at this part that is under way, or a new one."""
    with _lock:
        under_way = _under_way.get(part)
        if under_way is not None and not under_way.done():
            return under_way
        answer: Future[bool] = Future()
        _under_way[part] = answer

    def work() -> None:
        try:
            answer.set_result(look())
        except Exception:
            logger.exception("not ready: %s", part)
            answer.set_result(False)

    threading.Thread(target=work, name=f"ready-{part}", daemon=True).start()
    return answer


_lock = threading.Lock()
_under_way: "dict[str, Future[bool]]" = {}


def _database_answers() -> bool:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError as fault:
        logger.warning("not ready: the database: %s", fault)
        return False
    finally:
        connection.close()
    return True


def _blobs_answer() -> bool:
    try:
        probe_store()
    except Unavailable:
        return False
    return True


def _valkey_answers() -> bool:
    try:
        with redis.Redis.from_url(
            settings.REDIS_URL,
            socket_connect_timeout=VALKEY_LIMIT_S,
            socket_timeout=VALKEY_LIMIT_S,
            retry=Retry(NoBackoff(), 0),
        ) as client:
            return bool(client.ping())
    except redis.RedisError as fault:
        logger.warning("not ready: Valkey: %s", fault)
        return False


_LOOKS = {"database": _database_answers, "blobs": _blobs_answer, "valkey": _valkey_answers}

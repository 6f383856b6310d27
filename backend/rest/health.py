"""For load balancers and supervisors: is the process alive, and can it do its work."""

import logging

import redis
from django.conf import settings
from django.db import DatabaseError, connection, transaction
from django.http import HttpRequest, JsonResponse

logger = logging.getLogger(__name__)


@transaction.non_atomic_requests
def healthz(request: HttpRequest) -> JsonResponse:
    """Alive: touches nothing outside the process, so that a database outage restarts no web process."""
    return JsonResponse({"status": "ok"})


@transaction.non_atomic_requests
def readyz(request: HttpRequest) -> JsonResponse:
    """503 while the database or Redis does not answer."""
    parts = {"database": _database_answers(), "redis": _redis_answers()}
    is_ready = all(parts.values())
    body = {
        "status": "ready" if is_ready else "not_ready",
        **{part: "ok" if ok else "down" for part, ok in parts.items()},
    }
    return JsonResponse(body, status=200 if is_ready else 503)


def _database_answers() -> bool:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError as fault:
        logger.warning("not ready: the database: %s", fault)
        return False
    return True


def _redis_answers() -> bool:
    try:
        with redis.Redis.from_url(settings.REDIS_URL, socket_connect_timeout=1, socket_timeout=1) as client:
            return bool(client.ping())
    except redis.RedisError as fault:
        logger.warning("not ready: Redis: %s", fault)
        return False

"""Notes when a key was last used, to the minute.

After the response and in a transaction of its own: inside the request's transaction the key's row would stay locked
until its end, and every other request with that key would queue behind it. And in a thread of its own: a request that
waited for a second connection while it holds its first would, eight at a time, stall the whole pool.
"""

import logging
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from queue import SimpleQueue
from typing import Any
from uuid import UUID

from asgiref.sync import iscoroutinefunction
from django.db import Error
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.decorators import sync_and_async_middleware

from backend.rest.async_queries import let_go
from backend.tenants.api_keys.authentication import Caller
from backend.tenants.isolation import tenant_scope
from backend.tenants.models import ApiKey

logger = logging.getLogger(__name__)

PRECISION = timedelta(minutes=1)
MOST_KEYS = 10_000


class LastUseWriter:
    """A thread that writes notes, one for each key and minute. A note that is lost with the process is made by the next
    request."""

    def __init__(self) -> None:
        self._due: SimpleQueue[Caller] = SimpleQueue()
        self._noted: dict[UUID, float] = {}
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def note(self, caller: Caller) -> None:
        """Never waits for a connection."""
        now = time.monotonic()
        with self._lock:
            if self._noted.get(caller.api_key_id, 0.0) > now:
                return
            if len(self._noted) >= MOST_KEYS:
                self._noted.clear()
            self._noted[caller.api_key_id] = now + PRECISION.total_seconds()
            if self._thread is None or not self._thread.is_alive():  # an error ended it, or it is of before a fork
                self._thread = threading.Thread(target=self._run, name="last-use", daemon=True)
                self._thread.start()
        self._due.put(caller)

    def _run(self) -> None:
        while True:
            caller = self._due.get()
            try:
                _write(caller)
            finally:
                let_go()


_writer = LastUseWriter()


@sync_and_async_middleware
def last_use(get_response: Callable[[HttpRequest], Any]) -> Callable[[HttpRequest], Any]:
    if iscoroutinefunction(get_response):

        async def asynchronous(request: HttpRequest) -> HttpResponse:
            response = await get_response(request)
            if _is_due(request):
                _writer.note(request.api_caller)  # type: ignore[attr-defined]
            return response

        return asynchronous

    def synchronous(request: HttpRequest) -> HttpResponse:
        response = get_response(request)
        if _is_due(request):
            _write(request.api_caller)  # type: ignore[attr-defined]  # by this thread's own connection
        return response

    return synchronous


def _is_due(request: HttpRequest) -> bool:
    caller: Caller | None = getattr(request, "api_caller", None)
    return caller is not None and (caller.last_used_at is None or caller.last_used_at < timezone.now() - PRECISION)


def _write(caller: Caller) -> None:
    now = timezone.now()
    stale = Q(last_used_at=None) | Q(last_used_at__lt=now - PRECISION)
    try:
        with tenant_scope(caller.tenant_id):
            ApiKey.objects.of_tenant(caller.tenant_id).filter(stale, id=caller.api_key_id).update(last_used_at=now)
    except Error as error:  # a connection that breaks in the middle is an InterfaceError, which is no DatabaseError
        logger.warning("the last use of an API key was not noted: %s", type(error).__name__)

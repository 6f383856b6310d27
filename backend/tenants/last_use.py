"""Notes when a key was last used, to the minute.

After the response and in a transaction of its own: inside the request's transaction the key's row would stay locked
until its end, and every other request with that key would queue behind it.
"""

import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.db import DatabaseError
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.decorators import sync_and_async_middleware

from backend.rest.async_queries import query
from backend.tenants.auth import Caller
from backend.tenants.models import ApiKey
from backend.tenants.scope import tenant_scope

logger = logging.getLogger(__name__)

PRECISION = timedelta(minutes=1)


@sync_and_async_middleware
def last_use(get_response: Callable[[HttpRequest], Any]) -> Callable[[HttpRequest], Any]:
    if iscoroutinefunction(get_response):

        async def asynchronous(request: HttpRequest) -> HttpResponse:
            response = await get_response(request)
            if _is_due(request):
                await query(_note)(request)
            return response

        return asynchronous

    def synchronous(request: HttpRequest) -> HttpResponse:
        response = get_response(request)
        if _is_due(request):
            _note(request)
        return response

    return synchronous


def _is_due(request: HttpRequest) -> bool:
    caller: Caller | None = getattr(request, "api_caller", None)
    return caller is not None and (caller.last_used_at is None or caller.last_used_at < timezone.now() - PRECISION)


def _note(request: HttpRequest) -> None:
    caller: Caller = request.api_caller  # type: ignore[attr-defined]
    now = timezone.now()
    stale = Q(last_used_at=None) | Q(last_used_at__lt=now - PRECISION)
    try:
        with tenant_scope(caller.tenant_id):
            ApiKey.objects.of_tenant(caller.tenant_id).filter(stale, id=caller.api_key_id).update(last_used_at=now)
    except DatabaseError:
        logger.warning("the last use of an API key was not noted", exc_info=True)

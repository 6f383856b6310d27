"""`Idempotency-Key`: a POST that is sent again does its work once.

The answer is kept in the transaction of the effect: either both are there or neither is, whatever is killed in
between. Only what succeeded is kept; a request that failed is tried anew by the same key. While one request works
under a key, another is told to wait: a transaction-long advisory lock says so, and the unique row stands behind it.
Answers may hold what is shown once (a new API key), so they are sealed at rest. `run_once` is the same for a form of
the console.
"""

import functools
import hashlib
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar
from uuid import UUID

from django.db import connection, transaction
from django.http import HttpResponse
from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from backend.domain.errors import Conflict, InvalidInput
from backend.tenants.models import KEPT_ANSWER, IdempotencyKey
from backend.tenants.sealing import seal, unseal

MAX_KEY = 255
KEPT_FOR = timedelta(days=30)
_KEPT_HEADERS = ("Location", "ETag")
_View = TypeVar("_View", bound=Callable[..., Any])
IDEMPOTENCY_KEY = OpenApiParameter(
    "Idempotency-Key",
    str,
    OpenApiParameter.HEADER,
    description="Send the same key with the same request again and it is done once.",
)


def idempotent(view: _View) -> _View:
    """Make the `post` of an atomic view obey `Idempotency-Key` where the request has one."""

    @functools.wraps(view)
    def wrapper(self: Any, request: Request, *args: Any, **kwargs: Any) -> Any:
        key = request.headers.get("Idempotency-Key")
        if key is None:
            return view(self, request, *args, **kwargs)
        if not (0 < len(key) <= MAX_KEY and key.isascii() and key.isprintable()):
            raise InvalidInput(
                f"An Idempotency-Key is 1 to {MAX_KEY} printable ASCII characters.", code="invalid_idempotency_key"
            )
        tenant_id: UUID = request.auth.tenant_id
        digest = _hash(request)
        _claim(tenant_id, key)
        kept = IdempotencyKey.objects.of_tenant(tenant_id).filter(key=key).first()
        if kept is not None:
            return _replay(kept, digest)
        response = view(self, request, *args, **kwargs)
        if isinstance(response, Response) and 200 <= response.status_code < 300:
            _keep(tenant_id, key, digest, response)
        return response

    return wrapper  # type: ignore[return-value]


def run_once(tenant_id: UUID, key: str, act: Callable[[], str]) -> str:
    """Return what `act` returned when it was called under this key for the first time, in the caller's transaction:
    the console's counterpart of `Idempotency-Key`, for a form that is sent twice.

    The second click waits for the first one's transaction and gets its answer; both are kept or neither is. An error
    of `act` keeps nothing, so that the next try is a first one."""
    if not connection.in_atomic_block:
        raise transaction.TransactionManagementError("What is done once needs a transaction.")
    assert 0 < len(key) <= MAX_KEY
    number = hashlib.sha256(b"once/" + tenant_id.bytes + key.encode()).digest()[:8]
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [int.from_bytes(number, signed=True)])
    kept = IdempotencyKey.objects.of_tenant(tenant_id).filter(key=key).first()
    if kept is not None:
        return unseal(tenant_id, bytes(kept.body), purpose=KEPT_ANSWER).decode()
    answer = act()
    IdempotencyKey.objects.create(
        tenant_id=tenant_id,
        key=key,
        request_hash=hashlib.sha256(key.encode()).hexdigest(),
        status=303,
        headers={},
        body=seal(tenant_id, answer.encode(), purpose=KEPT_ANSWER),
    )
    return answer


def _hash(request: Request) -> str:
    """Hash method, address and body as they came; a key may be used again for exactly this."""
    raw = request._request
    text = f"{raw.method}\n{raw.get_full_path()}\n".encode()
    # a body that was streamed is gone; its reader has left its digest here
    streamed: bytes | None = getattr(raw, "streamed_sha256", None)
    return hashlib.sha256(text + (raw.body if streamed is None else streamed)).hexdigest()


def _claim(tenant_id: UUID, key: str) -> None:
    """Hold the key until the transaction ends. Raises Conflict while another transaction does."""
    if not connection.in_atomic_block:
        raise transaction.TransactionManagementError("An idempotent view needs a transaction.")
    number = hashlib.sha256(b"idempotency/" + tenant_id.bytes + key.encode()).digest()[:8]
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [int.from_bytes(number, signed=True)])
        (is_ours,) = cursor.fetchone()
    if not is_ours:
        raise Conflict(
            "A request with this Idempotency-Key is in progress; send it again for its answer.",
            code="idempotency_in_flight",
        )


def _keep(tenant_id: UUID, key: str, digest: str, response: Response) -> None:
    _forget_old(tenant_id)
    IdempotencyKey.objects.create(
        tenant_id=tenant_id,
        key=key,
        request_hash=digest,
        status=response.status_code,
        headers={name: response[name] for name in _KEPT_HEADERS if name in response},
        body=seal(tenant_id, JSONRenderer().render(response.data), purpose=KEPT_ANSWER),
    )


def _forget_old(tenant_id: UUID) -> None:
    """Delete a few old rows of the tenant that adds one: no process may look into all tenants."""
    old = (
        IdempotencyKey.objects.of_tenant(tenant_id)
        .filter(created_at__lt=timezone.now() - KEPT_FOR)
        .order_by("created_at")
        .only("id")
        .select_for_update(skip_locked=True)[:20]
    )
    ids = [row.id for row in old]
    if ids:
        IdempotencyKey.objects.of_tenant(tenant_id).filter(id__in=ids).delete()


def _replay(kept: IdempotencyKey, digest: str) -> HttpResponse:
    if kept.request_hash != digest:
        raise InvalidInput(
            "This Idempotency-Key was used for another request; use a new key for a new request.",
            code="idempotency_key_reuse",
        )
    body = unseal(kept.tenant_id, bytes(kept.body), purpose=KEPT_ANSWER)
    response = HttpResponse(body, status=kept.status, content_type="application/json")
    for name, value in kept.headers.items():
        response[name] = value
    response["Idempotent-Replayed"] = "true"
    return response

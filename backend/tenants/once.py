"""A form that is sent twice does its work once: the console's counterpart of `Idempotency-Key`.

The second click waits for the first one's transaction and gets its answer; both are kept or neither is.
"""

import hashlib
from collections.abc import Callable
from uuid import UUID

from django.db import connection, transaction

from backend.tenants.idempotency import MAX_KEY
from backend.tenants.models import KEPT_ANSWER, IdempotencyKey
from backend.tenants.sealing import seal, unseal


def once(tenant_id: UUID, key: str, act: Callable[[], str]) -> str:
    """What `act` returned when it was called under this key for the first time, in the caller's transaction. An error
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

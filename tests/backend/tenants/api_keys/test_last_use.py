"""The thread that notes when keys were last used goes on, whatever happens to it."""

import time
from uuid import UUID

import pytest

from backend.domain.ids import Prefix
from backend.tenants.api_keys.authentication import Caller
from backend.tenants.api_keys.key_format import hash_of
from backend.tenants.api_keys.last_use import LastUseWriter
from backend.tenants.isolation import tenant_scope
from backend.tenants.models import ApiKey
from tests.factories import make_api_key, make_tenant

pytestmark = pytest.mark.usefixtures("committed_db")


def caller_of(tenant_id: UUID, key_id: UUID) -> Caller:
    return Caller(tenant_id=tenant_id, api_key_id=key_id, scopes=frozenset(), is_live=True, last_used_at=None)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_error_that_ends_the_thread_ends_the_notes_of_one_key_alone() -> None:
    tenant = make_tenant()
    secret, writer = make_api_key(tenant), LastUseWriter()
    with tenant_scope(tenant.id):
        key = ApiKey.objects.get(key_hash=hash_of(secret))
    writer.note(caller_of(tenant.id, Prefix.API_KEY))  # type: ignore[arg-type]  # no id: an error nobody foresaw
    assert writer._thread is not None
    writer._thread.join(20)
    assert not writer._thread.is_alive()
    writer.note(caller_of(tenant.id, key.id))
    ends = time.monotonic() + 20
    while key.last_used_at is None and time.monotonic() < ends:
        time.sleep(0.02)
        with tenant_scope(tenant.id):
            key.refresh_from_db()
    assert key.last_used_at is not None

"""The authentication of a request: a Bearer API key gives the tenant, and the transaction is bound to that tenant from
there on.

The key's row is found before the tenant is known. The policy on the keys' table therefore shows one row to a
transaction that has put that row's key hash into `app.key_hash`: whoever knows the hash of a key may see that key's
row, and nothing else.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING
from uuid import UUID

from django.db import connection, transaction
from django.utils import timezone
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import AuthenticationFailed, NotAuthenticated
from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from backend.domain.ids import Prefix, encode_id
from backend.tenants.actors import Actor
from backend.tenants.api_keys.key_format import hash_of, is_well_formed
from backend.tenants.isolation import set_local, tenant_token
from backend.tenants.models import ApiKey

if TYPE_CHECKING:  # DRF imports this module while it imports its views
    from rest_framework.views import APIView


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """`request.auth` of every request with an API key."""

    tenant_id: UUID
    api_key_id: UUID
    scopes: frozenset[str]
    is_live: bool
    last_used_at: datetime | None

    @property
    def actor(self) -> Actor:
        return Actor(kind="api_key", id=encode_id(Prefix.API_KEY, self.api_key_id))


class ApiKeyAuthentication(BaseAuthentication):
    """`Authorization: Bearer sk_live_...`. In an atomic view the rest of the transaction acts for the key's tenant; a
    view that is not atomic opens its own `tenant_scope(request.auth.tenant_id)`."""

    def authenticate(self, request: Request) -> tuple[None, Caller] | None:
        header = request.headers.get("Authorization", "")
        scheme, _, presented = header.partition(" ")
        if not header:
            return None
        if scheme.lower() != "bearer":
            raise AuthenticationFailed("Send the API key as `Authorization: Bearer sk_...`.", code="invalid_api_key")
        caller = authenticate(presented.strip())
        request._request.api_caller = caller  # for `last_use`, which sees Django's request alone
        return None, caller

    def authenticate_header(self, request: Request) -> str:
        return 'Bearer realm="kolm"'


class IsTenant(BasePermission):
    """The default: every view is for callers with a key, unless it says otherwise."""

    def has_permission(self, request: Request, view: "APIView") -> bool:
        if not isinstance(request.auth, Caller):
            raise NotAuthenticated("Send an API key as `Authorization: Bearer sk_...`.", code="missing_api_key")
        return True


def authenticate(presented: str) -> Caller:
    """The caller behind a key, with the transaction under way bound to its tenant. Raises AuthenticationFailed."""
    if not is_well_formed(presented):
        raise AuthenticationFailed(
            "This is not an API key; copy it whole, with sk_live_ or sk_test_.", code="invalid_api_key"
        )
    with transaction.atomic():
        set_local("app.key_hash", hash_of(presented))
        row = ApiKey.objects.filter(key_hash=hash_of(presented)).first()
        bound_to = tenant_token(row.tenant_id) if row else ""
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT set_config('app.key_hash', '', true), set_config('app.tenant', %s, true)", [bound_to]
            )
    if row is None:
        raise AuthenticationFailed(
            "There is no such API key here; was it made on another installation?", code="invalid_api_key"
        )
    if row.revoked_at is not None:
        raise AuthenticationFailed(
            "This API key was revoked; use another, or make one under /v1/api_keys.", code="api_key_revoked"
        )
    if row.expires_at is not None and row.expires_at <= timezone.now():
        raise AuthenticationFailed(
            "This API key has expired; use another, or make one under /v1/api_keys.", code="api_key_expired"
        )
    return Caller(
        tenant_id=row.tenant_id,
        api_key_id=row.id,
        scopes=frozenset(row.scopes),
        is_live=row.is_live,
        last_used_at=row.last_used_at,
    )

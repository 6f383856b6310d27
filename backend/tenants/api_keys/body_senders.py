"""The sender of a body to the API: the tenant whose key comes with it."""

from django.db import transaction
from rest_framework.exceptions import AuthenticationFailed

from backend.tenants.api_keys.authentication import authenticate


def sender_by_key(path: str, authorization: str) -> str | None:
    """None for a key that opens nothing. The view says why."""
    scheme, _, presented = authorization.partition(" ")
    if scheme.lower() != "bearer":
        return None
    try:
        with transaction.atomic():
            return f"tenant {authenticate(presented.strip()).tenant_id}"
    except AuthenticationFailed:
        return None

"""Secrets at rest: AES-256-GCM under the deployment's sealing key, bound to the tenant (a value copied to another
tenant's row does not open)."""

import base64
import os
from uuid import UUID

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from django.conf import settings

from backend.domain.errors import OurError

_FORMAT = b"\x01"  # in front of every sealed value, so that the key or the cipher can be changed one day
_NONCE_BYTES = 12


def seal(tenant_id: UUID, secret: bytes, *, purpose: bytes = b"") -> bytes:
    """`purpose` (e.g. the row's kind) is bound in as the tenant is, and must be the same to open."""
    nonce = os.urandom(_NONCE_BYTES)
    return _FORMAT + nonce + _cipher().encrypt(nonce, secret, tenant_id.bytes + purpose)


def unseal(tenant_id: UUID, sealed: bytes, *, purpose: bytes = b"") -> bytes:
    """Raises OurError when the value was altered, is another tenant's, or was sealed under another key."""
    nonce, body = sealed[1 : 1 + _NONCE_BYTES], sealed[1 + _NONCE_BYTES :]
    try:
        if sealed[:1] != _FORMAT:
            raise InvalidTag
        return _cipher().decrypt(nonce, body, tenant_id.bytes + purpose)
    except (InvalidTag, ValueError):
        raise OurError(
            "A stored secret does not open with this deployment's KOLM_SEALING_KEY; store it again.",
            code="sealed_value_broken",
        ) from None


def _cipher() -> AESGCM:
    return AESGCM(base64.b64decode(settings.KOLM_SEALING_KEY))

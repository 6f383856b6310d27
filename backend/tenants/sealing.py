"""Secrets at rest: AES-256-GCM under the installation's sealing key, bound to the tenant (a value copied to another
tenant's row does not open).

A sealed value is a format byte, the id of its key, a nonce and the ciphertext. The id says which of the configured keys
opens it, so that the key can be changed: one seals (KOLM_SEALING_KEY), the others only open (KOLM_SEALING_KEYS_OTHER).
Values of before have no id and are tried with every key.
"""

import base64
import hashlib
import os
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any
from uuid import UUID

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from django.conf import settings
from django.db import models

from backend.domain.errors import OurError

WITHOUT_ID = b"\x01"  # format byte, nonce, ciphertext: what was sealed before keys had ids
_WITH_ID = b"\x02"
_ID_BYTES = 8
_NONCE_BYTES = 12
HEAD_BYTES = 1 + _ID_BYTES

_Purpose = Callable[[Any], bytes]


class SealedField(models.BinaryField):  # type: ignore[type-arg]
    """A column of sealed values; what is declared as one is found by `rotate_sealing_key`. `purpose` is what they are
    bound to beside the tenant, or gives it for a row. To migrations it is the BinaryField that the database knows."""

    def __init__(self, *args: Any, purpose: bytes | _Purpose = b"", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._purpose = purpose

    def purpose_of(self, row: models.Model) -> bytes:
        return self._purpose if isinstance(self._purpose, bytes) else self._purpose(row)

    def deconstruct(self) -> Any:
        name, _, args, kwargs = super().deconstruct()
        return name, "django.db.models.BinaryField", args, kwargs


def seal(tenant_id: UUID, secret: bytes, *, purpose: bytes = b"") -> bytes:
    """`purpose` (e.g. the row's kind) is bound in as the tenant is, and must be the same to open."""
    nonce = os.urandom(_NONCE_BYTES)
    sealed = _cipher(settings.KOLM_SEALING_KEY).encrypt(nonce, secret, tenant_id.bytes + purpose)
    return current_head() + nonce + sealed


def unseal(tenant_id: UUID, sealed: bytes, *, purpose: bytes = b"") -> bytes:
    """Raises OurError when the value was altered, is another tenant's, or was sealed under a key that is not here."""
    return open_with(tenant_id, sealed, purpose=purpose)[1]


def open_with(tenant_id: UUID, sealed: bytes, *, purpose: bytes = b"") -> tuple[str, bytes]:
    """The key that opens a value, and what was sealed. Raises OurError as `unseal` does."""
    start = 1 if sealed[:1] == WITHOUT_ID else HEAD_BYTES
    nonce, body = sealed[start : start + _NONCE_BYTES], sealed[start + _NONCE_BYTES :]
    for key in _candidates(sealed):
        try:
            return key, _cipher(key).decrypt(nonce, body, tenant_id.bytes + purpose)
        except (InvalidTag, ValueError):
            continue
    raise OurError(
        "A stored secret does not open with this installation's sealing keys"
        " (KOLM_SEALING_KEY, KOLM_SEALING_KEYS_OTHER); store it again.",
        code="sealed_value_broken",
    )


def current_head() -> bytes:
    """Return the first bytes of every value that the present key has sealed."""
    return _WITH_ID + _id_bytes(settings.KOLM_SEALING_KEY)


def key_id(key: str) -> str:
    """16 hexadecimal digits that tell keys apart and say nothing about them."""
    return _id_bytes(key).hex()


def _candidates(sealed: bytes) -> Iterator[str]:
    keys = (settings.KOLM_SEALING_KEY, *settings.KOLM_SEALING_KEYS_OTHER)
    if sealed[:1] == WITHOUT_ID:
        yield from keys
    elif sealed[:1] == _WITH_ID:
        yield from (key for key in keys if _id_bytes(key) == sealed[1:HEAD_BYTES])


@lru_cache(maxsize=16)
def _id_bytes(key: str) -> bytes:
    return hashlib.sha256(b"kolm/sealing key/" + base64.b64decode(key)).digest()[:_ID_BYTES]


@lru_cache(maxsize=16)
def _cipher(key: str) -> AESGCM:
    return AESGCM(base64.b64decode(key))

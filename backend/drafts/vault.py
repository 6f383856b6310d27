"""The secret of one task family: its texts are sealed with it and its vectors rotated by it.

A family's key is made at its first draft and sealed under the installation's key. Whoever deletes it has deleted the
texts (crypto-shredding), in every copy of the table. The rotation is an orthogonal matrix drawn from the key: cosines
within a family stay what they were, between families they mean nothing, so a filter that is forgotten finds no hit.
"""

import base64
import hashlib
import hmac
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any
from uuid import UUID

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from django.db import connection

from backend.domain.errors import OurError
from backend.drafts.models import FamilyKey, family_key_purpose
from backend.tenants.sealing import seal, unseal

_NONCE_BYTES = 12
_KEY_BYTES = 32
MAX_DIMENSIONS = 1280  # of a halfvec in an index: a B-tree's entry has room for 2.7 kB


@dataclass(frozen=True, slots=True)
class Vault:
    """Never logged, never pickled: holds the key in the clear."""

    tenant_id: UUID
    family: str
    _key: bytes
    _cipher: AESGCM = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_cipher", AESGCM(self._key))  # made once: thousands of texts are opened at a time

    def __repr__(self) -> str:
        return f"Vault({self.tenant_id}, {self.family!r})"

    def seal(self, text: str) -> bytes:
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, text.encode(), self.tenant_id.bytes)

    def unseal(self, sealed: bytes) -> str:
        """Raises OurError for what another family sealed, or what was altered."""
        try:
            opened = self._cipher.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], self.tenant_id.bytes)
        except (InvalidTag, ValueError):
            raise OurError("A stored draft does not open with its family's key.", code="sealed_value_broken") from None
        return opened.decode()

    def seal_json(self, value: Any) -> bytes:
        return self.seal(json.dumps(value, ensure_ascii=False, separators=(",", ":")))

    def unseal_json(self, sealed: bytes) -> Any:
        return json.loads(self.unseal(sealed))

    def mac(self, *parts: str) -> bytes:
        """16 bytes that name a text within the family and tell nothing of it to who has not the key."""
        message = b"\x00".join(part.encode() for part in parts)
        return hmac.new(self._derive(b"mac"), message, hashlib.sha256).digest()[:16]

    def rotate(self, vectors: "np.ndarray[Any, np.dtype[np.float32]]") -> "np.ndarray[Any, np.dtype[np.float32]]":
        """(n, d) float32 unit rows in, (n, min(d, MAX_DIMENSIONS)) rotated unit rows out. Wider ones are cut after the
        rotation, which is a random projection: cosines move by about 1 / sqrt(MAX_DIMENSIONS)."""
        rows = np.asarray(vectors, dtype=np.float32)
        turned = rows @ _rotation(self._derive(b"rotation"), rows.shape[1])
        if turned.shape[1] > MAX_DIMENSIONS:
            turned = turned[:, :MAX_DIMENSIONS]
            turned /= np.linalg.norm(turned, axis=1, keepdims=True)
        return np.ascontiguousarray(turned, dtype=np.float32)

    def _derive(self, purpose: bytes) -> bytes:
        return hmac.new(self._key, b"kolm/draft/" + purpose, hashlib.sha256).digest()


def open_vault(tenant_id: UUID, family: str) -> Vault | None:
    """The family's vault, inside the tenant's scope; None when the family has no drafts (any more)."""
    row = FamilyKey.objects.filter(tenant_id=tenant_id, family=family).first()
    return None if row is None else _open(tenant_id, family, bytes(row.sealed))


def make_vault(tenant_id: UUID, family: str) -> Vault:
    """The family's vault, made if it is the first time; two processes that make it at once get the same one. Its key is
    held until the transaction ends: a purge waits for what is written under it, and takes that with it."""
    while True:
        key = base64.b64encode(os.urandom(_KEY_BYTES))
        FamilyKey.objects.bulk_create(
            [
                FamilyKey(
                    tenant_id=tenant_id, family=family, sealed=seal(tenant_id, key, purpose=family_key_purpose(family))
                )
            ],
            ignore_conflicts=True,
        )
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT sealed FROM drafts_familykey WHERE tenant_id = %s AND family = %s FOR KEY SHARE",
                [tenant_id, family],
            )
            row = cursor.fetchone()
        if row is not None:  # else it was purged between the two statements
            return _open(tenant_id, family, bytes(row[0]))


def _open(tenant_id: UUID, family: str, sealed: bytes) -> Vault:
    return Vault(tenant_id, family, base64.b64decode(unseal(tenant_id, sealed, purpose=family_key_purpose(family))))


@lru_cache(maxsize=64)
def _rotation(seed: bytes, d: int) -> "np.ndarray[Any, np.dtype[np.float32]]":
    """A (d, d) orthogonal matrix, uniform over them (QR of a Gaussian matrix with the signs of R's diagonal put
    right: Mezzadri 2007)."""
    rng = np.random.Generator(np.random.PCG64(int.from_bytes(seed, "big")))
    q, r = np.linalg.qr(rng.standard_normal((d, d)))
    return np.asarray(q * np.sign(np.diag(r)), dtype=np.float32)


def as_float16(values: Sequence[float]) -> bytes:
    return np.asarray(values, dtype=np.float16).tobytes()


def from_float16(data: bytes) -> tuple[float, ...]:
    return tuple(float(value) for value in np.frombuffer(data, dtype=np.float16))

"""The deployment's signing key and the keyring that customers pin."""

import base64
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key
from django.conf import settings

from backend.domain.receipts import keyid, sign_envelope


@cache
def signing_key() -> Ed25519PrivateKey:
    """The Ed25519 key in KOLM_SIGNING_KEY_FILE (PEM, PKCS#8)."""
    key = load_pem_private_key(Path(settings.KOLM_SIGNING_KEY_FILE).read_bytes(), password=None)
    if not isinstance(key, Ed25519PrivateKey):
        raise TypeError("KOLM_SIGNING_KEY_FILE must hold an Ed25519 key.")
    return key


def public_raw() -> bytes:
    return signing_key().public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)


def sign_document(payload: bytes, payload_type: str) -> dict[str, Any]:
    """A DSSE envelope of ours around a document of ours."""
    return sign_envelope(payload, signing_key(), payload_type=payload_type)


def keyring() -> dict[str, Any]:
    """The public keys of this deployment, as `kolm trust` pins them. Validity starts with the key file's own time."""
    raw = public_raw()
    born = datetime.fromtimestamp(Path(settings.KOLM_SIGNING_KEY_FILE).stat().st_mtime, UTC).replace(microsecond=0)
    return {
        "keys": [
            {
                "keyid": keyid(raw),
                "public_key": base64.b64encode(raw).decode(),
                "name": settings.KOLM_PUBLIC_URL,
                "not_before": born.isoformat().replace("+00:00", "Z"),
                "not_after": born.replace(year=born.year + 2, day=min(born.day, 28)).isoformat().replace("+00:00", "Z"),
                "revoked_at": None,
            }
        ]
    }

"""The deployment's signing key and the keyring that customers pin.

The private half is a file, the dates are in the key's document (`SigningKey`): a file's modification time moves with
every restore, copy and mount, and with it moved the trust in everything that the key had signed.
"""

import base64
import logging
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key
from django.conf import settings

from backend.artifacts.models import SigningKey
from backend.domain.artifact.receipts import keyid, sign_envelope

log = logging.getLogger("kolm.signing")

# Of a key that was made before keys had documents: what it signed must stay trusted, and a customer may hold artifacts
# that no table here knows any more.
ALWAYS = datetime(1970, 1, 1, tzinfo=UTC)
# Of a key that nobody has retired. A date that comes by itself would end the trust in new artifacts on some night, and
# stop no thief: he chooses the date that he signs.
NEVER = "9999-12-31T23:59:59Z"


def signing_key() -> Ed25519PrivateKey:
    """The Ed25519 key in KOLM_SIGNING_KEY_FILE (PEM, PKCS#8). Read again when the file is another one, so that a
    rotation reaches every running process with its next signature."""
    path = Path(settings.KOLM_SIGNING_KEY_FILE)
    stat = path.stat()
    return _load(path, (stat.st_ino, stat.st_mtime_ns, stat.st_size))


@lru_cache(maxsize=1)
def _load(path: Path, version: tuple[int, ...]) -> Ed25519PrivateKey:
    return load_signing_key(path)


def load_signing_key(path: Path) -> Ed25519PrivateKey:
    """Raises ValueError and TypeError for what is no such key, OSError for what cannot be read."""
    key = load_pem_private_key(path.read_bytes(), password=None)
    if not isinstance(key, Ed25519PrivateKey):
        raise TypeError("KOLM_SIGNING_KEY_FILE must hold an Ed25519 key.")
    return key


def raw_of(key: Ed25519PrivateKey) -> bytes:
    """The public half, 32 bytes."""
    return key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)


def public_raw() -> bytes:
    return raw_of(signing_key())


def sign_document(payload: bytes, payload_type: str) -> dict[str, Any]:
    """A DSSE envelope of ours around a document of ours."""
    return sign_envelope(payload, signing_key(), payload_type=payload_type)


def valid_from(public: bytes) -> datetime:
    """Return when a key of ours began to vouch for artifacts."""
    document = SigningKey.objects.filter(keyid=keyid(public)).first()
    return ALWAYS if document is None else document.not_before


def keyring() -> dict[str, Any]:
    """The public keys of this installation with their windows, as `kolm trust` pins them: the one that signs, retired
    ones, which vouch for what they signed in their time, and revoked ones, which vouch for nothing."""
    documents = list(SigningKey.objects.order_by("not_before", "keyid"))
    own = public_raw()
    if all(document.keyid != keyid(own) for document in documents):
        _warn_once(keyid(own))
        documents.append(SigningKey(keyid=keyid(own), public_key=own, not_before=ALWAYS))
    return {"keys": [_entry(document) for document in documents]}


def _entry(document: SigningKey) -> dict[str, Any]:
    raw = bytes(document.public_key)
    return {
        "keyid": document.keyid,
        "public_key": base64.b64encode(raw).decode(),
        "name": settings.KOLM_PUBLIC_URL,
        "not_before": utc_text(document.not_before),
        "not_after": NEVER if document.not_after is None else utc_text(document.not_after),
        "revoked_at": None if document.revoked_at is None else utc_text(document.revoked_at),
    }


def utc_text(at: datetime) -> str:
    """Whole seconds, as keyrings and manifests write times."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@lru_cache(maxsize=8)
def _warn_once(key: str) -> None:
    log.warning("the signing key %s has no document; run `KOLM_DB_ROLE=owner manage.py install_signing_key`", key)

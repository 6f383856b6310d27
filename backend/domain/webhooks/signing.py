"""Standard Webhooks 1.0 signatures (https://www.standardwebhooks.com): what is signed is `id.timestamp.body`.

    v1   HMAC-SHA256; the secret is `whsec_` and base64 of 24 to 64 bytes, ours of 32
    v1a  Ed25519; we keep `whsk_` (base64 of seed and public key, 64 bytes), receivers get `whpk_` (32 bytes)

The header holds a list of signatures, so that a secret can be rolled: while two are valid, both sign. Randomness and
clocks come in as arguments.
"""

import base64
import binascii
import hmac
from collections.abc import Mapping, Sequence
from enum import StrEnum
from hashlib import sha256

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

SECRET_BYTES = 32
TOLERANCE_S = 300


class Scheme(StrEnum):
    V1 = "v1"
    V1A = "v1a"


class NotSigned(Exception):
    """No signature of these headers is by one of these keys, or they are too old or too new."""


def new_secret(scheme: Scheme, random_bytes: bytes) -> str:
    """The secret of an endpoint from 32 random bytes: `whsec_...` or `whsk_...`."""
    if len(random_bytes) != SECRET_BYTES:
        raise ValueError(f"a secret is made of {SECRET_BYTES} bytes, not {len(random_bytes)}")
    if scheme is Scheme.V1:
        return "whsec_" + _encode(random_bytes)
    return "whsk_" + _encode(random_bytes + _public_raw(random_bytes))


def public_key(secret: str) -> str:
    """The `whpk_...` of a `whsk_...`."""
    return "whpk_" + _encode(_public_raw(_decode(secret, "whsk_")[:32]))


def signature(secret: str, message_id: str, timestamp: int, body: bytes) -> str:
    """`v1,...` by a `whsec_` secret, `v1a,...` by a `whsk_` one. `timestamp` is in Unix seconds."""
    signed = _signed_content(message_id, timestamp, body)
    if secret.startswith("whsk_"):
        seed = _decode(secret, "whsk_")[:32]
        return "v1a," + _encode(Ed25519PrivateKey.from_private_bytes(seed).sign(signed))
    return "v1," + _encode(hmac.new(_decode(secret, "whsec_"), signed, sha256).digest())


def signed_headers(secrets: Sequence[str], message_id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """The three headers of an attempt; the newest secret first."""
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(signature(secret, message_id, timestamp, body) for secret in secrets),
    }


def verify(key: str, headers: Mapping[str, str], body: bytes, *, now: int) -> None:
    """Raises NotSigned unless `body` was signed by `key` (`whsec_`, or the `whpk_` of a `whsk_`) within five minutes of
    `now`. Header names are read in any case."""
    lowered = {name.lower(): value for name, value in headers.items()}
    try:
        message_id, stamp = lowered["webhook-id"], lowered["webhook-timestamp"]
        signatures = lowered["webhook-signature"].split(" ")
    except KeyError as missing:
        raise NotSigned(f"there is no header {missing}") from None
    if not (stamp.isascii() and stamp.isdigit()) or len(stamp) > 12 or abs(now - int(stamp)) > TOLERANCE_S:
        raise NotSigned("the timestamp is not within five minutes")
    if not any(_is_by(key, each, message_id, int(stamp), body) for each in signatures):
        raise NotSigned("no signature is by this key")


def _is_by(key: str, entry: str, message_id: str, timestamp: int, body: bytes) -> bool:
    version, _, encoded = entry.partition(",")
    if key.startswith("whsec_"):
        expected = signature(key, message_id, timestamp, body)
        return version == Scheme.V1 and hmac.compare_digest(entry.encode(), expected.encode())
    if version != Scheme.V1A:
        return False
    try:
        raw = base64.b64decode(encoded, validate=True)
        Ed25519PublicKey.from_public_bytes(_decode(key, "whpk_")).verify(
            raw, _signed_content(message_id, timestamp, body)
        )
    except (InvalidSignature, binascii.Error, ValueError):
        return False
    return True


def _signed_content(message_id: str, timestamp: int, body: bytes) -> bytes:
    if "." in message_id:
        raise ValueError("an id with a dot could be read as another id and time")
    return f"{message_id}.{timestamp}.".encode() + body


def _public_raw(seed: bytes) -> bytes:
    public = Ed25519PrivateKey.from_private_bytes(seed).public_key()
    return public.public_bytes(Encoding.Raw, PublicFormat.Raw)


def _encode(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def _decode(text: str, prefix: str) -> bytes:
    if not text.startswith(prefix):
        raise ValueError(f"a key of another kind; this one begins with {prefix}")
    return base64.b64decode(text.removeprefix(prefix), validate=True)

"""The signing secrets of endpoints: made here, sealed in the row, opened to sign and on explicit request."""

import os
from datetime import datetime

from backend.domain.webhooks.signing import SECRET_BYTES, Scheme, new_secret, public_key
from backend.tenants.sealing import seal, unseal
from backend.webhooks.models import SECRET, WebhookEndpoint


def make_secret(row: WebhookEndpoint) -> str:
    """A new secret, put sealed into the row (which the caller saves)."""
    secret = new_secret(Scheme(row.signature), os.urandom(SECRET_BYTES))
    row.secret = seal(row.tenant_id, secret.encode(), purpose=SECRET)
    return secret


def signing_secrets(row: WebhookEndpoint, now: datetime) -> tuple[str, ...]:
    """Return what signs now: the secret, and the one before it while the overlap lasts."""
    sealed = [bytes(row.secret)]
    if row.old_secret is not None and row.old_secret_until is not None and row.old_secret_until > now:
        sealed.append(bytes(row.old_secret))
    return tuple(unseal(row.tenant_id, each, purpose=SECRET).decode() for each in sealed)


def receiver_secrets(secret: str) -> dict[str, str | None]:
    """Return what a receiver needs: of a `v1` endpoint the shared secret, of a `v1a` one the public key alone."""
    if secret.startswith("whsk_"):
        return {"secret": None, "public_key": public_key(secret)}
    return {"secret": secret, "public_key": None}

"""The deployment's secrets: made once, kept in $KOLM_HOME/secrets.json (0600), read ever after."""

import base64
import dataclasses
import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from deploy.embedded.faults import CannotStart
from deploy.embedded.home import Home, replace_private


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    django_secret_key: str
    tenant_token_key: str  # 32 bytes, hex: signs the tenant that row-level security believes
    sealing_key: str  # 32 bytes, base64: seals customers' teacher keys at rest
    runner_token: str
    postgres_superuser_password: str
    postgres_owner_password: str
    postgres_app_password: str
    valkey_password: str
    sealing_keys_other: Sequence[str] = ()  # open what they sealed, and seal nothing (docs/keys.md)


def new_credentials() -> Credentials:
    return Credentials(
        django_secret_key=secrets.token_urlsafe(48),
        tenant_token_key=secrets.token_hex(32),
        sealing_key=base64.b64encode(secrets.token_bytes(32)).decode(),
        runner_token=secrets.token_urlsafe(32),
        postgres_superuser_password=secrets.token_urlsafe(24),
        postgres_owner_password=secrets.token_urlsafe(24),
        postgres_app_password=secrets.token_urlsafe(24),
        valkey_password=secrets.token_urlsafe(24),
    )


def load_or_create(home: Home) -> Credentials:
    """Raises CannotStart when secrets.json is there but is not ours: made-up secrets would lock the data away."""
    if not home.signing_key.exists():
        replace_private(home.signing_key, _new_signing_key())
    if not home.secrets.exists():
        replace_private(home.secrets, json.dumps(dataclasses.asdict(new_credentials()), indent=2) + "\n")
    try:
        return Credentials(**json.loads(home.secrets.read_text()))
    except (ValueError, TypeError):
        raise CannotStart(
            f"{home.secrets} is damaged; restore it, or start afresh with `python -m deploy.embedded wipe`."
        ) from None


def _new_signing_key() -> str:
    key = Ed25519PrivateKey.generate()
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()

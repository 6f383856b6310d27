"""The embedded stack's secrets.json, changed by the commands that change keys; other deployments keep secrets in an
environment that no command of ours can write."""

import json
from typing import Any

from django.conf import settings

from backend.domain.errors import Conflict
from backend.rest.private_files import replace_private


def read_secrets() -> dict[str, Any]:
    """Raises Conflict where this deployment has no such file."""
    if settings.KOLM_SECRETS_FILE is None or not settings.KOLM_SECRETS_FILE.is_file():
        raise Conflict("This deployment's secrets are in its environment, where no command can write (docs/keys.md).")
    found: dict[str, Any] = json.loads(settings.KOLM_SECRETS_FILE.read_text())
    return found


def change_secrets(**changed: Any) -> None:
    """Replace some of them in one step. Processes read the file when they are started."""
    replace_private(settings.KOLM_SECRETS_FILE, json.dumps(read_secrets() | changed, indent=2) + "\n")

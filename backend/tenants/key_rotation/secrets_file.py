"""The embedded stack's secrets.json, changed by the commands that change keys; other installations keep secrets in an
environment that no command of ours can write."""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.conf import settings

from backend.domain.errors import Conflict
from backend.rest.private_files import replace_private


def read_secrets() -> dict[str, Any]:
    """Raises Conflict where this installation has no such file."""
    if settings.KOLM_SECRETS_FILE is None or not settings.KOLM_SECRETS_FILE.is_file():
        raise Conflict("This installation's secrets are in its environment, where no command can write (docs/keys.md).")
    secrets: dict[str, Any] = json.loads(settings.KOLM_SECRETS_FILE.read_text())
    return secrets


@contextmanager
def changing_secrets() -> Iterator[dict[str, Any]]:
    """The secrets, to be changed in place and written in one step when the block ends well. One at a time: of two that
    write what they read before, the second would take the first one's key away again. Processes read the file when they
    are started. Raises Conflict where there is none."""
    read_secrets()
    folder = os.open(settings.KOLM_SECRETS_FILE.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        kept = read_secrets()
        yield kept
        replace_private(settings.KOLM_SECRETS_FILE, json.dumps(kept, indent=2) + "\n")
    finally:
        os.close(folder)

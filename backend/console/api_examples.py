"""A page's request to the API as one line of shell: what a page shows, anyone may fetch with a key."""

import json
import shlex
from typing import Any

from django.conf import settings

KEY = '-H "Authorization: Bearer $KOLM_API_KEY"'


def curl_line(method: str, path: str, body: Any = None) -> str:
    """Runs as it stands where KOLM_API_KEY is set. POSTs carry an idempotency key, as our clients' do."""
    parts = ["curl -s"]
    if method == "DELETE" or (method != "GET" and body is None) or method in ("PUT", "PATCH"):
        parts.append(f"-X {shlex.quote(method)}")
    parts += [shlex.quote(f"{settings.KOLM_PUBLIC_URL}{path}"), KEY]
    if method == "POST":
        parts.append('-H "Idempotency-Key: $(uuidgen)"')
    if body is not None:
        text = body if isinstance(body, str) else json.dumps(body, ensure_ascii=False)
        parts += ['-H "Content-Type: application/json"', f"-d {shlex.quote(text)}"]
    return " ".join(parts)

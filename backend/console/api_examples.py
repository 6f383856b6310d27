"""A page's request to the API as one line of shell: what a page shows, anyone may fetch with a key."""

import json
import shlex
from typing import Any

from django.conf import settings

KEY = '-H "Authorization: Bearer $KOLM_API_KEY"'
ANEW = '-H "Idempotency-Key: $(date +%s)-$RANDOM"'  # what every shell has, unlike uuidgen
_ROWS = {
    "refund": ["I want my money back", "Please refund this order", "Give me a refund now", "Undo this charge, please"],
    "other": ["Where is my parcel?", "When do you open?", "Thanks for the quick help", "I forgot my password"],
}
SMALL_SPEC = {  # compiles as it stands, with the built-in teacher; eight examples cannot carry a higher gate
    "name": "refund-or-not",
    "task": "Say whether a customer asks for money back.",
    "output": {"type": "label", "labels": [{"name": name} for name in _ROWS]},
    "teacher": {"provider": "grammar", "model": "kolm-grammar-1"},
    "sampling": {"n_candidates": 24},
    "gate": {"min_heldout": 4, "accuracy_lower": 0.2, "k_min": 0.3},
    "examples": {
        "holdout": 0.5,
        "inline": [{"input": text, "output": name} for name, texts in _ROWS.items() for text in texts],
    },
    "budget": {"usd": 1},
}


def curl_line(method: str, path: str, body: Any = None) -> str:
    """Runs as it stands where KOLM_API_KEY is set. POSTs carry an idempotency key, as our clients' do."""
    parts = ["curl -s"]
    if method == "DELETE" or (method != "GET" and body is None) or method in ("PUT", "PATCH"):
        parts.append(f"-X {shlex.quote(method)}")
    parts += [shlex.quote(f"{settings.KOLM_PUBLIC_URL}{path}"), KEY]
    if method == "POST":
        parts.append(ANEW)
    if body is not None:
        text = body if isinstance(body, str) else json.dumps(body, ensure_ascii=False)
        parts += ['-H "Content-Type: application/json"', f"-d {shlex.quote(text)}"]
    return " ".join(parts)

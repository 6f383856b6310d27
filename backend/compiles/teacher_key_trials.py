"""The test of a stored teacher key: the provider is asked for its list of models, which costs nothing. Only here and
in the worker that calls a teacher is a key opened; the request goes through the same pinned transport."""

import json
import time
from dataclasses import dataclass
from typing import Any

from django.conf import settings

from backend.compiles.models import TEACHER_KEY, TeacherKey
from backend.domain.dialects.pasted_keys import key_problem
from backend.tenants.sealing import unseal

PATIENCE_S = 8.0
CAP = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyTest:
    is_good: bool
    text: str


def try_key(row: TeacherKey, base_url: str) -> KeyTest:
    """`base_url` up to /v1. Nothing of the provider's answer is shown but its status and how many models it names."""
    import httpx

    from backend.outbound.addresses import OutboundRefused
    from backend.outbound.client import BodyTooLarge, open_client, read_capped
    from backend.outbound.sockets import OutboundTimeout, Watch, watching

    secret = unseal(row.tenant_id, bytes(row.sealed), purpose=TEACHER_KEY).decode()
    if (wrong := key_problem(secret)) is not None:  # stored before keys were looked at
        return KeyTest(is_good=False, text=f"the key {wrong}.")
    url = f"{base_url.strip().rstrip('/')}/models"
    watch = Watch(deadline_at=time.monotonic() + PATIENCE_S)
    try:
        with watching(watch), open_client(allowed_origins=frozenset(settings.KOLM_ALLOW_PRIVATE_TEACHERS)) as client:
            request = client.build_request("GET", url, headers={"authorization": f"Bearer {secret}"})
            answer = client.send(request, stream=True)
            try:
                return _judge(answer.status_code, read_capped(answer, cap=CAP))
            finally:
                answer.close()
    except OutboundRefused as fault:
        return KeyTest(is_good=False, text=f"the address is not allowed: {fault}")
    except BodyTooLarge:
        return KeyTest(is_good=False, text="the provider's answer is too long to be a list of models.")
    except (httpx.HTTPError, httpx.InvalidURL, OSError, OutboundTimeout) as fault:
        text = f"the provider does not answer ({type(fault).__name__}); check the base URL."
        return KeyTest(is_good=False, text=text)


def _judge(status: int, body: bytes) -> KeyTest:
    if status in (401, 403):
        return KeyTest(is_good=False, text=f"the provider refuses this key ({status}); check it and store it again.")
    if status != 200:
        return KeyTest(is_good=False, text=f"the provider answers {status}; does the base URL end in /v1?")
    n_models = _count(body)
    if n_models is None:
        text = "the provider answers, but not with a list of models; does the base URL end in /v1?"
        return KeyTest(is_good=False, text=text)
    models = "model" if n_models == 1 else "models"
    return KeyTest(is_good=True, text=f"the provider accepts this key and lists {n_models:,} {models}.")


def _count(body: bytes) -> int | None:
    try:
        value: Any = json.loads(body)
    except ValueError:
        return None
    data = value.get("data") if isinstance(value, dict) else None
    return len(data) if isinstance(data, list) else None

"""Log-in while Valkey hangs: it accepts connections and never answers."""

import os
import signal
import time

import pytest
from django.core.cache import cache
from django.test import Client

from deploy.embedded.layout import Part
from deploy.embedded.stack import EmbeddedServices

pytestmark = pytest.mark.usefixtures("committed_db")


@pytest.mark.parametrize(
    ("path", "form"),
    [
        ("/accounts/login/", {"login": "a@example.com", "password": "wrong-password"}),
        ("/accounts/password/reset/", {"email": "a@example.com"}),
    ],
)
def test_log_in_and_reset_answer_503_soon(embedded_services: EmbeddedServices, path: str, form: dict[str, str]) -> None:
    cache.get("connected")
    valkey = embedded_services.stack.children[Part.VALKEY]
    os.kill(valkey.pid, signal.SIGSTOP)
    try:
        began = time.monotonic()
        answer = Client(raise_request_exception=False).post(path, form)
        took_s = time.monotonic() - began
    finally:
        os.kill(valkey.pid, signal.SIGCONT)
    assert answer.status_code == 503
    assert answer["Retry-After"] == "5"
    assert b"send the form again" in answer.content
    assert took_s < 10

"""A compile is taken while Valkey hangs: it accepts connections and never answers."""

import os
import signal
import time

import pytest
from django.core.cache import cache
from django.test import Client

from deploy.embedded.layout import Part
from deploy.embedded.stack import EmbeddedServices
from tests.backend.compiles.api.test_bad_specs import post
from tests.compile_factories import small_spec
from tests.factories import make_api_key, make_tenant

pytestmark = pytest.mark.usefixtures("committed_db")


def test_a_compile_is_accepted_and_read_while_valkey_hangs(embedded_services: EmbeddedServices) -> None:
    tenant = make_tenant()
    secret = make_api_key(tenant)
    cache.get("connected")
    pid = embedded_services.stack.children[Part.VALKEY].pid
    os.kill(pid, signal.SIGSTOP)
    try:
        began = time.monotonic()
        answer = post(Client(), secret, "/v1/compiles", small_spec())
        read = Client().get("/v1/compiles", HTTP_AUTHORIZATION=f"Bearer {secret}")
        took_s = time.monotonic() - began
    finally:
        os.kill(pid, signal.SIGCONT)
    assert answer.status_code == 202, answer.content
    assert [row["id"] for row in read.json()["data"]] == [answer.json()["id"]]
    assert took_s < 15

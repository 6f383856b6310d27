"""Hints reach the workers' queue, and a Redis that is away costs a moment, never an error."""

import time

import pytest
import redis
from django.conf import settings as django_settings

from backend import queue
from backend.queue import QUEUE, TaskName, enqueue
from backend.valkey import pause


@pytest.fixture
def redis_is_away(settings, monkeypatch):
    settings.REDIS_URL = "redis://127.0.0.1:1"
    _forget()
    yield
    _forget()
    pause.note_answer()


def _forget() -> None:
    queue._app.cache_clear()


def test_a_hint_lands_in_the_workers_queue(embedded_services):
    with redis.Redis.from_url(django_settings.REDIS_URL) as client:
        client.delete(QUEUE)
        assert enqueue(TaskName.ADVANCE, compile_id="c", tenant_id="t")
        (message,) = client.lrange(QUEUE, 0, -1)
        client.delete(QUEUE)
    assert b"compile.advance" in message


@pytest.mark.usefixtures("redis_is_away")
def test_without_redis_nothing_raises_and_nobody_waits_long():
    began = time.monotonic()
    assert not enqueue(TaskName.ADVANCE, compile_id="b")
    assert not enqueue(TaskName.ADVANCE, compile_id="c")
    assert time.monotonic() - began < 2.5

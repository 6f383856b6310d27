"""Alive is not ready."""

import pytest
from django.db import connection
from django.test import Client


@pytest.mark.usefixtures("committed_db")
def test_ready_when_database_and_redis_answer():
    assert Client().get("/readyz").json() == {"status": "ready", "database": "ok", "redis": "ok"}


@pytest.mark.usefixtures("committed_db")
def test_alive_but_not_ready_without_redis(settings):
    settings.REDIS_URL = "redis://127.0.0.1:1"
    answer = Client().get("/readyz")
    assert (answer.status_code, answer.json()["redis"]) == (503, "down")
    assert Client().get("/healthz").status_code == 200


@pytest.mark.usefixtures("committed_db")
def test_alive_but_not_ready_without_the_database(monkeypatch):
    """Also an ordinary request is then a problem to retry, though no view was reached."""
    connection.close()
    connection.close_pool()
    monkeypatch.setitem(connection.settings_dict, "PORT", "1")
    monkeypatch.setitem(connection.settings_dict["OPTIONS"]["pool"], "timeout", 0.3)
    try:
        client = Client(raise_request_exception=False)
        answer = client.get("/readyz")
        assert (answer.status_code, answer.json()["database"]) == (503, "down")
        assert client.get("/healthz").status_code == 200
        answer = client.get("/v1/tenant", headers={"Authorization": "Bearer sk"})
        assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
    finally:
        connection.close_pool()

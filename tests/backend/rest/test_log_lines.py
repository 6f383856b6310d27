"""What web's log has of a request: its route and its status, none of what stands in its path or headers."""

import io
import logging
import os
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from django.test import Client
from django.utils.log import configure_logging

from backend.domain.log_text import guard_logs
from deploy.embedded.ports import free_ports

ROOT = Path(__file__).parents[3]
CANARY = "canarytextofatenant"
APPLICATION = """
from backend.domain.log_text import guard_logs
from backend.rest.log_lines import log_what_escapes
async def broken(scope, receive, send):
    if scope["type"] == "http":
        raise ValueError(scope["path"])
guard_logs()
application = log_what_escapes(broken)
"""


@pytest.fixture
def guarded(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As in web, for one test."""
    factory = logging.getLogRecordFactory()
    for where, name in ((sys, "excepthook"), (sys, "unraisablehook"), (threading, "excepthook")):
        monkeypatch.setattr(where, name, getattr(where, name))
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    monkeypatch.setattr(logging.Handler, "handleError", logging.Handler.handleError)
    guard_logs()
    yield
    logging.setLogRecordFactory(factory)


def _handler() -> logging.Handler | None:
    return logging._handlers.get("stderr")  # logging.getHandlerByName is of 3.12


@pytest.fixture
def log(guarded: None, settings: Any) -> Iterator[io.StringIO]:
    """What the handler of the settings writes."""
    if _handler() is None:  # a test before has configured the logs of another process, a worker's
        configure_logging(settings.LOGGING_CONFIG, settings.LOGGING)
    handler = _handler()
    assert isinstance(handler, logging.StreamHandler)
    said = io.StringIO()
    before = handler.setStream(said)
    yield said
    handler.setStream(before)


@pytest.mark.django_db
@pytest.mark.urls("tests.backend.rest.probe_urls")
@pytest.mark.parametrize(
    ("path", "headers", "words"),
    [
        (f"/accounts/password/reset/key/1-{CANARY}/", {}, "POST /accounts/password/reset/key/(?P<uidb36>"),
        (f"/app/invitations/{CANARY}", {"HTTP_ORIGIN": f"https://{CANARY}.example"}, "403 (Origin checking failed)"),
    ],
)
def test_a_refused_request_is_logged_by_its_route(
    path: str, headers: dict[str, str], words: str, log: io.StringIO
) -> None:
    Client(enforce_csrf_checks=True, raise_request_exception=False).post(path, {}, **headers)
    assert words in log.getvalue()
    assert CANARY not in log.getvalue()


@pytest.mark.django_db
def test_so_is_one_with_another_host(log: io.StringIO) -> None:
    for path in ("/accounts/password/reset/", "/accounts/login/", "/app/", "/v1/compiles", "/docs/"):
        Client(raise_request_exception=False).post(path, {"email": f"{CANARY}@example.com"}, HTTP_HOST=f"{CANARY}.test")
    assert "DisallowedHost" in log.getvalue()
    assert "accounts/password/reset/: 400" in log.getvalue()
    assert CANARY not in log.getvalue()


@pytest.mark.django_db
@pytest.mark.urls("tests.backend.rest.probe_urls")
@pytest.mark.parametrize("what", ["bug", "database", "suspicious"])
def test_so_is_one_that_fails(what: str, log: io.StringIO) -> None:
    Client(raise_request_exception=False).get(f"/plain/{what}?q={CANARY}")
    assert "GET /plain/<str:what>: " in log.getvalue()
    assert f"/plain/{what}" not in log.getvalue()


def test_what_leaves_the_application_is_logged_without_its_words(tmp_path: Path) -> None:
    """As granian runs it, which prints tracebacks of its own."""
    (tmp_path / "broken.py").write_text(APPLICATION)
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "granian", "--interface", "asginl", "--host", "127.0.0.1", "--port", str(port)]
    with (tmp_path / "log").open("w") as log:
        server = subprocess.Popen(
            [*command, "broken:application"],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=log,
            stderr=log,
        )
    try:
        assert asked(f"http://127.0.0.1:{port}/{CANARY}") == 500
    finally:
        server.terminate()
        server.wait(30)
    said = (tmp_path / "log").read_text()
    assert "a request ended the application" in said
    assert "broken.py" in said
    assert CANARY not in said


def test_a_command_whose_words_go_to_a_log_is_guarded_too() -> None:
    """`migrate` at every start, and what cron runs: an uncaught error of theirs prints rows."""
    command = [sys.executable, "manage.py", "shell", "-v0", "-c", f"{{}}[''.join(['{CANARY[:6]}', '{CANARY[6:]}'])]"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode != 0
    assert "KeyError" in done.stderr
    assert CANARY not in done.stdout + done.stderr


def asked(url: str) -> int:
    for _ in range(300):
        try:
            return httpx.get(url, timeout=60).status_code
        except httpx.ConnectError:
            time.sleep(0.1)
    raise AssertionError("granian does not listen")

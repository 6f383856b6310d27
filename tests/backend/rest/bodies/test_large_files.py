"""A file that is too large is refused by its announced length, in a form that its sender can read."""

import json

import pytest
from django.conf import settings

from backend.compiles.uploads import files, rows
from backend.rest.bodies.body_limits import FORM_BYTES, limit_of
from tests.backend.asgi_requests import send_to

HUGE = "200000000"


def answer_to(path: str, **headers: str) -> tuple[int, dict[str, str], str]:
    from backend.asgi import application

    status, answered, body = send_to(application, b"x", path=path, content_length=HUGE, **headers)
    return status, answered, body.decode()


@pytest.mark.parametrize("path", ["/v1/uploads", "/v1/uploads/inspect"])
def test_the_api_says_what_to_do_with_a_larger_file(path):
    status, headers, body = answer_to(path, content_type="text/csv")
    assert (status, headers["content-type"], headers["connection"]) == (413, "application/problem+json", "close")
    problem = json.loads(body)
    assert problem["code"] == "payload_too_large"
    assert "at most 32 MB" in problem["detail"]
    assert "kolm init" in problem["detail"]


@pytest.mark.parametrize("path", ["/app/uploads/inspect", "/app/uploads/store"])
def test_the_console_answers_a_page_to_a_browser_without_scripts(path):
    status, headers, body = answer_to(path, content_type="multipart/form-data; boundary=x")
    assert (status, headers["content-type"]) == (413, "text/html; charset=utf-8")
    assert "default-src 'none'" in headers["content-security-policy"]
    assert "<h1>This is too large</h1>" in body
    assert "at most 32 MB" in body
    assert "kolm init" in body
    assert 'href="/app/uploads"' in body


def test_the_console_answers_a_fragment_to_htmx():
    status, _, body = answer_to("/app/uploads/inspect", hx_request="true")
    assert status == 413
    assert body.startswith('<div class="callout bad" data-problem="payload_too_large">')


def test_a_file_as_large_as_the_page_says_fits_with_its_form():
    assert limit_of("/app/uploads/store", "multipart/form-data") == settings.KOLM_SOURCE_BODY_BYTES + FORM_BYTES


def test_the_documentation_names_the_limits_that_hold():
    page = (settings.ROOT / "docs" / "data.md").read_text(encoding="utf-8")
    assert f"up to {settings.KOLM_SOURCE_BODY_BYTES // 1_000_000} MB and {files.MAX_LINES:,} lines" in page
    assert f"{files.MAX_ROWS:,} rows" in page
    assert f"at most {rows.MAX_BYTES // 1_000_000} MB of usable rows" in page
    assert f"{rows.MAX_BYTES // 1_000_000} MB and {rows.MAX_ROWS:,} rows" in page
    template = settings.ROOT / "backend/console/templates/console/uploads/_drop.html"
    assert f'data-most-bytes="{settings.KOLM_SOURCE_BODY_BYTES}"' in template.read_text(encoding="utf-8")

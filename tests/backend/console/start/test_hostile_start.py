"""The guided first compile against what cannot be compiled, keys that do not open, and vendors that do not answer."""

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import unquote

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection
from django.test import Client

from backend.compiles.models import Compile, TeacherKey, Upload
from backend.console.returning import NOT_TAKEN
from backend.domain.ids import Prefix, encode_id
from backend.domain.spec.fields import MAX_LABELS
from backend.tenants.isolation import tenant_scope
from tests.backend.console.pages import get, logged_in, plain, post
from tests.backend.console.start.test_start import TABLE, form
from tests.factories import make_tenant

pytestmark = pytest.mark.django_db

SECRET = "sk-proj-0123456789abcdefghij"
EVIL = ("<script>alert(1)</script>", '"><img src=x onerror=alert(2)>', "{{7*7}}")


@pytest.fixture
def tenant():
    return make_tenant()


def stored(tenant: Any, table: str, name: str = "tickets") -> str:
    file = SimpleUploadedFile("tickets.csv", table.encode())
    post(logged_in(tenant), "/app/uploads/store", {"file": file, "name": name})
    with tenant_scope(tenant.id):
        return encode_id(Prefix.UPLOAD, Upload.objects.latest("created_at").id)


@contextmanager
def vendor(status: int, body: bytes) -> Iterator[str]:
    """A vendor on loopback that answers everybody the same."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_more_labels_than_a_compile_has_are_told_before_a_form_is_offered(tenant):
    rows = "".join(f"text {n} of many,label {n % 300}\n" for n in range(1_200))
    upload = stored(tenant, "text,label\n" + rows)
    client = logged_in(tenant)
    text = get(client, f"/app/start?upload={upload}", status=422)
    assert f"This data has 300 labels, and a compile has at most {MAX_LABELS}." in text
    assert "the 45 rarest" in text
    assert "are 180 of 1,200 rows together" in text
    assert 'id="start-form"' not in text
    assert text.index("This data has 300 labels") < text.index("1. Your data")
    post(client, "/app/start", form(upload), status=422)
    with tenant_scope(tenant.id):
        assert not Compile.objects.exists()


def test_as_many_labels_as_a_compile_has_are_a_form(tenant):
    rows = "".join(f"text {n} of many,label {n % MAX_LABELS}\n" for n in range(1_024))
    upload = stored(tenant, "text,label\n" + rows)
    assert 'id="start-form"' in get(logged_in(tenant), f"/app/start?upload={upload}")


def test_one_label_is_told_before_a_form_is_offered(tenant):
    upload = stored(tenant, "text,label\n" + "".join(f"text {n},refund\n" for n in range(60)))
    text = get(logged_in(tenant), f"/app/start?upload={upload}", status=422)
    assert "Every answer is “refund”, so there is nothing to decide." in text
    assert 'id="start-form"' not in text


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (401, b"no", "refuses this key (401)"),
        (500, b"<h1>Oops</h1>", "answers 500"),
        (200, b"<!doctype html><p>Log in", "not with a list of models"),
    ],
)
def test_what_a_vendor_answers_stands_beside_the_key(tenant, settings, caplog, status, body, words):
    with vendor(status, body) as origin:
        settings.KOLM_ALLOW_PRIVATE_TEACHERS = (origin,)
        fields = {"provider": "other", "base_url": f"{origin}/v1", "secret": SECRET}
        text = post(logged_in(tenant), "/app/start/key", fields, status=200).content.decode()
    assert words in text
    assert 'role="status"' in text
    assert "Oops" not in text
    assert SECRET not in text + caplog.text


def test_a_vendor_that_is_not_there_stands_beside_the_key_and_the_key_is_nowhere_in_clear(tenant, settings, caplog):
    with vendor(200, b"") as origin:
        pass  # its port is closed now
    settings.KOLM_ALLOW_PRIVATE_TEACHERS = (origin,)
    fields = {"provider": "other", "base_url": f"{origin}/v1", "secret": SECRET}
    text = post(logged_in(tenant), "/app/start/key", fields, status=200).content.decode()
    assert "does not answer" in text
    assert SECRET not in text + caplog.text
    with tenant_scope(tenant.id):
        row = TeacherKey.objects.get()
        assert SECRET.encode() not in bytes(row.sealed)
        assert SECRET not in str([vars(row), row.last4])
        with connection.cursor() as cursor:
            for table in ("compiles_teacherkey", "tenants_auditentry", "tenants_idempotencykey"):
                cursor.execute(f"SELECT count(*) FROM {table} t WHERE t::text LIKE %s", [f"%{SECRET[8:]}%"])
                assert cursor.fetchone() == (0,)


def test_what_is_typed_and_uploaded_stays_text_in_the_form(tenant):
    cells = "".join(f'"message {n} {EVIL[n % 3].replace(chr(34), chr(34) * 2)}",{"ab"[n % 2]}<b>\n' for n in range(60))
    upload = stored(tenant, "text,label\n" + cells, name='<i>"x')
    client = logged_in(tenant)
    texts = [get(client, f"/app/start?upload={upload}")]
    for evil in EVIL:
        changes = {"task": evil, "about-0": evil, "name": evil, "model": evil, "base_url": evil, "provider": "other"}
        for status, path in ((200, "/app/start/check"), (422, "/app/start")):
            texts.append(post(client, path, form(upload, **changes), status=status).content.decode())
    for text in texts:
        assert "<script>alert" not in text
        assert "<img" not in text
        assert "<i>" not in text
    assert "{{7*7}}" in texts[-1]
    assert "49" not in texts[-1].partition("{{7*7}}")[0][-40:]


def test_the_estimate_of_the_guide_is_the_one_of_the_compile(tenant):
    upload = stored(tenant, TABLE)
    client = logged_in(tenant)
    shown = post(client, "/app/start/check", form(upload), status=200).content.decode()
    location = post(client, "/app/start", form(upload))["Location"]
    with tenant_scope(tenant.id):
        total = Compile.objects.get().estimate["total"]
    from backend.console.templatetags.kolm import usd

    assert str(usd(total["expected_microusd"])) in shown
    assert plain(str(usd(total["expected_microusd"]))) in plain(get(client, location))


def test_a_form_whose_session_has_expired_leads_back_and_says_that_it_was_not_taken(tenant):
    upload = stored(tenant, TABLE)
    page, client = f"/app/start?upload={upload}", Client()
    answer = client.post("/app/start", form(upload), headers={"referer": f"http://testserver{page}"})
    assert answer.status_code == 302
    assert unquote(answer["Location"]) == f"/accounts/login/?next={page}"
    assert NOT_TAKEN in get(client, answer["Location"])

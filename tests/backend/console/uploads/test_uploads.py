"""The data page: a file is looked at, its columns get other roles, its rows are stored, whatever its cells hold."""

from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from backend.compiles.models import Upload
from backend.domain.ids import Prefix, encode_id
from backend.domain.roles import Role
from backend.tenants.isolation import tenant_scope
from tests.backend.console.pages import get, logged_in, post
from tests.factories import make_tenant

pytestmark = pytest.mark.django_db

TABLE = "text,label,author\n" + "".join(f"where is order {n}?,{'ab'[n % 2]},me\n" for n in range(60))


@pytest.fixture
def tenant():
    return make_tenant()


def file(data: str | bytes = TABLE, name: str = "tickets.csv") -> SimpleUploadedFile:
    return SimpleUploadedFile(name, data.encode() if isinstance(data, str) else data)


def inspect(client: Client, data: str | bytes = TABLE, name: str = "tickets.csv", **form: Any) -> str:
    return post(client, "/app/uploads/inspect", {"file": file(data, name), **form}, status=200).content.decode()


def only_upload(tenant: Any) -> Upload:
    with tenant_scope(tenant.id):
        return Upload.objects.get()


def test_a_chosen_file_is_previewed_with_its_labels_and_nothing_is_stored(tenant):
    text = inspect(logged_in(tenant))
    assert "A table of 60 rows" in text
    assert "where is order 0?" in text
    assert '<option value="output" selected>' in text
    assert "2 labels" in text
    assert "Use 60 rows" in text
    with tenant_scope(tenant.id):
        assert not Upload.objects.exists()


def test_another_role_of_a_column_is_looked_at_anew(tenant):
    roles = {"looked_at": "tickets.csv", "column": ["text", "label", "author"], "role": ["input", "", "output"]}
    text = inspect(logged_in(tenant), **roles)
    assert "every answer is “me”" in text.replace("&#x27;", "'").lower() or "Every answer is “me”" in text


def test_roles_of_another_file_are_not_taken_for_this_ones(tenant):
    roles = {"looked_at": "other.csv", "column": ["a", "b"], "role": ["input", "output"]}
    assert "2 labels" in inspect(logged_in(tenant), **roles)


@pytest.mark.parametrize(
    ("roles", "words"),
    [(["", "output", ""], "which column is the input"), (["input", "output", "output"], "Two columns are the answer")],
)
def test_roles_that_make_no_example_are_refused_in_words(tenant, roles, words):
    form = {"looked_at": "tickets.csv", "column": ["text", "label", "author"], "role": roles}
    assert words in inspect(logged_in(tenant), **form)


def test_the_rows_of_a_file_are_stored_under_its_name(tenant):
    client = logged_in(tenant)
    answer = post(client, "/app/uploads/store", {"file": file(), "name": "My tickets"})
    row = only_upload(tenant)
    public_id = encode_id(Prefix.UPLOAD, row.id)
    assert (row.name, row.purpose, row.n_rows) == ("My tickets", "examples", 60)
    assert answer["Location"] == f"/app/uploads/{public_id}"
    text = get(client, answer["Location"])
    assert "My tickets" in text
    assert f"examples: {{upload: {public_id}}}" in text
    assert "My tickets" in get(client, "/app/uploads")


def test_a_file_that_was_dropped_in_the_guide_leads_on_in_it(tenant):
    answer = post(logged_in(tenant), "/app/uploads/store", {"file": file(), "next": "start"})
    assert answer["Location"].startswith("/app/start?upload=upl_")


@pytest.mark.parametrize(
    ("data", "name", "words"),
    [
        (b"PK\x03\x04....", "tickets.xlsx", "CSV UTF-8"),
        (b"", "empty.csv", "empty"),
        (b"<html>", "page.csv", "HTML"),
        (b"PAR1....PAR1", "rows.parquet", "parquet file"),
    ],
)
def test_a_file_that_is_no_table_is_said_to_be_what_it_is(tenant, data, name, words):
    assert words in inspect(logged_in(tenant), data, name)
    assert (
        words in post(logged_in(tenant), "/app/uploads/store", {"file": file(data, name)}, status=422).content.decode()
    )


def test_the_words_of_the_data_page_are_explained(tenant):
    assert 'href="/docs/glossary#held-out"' in inspect(logged_in(tenant))
    assert 'href="/docs/glossary#capture"' in get(logged_in(tenant), "/app/uploads")


def test_millions_of_tiny_rows_are_refused_before_they_are_read(tenant):
    assert "1,500,001 lines and at most 1,000,000" in inspect(logged_in(tenant), "text,label\n" + "a,b\n" * 1_500_000)


def test_the_page_has_a_place_to_show_how_much_is_sent(tenant):
    assert "<progress data-drop-sent" in get(logged_in(tenant), "/app/uploads")


def test_what_stands_in_cells_and_names_stays_text(tenant):
    evil = '<script>alert(1)</script>,"<img src=x onerror=alert(2)>"\n'
    data = "text,<b>label</b>\n" + evil * 30 + "=1+1,\u202eabc\n\U0001f4a5 مرحبا,x\n" * 5
    client = logged_in(tenant)
    text = inspect(client, data, "<i>.csv")
    assert "<script>alert" not in text
    assert "<img" not in text
    assert "&lt;script&gt;alert(1)" in text
    page = post(client, "/app/uploads/store", {"file": file(data, "<i>.csv"), "name": "<i>x"})
    shown = get(client, page["Location"])
    assert "<script>alert" not in shown
    assert "&lt;i&gt;x" in shown


def test_a_thousand_labels_are_a_small_page(tenant):
    data = "text,label\n" + "".join(f"text {n},label {n % 1000}\n" for n in range(3_000))
    text = inspect(logged_in(tenant), data)
    assert "1,000 labels" in text
    assert "and 970 rarer ones" in text
    assert len(text) < 60_000


def test_twenty_bad_rows_are_one_callout(tenant):
    text = inspect(logged_in(tenant), TABLE + ",a,me\n" * 20)
    assert text.count("has no input") == 1
    assert "20 rows" in text


def test_who_may_not_compile_sees_the_list_alone(tenant):
    client = logged_in(tenant, Role.VIEWER)
    text = get(client, "/app/uploads")
    assert "Choose a file" not in text
    post(client, "/app/uploads/store", {"file": file()}, status=403)


def test_an_upload_of_another_team_is_not_there(tenant):
    post(logged_in(make_tenant()), "/app/uploads/store", {"file": file()})
    client = logged_in(tenant)
    assert "tickets.csv" not in get(client, "/app/uploads")
    other = "upl_01ktfz2x8e4s1c9w0m5q7r3vbd"
    get(client, f"/app/uploads/{other}", status=404)

"""Uploads: taken whole and checked row by row, or refused whole."""

import hashlib
import json
from typing import Any

import pytest
from django.test import Client
from hypothesis import given
from hypothesis import strategies as st

from backend.blobs import get_jsonl, put_jsonl
from backend.compiles.models import Upload
from backend.compiles.uploads.inputs import load_gold, split
from backend.compiles.uploads.rows import MAX_ROWS, UploadPurpose, find_upload, load_upload
from backend.domain.spec.parsing import MAX_TEXT_CHARS, parse_spec
from backend.rest.new_ids import new_uuid7
from backend.tenants.isolation import tenant_scope
from tests.backend.asgi_requests import send_to
from tests.compile_factories import gold, public_id, small_spec
from tests.factories import bearer, make_api_key, make_tenant

pytestmark = pytest.mark.django_db

ROWS = b'{"input": "one"}\n{"input": "two"}\n'


@pytest.fixture
def tenant():
    return make_tenant()


@pytest.fixture
def secret(tenant):
    return make_api_key(tenant)


def send(client: Client, secret: str, data: bytes, *, purpose: str = "captures", **query: str) -> Any:
    address = "/v1/uploads?" + "&".join(f"{k}={v}" for k, v in {"purpose": purpose, **query}.items())
    return client.post(address, data, content_type="application/x-ndjson", headers=bearer(secret))


def lines(*rows: Any) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def refusal(answer: Any) -> tuple[int, str, str]:
    body = answer.json()
    return answer.status_code, body["code"], body["errors"][0]["pointer"] if body["errors"] else ""


def stored(tenant: Any) -> int:
    with tenant_scope(tenant.id):
        return Upload.objects.count()


def test_an_upload_is_kept_and_described_and_its_rows_are_not_shown_again(client, tenant, secret):
    answer = send(client, secret, ROWS, sha256=hashlib.sha256(ROWS).hexdigest().upper())
    assert answer.status_code == 201
    body = answer.json()
    assert (body["n_rows"], body["size_bytes"], body["purpose"]) == (2, len(ROWS), "captures")
    shown = client.get(answer["Location"], headers=bearer(secret))
    assert shown.json() == body
    assert "one" not in shown.content.decode()
    with tenant_scope(tenant.id):
        rows = load_upload(tenant.id, body["id"], UploadPurpose.CAPTURES, pointer="/captures/upload")
    assert rows == [{"input": "one"}, {"input": "two"}]


def test_uploads_are_listed_newest_first(client, tenant, secret):
    ids = [send(client, secret, lines({"input": str(i)})).json()["id"] for i in range(3)]
    page = client.get("/v1/uploads?limit=2", headers=bearer(secret)).json()
    assert [row["id"] for row in page["data"]] == ids[:0:-1]
    assert page["has_more"]


def test_a_truncated_upload_is_known_by_its_digest(client, tenant, secret):
    answer = send(client, secret, ROWS[: len(ROWS) // 2], sha256=hashlib.sha256(ROWS).hexdigest())
    assert refusal(answer) == (400, "upload_truncated", "")
    assert stored(tenant) == 0


def test_a_truncated_upload_is_known_by_its_last_line(client, tenant, secret):
    assert refusal(send(client, secret, ROWS[:-5])) == (400, "upload_truncated", "/2")
    assert send(client, secret, ROWS[:-1]).status_code == 201, "only the last line break is missing"
    assert stored(tenant) == 1


BAD_ROWS: dict[str, tuple[bytes, str, str, str]] = {
    "nothing": (b"", "captures", "upload_empty", ""),
    "blank lines": (b"\n \n", "captures", "upload_empty", ""),
    "invalid UTF-8": (b'{"input": "caf\xe9"}\n', "captures", "invalid_utf8", ""),
    "UTF-16": ('{"input": "x"}\n'.encode("utf-16"), "captures", "invalid_utf8", ""),
    "no JSON": (ROWS + b"where is it\n", "captures", "invalid_upload", "/3"),
    "no object": (lines(["one"]), "captures", "invalid_upload", "/1"),
    "no input": (lines({"text": "one"}), "captures", "invalid_upload", "/1"),
    "an empty input": (lines({"input": " "}), "captures", "invalid_upload", "/1"),
    "a number": (lines({"input": 7}), "captures", "invalid_upload", "/1"),
    "a NUL": (lines({"input": "a\0b"}), "captures", "invalid_upload", "/1"),
    "half a surrogate pair": (b'{"input": "\\ud83d"}\n', "captures", "invalid_upload", "/1"),
    "a text longer than a spec takes": (
        lines({"input": "x" * (MAX_TEXT_CHARS + 1)}),
        "captures",
        "invalid_upload",
        "/1",
    ),
    "deep nesting": (b'{"input": ' + b"[" * 100_000 + b"\n", "captures", "invalid_upload", "/1"),
    "a huge number": (b'{"input": "x", "group": 1' + b"0" * 5000 + b"}\n", "examples", "invalid_upload", "/1"),
    "gold without an answer": (lines({"input": "x"}), "examples", "invalid_upload", "/1"),
    "an empty group": (lines({"input": "x", "output": "y", "group": ""}), "examples", "invalid_upload", "/1"),
    "a long group": (lines({"input": "x", "output": "y", "group": "g" * 201}), "examples", "invalid_upload", "/1"),
    "a group that is a list": (lines({"input": "x", "output": "y", "group": [1]}), "examples", "invalid_upload", "/1"),
    "a side that is none": (lines({"input": "x", "output": "y", "split": "dev"}), "examples", "invalid_upload", "/1"),
    "a side that is a list": (lines({"input": "x", "output": "y", "split": [1]}), "examples", "invalid_upload", "/1"),
    "no completions": (lines({"item": "x", "completions": []}), "recording", "invalid_upload", "/1"),
    "a completion without text": (lines({"item": "x", "completions": [{}]}), "recording", "invalid_upload", "/1"),
    "a positive log-probability": (
        lines({"item": "x", "completions": [{"text": "y", "logprob": 0.1}]}),
        "recording",
        "invalid_upload",
        "/1",
    ),
    "log-probabilities of labels that are none": (
        b'{"item": "x", "completions": [{"text": "y", "label_logprobs": {"y": NaN}}]}\n',
        "recording",
        "invalid_upload",
        "/1",
    ),
    "more probability of labels than there is": (
        lines({"item": "x", "completions": [{"text": "y", "label_logprobs": {"y": -0.1, "z": -0.1}}]}),
        "recording",
        "invalid_upload",
        "/1",
    ),
    "a label with a NUL": (
        lines({"item": "x", "completions": [{"text": "y", "label_logprobs": {"y\0": -0.1}}]}),
        "recording",
        "invalid_upload",
        "/1",
    ),
    "a completion with half a pair": (
        b'{"item": "x", "completions": [{"text": "\\udc00"}]}\n',
        "recording",
        "invalid_upload",
        "/1",
    ),
}


@pytest.mark.parametrize(("data", "purpose", "code", "pointer"), BAD_ROWS.values(), ids=BAD_ROWS)
def test_an_upload_with_a_bad_row_is_refused_whole_and_the_row_is_named(
    client, tenant, secret, data, purpose, code, pointer
):
    assert refusal(send(client, secret, data, purpose=purpose)) == (400, code, pointer)
    assert stored(tenant) == 0


def test_at_most_twenty_bad_rows_are_listed(client, secret):
    answer = send(client, secret, b"x\n" * 100)
    assert [e["pointer"] for e in answer.json()["errors"]] == [f"/{n}" for n in range(1, 21)]


def test_a_byte_order_mark_is_skipped(client, tenant, secret):
    assert send(client, secret, b"\xef\xbb\xbf" + ROWS).json()["n_rows"] == 2
    assert refusal(send(client, secret, b"\xef\xbb\xbf" + b"\xff")) == (400, "invalid_utf8", "")


def test_a_table_is_answered_once_with_what_a_row_is(client, secret):
    errors = send(client, secret, b"message,intent\nwhere is it,refund\n", purpose="examples").json()["errors"]
    form = '{"input": "...", "output": "..."}'
    assert errors[0]["detail"] == (
        f"Line 1: not a JSON object; write {form} on each line, or send the file as text/csv, or by `kolm upload`"
    )
    assert errors[1]["detail"] == "Line 2: not a JSON object"


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"text": "x", "label": "y"}, '; this row has the keys "text", "label"'),
        ({"réponse": "x"}, '; this row has the keys "réponse"'),
        ({"a\u202eb\n": "x"}, r'; this row has the keys "a\u202eb\n"'),
        ({"k" * 5_000: "x"}, f'; this row has the keys "{"k" * 40}"'),
        ({str(i): "x" for i in range(9)}, '; this row has the keys "0", "1", "2", "3", "4" and more'),
        ({}, ""),
        ({"input": " ", "text": "x"}, ""),
    ],
    ids=["others", "a word", "not printable", "long", "many", "none", "there but empty"],
)
def test_a_row_without_its_key_is_answered_with_those_that_it_has(client, secret, row, words):
    (error,) = send(client, secret, lines(row)).json()["errors"]
    assert error["detail"] == f'Line 1: "input" must be a text that is not empty{words}'


def test_so_is_gold_without_its_answer(client, secret):
    (error,) = send(client, secret, lines({"input": "x", "label": "y"}), purpose="examples").json()["errors"]
    assert error["detail"].endswith('"output" must be a text that is not empty; this row has the keys "input", "label"')


def test_an_upload_of_too_many_rows_is_refused(client, tenant, secret):
    answer = send(client, secret, b'{"input":"x"}\n' * (MAX_ROWS + 1))
    assert answer.status_code == 400
    assert f"at most {MAX_ROWS} rows" in answer.json()["detail"]
    assert stored(tenant) == 0


def test_a_body_of_more_than_a_file_may_have_is_refused(secret):
    from backend.asgi import application

    authorization = bearer(secret)["Authorization"]
    headers = {"content_type": "application/x-ndjson", "content_length": "32000001", "authorization": authorization}
    status, _, body = send_to(application, b"x", path="/v1/uploads?purpose=captures", **headers)
    assert (status, json.loads(body)["code"]) == (413, "payload_too_large")


@pytest.mark.parametrize("query", ["", "?purpose=", "?purpose=capture", "?purpose=captures&sha=1"])
def test_an_upload_says_what_it_is_for(client, secret, query):
    answer = client.post(f"/v1/uploads{query}", ROWS, content_type="application/x-ndjson", headers=bearer(secret))
    assert answer.status_code == 400


def test_a_web_page_is_no_way_to_upload(client, secret):
    answer = client.post("/v1/uploads?purpose=captures", "<p>", content_type="text/html", headers=bearer(secret))
    assert answer.status_code == 415


def test_gold_may_come_by_upload(client, tenant, secret):
    rows = [row | {"group": n // 2} for n, row in enumerate(gold(40))]
    uploaded = send(client, secret, lines(*rows), purpose="examples").json()["id"]
    spec = small_spec(examples={"upload": uploaded, "holdout": 0.5})
    answer = client.post("/v1/compiles", json.dumps(spec), content_type="application/json", headers=bearer(secret))
    assert answer.status_code == 202


def test_uploaded_gold_may_say_which_rows_are_held_out(client, tenant, secret):
    sides = ["test", "train", None, "heldout", ""]
    rows = [row | {"split": sides[n % 5]} for n, row in enumerate(gold(60))]
    uploaded = send(client, secret, lines(*rows), purpose="examples").json()["id"]
    spec = parse_spec(small_spec(examples={"upload": uploaded}))
    with tenant_scope(tenant.id):
        sides_of = split(tenant.id, spec, load_gold(tenant.id, spec))
    assert {e.input for e in sides_of.heldout} == {row["input"] for row in rows if row["split"] in ("test", "heldout")}
    assert (len(sides_of.heldout), len(sides_of.train)) == (24, 36)


def test_what_is_wrong_with_uploaded_gold_is_told_when_a_spec_names_it(client, secret):
    uploaded = send(client, secret, lines(*gold(30, labels=("refund", "refnud"))), purpose="examples").json()["id"]
    spec = small_spec(examples={"upload": uploaded, "holdout": 0.5})
    answer = client.post("/v1/compiles", json.dumps(spec), content_type="application/json", headers=bearer(secret))
    assert refusal(answer) == (422, "invalid_spec", "/examples/upload")
    assert answer.json()["errors"][0]["detail"].startswith('row 2 of the upload: there is no label "refnud"; did you')


@given(st.lists(st.text(alphabet=st.characters(exclude_categories=["Cs"]), min_size=1), min_size=1, max_size=5))
def test_texts_come_out_of_the_store_as_they_went_in(texts):
    """U+2028 and its kind are line breaks to Python and nothing to JSON lines."""
    tenant_id = new_uuid7()
    rows = [{"input": text} for text in [*texts, "a\u2028b\x85c\x1cd\x0be"]]
    assert get_jsonl(tenant_id, put_jsonl(tenant_id, rows)) == rows


def test_another_tenants_upload_is_as_unknown_as_none(tenant, client, secret):
    from backend.domain.errors import InvalidSpec

    other = make_tenant()
    theirs = send(client, make_api_key(other), ROWS).json()["id"]
    with tenant_scope(tenant.id), pytest.raises(InvalidSpec, match="there is no upload"):
        find_upload(tenant.id, theirs, UploadPurpose.CAPTURES, pointer="/captures/upload")
    with tenant_scope(other.id):
        found = find_upload(other.id, theirs, UploadPurpose.CAPTURES, pointer="/captures/upload")
    assert public_id(found) == theirs

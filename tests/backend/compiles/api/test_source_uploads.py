"""Files as customers have them, at /v1/uploads: looked at, uploaded, named, and used by a spec under their name."""

import io
import json
from typing import Any
from urllib.parse import urlencode

import pytest
from django.test import Client

from backend.blobs import get_jsonl
from backend.compiles.lifecycle import submission
from backend.compiles.models import Upload
from backend.domain.errors import InvalidSpec
from backend.tenants.isolation import tenant_scope
from tests.backend.asgi_requests import send_to
from tests.compile_factories import gold, small_spec
from tests.factories import bearer, make_api_key, make_tenant

pytestmark = pytest.mark.django_db

CSV = "message;intent\r\n" + "".join(f"where is my café order {n}?;{'ab'[n % 2]}\r\n" for n in range(60))
TABLE = CSV.encode("cp1252")


@pytest.fixture
def tenant():
    return make_tenant()


@pytest.fixture
def secret(tenant):
    return make_api_key(tenant)


def send(client: Client, secret: str, data: bytes, path: str = "", *, media: str = "text/csv", **query: str) -> Any:
    address = f"/v1/uploads{path}?{urlencode(query)}"
    return client.post(address, data, content_type=media, headers=bearer(secret))


def rows_of(tenant: Any) -> list[dict[str, Any]]:
    with tenant_scope(tenant.id):
        return get_jsonl(tenant.id, Upload.objects.latest("created_at").sha256)


def test_a_file_is_looked_at_without_being_stored(client, tenant, secret):
    body = send(client, secret, TABLE, "/inspect").json()
    assert body["mapping"] == {"inputs": ["message"], "output": "intent", "group": None, "split": None}
    assert [(label["name"], label["n"], label["share_ppm"]) for label in body["labels"]] == [
        ("a", 30, 500_000),
        ("b", 30, 500_000),
    ]
    assert body["preview"][0] == {"message": "where is my café order 0?", "intent": "a"}
    assert any("Windows-1252" in note for note in body["notes"])
    with tenant_scope(tenant.id):
        assert not Upload.objects.exists()


def test_a_table_is_uploaded_as_it_is(client, tenant, secret):
    answer = send(client, secret, TABLE, name="tickets.csv")
    assert (answer.status_code, answer.json()["purpose"], answer.json()["n_rows"]) == (201, "examples", 60)
    assert answer.json()["name"] == "tickets.csv"
    assert rows_of(tenant)[0] | {"group": None, "split": None} == {
        "input": "where is my café order 0?",
        "output": "a",
        "group": None,
        "split": None,
    }


def test_columns_may_be_named(client, tenant, secret):
    data = b"a,b,c\nsubject,body text,x\nsubject two,body text two,y\n"
    assert send(client, secret, data, input="a,b", output="c").status_code == 201
    assert rows_of(tenant)[0]["input"] == "subject\nbody text"
    refused = send(client, secret, data, input="nothing")
    assert (refused.status_code, refused.json()["code"]) == (400, "unknown_column")
    assert "a, b, c" in refused.json()["detail"]


def test_chats_as_json_lines_are_uploaded_when_a_column_is_named(client, tenant, secret):
    chat = {"messages": [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "greeting"}]}
    data = b"".join(json.dumps(chat).encode() + b"\n" for _ in range(3))
    media = "application/x-ndjson"
    assert send(client, secret, data, media=media, purpose="examples").status_code == 400
    assert send(client, secret, data, media=media, input="input", output="output").status_code == 201
    assert rows_of(tenant)[0]["output"] == "greeting"


def test_inputs_alone_are_captures(client, tenant, secret):
    answer = send(client, secret, b"text\nwhere is it\nsend it back\n")
    assert (answer.status_code, answer.json()["purpose"]) == (201, "captures")
    refused = send(client, secret, b"text\nwhere is it\nsend it back\n", purpose="examples")
    assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (400, "/purpose")


def test_parquet_is_read_in_a_process_of_its_own(client, tenant, secret):
    pyarrow = pytest.importorskip("pyarrow", reason="needs the extra `data`")
    from pyarrow import parquet

    features = {"label": {"names": ["neg", "pos"], "_type": "ClassLabel"}}
    table = pyarrow.table({"text": [f"text {n}" for n in range(40)], "label": [n % 2 for n in range(40)]})
    table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    sink = io.BytesIO()
    parquet.write_table(table, sink)
    media = "application/vnd.apache.parquet"
    body = send(client, secret, sink.getvalue(), "/inspect", media=media).json()
    assert (body["format"], [label["name"] for label in body["labels"]]) == ("parquet", ["neg", "pos"])
    for damaged in (sink.getvalue()[:300], b"PAR1" + b"\xff" * 4_000 + b"PAR1"):
        refused = send(client, secret, damaged, "/inspect", media=media)
        assert (refused.status_code, refused.json()["code"]) == (400, "unreadable_source")


@pytest.mark.parametrize("data", [b"PK\x03\x04", b"<html>", b" ", b"\x00\x01\x02"])
def test_what_is_no_table_is_refused_with_what_to_do(client, secret, data):
    refused = send(client, secret, data)
    assert refused.status_code == 400
    assert refused.json()["code"] in ("unreadable_source", "invalid_upload")


def test_bad_rows_are_left_out_and_told_by_their_reason(client, tenant, secret):
    data = TABLE + b";a\r\n" * 20
    (group,) = send(client, secret, data, "/inspect").json()["problems"]
    assert (group["reason"], group["n"], len(group["examples"])) == ("has no input", 20, 3)
    assert send(client, secret, data).json()["n_rows"] == 60


def test_a_file_beyond_the_limit_of_bodies_is_refused_before_it_is_read(secret):
    from backend.asgi import application

    headers = {
        "content_type": "text/csv",
        "content_length": "200000000",
        "authorization": bearer(secret)["Authorization"],
    }
    status, _, body = send_to(application, b"x", path="/v1/uploads", **headers)
    assert (status, json.loads(body)["code"]) == (413, "payload_too_large")
    assert "at most 32 MB" in json.loads(body)["detail"]


def test_rows_beyond_an_uploads_size_are_sampled_evenly(client, tenant, secret):
    data = b"text,label\n" + b"".join(b"%d %s,%s\n" % (n, b"x" * 3_000, b"ab"[n % 2 : n % 2 + 1]) for n in range(2_500))
    answer = send(client, secret, data)
    assert answer.status_code == 201
    assert 4_500_000 < answer.json()["size_bytes"] <= 5_000_000
    numbers = [int(row["input"].split()[0]) for row in rows_of(tenant)]
    assert numbers == sorted(numbers)
    assert numbers[0] < 50
    assert numbers[-1] > 2_450


def test_uploads_are_listed_by_purpose_and_name(client, secret):
    send(client, secret, TABLE, name="one")
    send(client, secret, b"text\nwhere is it\nsend it back\n", name="two")
    listed = client.get("/v1/uploads?purpose=examples", headers=bearer(secret)).json()["data"]
    assert [row["name"] for row in listed] == ["one"]
    listed = client.get("/v1/uploads?name=two", headers=bearer(secret)).json()["data"]
    assert [row["purpose"] for row in listed] == ["captures"]
    assert client.get("/v1/uploads?purpose=else", headers=bearer(secret)).status_code == 400


@pytest.mark.parametrize("name", ["a/b", "upl_mine", "x" * 101, "line\tbreak\x07"])
def test_a_name_that_no_spec_could_write_is_refused(client, secret, name):
    refused = send(client, secret, TABLE, name=name)
    assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (400, "/name")


def named_spec(name: str) -> dict[str, Any]:
    return {**small_spec(), "examples": {"upload": name, "holdout": 0.5}}


def upload_gold(client: Client, secret: str, name: str) -> str:
    lines = b"".join(json.dumps(row).encode() + b"\n" for row in gold(60))
    answer = send(client, secret, lines, media="application/x-ndjson", purpose="examples", name=name)
    assert answer.status_code == 201, answer.content
    return answer.json()["id"]


def test_a_spec_means_the_newest_upload_of_a_name_and_keeps_its_id(client, tenant, secret):
    first = upload_gold(client, secret, "tickets")
    second = upload_gold(client, secret, "tickets")
    with tenant_scope(tenant.id):
        spec, _ = submission.check(tenant.id, named_spec("tickets"))
    assert spec.examples.upload == second != first


def test_a_name_of_another_team_or_purpose_is_unknown(client, tenant, secret):
    other = make_tenant()
    upload_gold(client, make_api_key(other), "tickets")
    send(client, secret, b"text\nwhere is it\nsend it back\n", name="tickets")
    with tenant_scope(tenant.id), pytest.raises(InvalidSpec) as refused:
        submission.check(tenant.id, named_spec("tickets"))
    assert refused.value.problems[0].code == "unknown_upload"

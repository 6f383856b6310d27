"""The ASGI door: bodies are counted before Django spools them."""

import json
from typing import Any

import pytest

from backend.rest.bodies.body_limits import limit_bodies, limit_of
from backend.rest.bodies.body_senders import Area, SenderBook
from tests.backend.asgi_requests import send_to

EVERYBODY = SenderBook([Area(prefix="/", credential="host", find=lambda path, credential: "somebody")])


async def counting(scope: Any, receive: Any, send: Any) -> None:
    """An application that answers how many bytes it was given."""
    n, more = 0, True
    while more:
        message = await receive()
        n, more = n + len(message["body"]), message["more_body"]
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": str(n).encode()})


@pytest.mark.parametrize(
    ("path", "content_type", "limit"),
    [
        ("/v1/compiles", "application/json", 1_000_000),
        ("/v1/compiles", "Application/JSON; charset=utf-8", 1_000_000),
        ("/v1/compiles", "", 1_000_000),
        ("/v1/uploads", "application/x-ndjson", 32_000_000),
        ("/v1/select", "application/x-ndjson", 512_000_000),
        ("/v1/select", "application/jsonl; charset=utf-8", 512_000_000),
        ("/v1/select", "application/json", 1_000_000),
        ("/v1/select/sel_1/cancel", "application/x-ndjson", 5_000_000),
        ("/internal/runner/jobs/job_1/blobs/00", "application/octet-stream", 1_100_000_000),
        ("/internal/runner/jobs/job_1/uploads/00/9/parts/0", "application/octet-stream", 8 << 20),
    ],
)
def test_the_limit_goes_by_address_and_type(path, content_type, limit):
    assert limit_of(path, content_type) == limit


def test_a_body_within_its_length_passes():
    assert send_to(limit_bodies(counting, EVERYBODY), b"ab", b"c", content_length="3")[2] == b"3"


@pytest.mark.parametrize(
    ("parts", "headers", "status", "code"),
    [
        ([b"x"], {"content_length": "50000000"}, 413, "payload_too_large"),
        ([b"x"], {"content_length": "9" * 400}, 413, "payload_too_large"),
        ([b"x"], {"content_length": "1_0"}, 400, "bad_request"),
        ([b"x"], {"content_length": "-1"}, 400, "bad_request"),
        ([b"x"], {"content_length": "1000001", "content_type": "application/json"}, 413, "payload_too_large"),
        ([b"x"], {"content_length": "5000001", "content_type": "application/x-ndjson"}, 413, "payload_too_large"),
        ([b"a"], {"content_length": "3"}, 400, "incomplete_body"),
        ([b"ab", b"cd"], {"content_length": "3"}, 400, "incomplete_body"),
        ([b"ab", b"cd"], {"transfer_encoding": "chunked"}, 411, "length_required"),
        ([b""], {"transfer_encoding": "chunked"}, 411, "length_required"),
    ],
)
def test_a_body_against_the_rules_is_refused(parts, headers, status, code):
    answered, headers, body = send_to(limit_bodies(counting, EVERYBODY), *parts, **headers)
    assert (answered, headers["content-type"]) == (status, "application/problem+json")
    assert json.loads(body)["code"] == code
    assert json.loads(body)["request_id"] == headers["x-request-id"]


def test_a_body_that_ends_early_is_refused_by_the_real_application():
    from backend.asgi import application

    status, headers, body = send_to(
        application,
        b'{"name"',
        path="/healthz",
        content_length="500",
        content_type="application/json",
        host="localhost",
    )
    assert (status, headers["content-type"]) == (400, "application/problem+json")
    assert json.loads(body)["code"] == "incomplete_body"

"""What is asked again, how often and how long after; and what comes out as which error."""

import random
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from gpu_runners import kolm
from gpu_runners.kolm.transport import backoff_s
from tests.gpu_runners.wire import Say, Wire, wire

BUSY = Say(status=503, body={"code": "unavailable", "detail": "Soon.", "retryable": True})


def client_of(server: Wire, pauses: list[float] | None = None) -> kolm.Client:
    client = kolm.Client("sk_test_x", server.url)
    client.transport.rng = random.Random(1)
    client.transport.sleep = (pauses if pauses is not None else []).append
    return client


def problem(status: int, code: str, **more: Any) -> Say:
    return Say(status=status, body={"code": code, "detail": "No.", "request_id": "req_1", **more})


def test_a_post_carries_one_idempotency_key_over_all_its_tries() -> None:
    with wire(BUSY, Say(cuts=True), problem(409, "idempotency_in_flight"), Say(body={"id": "x"})) as server:
        with client_of(server) as client:
            assert client.post("/v1/things", {"a": 1}) == {"id": "x"}
            client.post("/v1/things", {"a": 1})
        keys = [asked.headers["idempotency-key"] for asked in server.asked]
        assert len(set(keys[:4])) == 1
        assert keys[4] != keys[0]
        assert [asked.body for asked in server.asked[:4]] == [b'{"a":1}'] * 4


def test_it_gives_up_after_four_tries_and_says_what_the_last_one_said() -> None:
    with wire(BUSY) as server, client_of(server) as client:
        with pytest.raises(kolm.ServerError, match="Soon") as refused:
            client.get("/v1/things")
        assert (len(server.asked), refused.value.code, refused.value.retryable) == (4, "unavailable", True)


@pytest.mark.parametrize("form", ["seconds", "date"])
def test_it_waits_as_long_as_retry_after_says_and_a_little_more(form: str) -> None:
    value = "7" if form == "seconds" else format_datetime(datetime.now(UTC) + timedelta(seconds=7), usegmt=True)
    pauses: list[float] = []
    with wire(problem(429, "rate_limited", retryable=True), Say()) as server:
        server.script[0] = Say(status=429, body=server.script[0].body, headers={"Retry-After": value})
        with client_of(server, pauses) as client:
            client.get("/v1/things")
    assert len(pauses) == 1
    assert 5 < pauses[0] < 8  # a date has whole seconds


def test_a_server_that_asks_for_an_hour_is_reported_and_not_waited_for() -> None:
    pauses: list[float] = []
    with wire(Say(status=429, body={"code": "rate_limited"}, headers={"Retry-After": "3600"})) as server:
        client = client_of(server, pauses)
        with client, pytest.raises(kolm.RateLimited) as refused:
            client.get("/v1/things")
    assert (pauses, refused.value.retry_after_s) == ([], 3600.0)


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (400, "invalid_request", kolm.InvalidRequest),
        (401, "invalid_api_key", kolm.Unauthenticated),
        (402, "spend_cap_reached", kolm.PaymentRequired),
        (403, "missing_scope", kolm.Forbidden),
        (404, "not_found", kolm.NotFound),
        (409, "wrong_state", kolm.Conflict),
        (422, "invalid_spec", kolm.InvalidRequest),
        (500, "internal", kolm.ServerError),
    ],
)
def test_what_is_refused_is_not_asked_again_and_has_its_own_error(status: int, code: str, kind: type) -> None:
    with wire(problem(status, code)) as server, client_of(server) as client:
        with pytest.raises(kind) as refused:
            client.post("/v1/things", {})
        found = refused.value
        assert (found.status, found.code, found.request_id, len(server.asked)) == (status, code, "req_1", 1)


def test_the_places_of_a_bad_spec_are_in_the_error_and_in_its_sentence() -> None:
    faults = [{"pointer": "/task", "code": "missing", "detail": "is missing"}]
    with wire(problem(422, "invalid_spec", errors=faults)) as server, client_of(server) as client:
        with pytest.raises(kolm.InvalidRequest, match=r"/task: is missing") as refused:
            client.compiles.create({"name": "x"})
        assert refused.value.problems[0].pointer == "/task"


def test_a_delete_that_may_have_arrived_is_not_sent_again() -> None:
    with wire(Say(cuts=True), Say()) as server, client_of(server) as client:
        with pytest.raises(kolm.NotReachable):
            client.delete("/v1/things/1")
        assert len(server.asked) == 1


def test_nobody_there_is_one_error_after_four_tries() -> None:
    pauses: list[float] = []
    with kolm.Client("k", "http://127.0.0.1:9") as client:
        client.transport.sleep = pauses.append
        with pytest.raises(kolm.NotReachable, match="does not answer"):
            client.get("/v1/things")
    assert len(pauses) == 3


def test_pauses_are_spread_and_bounded() -> None:
    rng = random.Random(3)
    assert all(0.05 <= backoff_s(n, rng) <= 15 for n in range(1, 60))
    assert len({backoff_s(5, rng) for _ in range(20)}) == 20


def test_a_list_fetches_its_pages_as_it_is_walked() -> None:
    def page(ids: range, cursor: str | None) -> Say:
        rows = [{"id": f"upl_{i}", "purpose": "captures", "sha256": "", "size_bytes": 1, "n_rows": 1} for i in ids]
        return Say(body={"data": rows, "has_more": cursor is not None, "next_cursor": cursor})

    with wire(page(range(2), "upl_1"), page(range(2, 3), None)) as server, client_of(server) as client:
        rows = client.uploads.list()
        assert next(rows).id == "upl_0"
        assert len(server.asked) == 1
        assert [row.id for row in rows] == ["upl_1", "upl_2"]
        assert server.asked[1].path == "/v1/uploads?limit=100&after=upl_1"


def test_a_limit_ends_a_list_within_a_page() -> None:
    row = {"id": "upl_0", "purpose": "captures", "sha256": "", "size_bytes": 1, "n_rows": 1}
    page = Say(body={"data": [row] * 3, "has_more": True, "next_cursor": "upl_0"})
    with wire(page) as server, client_of(server) as client:
        assert len(list(client.uploads.list(limit=3))) == 3
        assert [asked.path for asked in server.asked] == ["/v1/uploads?limit=3"]


def test_an_answer_that_lacks_what_its_class_needs_is_an_error_of_ours() -> None:
    with wire(Say(body={"id": "cmp_1"})) as server, client_of(server) as client:
        compiles = client.compiles
        with pytest.raises(kolm.KolmError, match="no 'name'"):
            compiles.get("cmp_1")


def test_a_run_gives_the_fields_of_a_span_student_as_values() -> None:
    copied = {"path": "/city", "start": 6, "end": 12, "confidence_ppm": 990_000}
    chosen = {"path": "/when", "start": None, "end": None, "confidence_ppm": 410_000}
    output = {"output": "{}", "finish_reason": "stop", "n_tokens": 0, "latency_us": 9, "confidence": 0.4}
    body = {"artifact": "art_x", "outputs": [output | {"fields": [copied, chosen]}, output]}
    with wire(Say(body=body)) as server, client_of(server) as client:
        first, second = client.artifacts.predict("art_x", ["a for Berlin", "b"])
    assert [(one.path, one.start, one.confidence) for one in first.fields] == [
        ("/city", 6, 0.99),
        ("/when", None, 0.41),
    ]
    assert second.fields == ()

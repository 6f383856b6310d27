"""Selection as a service on a whole deployment: texts in, picks out, by the runner that also trains."""

import contextlib
import http.client
import json

import pytest

from tests.acceptance.deployment import Customer, Deployment, eventually

pytestmark = pytest.mark.timeout(240)

TOPICS = ("refund of order", "parcel of order", "invoice for order")
ROWS = [
    {"id": f"{topic.split()[0]}-{i}", "text": f"question {i} about the {topic} {100 + i}", "score": (i * 7 % 10) / 10}
    for topic in TOPICS
    for i in range(10)
]
LINES = "".join(json.dumps(row) + "\n" for row in ROWS)


def ask(customer: Customer, body: str, query: str = "", **headers: str) -> tuple[int, dict]:
    given = {"Content-Type": "application/x-ndjson", "Prefer": "wait=25"} | headers
    answer = customer.api.post(f"/v1/select{query}", content=body, headers=given)
    return answer.status_code, answer.json()


def ended(customer: Customer, selection: dict) -> dict:
    """Its end: the runner may be at a training when it is asked."""

    def look() -> dict | None:
        found = customer.get(f"/v1/select/{selection['id']}")
        return found if found["status"] not in ("queued", "running") else None

    return eventually(look, within_s=150, every_s=0.5, what=f"{selection['id']} ends")


def test_texts_come_back_as_picks_with_a_report_and_the_same_ones_each_time(customer: Customer, stranger: Customer):
    status, first = ask(customer, LINES, "?k=6&method=two_step&score_floor=0")
    assert status in (201, 202), first
    body = ended(customer, first)
    assert body["status"] == "succeeded", body
    picks = body["picks"]["data"]
    assert [pick["rank"] for pick in picks] == [1, 2, 3, 4, 5, 6]
    assert len({pick["cluster"] for pick in picks}) == 6
    assert (body["report"]["method"], body["report"]["k_actual"], body["report"]["n"]) == ("two_step", 6, 30)
    assert "K target: 6" in body["cohesion_log"]
    assert body["cost_microusd"] >= 0
    rows = customer.get(f"/v1/select/{body['id']}/rows", limit=1000)["data"]
    assert [row["id"] for row in rows] == [row["id"] for row in ROWS]
    assert {row["id"] for row in rows if row["state"] == "picked"} == {pick["id"] for pick in picks}
    assert stranger.api.get(f"/v1/select/{body['id']}").status_code == 404

    shuffled = "".join(json.dumps(row) + "\n" for row in ROWS[::-1])
    again = ended(customer, ask(customer, shuffled, "?k=6&method=two_step&score_floor=0")[1])
    assert [pick["id"] for pick in again["picks"]["data"]] == [pick["id"] for pick in picks]
    assert again["report"]["picks_sha256"] == body["report"]["picks_sha256"]


def test_a_broken_line_is_named_and_ten_gigabytes_are_refused_up_front(customer: Customer, deployment: Deployment):
    status, problem = ask(customer, LINES + '{"text": "a"\n')
    assert (status, problem["code"], problem["errors"][0]["pointer"]) == (400, "invalid_rows", "/31")
    connection = http.client.HTTPConnection(deployment.url.removeprefix("http://"), timeout=20)
    connection.putrequest("POST", "/v1/select")
    connection.putheader("Content-Type", "application/x-ndjson")
    connection.putheader("Content-Length", str(10**10))
    connection.endheaders()
    with contextlib.closing(connection):
        answer = connection.getresponse()
        problem = json.loads(answer.read())
    assert (answer.status, problem["code"]) == (413, "payload_too_large")
    assert "512,000,000 bytes" in problem["detail"]

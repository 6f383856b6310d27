"""One Idempotency-Key, many requests at once."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.acceptance.deployment import Customer
from tests.acceptance.specs import asks, small_spec
from tests.acceptance.teacher_server import TeacherServer

pytestmark = pytest.mark.timeout(60)
N_REQUESTS = 20


def test_a_key_that_is_sent_by_many_at_once_starts_one_compile(customer: Customer, teacher: TeacherServer) -> None:
    spec = small_spec("at-once", teacher=asks(teacher.url, "stuck-at-once"))

    def post(_: int) -> httpx.Response:
        return customer.api.post("/v1/compiles", json=spec, headers={"Idempotency-Key": "at-once"})

    with ThreadPoolExecutor(N_REQUESTS) as pool:
        answers = list(pool.map(post, range(N_REQUESTS)))
    codes = Counter(answer.status_code for answer in answers)
    assert set(codes) <= {202, 409}
    assert {answer.json()["code"] for answer in answers if answer.status_code == 409} <= {"idempotency_in_flight"}
    (compile_id,) = {answer.json()["id"] for answer in answers if answer.status_code == 202}
    assert sum("idempotent-replayed" not in answer.headers for answer in answers if answer.status_code == 202) == 1
    assert [row["id"] for row in customer.get("/v1/compiles", name="at-once")["data"]] == [compile_id]
    assert customer.api.post(f"/v1/compiles/{compile_id}/cancel").status_code == 202
    assert customer.ended(compile_id, within_s=20)["status"] == "canceled"

"""kill -9 of the serving runner, and of the gateway, while answers stream: whoever listens is told or cut off, the next
request is answered, and every answer is booked once, with every token that was received."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from backend.domain.serving.deployments import COMPLETION_SKU
from deploy.embedded.layout import Part
from tests.acceptance.deployment import Customer, Deployment, Row, eventually
from tests.acceptance.json_specs import small_orders
from tests.acceptance.serving_books import ledger_is_whole, n_answers, promised, served_facts, tokens_of
from tests.faults.killing import kill
from tests.tiny_bases import tiny_bases  # noqa: F401 (a fixture)

pytestmark = pytest.mark.timeout(1800)
CHAT = "/v1/chat/completions"
N_STREAMS, N_BEFORE = 6, 5
# hot, unconstrained and long: it is still being written when the kill comes
ASKED = {
    "model": "orders-kills",
    "messages": [{"role": "user", "content": "Tell me of order 20417."}],
    "response_format": {"type": "text"},
    "temperature": 2,
    "max_tokens": 700,
}


@dataclass(slots=True, kw_only=True)
class Listened:
    """What one stream brought, and how it ended: done, error (told in the stream), cut."""

    n_pieces: int = 0
    end: str = "cut"


class Streams:
    """Several answers at once. Each is waited for until it has brought N_BEFORE pieces, or has ended before: a model
    that was trained here may stop early."""

    def __init__(self, customer: Customer) -> None:
        self._customer, self._ready = customer, threading.Semaphore(0)

    def listen(self, seed: int) -> Listened:
        heard = Listened()
        try:
            with self._customer.api.stream("POST", CHAT, json=ASKED | {"stream": True, "seed": seed}) as said:
                assert said.status_code == 200, said.read()
                for line in said.iter_lines():
                    self._take(heard, line)
        except httpx.HTTPError:
            pass
        finally:
            if heard.n_pieces < N_BEFORE:
                self._ready.release()
        return heard

    def wait_for_all(self) -> None:
        for _ in range(N_STREAMS):
            assert self._ready.acquire(timeout=90), "a stream has not begun"

    def _take(self, heard: Listened, line: str) -> None:
        if not line.startswith("data:"):
            return
        if line[5:].strip() == "[DONE]":
            heard.end = "done"
            return
        event: dict[str, Any] = json.loads(line[5:])
        if "error" in event:
            assert event["error"]["code"] == "server_lost"
            heard.end = "error"
        elif event["choices"] and event["choices"][0]["delta"].get("content"):
            heard.n_pieces += 1
            if heard.n_pieces == N_BEFORE:
                self._ready.release()


@pytest.fixture(scope="module")
def deployed(tiny_bases: Path, customer: Customer) -> Row:  # noqa: F811
    """A name that answers, and has answered."""
    compile = customer.succeeded(customer.compile(small_orders("orders-kills")), within_s=300)
    made = customer.api.post("/v1/deployments", json={"name": ASKED["model"], "artifact": compile["artifact"]})
    assert made.status_code == 201, made.text
    assert customer.api.post(CHAT, json=ASKED | {"max_tokens": 2}, timeout=120).status_code == 200
    found: Row = made.json()
    return found


@pytest.mark.parametrize("part", [Part.SERVER, Part.WEB])
def test_a_kill_in_mid_answer_loses_no_token_and_books_none_twice(
    deployment: Deployment, customer: Customer, deployed: Row, part: Part
) -> None:
    # what was asked before, by the fixture and the test before this one, is told
    eventually(lambda: promised(deployment, customer) == 0, within_s=30)
    before = served_facts(deployment, customer)
    streams = Streams(customer)
    with ThreadPoolExecutor(N_STREAMS) as pool:
        listening = [pool.submit(streams.listen, seed) for seed in range(N_STREAMS)]
        streams.wait_for_all()
        kill(deployment, part)
        heard = [each.result(timeout=120) for each in listening]
    ended = {each.end for each in heard}
    assert ended <= ({"error", "done"} if part is Part.SERVER else {"cut", "done"})
    assert ended != {"done"}, "nothing was being answered when the kill came"

    eventually(lambda: is_answered(customer), within_s=90, every_s=0.5, what=f"{part} answers again")
    eventually(lambda: promised(deployment, customer) == 0, within_s=60, what="everything is told")
    after = served_facts(deployment, customer)
    n_new = n_answers(after) - n_answers(before)
    assert n_new == N_STREAMS + 1
    n_tokens = tokens_of(after)[COMPLETION_SKU] - tokens_of(before)[COMPLETION_SKU]
    n_heard = sum(each.n_pieces for each in heard)
    assert n_heard <= n_tokens <= N_STREAMS * ASKED["max_tokens"] + 2
    assert {fact["billing"] for fact in after} == {"charge"}
    figures = customer.get(f"/v1/deployments/{deployed['id']}")["last_24h"]
    assert sum(row["n_requests"] for row in figures) == n_answers(after)
    assert sum(row["completion_tokens"] for row in figures) == tokens_of(after)[COMPLETION_SKU]
    assert ledger_is_whole(deployment)


def is_answered(customer: Customer) -> bool:
    """One request, asked until it is answered; what was refused costs nothing."""
    try:
        said = customer.api.post(CHAT, json=ASKED | {"max_tokens": 2}, timeout=120)
    except httpx.HTTPError:
        return False
    assert said.status_code == 200 or said.status_code >= 500, said.text
    return said.status_code == 200

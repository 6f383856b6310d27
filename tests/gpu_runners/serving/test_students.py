"""Students on encoders behind the server of many tenants: opened by grants, asked over a socket, noted like others."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from backend.domain.serving.wire import Grant, UsageRow
from gpu_runners.errors import JobFailed
from gpu_runners.models.bases import MINILM
from gpu_runners.models.causal_base import CausalBase
from gpu_runners.serving.adapter_files import KolmFiles
from gpu_runners.serving.adapter_store import AdapterStore
from gpu_runners.serving.engine_pool import Bases, EnginePool
from gpu_runners.serving.fair_scheduler import FairScheduler
from gpu_runners.serving.journal import Journal
from gpu_runners.serving.multi_tenant import GrantedResponder
from gpu_runners.serving.openai.app import make_app
from gpu_runners.serving.server_context import ServerContext
from gpu_runners.serving.students import Students
from tests.gpu_runners.serving.running_server import running_server
from tests.gpu_runners.serving.small_adapters import ALICE, BOB, grant_for, pinned_keyring, signed
from tests.gpu_runners.serving.small_backend import KEY, small_backend
from tests.gpu_runners.small_orders import SCHEMA, order_pairs, spans_kolm
from tests.gpu_runners.small_packs import label_rules
from tests.gpu_runners.small_task import Trained, kolm_of, task_rows

TEXT, ANSWER = order_pairs(1, start=53)[0]
MIB = 1 << 20


class Server:
    """The application without its port, over real students; the backend is a dict."""

    def __init__(self, folder: Path, *, ram_bytes: int = 1_000 * MIB, dedicated: str = "") -> None:
        self.kolms: dict[str, bytes] = {}
        students = Students(base_dir=None, is_served=lambda name: name == MINILM)
        store = AdapterStore(
            kolms=KolmFiles(folder / "artifacts", max_bytes=1 << 26),
            unpacked=folder / "unpacked",
            ram_bytes=ram_bytes,
            fetch=self.fetch,
            open_base=no_causal_base,
            keyring=pinned_keyring(folder),
            students=students,
        )
        self.context = ServerContext(
            key=KEY,
            store=store,
            engines=EnginePool(no_engine, most=1),
            scheduler=FairScheduler(max_running=2, max_waiting=16, max_tenant_waiting=8),
            journal=Journal(folder / "usage"),
            students=students,
            dedicated=dedicated,
        )
        self.app = make_app(GrantedResponder(self.context))

    async def fetch(self, sha256: str, token: str) -> bytes:
        return self.kolms[sha256]

    def grant(self, data: bytes, *, tenant: str = ALICE, **changed: object) -> Grant:
        grant = grant_for(data, tenant=tenant, **changed)
        self.kolms[grant.sha256] = data
        return grant

    def rows(self) -> list[UsageRow]:
        return [row for _, row in self.context.journal.next_unbooked(1000)]


def no_causal_base(name: str) -> CausalBase:
    raise JobFailed(f"There is no {name}.", code="unknown_base")


async def no_engine(adapter: object) -> Any:
    raise AssertionError("no engine is needed for a student")


@asynccontextmanager
async def asking(server: Server) -> AsyncIterator[Callable[..., Awaitable[httpx.Response]]]:
    transport = httpx.ASGITransport(server.app)
    async with httpx.AsyncClient(transport=transport, base_url="http://server", timeout=60) as client:

        async def ask(grant: Grant, text: str = TEXT, **more: Any) -> httpx.Response:
            body = {"model": "orders", "messages": [{"role": "user", "content": text}]} | more
            headers = {"Authorization": f"Bearer {signed(grant)}"}
            return await client.post("/v1/chat/completions", json=body, headers=headers)

        yield ask


@pytest.fixture(scope="module")
def orders() -> bytes:
    return spans_kolm(tenant=ALICE)


@pytest.fixture
def server(tmp_path: Path) -> Server:
    return Server(tmp_path)


def test_a_span_student_answers_with_its_json_and_is_billed_for_what_it_read(server: Server, orders: bytes) -> None:
    async def scene() -> int:
        async with asking(server) as ask:
            body = (await ask(server.grant(orders))).json()
            assert json.loads(body["choices"][0]["message"]["content"]) == ANSWER
            assert [one["path"] for one in body["kolm"]["fields"]] == ["/item", "/city", "/urgency"]
            streamed = await ask(server.grant(orders, request="req-2"), stream=True)
            assert streamed.text.rstrip().endswith("data: [DONE]")
            assert json.loads(streamed.text.split("\n")[0][6:])["kolm"]["confidence"] == body["kolm"]["confidence"]
            schema = {"type": "json_schema", "json_schema": {"name": "o", "schema": SCHEMA | {"title": "Order"}}}
            assert (await ask(server.grant(orders, request="req-3"), response_format=schema)).status_code == 200
            assert (await ask(server.grant(orders, request="req-4"), tools=[])).status_code == 200
        return int(body["usage"]["total_tokens"])

    n_read = asyncio.run(scene())
    rows = server.rows()
    assert n_read > len(TEXT.split())
    assert {(row.prompt_tokens, row.completion_tokens, row.finish_reason) for row in rows} == {(n_read, 0, "stop")}
    assert len(rows) == 4
    assert server.context.about() == {"name": "encoder", "device": "cpu"}
    assert server.context.store.counts["fetched"] == 1, "one artifact, kept in memory"


def test_a_label_student_answers_with_its_label_and_its_rules_before_it(server: Server, trained: Trained) -> None:
    row = task_rows(1, start=11)[0]

    async def scene() -> None:
        mails = kolm_of(trained, tenant=ALICE, rules=label_rules(("parcel", "delivery")))
        async with asking(server) as ask:
            body = (await ask(server.grant(mails), row["input"])).json()
            assert body["choices"][0]["message"]["content"] == row["label"]
            ruled = (await ask(server.grant(mails, request="req-2"), "where is my parcel")).json()
            assert (ruled["choices"][0]["message"]["content"], ruled["kolm"]["rule"]) == ("delivery", 1)

    asyncio.run(scene())
    by_model, by_rule = server.rows()
    assert by_model.prompt_tokens > 0
    assert (by_rule.finish_reason, by_rule.prompt_tokens, by_rule.completion_tokens) == ("rule", 0, 0)


def test_another_tenants_student_a_revoked_one_and_a_completion_are_refused(server: Server, orders: bytes) -> None:
    async def scene() -> None:
        async with asking(server) as ask:
            stolen = await ask(server.grant(orders, tenant=BOB))
            assert (stolen.status_code, stolen.json()["error"]["code"]) == (403, "artifact_refused")
            grant = server.grant(orders)
            assert (await ask(grant)).status_code == 200
            server.context.store.revoke(grant.sha256)
            assert (await ask(grant)).json()["error"]["code"] == "artifact_revoked"

    asyncio.run(scene())
    assert server.context.refusals["artifact_revoked"] == 1


def test_memory_holds_as_many_students_as_it_is_allowed_and_the_others_come_from_the_disk(
    tmp_path: Path, orders: bytes
) -> None:
    server = Server(tmp_path, ram_bytes=80 * MIB)
    other = spans_kolm(tenant=ALICE, evals=b"{}")

    async def scene() -> None:
        async with asking(server) as ask:
            for data in (orders, other, orders):
                assert (await ask(server.grant(data))).status_code == 200

    asyncio.run(scene())
    store = server.context.store
    assert (store.n_in_ram, store.counts["evicted"], store.counts["disk_hits"]) == (1, 2, 1)
    assert 50 * MIB < store.ram_bytes < 80 * MIB


def test_the_loop_goes_on_while_students_answer(server: Server, orders: bytes) -> None:
    long = " ".join(text for text, _ in order_pairs(250))

    async def scene() -> float:
        longest, stop = 0.0, asyncio.Event()

        async def watch() -> None:
            nonlocal longest
            while not stop.is_set():
                began = time.monotonic()
                await asyncio.sleep(0.01)
                longest = max(longest, time.monotonic() - began)

        async with asking(server) as ask:
            await ask(server.grant(orders))  # loads the base
            watcher = asyncio.create_task(watch())
            began = time.monotonic()
            answers = await asyncio.gather(*(ask(server.grant(orders, request=f"r{i}"), long) for i in range(3)))
            took = time.monotonic() - began
            stop.set()
            await watcher
        assert {answer.status_code for answer in answers} == {200}
        return longest / took

    assert asyncio.run(scene()) < 0.7


def test_a_base_that_is_not_served_is_refused_and_the_dedicated_server_answers_for_one(
    tmp_path: Path, orders: bytes
) -> None:
    server = Server(tmp_path, dedicated=grant_for(orders).sha256)

    async def scene() -> None:
        async with asking(server) as ask:
            assert (await ask(server.grant(orders))).status_code == 200
            other = await ask(server.grant(spans_kolm(tenant=ALICE, evals=b"{}")))
            assert other.json()["error"]["code"] == "dedicated"

    asyncio.run(scene())


def test_a_server_process_registers_its_encoders_and_reports_what_a_student_read(tmp_path: Path, orders: bytes) -> None:
    bases = tmp_path / "bases"
    bases.mkdir()
    grant = grant_for(orders)
    with small_backend() as backend, running_server(tmp_path, backend.url, bases) as running:
        backend.kolms[grant.sha256] = orders
        backend.wait_until(lambda: backend.hellos)
        assert backend.hellos[0].bases[0]["students"] == ["label", "spans"]
        answer = running.ask(grant, TEXT)
        assert answer.status_code == 200, answer.text
        assert json.loads(answer.json()["choices"][0]["message"]["content"]) == ANSWER
        backend.wait_until(lambda: backend.rows)
        assert backend.hellos[-1].engine == {"name": "encoder", "device": "cpu"}
    (row,) = backend.rows.values()
    assert row.prompt_tokens == answer.json()["usage"]["prompt_tokens"] > 0
    assert row.completion_tokens == 0


def test_a_server_names_the_students_of_its_encoders(tmp_path: Path) -> None:
    causal = tmp_path / "chat"
    causal.mkdir()
    (causal / "config.json").write_text('{"architectures": ["LlamaForCausalLM"]}')
    bases = Bases(base_dir=tmp_path, names=())
    assert bases.names() == ["chat", MINILM]
    (listed,) = bases.list_bases()  # the other has no weights
    assert (listed["id"], listed["students"]) == (MINILM, ["label", "spans"])

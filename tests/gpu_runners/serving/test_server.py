"""The server as a process: real engine, real base, real adapters; the backend alone is a double."""

import asyncio
import json
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from backend.domain.serving.wire import Grant
from gpu_runners.models.causal_base import CausalBase, open_causal_base
from gpu_runners.serving.__main__ import make_context
from gpu_runners.serving.backend_client import Backend
from gpu_runners.serving.engine_pool import Bases
from gpu_runners.serving.multi_tenant import GrantedResponder
from gpu_runners.serving.openai.app import make_app
from gpu_runners.serving.server_config import read_server_config
from tests.gpu_runners.serving.running_server import (
    RunningServer,
    bearer,
    body,
    endless,
    n_tokens,
    running_server,
    settings_in,
)
from tests.gpu_runners.serving.small_adapters import ALICE, BOB, attention_shapes, grant_for, kolm_of
from tests.gpu_runners.serving.small_backend import SmallBackend, small_backend
from tests.tiny_bases import tiny_bases  # noqa: F401

NAME, CHAT = "kolm-tiny-1", "/v1/chat/completions"


@pytest.fixture(scope="module")
def base(tiny_bases: Path) -> CausalBase:  # noqa: F811
    return open_causal_base(NAME, base_dir=tiny_bases)


@pytest.fixture(scope="module")
def kolms(base: CausalBase) -> dict[str, bytes]:
    """Three of Alice's and one of Bob's, each with its own behaviour."""
    shapes = attention_shapes(base)
    tenants = {"alice-1": ALICE, "alice-2": ALICE, "alice-3": ALICE, "bob": BOB}
    return {
        name: kolm_of(base, seed=seed, tenant=tenant, shapes=shapes, scale=0.3, rank=8, alpha=16)
        for seed, (name, tenant) in enumerate(tenants.items())
    }


@pytest.fixture(scope="module")
def backend(kolms: dict[str, bytes]) -> Iterator[SmallBackend]:
    with small_backend() as backend:
        backend.kolms = {grant_for(data).sha256: data for data in kolms.values()}
        yield backend


@pytest.fixture(scope="module")
def server(
    backend: SmallBackend, base: CausalBase, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    with running_server(tmp_path_factory.mktemp("server"), backend.url, base.folder.parent) as server:
        yield server


class Grants:
    """A fresh grant a request, as the gateway makes them."""

    def __init__(self, kolms: dict[str, bytes]) -> None:
        self._kolms, self._n = kolms, 0

    def __call__(self, name: str, **changed: object) -> Grant:
        self._n += 1
        tenant = BOB if name == "bob" else ALICE
        return grant_for(self._kolms[name], **({"tenant": tenant, "request": f"req-{self._n}"} | changed))


@pytest.fixture(scope="module")
def grants(kolms: dict[str, bytes]) -> Grants:
    return Grants(kolms)


def test_it_registers_with_its_bases_before_it_has_loaded_anything(
    server: RunningServer, backend: SmallBackend
) -> None:
    backend.wait_until(lambda: backend.hellos)
    hello = backend.hellos[0]
    assert NAME in [one["id"] for one in hello.bases]  # beside what else lies in build/bases
    assert (hello.url, hello.engine["name"], hello.draining) == (server.url, "none yet", False)
    assert not any(name.startswith("kolm_server_engine_info") for name in server.metrics())


def test_each_tenants_requests_in_one_batch_get_their_own_adapter(server: RunningServer, grants: Grants) -> None:
    names = ["alice-1", "alice-2", "alice-3", "bob"]
    alone = {name: server.text(grants(name)) for name in names}
    assert len(set(alone.values())) == 4
    with ThreadPoolExecutor(16) as pool:
        together = list(pool.map(lambda name: (name, server.text(grants(name))), names * 4))
    assert [text for _, text in together] == [alone[name] for name, _ in together]
    assert any("engine_info" in name for name in server.metrics())


def test_another_tenants_artifact_and_a_forged_grant_are_refused(server: RunningServer, grants: Grants) -> None:
    assert server.ask(grants("alice-1", tenant=BOB)).status_code == 403
    assert server.ask(grants("bob")).status_code == 200
    forged = {"Authorization": bearer(grants("bob"))["Authorization"][:-4] + "AAAA"}
    response = httpx.post(f"{server.url}/v1/chat/completions", json=body("x"), headers=forged, timeout=30)
    assert (response.status_code, response.json()["error"]["code"]) == (401, "bad_grant")
    assert server.ask(grants("alice-1"), model="art_another").status_code == 403
    assert server.ask(grants("alice-1"), model="../../etc/passwd").status_code in (200, 400, 403, 404)


def test_a_schema_is_kept_while_other_adapters_answer(server: RunningServer, grants: Grants) -> None:
    schema = {
        "type": "object",
        "properties": {"item": {"enum": ["lamp", "chair"]}, "count": {"type": "integer", "minimum": 0, "maximum": 99}},
        "required": ["item", "count"],
        "additionalProperties": False,
    }
    wanted = {"type": "json_schema", "json_schema": {"name": "order", "schema": schema, "strict": True}}
    with ThreadPoolExecutor(4) as pool:
        free = [pool.submit(server.text, grants("bob")) for _ in range(3)]
        told = json.loads(server.text(grants("alice-2"), response_format=wanted, max_tokens=60))
        assert {one.result() for one in free} == {server.text(grants("bob"))}
    assert told["item"] in ("lamp", "chair")
    assert 0 <= told["count"] <= 99


def test_what_is_booked_is_what_clients_got_and_what_the_engine_counted(
    server: RunningServer, backend: SmallBackend, grants: Grants
) -> None:
    grant = grants("alice-1")
    usage = server.ask(grant).json()["usage"]
    backend.wait_until(lambda: server.metrics()["kolm_server_journal_unbooked"] == 0)
    rows = list(backend.rows.values())
    (row,) = (row for row in rows if row.grant == bearer(grant)["Authorization"].removeprefix("Bearer "))
    assert (row.prompt_tokens, row.completion_tokens) == (usage["prompt_tokens"], usage["completion_tokens"])
    counted = server.metrics()
    for name in ("prompt_tokens", "completion_tokens"):
        engine = counted[f'kolm_server_engine_{name}_total{{base="{NAME}"}}']
        assert sum(getattr(row, name) for row in rows) == engine == counted[f"kolm_server_{name}_total"]


def test_a_client_that_hangs_up_frees_its_place_and_is_billed_what_came(
    server: RunningServer, backend: SmallBackend, grants: Grants
) -> None:
    grant, received = grants("alice-1"), 0
    with server.stream(grant, **endless()) as told:
        for chunk in told:
            received += n_tokens(chunk)
            if received >= 10:
                break
    backend.wait_until(lambda: server.metrics()["kolm_server_running"] == 0)
    token = bearer(grant)["Authorization"].removeprefix("Bearer ")
    backend.wait_until(lambda: any(row.grant == token for row in backend.rows.values()))
    (row,) = (row for row in backend.rows.values() if row.grant == token)
    assert row.finish_reason == "canceled"
    assert received <= row.completion_tokens < 400


def test_a_dedicated_server_with_its_adapter_merged_answers_as_the_server_of_many(
    server: RunningServer, backend: SmallBackend, base: CausalBase, grants: Grants, tmp_path: Path
) -> None:
    """In this process: what it is started with and what it loads is all that differs."""
    grant, wanted = grants("alice-2"), server.text(grants("alice-2"))
    environ = settings_in(tmp_path, backend.url, base.folder.parent) | {"KOLM_SERVER_DEDICATED": grant.sha256}

    async def scene() -> None:
        config = read_server_config(environ)
        asked = Backend(api_url=config.api_url, token=config.token)
        context = make_context(config, asked, Bases(base_dir=config.base_dir, names=config.bases))
        door = httpx.ASGITransport(make_app(GrantedResponder(context)))
        async with httpx.AsyncClient(transport=door, base_url="http://here", timeout=110) as client:

            async def ask(grant: Grant) -> Any:
                return (await client.post(CHAT, json=body("The lamp is broken."), headers=bearer(grant))).json()

            assert (await ask(grant))["choices"][0]["message"]["content"] == wanted
            assert (await ask(grants("alice-1")))["error"]["code"] == "dedicated"
        assert context.about()["adapters"] == "merged"
        await context.engines.close()
        context.journal.close()
        await asked.close()

    asyncio.run(scene())


def test_without_its_backend_it_goes_on_and_tells_later(
    server: RunningServer, backend: SmallBackend, grants: Grants
) -> None:
    server.text(grants("alice-2"))
    backend.wait_until(lambda: server.metrics()["kolm_server_journal_unbooked"] == 0)
    before = len(backend.rows)
    backend.down = True
    try:
        for _ in range(3):
            assert server.ask(grants("alice-2")).status_code == 200
        assert server.metrics()["kolm_server_journal_unbooked"] == 3
    finally:
        backend.down = False
    backend.wait_until(lambda: len(backend.rows) == before + 3)


def test_an_artifact_revoked_in_mid_answer_ends_and_is_dropped(
    server: RunningServer, backend: SmallBackend, grants: Grants
) -> None:
    grant, chunks = grants("alice-3"), []
    with server.stream(grant, **endless()) as told:
        for chunk in told:
            chunks.append(chunk)
            if len(chunks) == 5:
                backend.revoked.append(grant.sha256)
    assert chunks[-1]["error"]["code"] == "artifact_revoked"
    assert server.ask(grants("alice-3")).status_code == 410
    assert not list(server.log.parent.rglob(f"*{grant.sha256}*"))
    assert server.ask(grants("alice-1")).status_code == 200


@pytest.mark.nightly
def test_a_server_asked_to_end_finishes_what_runs_and_takes_nothing_new(
    server: RunningServer, backend: SmallBackend, grants: Grants
) -> None:
    answers: list[httpx.Response] = []
    running = threading.Thread(target=lambda: answers.append(server.ask(grants("alice-1"), **endless())))
    running.start()
    backend.wait_until(lambda: server.metrics()["kolm_server_running"] == 1)
    server.process.send_signal(signal.SIGTERM)
    backend.wait_until(lambda: backend.hellos[-1].draining)
    refused = server.ask(grants("alice-1"))
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
    running.join()
    assert answers[0].json()["usage"]["completion_tokens"] == 400
    assert server.process.wait(20) == 0
    assert any(row.completion_tokens == 400 and row.finish_reason == "length" for row in backend.rows.values())


@pytest.mark.nightly
def test_after_kill_9_everything_that_clients_received_is_booked_once(
    backend: SmallBackend, base: CausalBase, grants: Grants, tmp_path: Path
) -> None:
    """Killed in mid-stream with usage of earlier requests untold; the next process tells it all."""
    backend.usage_down, before = True, set(backend.rows)
    given = [grants("alice-1") for _ in range(3)]
    received = dict.fromkeys(range(3), 0)
    with running_server(tmp_path, backend.url, base.folder.parent) as server:
        done = server.ask(grants("bob")).json()["usage"]
        enough = threading.Barrier(4)

        def listen(i: int) -> None:
            with server.stream(given[i], **endless()) as told:
                for n, chunk in enumerate(told):
                    received[i] += n_tokens(chunk)
                    if n == 5:
                        enough.wait(30)

        with ThreadPoolExecutor(3) as pool:
            listening = [pool.submit(listen, i) for i in range(3)]
            enough.wait(30)
            time.sleep(0.1)
            server.kill()
            for one in listening:
                assert isinstance(one.exception(timeout=30), httpx.TransportError)
    assert set(backend.rows) == before
    backend.usage_down = False
    with running_server(tmp_path, backend.url, base.folder.parent):
        backend.wait_until(lambda: len(set(backend.rows) - before) == 4)
    rows = {row.grant: row for key, row in backend.rows.items() if key not in before}
    for i, grant in enumerate(given):
        row = rows[bearer(grant)["Authorization"].removeprefix("Bearer ")]
        assert row.finish_reason == "failed"
        assert received[i] <= row.completion_tokens <= received[i] + 3  # noted, then killed before it was sent
    assert (
        sum(row.completion_tokens for row in rows.values() if row.finish_reason != "failed")
        == (done["completion_tokens"])
    )

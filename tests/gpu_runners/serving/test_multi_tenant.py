"""Many tenants behind one engine: what a grant opens, what is noted of it, and how it ends."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from pathlib import Path

import pytest

from backend.domain.serving.wire import Grant, UsageRow, sign_grant
from gpu_runners.http import Refused, Unreachable
from gpu_runners.models.causal_base import CausalBase
from gpu_runners.models.protocol import Delta, Engine, GenerationRequest, Overloaded
from gpu_runners.serving.adapter_files import KolmFiles
from gpu_runners.serving.adapter_loading import Adapter
from gpu_runners.serving.adapter_store import AdapterStore
from gpu_runners.serving.engine_pool import EnginePool
from gpu_runners.serving.fair_scheduler import FairScheduler
from gpu_runners.serving.journal import Journal
from gpu_runners.serving.metrics import metrics
from gpu_runners.serving.multi_tenant import GrantedResponder
from gpu_runners.serving.openai.responder import Refusal, Served
from gpu_runners.serving.registration import Registration, UsageReporter, describe_server
from gpu_runners.serving.server_context import ServerContext
from tests.gpu_runners.serving.small_adapters import (
    ALICE,
    BOB,
    ScriptedEngine,
    grant_for,
    kolm_of,
    paper_base,
    pinned_keyring,
    signed,
)
from tests.gpu_runners.serving.small_backend import KEY

BASE = paper_base()
OTHER_BASE = paper_base("other-base")


class Server:
    """A floor without a port: one scripted engine a base, a backend that is a dict."""

    def __init__(
        self, folder: Path, *, max_running: int = 8, dedicated: str = "", most: int = 1, max_wait_s: float = 5.0
    ) -> None:
        self.engines: dict[str, ScriptedEngine] = {}
        self.kolms: dict[str, bytes] = {}
        self.made = 0
        self.script = {"n_tokens": 5, "delay_s": 0.0}
        store = AdapterStore(
            kolms=KolmFiles(folder / "artifacts", max_bytes=1 << 22),
            unpacked=folder / "unpacked",
            ram_bytes=1 << 22,
            fetch=self.fetch,
            open_base=lambda name: {b.name: b for b in (BASE, OTHER_BASE)}[name],
            keyring=pinned_keyring(folder),
        )
        self.context = ServerContext(
            key=KEY,
            store=store,
            engines=EnginePool(self.make, most=most),
            scheduler=FairScheduler(
                max_running=max_running, max_waiting=16, max_tenant_waiting=8, max_wait_s=max_wait_s
            ),
            journal=Journal(folder / "usage"),
            dedicated=dedicated,
        )
        self.responder = GrantedResponder(self.context)

    async def fetch(self, sha256: str, token: str) -> bytes:
        return self.kolms[sha256]

    async def make(self, adapter: Adapter) -> Engine:
        self.made += 1
        await asyncio.sleep(0.001)
        engine = self.engines[adapter.base.name] = ScriptedEngine(**self.script)  # type: ignore[arg-type]
        return engine

    def grant(
        self,
        *,
        seed: int = 0,
        tenant: str = ALICE,
        base: CausalBase = BASE,
        beside: Mapping[str, bytes] | None = None,
        **changed: object,
    ) -> Grant:
        data = kolm_of(base, seed=seed, tenant=tenant, beside=beside)
        grant = grant_for(data, tenant=tenant, **changed)
        self.kolms[grant.sha256] = data
        return grant

    async def served(self, grant: Grant, *, model: str = "support-replies") -> Served:
        return await self.responder.resolve(model, {"authorization": f"Bearer {signed(grant)}"})

    async def said(self, grant: Grant, **changed: object) -> str:
        served = await self.served(grant)
        request = asked(**changed)
        return "".join([delta.text async for delta in served.engine.generate(request)])

    def rows(self) -> list[UsageRow]:
        return [row for _, row in self.context.journal.next_unbooked(1000)]


def asked(**changed: object) -> GenerationRequest:
    return GenerationRequest(**({"id": "r", "prompt": (1, 2, 3), "max_new_tokens": 9} | changed))  # type: ignore[arg-type]


@pytest.fixture
def server(tmp_path: Path) -> Server:
    return Server(tmp_path)


def refused(scene: Callable[[], Awaitable[object]]) -> Refusal:
    with pytest.raises(Refusal) as error:
        asyncio.run(scene())  # type: ignore[arg-type]
    return error.value


def test_a_granted_request_gets_its_own_adapter_salt_and_tenant_whatever_it_says(server: Server) -> None:
    alice, bob = server.grant(seed=1), server.grant(seed=2, tenant=BOB)

    async def scene() -> None:
        stolen = (await server.served(alice)).adapter
        both = await asyncio.gather(
            server.said(alice), server.said(bob, adapter=stolen, tenant=ALICE, cache_salt=alice.cache_salt)
        )
        assert both == [f"{alice.sha256[:6]} " * 5, f"{bob.sha256[:6]} " * 5]

    asyncio.run(scene())
    (engine,) = server.engines.values()
    told = {(r.adapter.key if r.adapter else "", r.tenant, r.cache_salt) for r in engine.requests}
    assert told == {(g.sha256, g.tenant, g.cache_salt) for g in (alice, bob)}


@pytest.mark.parametrize(
    "token",
    [
        "",
        "Bearer",
        "Basic abc",
        "Bearer nonsense",
        "Bearer a.b",
        f"Bearer {'é' * 9}.{'é' * 9}",
        "Bearer eyJ9.e30",
    ],
)
def test_what_is_no_grant_opens_nothing(server: Server, token: str) -> None:
    assert refused(lambda: server.responder.resolve("m", {"authorization": token})).status == 401


def test_forged_altered_and_expired_grants_open_nothing(server: Server) -> None:
    grant = server.grant()
    payload, _, mac = signed(grant).partition(".")
    forged = sign_grant(grant, b"another key")
    others, _, _ = signed(server.grant(tenant=BOB)).partition(".")
    old = signed(server.grant(expires_at=int(time.time()) - 1))
    for token in (forged, f"{others}.{mac}", f"{payload}.{mac[:-2]}AA", f"{payload}.", old):
        assert refused(lambda: server.responder.resolve("m", {"authorization": f"Bearer {token}"})).code == "bad_grant"  # noqa: B023
    assert server.context.refusals["bad_grant"] == 5
    assert server.made == 0


def test_a_grant_is_for_the_artifact_that_is_named(server: Server) -> None:
    grant = server.grant()
    assert refused(lambda: server.served(grant, model="art_another")).code == "artifact_refused"
    assert asyncio.run(server.served(grant, model=grant.artifact)).model == grant.artifact


def test_what_a_tenant_may_name_is_what_its_grant_opens(server: Server) -> None:
    headers = {"authorization": f"Bearer {signed(server.grant())}"}
    assert [m["id"] for m in asyncio.run(server.responder.models(headers))] == ["support-replies"]
    assert refused(lambda: server.responder.models({})).status == 401


def test_no_model_is_loaded_before_it_is_needed_and_then_once(server: Server) -> None:
    grant = server.grant()
    asyncio.run(server.served(grant))
    assert server.made == 0

    async def scene() -> None:
        await asyncio.gather(*(server.said(grant) for _ in range(6)))

    asyncio.run(scene())
    assert server.made == 1


def test_what_is_noted_is_what_the_engine_counted(server: Server) -> None:
    grants = [server.grant(seed=i, request=f"req-{i}") for i in range(6)]

    async def scene() -> None:
        await asyncio.gather(*(server.said(grant, prompt=(1,) * (i + 1)) for i, grant in enumerate(grants)))

    asyncio.run(scene())
    rows, counters = server.rows(), server.context.engines.totals()
    assert sum(row.completion_tokens for row in rows) == counters["completion_tokens"] == 30
    assert sum(row.prompt_tokens for row in rows) == counters["prompt_tokens"] == 21
    assert {row.finish_reason for row in rows} == {"stop"}
    assert {row.grant for row in rows} == {signed(grant) for grant in grants}
    assert all(0 < row.first_token_us <= row.total_us for row in rows)


def test_two_answers_under_one_grant_are_two_parts(server: Server) -> None:
    grant = server.grant()

    async def scene() -> None:
        served = await server.served(grant)
        for i in range(2):
            async for _ in served.engine.generate(asked(id=str(i))):
                pass

    asyncio.run(scene())
    assert len({row.key for row in server.rows()}) == 2


def test_who_stops_listening_is_billed_what_came_and_frees_the_place(server: Server) -> None:
    server.script["delay_s"] = 0.001

    async def scene() -> None:
        served = await server.served(server.grant())
        async with aclosing(served.engine.generate(asked())) as deltas:  # type: ignore[type-var]
            async for delta in deltas:
                if delta.counts.completion_tokens == 2:
                    break
        assert server.context.scheduler.n_running == 0
        assert server.engines[BASE.name].n_running == 0

    asyncio.run(scene())
    (row,) = server.rows()
    assert (row.finish_reason, row.completion_tokens, row.prompt_tokens) == ("canceled", 2, 3)


def test_an_engine_that_breaks_is_billed_what_came_and_frees_the_place(server: Server) -> None:
    async def scene() -> None:
        grant = server.grant()
        await server.said(grant)
        server.engines[BASE.name].fails_after = 3
        with pytest.raises(RuntimeError):
            await server.said(grant)
        assert server.context.scheduler.n_running == 0

    asyncio.run(scene())
    assert [(row.finish_reason, row.completion_tokens) for row in server.rows()] == [("stop", 5), ("failed", 3)]


def test_an_artifact_revoked_while_it_answers_stops_answering(server: Server) -> None:
    server.script |= {"n_tokens": 1000, "delay_s": 0.001}
    grant = server.grant()

    deltas: list[Delta] = []

    async def listen() -> None:
        async for delta in (await server.served(grant)).engine.generate(asked()):
            deltas.append(delta)
            if len(deltas) == 3:
                server.context.store.revoke(grant.sha256)

    async def scene() -> None:
        with pytest.raises(Refusal, match="revoked"):
            await listen()
        assert len(deltas) == 3
        with pytest.raises(Refusal, match="revoked"):
            await server.served(grant)

    asyncio.run(scene())
    assert server.rows()[0].completion_tokens == 3


def test_a_tenant_runs_no_more_at_once_than_its_grant_says(server: Server) -> None:
    server.script |= {"n_tokens": 20, "delay_s": 0.001}
    grant = server.grant(max_concurrent=2)

    async def scene() -> int:
        tasks = [asyncio.create_task(server.said(grant)) for _ in range(6)]
        most = 0
        while not all(task.done() for task in tasks):
            await asyncio.sleep(0.001)
            most = max(most, server.engines[BASE.name].n_running if server.engines else 0)
        await asyncio.gather(*tasks)
        return most

    assert asyncio.run(scene()) == 2


def test_too_many_are_told_when_to_come_back(tmp_path: Path) -> None:
    server = Server(tmp_path, max_wait_s=60.0)
    server.script |= {"n_tokens": 20, "delay_s": 0.001}
    grant = server.grant(max_concurrent=1)

    async def scene() -> list[object]:
        return await asyncio.gather(*(server.said(grant) for _ in range(12)), return_exceptions=True)

    said = asyncio.run(scene())
    turned_away = [one for one in said if isinstance(one, Overloaded)]
    assert len(turned_away) == 3
    assert all(one.retry_after_s >= 1 for one in turned_away)
    assert server.context.refusals["overloaded"] == 3


def test_a_draining_server_takes_nothing_new(server: Server) -> None:
    server.context.is_draining = True
    error = refused(lambda: server.served(server.grant()))
    assert (error.status, error.code, error.retry_after_s) == (503, "draining", 1.0)


def test_a_server_that_cannot_note_usage_takes_nothing_new(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    grant = server.grant()
    served = asyncio.run(server.served(grant))
    server.context.journal.is_full = True
    monkeypatch.setattr(server.context.journal, "_try_again", lambda: False)
    assert refused(lambda: server.served(grant)).code == "cannot_meter"

    async def scene() -> None:
        async for _ in served.engine.generate(asked()):
            pass

    assert refused(scene).code == "cannot_meter"


def test_engines_of_two_bases_make_room_for_each_other(server: Server) -> None:
    first, second = server.grant(), server.grant(base=OTHER_BASE)

    async def scene() -> None:
        await server.said(first)
        await server.said(second)
        await server.said(first)

    asyncio.run(scene())
    assert server.made == 3
    assert list(server.context.engines.running()) == [BASE.name]
    assert server.engines[OTHER_BASE.name].is_closed
    assert server.context.engines.totals()["completion_tokens"] == 15


def test_a_base_that_is_at_work_is_not_ended_for_another(server: Server) -> None:
    server.script |= {"n_tokens": 1000, "delay_s": 0.001}

    async def scene() -> None:
        deltas = (await server.served(server.grant())).engine.generate(asked())
        await anext(deltas)
        with pytest.raises(Refusal) as error:
            await server.said(server.grant(base=OTHER_BASE))
        assert error.value.code == "no_engine_free"
        await deltas.aclose()  # type: ignore[attr-defined]

    asyncio.run(scene())


@pytest.mark.parametrize("is_merged", [True, False])
def test_a_dedicated_server_answers_for_its_one_artifact_alone(tmp_path: Path, is_merged: bool) -> None:
    """Merged into the base where the engine can, as its one adapter where it cannot."""
    server = Server(tmp_path)
    server.script["is_merged"] = is_merged
    own, other = server.grant(seed=1), server.grant(seed=2)
    server.context.dedicated = own.sha256
    assert asyncio.run(server.said(own)) == ("base " if is_merged else f"{own.sha256[:6]} ") * 5
    assert refused(lambda: server.served(other)).code == "dedicated"


class Ear:
    """A backend that notes what it is told; `errors` come first."""

    def __init__(self, *errors: Exception) -> None:
        self.errors, self.batches, self.bad = list(errors), [], set()  # type: ignore[var-annotated]

    async def book(self, batch: object) -> list[int]:
        if self.errors:
            raise self.errors.pop(0)
        rows = [UsageRow.from_json(row) for row in batch.rows]  # type: ignore[attr-defined]
        self.batches.append(rows)
        return [i for i, row in enumerate(rows) if row.completion_tokens in self.bad]


def told_all(server: Server, ear: Ear) -> UsageReporter:
    reporter = UsageReporter(ear, server.context.journal, lambda: "srv_1", every_s=0.0)  # type: ignore[arg-type]

    async def scene() -> None:
        for _ in range(20):
            await reporter.report()

    asyncio.run(scene())
    return reporter


def answer(server: Server, n: int) -> None:
    async def scene() -> None:
        for i in range(n):
            await server.said(server.grant(seed=i, request=f"req-{i}"))

    asyncio.run(scene())


def test_usage_that_did_not_get_through_is_told_again_under_the_same_keys(server: Server) -> None:
    answer(server, 3)
    keys = {row.key for row in server.rows()}
    ear = Ear(Unreachable("down"), Unreachable("down"))
    reporter = told_all(server, ear)
    assert {row.key for rows in ear.batches for row in rows} == keys
    assert (server.context.journal.n_unbooked, reporter.n_booked) == (0, 3)


def test_one_row_that_is_refused_does_not_hold_up_the_others(server: Server, tmp_path: Path) -> None:
    answer(server, 3)
    ear = Ear(Refused("/usage answered 422"), Refused("/usage answered 422"))
    told_all(server, ear)
    assert sum(map(len, ear.batches)) == 2
    assert server.context.journal.n_refused == 1
    assert len((tmp_path / "usage" / "refused.jsonl").read_text().splitlines()) == 1


def test_a_row_that_the_backend_names_as_bad_is_put_aside(server: Server) -> None:
    answer(server, 2)
    ear = Ear()
    ear.bad = {5}
    told_all(server, ear)
    assert (server.context.journal.n_unbooked, server.context.journal.n_refused) == (0, 2)


def test_a_wrong_token_loses_nothing(server: Server) -> None:
    answer(server, 1)
    told_all(server, Ear(*[Refused("/usage answered 401: wrong token")] * 30))
    assert server.context.journal.n_unbooked == 1


def test_orders_drop_what_is_revoked_also_from_the_engine(server: Server) -> None:
    from backend.domain.serving.wire import ServerOrders, ServerRegistration

    grant = server.grant()
    asyncio.run(server.said(grant))

    class Commander:
        async def register(self, description: ServerRegistration) -> ServerOrders:
            assert description.adapters == [grant.sha256]
            return ServerOrders(server="srv_9", lease_s=9.0, revoked=[grant.sha256])

    description = lambda: describe_server(server.context, name="s", url="u", bases=[], max_running=8, engine={"x": 1})  # noqa: E731
    registration = Registration(Commander(), server.context, description)  # type: ignore[arg-type]
    assert 0.1 < asyncio.run(registration.register()) <= 3.0
    assert registration.server == "srv_9"
    assert server.engines[BASE.name].forgotten == [grant.sha256]
    assert refused(lambda: server.served(grant)).code == "artifact_revoked"


def test_which_engine_runs_is_told_before_what_it_answered(server: Server) -> None:
    from backend.domain.serving.wire import ServerOrders, ServerRegistration

    heard: list[object] = []

    class Both(Ear):
        async def register(self, description: ServerRegistration) -> ServerOrders:
            heard.append(description.engine["name"])
            return ServerOrders(server="srv_1", lease_s=9.0, revoked=[])

        async def book(self, batch: object) -> list[int]:
            heard.append("usage")
            return await super().book(batch)

    def description() -> ServerRegistration:
        engine = server.context.about() or {"name": "none yet"}
        return describe_server(server.context, name="s", url="u", bases=[], max_running=8, engine=engine)

    async def scene() -> None:
        both = Both()
        registration = Registration(both, server.context, description)  # type: ignore[arg-type]
        reporter = UsageReporter(
            both,  # type: ignore[arg-type]
            server.context.journal,
            lambda: registration.server,
            first=registration.register_engine,
        )
        await registration.register()
        for n in range(2):
            await server.said(server.grant(seed=n, request=f"req-{n}"))
            await reporter.report()

    asyncio.run(scene())
    assert heard == ["none yet", "scripted", "usage", "usage"]


def test_metrics_are_prometheus_text_without_a_word_about_tenants(server: Server) -> None:
    grant = server.grant()
    asyncio.run(server.said(grant))
    refused(lambda: server.responder.resolve("m", {}))
    registration = Registration(None, server.context, lambda: None)  # type: ignore[arg-type, return-value]
    usage = UsageReporter(None, server.context.journal, lambda: "")  # type: ignore[arg-type]
    text = metrics(server.context, registration, usage, now=time.monotonic() + 3)
    values = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert values['kolm_server_engine_completion_tokens_total{base="paper-base"}'] == "5"
    assert values["kolm_server_completion_tokens_total"] == "5"
    assert values['kolm_server_refused_total{code="no_grant"}'] == "1"
    assert values['kolm_server_engine_info{base="paper-base",name="scripted",adapter_slots="4"}'] == "1"
    assert float(values["kolm_server_journal_lag_seconds"]) >= 3
    for secret in (grant.tenant, grant.artifact, grant.sha256, grant.deployment, "salt"):
        assert secret not in text

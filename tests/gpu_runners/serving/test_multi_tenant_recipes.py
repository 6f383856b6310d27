"""Rules and recipe packs of many tenants behind one engine: whose they are, what is metered, what is told of them."""

import asyncio
import hashlib
from pathlib import Path
from typing import Any

import pytest

from backend.domain.recipes.feedback import PackFeedback, checked_feedback
from backend.domain.recipes.shapes import shape_of
from gpu_runners.models.protocol import DraftKind
from gpu_runners.serving.backend_client import Backend
from gpu_runners.serving.feedback import FeedbackReporter
from gpu_runners.serving.openai.answer_forms import asked_form
from gpu_runners.serving.openai.bodies.chats import chat_call
from gpu_runners.serving.openai.responder import Refusal, Served
from gpu_runners.serving.openai.rule_answers import rule_answer, rule_deltas
from tests.gpu_runners.artifacts.test_pack_attachment import base
from tests.gpu_runners.serving.small_adapters import BOB, signed
from tests.gpu_runners.serving.small_backend import TOKEN, SmallBackend, small_backend
from tests.gpu_runners.serving.test_multi_tenant import Server
from tests.gpu_runners.small_packs import label_rules, small_pack, spec_of

SIZED = base()
RULES = {"rules.json": label_rules(("refund", "yes"))}
PACK = small_pack(SIZED)
SHAPE = shape_of(b'{"city": ')


@pytest.fixture
def server(tmp_path: Path) -> Server:
    return Server(tmp_path)


def packed(data: bytes = PACK, **members: bytes) -> dict[str, bytes]:
    return {"recipes.json": data} | members


async def ruled(served: Served, text: str, **changed: Any) -> list[str] | None:
    call = chat_call({"model": "x", "messages": [{"role": "user", "content": text}]} | changed)
    answer = rule_answer(call, served, asked_form(call, served.prompt["answer"]))
    if answer is None:
        return None
    return [delta.text async for _, delta in rule_deltas(answer, served, n=call.sampling.n)]


def test_a_rule_answers_without_an_engine_and_is_a_request_without_tokens(server: Server) -> None:
    grant = server.grant(beside=RULES)

    async def scene() -> None:
        served = await server.served(grant)
        assert await ruled(served, "a refund", n=2) == ["yes", "yes"]
        assert await ruled(served, "where is it?") is None

    asyncio.run(scene())
    assert server.made == 0, "no engine was started"
    rows = server.rows()
    assert [(row.finish_reason, row.part) for row in rows] == [("rule", 0), ("rule", 1)]
    assert {row.prompt_tokens + row.completion_tokens for row in rows} == {0}
    assert all(row.total_us >= 1 for row in rows)
    assert server.context.totals["finished_rule"] == 2


def test_a_revoked_artifacts_rules_answer_nothing_more(server: Server) -> None:
    grant = server.grant(beside=RULES)

    async def scene() -> None:
        served = await server.served(grant)
        server.context.store.revoke(grant.sha256)
        with pytest.raises(Refusal):
            await ruled(served, "a refund")

    asyncio.run(scene())
    assert server.rows() == []


def test_each_tenants_requests_draft_with_its_own_pack_whatever_they_say(server: Server) -> None:
    other = small_pack(SIZED, max_draft=4)
    alice, bob = server.grant(beside=packed()), server.grant(tenant=BOB, beside=packed(other))
    plain = server.grant(seed=5)

    async def scene() -> None:
        stolen = (await server.served(alice)).drafting
        for grant in (alice, bob, plain):
            await server.said(grant, drafting=stolen)

    asyncio.run(scene())
    (engine,) = server.engines.values()
    mine, his, none = (request.drafting for request in engine.requests)
    assert none is None
    assert mine is not None
    assert mine.pack is not None
    assert his is not None
    assert his.pack is not None
    assert mine.kinds == (DraftKind.PACK, DraftKind.SCHEMA, DraftKind.PROMPT)
    assert (mine.pack.path.read_bytes(), his.pack.path.read_bytes()) == (PACK, other)
    assert (mine.max_draft, his.max_draft) == (16, 4)


def test_a_server_without_drafts_ignores_packs(server: Server) -> None:
    server.context.has_drafts = False
    asyncio.run(server.said(server.grant(beside=packed())))
    (engine,) = server.engines.values()
    assert engine.requests[0].drafting is None


@pytest.mark.parametrize(
    "members",
    [
        packed(small_pack(SIZED, tokenizer_sha256="f" * 64)),
        packed(PACK[:-9]),
        packed() | {"rules.json": b"{"},
    ],
)
def test_a_damaged_or_foreign_pack_or_rules_cost_time_alone(server: Server, members: dict[str, bytes]) -> None:
    grant = server.grant(beside=members)
    assert asyncio.run(server.said(grant)) == f"{grant.sha256[:6]} " * 5


def found(grant: Any, n: int = 3) -> tuple[str, PackFeedback]:
    tried = [{"id": "0" * 16, "tried": 10 * n, "accepted": 9 * n}]
    missed = [{"shape": SHAPE, "n": n}]
    return grant.tenant, PackFeedback(
        artifact_sha256="",
        pack_sha256=hashlib.sha256(PACK).hexdigest(),
        n_answers=n,
        n_tokens=20 * n,
        tried=tried,
        missed=missed,
        learned=[],
    )


async def told(server: Server, far: SmallBackend, *rounds: list[tuple[str, PackFeedback]], says: str = "srv_1") -> int:
    """Each round is what an engine found by then."""
    backend = Backend(api_url=far.url, token=TOKEN)
    left = list(rounds)
    reporter = FeedbackReporter(
        backend, server.context.feedback, collect=lambda: left.pop(0) if left else [], server=lambda: says
    )
    for _ in rounds:
        await reporter.report()
    await backend.close()
    return reporter.n_reported


def test_what_is_found_out_about_a_pack_is_told_in_totals_under_the_grant_that_opened_it(server: Server) -> None:
    alice, bob = server.grant(beside=packed()), server.grant(tenant=BOB, beside=packed())

    async def scene(far: SmallBackend) -> None:
        await server.said(alice)
        await server.said(bob)
        assert await told(server, far, [found(alice), found(bob, 5)], [found(alice, 2)], []) == 3

    with small_backend() as far:
        asyncio.run(scene(far))
        reports = {row.grant: checked_feedback(row.feedback) for row in far.reports.values()}
    assert set(reports) == {signed(alice), signed(bob)}
    mine = reports[signed(alice)]
    assert (mine.artifact_sha256, mine.n_answers, mine.n_tokens) == (alice.sha256, 5, 100)
    assert mine.tried == [{"id": "0" * 16, "tried": 50, "accepted": 45}]
    assert mine.missed == [{"shape": SHAPE, "n": 5}]
    assert reports[signed(bob)].n_answers == 5


def test_what_does_not_get_through_is_told_the_next_time(server: Server) -> None:
    alice = server.grant(beside=packed())

    async def scene(far: SmallBackend) -> None:
        await server.said(alice)
        far.down = True
        assert await told(server, far, [found(alice)]) == 0
        far.down = False
        assert await told(server, far, [], says="") == 0, "not registered yet"
        assert await told(server, far, []) == 1

    with small_backend() as far:
        asyncio.run(scene(far))
        (row,) = far.reports.values()
    assert row.feedback["n_answers"] == 3


def test_what_nobody_asked_for_is_not_told(server: Server) -> None:
    alice = server.grant(beside=packed())
    server.context.feedback.add([found(alice), ("0" * 32, found(alice)[1])])
    assert server.context.feedback.news() == []


def test_an_engine_that_ends_leaves_what_it_found(server: Server) -> None:
    alice = server.grant(beside=packed())

    async def scene() -> None:
        await server.said(alice)
        (engine,) = server.engines.values()
        engine.found = [found(alice)]
        await server.context.engines.close()

    asyncio.run(scene())
    assert server.context.engines.pack_feedback() == [found(alice)]
    assert server.context.engines.pack_feedback() == []


def test_text_is_learnt_only_from_artifacts_whose_spec_allows_it(server: Server) -> None:
    open_one = server.grant(beside=packed(**{"spec.json": spec_of(learn_text=True)}))
    closed = server.grant(seed=1, beside=packed())

    async def scene() -> None:
        await server.said(open_one)
        await server.said(closed)

    asyncio.run(scene())
    (engine,) = server.engines.values()
    assert [request.drafting is not None and request.drafting.learns for request in engine.requests] == [True, False]

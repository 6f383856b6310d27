"""Counts of recipe packs from the infer lane: whose they are, when they are told, and what may fail."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from backend.domain.recipes.feedback import PackFeedback
from backend.domain.serving.wire import Grant, sign_grant
from gpu_runners.agent.feedback import InferenceFeedback
from gpu_runners.agent.lease_client import RunnerClient
from gpu_runners.serving.feedback import EVERY_S
from tests.gpu_runners.serving.small_backend import KEY, TOKEN, SmallBackend, small_backend

PACK = "c" * 64


def grant_of(sha256: str, tenant: str = "a" * 32, key: bytes = KEY) -> str:
    grant = Grant(
        tenant=tenant,
        artifact="art_x",
        sha256=sha256,
        deployment="",
        api_key="",
        request="",
        cache_salt="",
        max_concurrent=0,
        idle_s=0,
        pinned=False,
        expires_at=0,
    )
    return sign_grant(grant, key)


def model_of(*n_answers: int, pack: str | None = PACK) -> Any:
    """Its engine tells one count at each call."""
    left = list(n_answers)

    def pack_feedback() -> list[tuple[str, PackFeedback]]:
        n = left.pop(0)
        counts = {"tried": [{"id": "0" * 16, "tried": n, "accepted": n}], "missed": [], "learned": []}
        return [("", PackFeedback(artifact_sha256="", pack_sha256=PACK, n_answers=n, n_tokens=9 * n, **counts))]

    drafting = SimpleNamespace(pack=None if pack is None else SimpleNamespace(key=pack))
    return SimpleNamespace(engine=SimpleNamespace(pack_feedback=pack_feedback), drafting=drafting)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def far() -> Iterator[SmallBackend]:
    with small_backend() as found:
        yield found


@pytest.fixture
def client(far: SmallBackend) -> Iterator[RunnerClient]:
    with RunnerClient(api_url=far.url, token=TOKEN, name="r1") as found:
        yield found


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def feedback(clock: Clock) -> InferenceFeedback:
    return InferenceFeedback(token=TOKEN, name="r1", clock=clock)


def answers_of(far: SmallBackend) -> dict[str, int]:
    return {row.feedback["artifact_sha256"]: row.feedback["n_answers"] for row in far.reports.values()}


def test_totals_of_an_artifact_are_told_at_most_once_a_minute(
    feedback: InferenceFeedback, far: SmallBackend, client: RunnerClient, clock: Clock
) -> None:
    model = model_of(2, 3, 4)
    feedback.note(model, grant_of("b" * 64))
    feedback.report(client)
    assert answers_of(far) == {"b" * 64: 2}
    feedback.note(model, grant_of("b" * 64))
    feedback.report(client)
    assert answers_of(far) == {"b" * 64: 2}, "it is not time yet"
    clock.now += EVERY_S
    feedback.note(model, grant_of("b" * 64))
    feedback.report(client)
    assert answers_of(far) == {"b" * 64: 9}
    assert len(far.reports) == 1, "totals, in one log"


def test_counts_of_one_pack_under_two_tenants_stay_apart(
    feedback: InferenceFeedback, far: SmallBackend, client: RunnerClient
) -> None:
    model = model_of(2, 3)
    feedback.note(model, grant_of("b" * 64))
    feedback.note(model, grant_of("d" * 64, tenant="e" * 32))
    feedback.report(client)
    assert answers_of(far) == {"b" * 64: 2, "d" * 64: 3}


def test_what_does_not_get_through_is_told_later(
    feedback: InferenceFeedback, far: SmallBackend, client: RunnerClient, clock: Clock
) -> None:
    far.down = True
    feedback.note(model_of(2), grant_of("b" * 64))
    feedback.report(client)
    far.down = False
    clock.now += EVERY_S
    feedback.report(client)
    assert answers_of(far) == {"b" * 64: 2}


@pytest.mark.parametrize("grant", ["", "x.y", grant_of("b" * 64, key=b"another")])
def test_without_a_good_grant_counts_are_nobodys(
    feedback: InferenceFeedback, far: SmallBackend, client: RunnerClient, grant: str
) -> None:
    model = model_of(2, 3)
    feedback.note(model, grant)
    feedback.report(client)
    assert far.reports == {}
    feedback.note(model, grant_of("b" * 64))
    feedback.report(client)
    assert answers_of(far) == {"b" * 64: 3}, "and never go to the next"


def test_a_model_without_a_pack_or_without_such_an_engine_tells_nothing(
    feedback: InferenceFeedback, far: SmallBackend, client: RunnerClient
) -> None:
    feedback.note(model_of(2, pack=None), grant_of("b" * 64))
    feedback.note(cast(Any, SimpleNamespace(engine=object())), grant_of("b" * 64))
    feedback.report(client)
    assert far.reports == {}

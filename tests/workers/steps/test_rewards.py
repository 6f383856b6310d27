"""Rewards in a compile: asked of a judge and of a reward model over HTTP, paid once, and ranked before all else."""

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from backend.artifacts.models import Receipt
from backend.compiles.models import Compile, CompileEvent
from backend.domain.artifact.receipts import payload_of
from backend.domain.errors import InvalidSpec
from backend.domain.lifecycle import StepName
from backend.tenants.isolation import tenant_scope
from tests.compile_factories import fresh, make_compile, make_teacher_key, public_id
from tests.factories import make_tenant
from tests.workers.pipeline_helpers import (
    ScriptedTeacher,
    calls,
    candidates,
    check_money,
    messages,
    slices,
    start,
    step,
    take_over,
    taught_by,
    told_apart,
    walk_through,
)
from tests.workers.teachers.reward_server import MODEL, serving_rewards
from tests.workers.teachers.strict_vendors import BY_NAME, Endpoint, Script, serving
from workers.candidates import rewards
from workers.pipeline import STEP_FUNCTIONS
from workers.step.durable import begin_step
from workers.teachers.prompts.candidate_and_label import unfence
from workers.teachers.prompts.reward import REWARD_ASK
from workers.teachers.protocol import RewardFailed

pytestmark = pytest.mark.usefixtures("committed_db")
PRICE = {"input_usd_per_mtok": 0.5, "output_usd_per_mtok": 1.5}
BASE: dict[str, Any] = {
    "examples": {"inline": told_apart(24), "holdout": 0.5},
    "sampling": {"n_candidates": 6, "k_select": 2, "on_gap": ["drop_k"]},
    "budget": {"usd": 50},
}
TO_VERIFICATION = (StepName.SLICING, StepName.SYNTHESIS, StepName.VERIFICATION)


def worth(text: str) -> int:
    return 8 if "parcel" in text else 6 if "invoice" in text else 3


def is_text(text: str) -> bool:
    return text.endswith(".")  # the control is none


def judging(rate: Any = lambda id_, text: worth(text) if is_text(text) else 0) -> Script:
    """Candidates, or the ratings of those that are shown."""
    texts = messages()

    def write(asked: Sequence[Mapping[str, Any]], n: int) -> list[str]:
        question = asked[-1]["content"]
        if REWARD_ASK not in question:
            return list(itertools.islice(texts, n))
        (shown,) = unfence(question)
        ratings = {id_: rate(id_, text) for id_, text in json.loads(shown)}
        return [json.dumps({id_: value for id_, value in ratings.items() if value is not None})]

    return write


def asked_for_rewards(endpoint: Endpoint) -> list[Mapping[str, Any]]:
    return [body for body in endpoint.answered if REWARD_ASK in str(body["messages"][-1]["content"])]


@pytest.fixture
def loopback(settings: Any) -> Any:
    def allow(*base_urls: str) -> None:
        settings.KOLM_ALLOW_PRIVATE_TEACHERS = tuple(url.removesuffix("/v1") for url in base_urls)

    return allow


def judged_compile(endpoint: Endpoint, *, reward: Mapping[str, Any] | None = None, **changes: Any) -> Compile:
    teacher = {"provider": "openai_compatible", "base_url": endpoint.base_url, "model": endpoint.vendor.model}
    teacher |= {"price": PRICE, "dialect": endpoint.vendor.dialect, "concurrency": 2}
    verifiers = [{"kind": "reward", "per_call": 4, **(reward or {})}]
    return make_compile(make_tenant(), **(BASE | {"teacher": teacher, "verifiers": verifiers} | changes))


def warnings(row: Compile) -> dict[str, str]:
    with tenant_scope(row.tenant_id):
        events = CompileEvent.objects.filter(compile=row, type="warning")
        return {event.data["code"]: event.data["message"] for event in events}


def facts(row: Compile) -> dict[str, Any]:
    return dict(step(row, StepName.VERIFICATION).output["facts"])


def test_the_teacher_rates_each_candidate_by_the_rubric_and_the_ratings_rank(loopback):
    with serving(BY_NAME["openai"], judging()) as endpoint:
        loopback(endpoint.base_url)
        row = judged_compile(endpoint, reward={"rubric": "A parcel is what matters."})
        walk_through(start(row), *TO_VERIFICATION)
        bodies = asked_for_rewards(endpoint)
    rows = candidates(row)
    assert len(rows) == 12
    assert all((c.score, c.signal) == (worth(c.text) / 9, "reward") for c in rows)
    assert {part.signal for part in slices(row)} == {"reward"}
    assert len(bodies) == 4, "six candidates a slice, four a call"
    assert all("A parcel is what matters." in str(body["messages"]) for body in bodies)
    assert {body["response_format"]["type"] for body in bodies} == {"json_schema"}
    told = facts(row)
    assert told["signals"] == {"reward": 12}
    assert (told["reward"]["n_rewarded"], told["reward"]["n_unread"]) == (12, 0)
    assert warnings(row).keys() & {"reward_unread", "reward_flat"} == set()
    check_money(row)
    made = [call for call in calls(row) if call.step == StepName.VERIFICATION]
    assert len(made) == 4
    assert step(row, StepName.VERIFICATION).spent_microusd == sum(call.cost_microusd for call in made) > 0
    expected = next(s for s in row.estimate["steps"] if s["step"] == "verification")
    assert 0 < step(row, StepName.VERIFICATION).spent_microusd <= expected["high_microusd"]
    with tenant_scope(row.tenant_id):
        receipt = Receipt.objects.get(compile_id=row.id, step=StepName.VERIFICATION)
    teacher = json.loads(payload_of(receipt.envelope))["predicate"]["teacher"]
    assert (teacher["requests"], teacher["reward"]["dialect"]) == (4, "openai")


@pytest.mark.nightly
def test_a_judge_that_ignores_response_formats_rates_by_the_call_of_a_tool(loopback):
    with serving(BY_NAME["anthropic"], judging()) as endpoint:
        loopback(endpoint.base_url)
        row = judged_compile(endpoint)
        walk_through(start(row), *TO_VERIFICATION)
        bodies = asked_for_rewards(endpoint)
    assert all((c.score, c.signal) == (worth(c.text) / 9, "reward") for c in candidates(row))
    assert all("tools" in body and "response_format" not in body for body in bodies)
    assert not any(call.usage_flags for call in calls(row) if call.step == StepName.VERIFICATION)
    expected = next(s for s in row.estimate["steps"] if s["step"] == "verification")
    assert 0 < step(row, StepName.VERIFICATION).spent_microusd <= expected["high_microusd"]
    check_money(row)


def test_selection_keeps_what_the_reward_ranks_first_and_not_what_the_verifiers_do(loopback):
    with serving(BY_NAME["openai"], judging()) as endpoint:
        loopback(endpoint.base_url)
        verifiers = [{"kind": "reward"}, {"kind": "excludes", "any_of": ["parcel"]}]
        sampling = {"n_candidates": 6, "k_select": 2, "on_gap": ["drop_k"], "method": "top_k"}
        row = judged_compile(endpoint, verifiers=verifiers, sampling=sampling)
        walk_through(start(row), *TO_VERIFICATION, StepName.SELECTION)
    kept, dropped = candidates(row, state="picked"), candidates(row, state="dropped")
    by_slice = {c.slice_id: min(worth(k.text) for k in kept if k.slice_id == c.slice_id) for c in kept}
    assert all(worth(c.text) <= by_slice[c.slice_id] for c in dropped)


class Died(BaseException):
    """The process died here."""


def test_a_process_that_dies_pays_for_no_reward_twice(loopback, monkeypatch):
    with serving(BY_NAME["openai"], judging()) as endpoint:
        loopback(endpoint.base_url)
        row = judged_compile(endpoint)
        run = start(row)
        walk_through(run, StepName.SLICING, StepName.SYNTHESIS)
        kept = rewards._keep
        turns = iter(range(100))

        def dies(*args: Any) -> None:
            kept(*args)
            if next(turns) == 3:  # the second slice's answers are there, and none of them is saved
                raise Died

        monkeypatch.setattr(rewards, "_keep", dies)
        begin_step(run, StepName.VERIFICATION)
        with pytest.raises(Died):
            STEP_FUNCTIONS[StepName.VERIFICATION](run)
        n_before = len(asked_for_rewards(endpoint))
        monkeypatch.setattr(rewards, "_keep", kept)
        walk_through(take_over(run, row), StepName.VERIFICATION)
        n_asked = len(asked_for_rewards(endpoint))
    assert {c.signal for c in candidates(row)} == {"reward"}
    made = [call for call in calls(row) if call.step == StepName.VERIFICATION]
    paid = [call for call in made if call.state == "applied"]
    assert len(paid) == 4
    assert n_asked - n_before <= 2, "no more than the batch in flight is asked for again"
    check_money(row)
    assert step(row, StepName.VERIFICATION).spent_microusd == sum(call.cost_microusd for call in paid)


def test_a_candidate_without_a_number_falls_to_the_verifiers_counted_and_reported(loopback):
    def rate(id_: str, text: str) -> Any:
        return None if "jacket" in text else worth(text) if is_text(text) else 0

    with serving(BY_NAME["openai"], judging(rate)) as endpoint:
        loopback(endpoint.base_url)
        row = judged_compile(endpoint)
        walk_through(start(row), *TO_VERIFICATION)
    unread = [c for c in candidates(row) if "jacket" in c.text]
    others = [c for c in candidates(row) if "jacket" not in c.text]
    assert unread
    assert {c.signal for c in unread} == {"verifier"}
    assert {c.signal for c in others} == {"reward"}
    assert all(c.reward == {"asked": 2} for c in unread), "asked about once more, alone"
    assert facts(row)["signals"] == {"reward": len(others), "verifier": len(unread)}
    assert f"{len(unread)} of 12 candidates got no number" in warnings(row)["reward_unread"]
    check_money(row)


def test_a_judge_that_says_no_number_at_all_leaves_the_ranking_to_the_verifiers(loopback):
    texts = messages()

    def write(asked: Sequence[Mapping[str, Any]], n: int) -> list[str]:
        is_judge = REWARD_ASK in asked[-1]["content"]
        return ["They are all lovely."] if is_judge else list(itertools.islice(texts, n))

    with serving(BY_NAME["openai"], write) as endpoint:
        loopback(endpoint.base_url)
        row = judged_compile(endpoint)
        walk_through(start(row), *TO_VERIFICATION)
    assert {part.signal for part in slices(row)} == {"verifier"}
    assert "12 of 12" in warnings(row)["reward_unread"]


def rewarded_compile(
    base_url: str, *, key: str | None = None, model: str = MODEL, api: str = "vllm-classify", **changes: Any
) -> Compile:
    tenant = make_tenant()
    reward = {"kind": "reward", "api": api, "base_url": base_url, "model": model, "price": PRICE}
    if key is not None:
        reward["api_key"] = public_id(make_teacher_key(tenant, secret=key))
    return make_compile(tenant, **(BASE | {"verifiers": [reward]} | changes))


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedTeacher]:
    """The spec's teacher in memory; what gives the rewards is reached over HTTP."""
    from workers.step import teacher_session

    teacher, really = ScriptedTeacher(), teacher_session.make_teacher

    def make(*args: Any, **fields: Any) -> Any:
        return teacher if fields.get("api") is None else really(*args, **fields)

    monkeypatch.setattr(teacher_session, "make_teacher", make)
    return teacher


@pytest.mark.parametrize("api", ["vllm-classify", "rerank"])
def test_a_reward_models_numbers_are_measured_by_the_compiles_own(api, loopback, scripted):
    with serving_rewards(lambda text: 40.0 + worth(text), key="sk-rewards-0123456789") as server:
        loopback(server.base_url)
        row = rewarded_compile(server.base_url, key="sk-rewards-0123456789", api=api)
        walk_through(start(row), *TO_VERIFICATION)
    rows = sorted(candidates(row), key=lambda c: worth(c.text))
    assert len(server.asked) == len(rows) == 12
    assert [c.reward["raw"] for c in rows] == [40.0 + worth(c.text) for c in rows]
    assert [c.score for c in rows] == sorted(c.score for c in rows)
    assert len({c.score for c in rows}) == len({worth(c.text) for c in rows})
    assert all(0 < c.score < 1 for c in rows)
    assert facts(row)["reward"]["api"] == api
    check_money(row)
    fresh(row)
    made = [call for call in calls(row) if call.step == StepName.VERIFICATION]
    assert row.provider_microusd == sum(call.cost_microusd for call in made) > 0, "its provider bills that key"
    assert step(row, StepName.VERIFICATION).spent_microusd == 0


def test_a_wrong_key_ends_the_compile_with_a_sentence_about_the_reward(loopback, scripted):
    with serving_rewards(lambda text: 1.0, key="sk-right-0123456789") as server:
        loopback(server.base_url)
        row = rewarded_compile(server.base_url, key="sk-wrong-0123456789")
        with pytest.raises(RewardFailed, match=r"The reward model .* refuses the API key.* /verifiers/0 ") as failed:
            walk_through(start(row), *TO_VERIFICATION)
        assert "sk-wrong" not in str(failed.value)
        other = rewarded_compile(server.base_url, key="sk-right-0123456789", model="other")
        with pytest.raises(RewardFailed, match="no such model"):
            walk_through(start(other), *TO_VERIFICATION)


def test_a_reward_that_says_the_same_of_all_is_told(loopback, scripted):
    with serving_rewards(lambda text: 1.0) as server:
        loopback(server.base_url)
        row = rewarded_compile(server.base_url)
        walk_through(start(row), *TO_VERIFICATION)
    assert "the same number" in warnings(row)["reward_flat"]
    assert {c.score for c in candidates(row)} == {0.5}


def test_without_a_verifier_the_form_of_a_candidate_ranks_and_not_its_log_prob(monkeypatch):
    texts = messages()

    def write(request: Any) -> list[str]:
        written = list(itertools.islice(texts, request.n))
        return [*written[:-2], "I'm sorry, but I cannot help with that.", f"1. {written[-1]}"]

    taught_by(monkeypatch, ScriptedTeacher(write=write))
    gold = [row | {"input": f"{row['input']}, {row['input'][::-1]}"} for row in told_apart(24)]  # as long as messages
    row = make_compile(make_tenant(), **(BASE | {"examples": {"inline": gold, "holdout": 0.5}}))
    walk_through(start(row), *TO_VERIFICATION)
    scores = {c.text: c.score for c in candidates(row)}
    assert {c.signal for c in candidates(row)} == {"verifier"}
    assert scores["I'm sorry, but I cannot help with that."] == 0.0
    assert {score for text, score in scores.items() if text.startswith("1. ")} == {0.25}
    assert {score for text, score in scores.items() if text[0] not in "1I"} == {1.0}
    assert facts(row)["verifier"] == "default"
    assert calls(row)
    assert not [call for call in calls(row) if call.step == StepName.VERIFICATION]


def test_a_key_that_is_not_the_teams_is_refused_before_anything_is_spent():
    key = public_id(make_teacher_key(make_tenant()))
    reward = {"kind": "reward", "base_url": "https://rewards.example.com/v1", "model": "m", "price": PRICE}
    with pytest.raises(InvalidSpec) as refused:
        make_compile(make_tenant(), **(BASE | {"verifiers": [reward | {"api_key": key}]}))
    assert [problem.pointer for problem in refused.value.problems] == ["/verifiers/0/api_key"]

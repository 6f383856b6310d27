"""The paid half of a compile, from slices to labels, against vendors as strict as they are: with the dialect that the
address would give, and with nothing known of the endpoint, whose refusals then teach."""

import itertools
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from backend.compiles.endpoint_lessons import lessons_of
from backend.compiles.models import Compile
from backend.domain.lifecycle import StepName
from backend.domain.money.pricing import price_book
from backend.domain.money.teacher_prices import kept_prices
from backend.domain.spec.parsing import parse_spec
from backend.tenants.isolation import tenant_scope
from tests.compile_factories import LABELS, make_compile
from tests.factories import make_tenant
from tests.workers.answer_helpers import json_answer, json_spec
from tests.workers.pipeline_helpers import (
    calls,
    candidates,
    check_money,
    messages,
    start,
    step,
    told_apart,
    walk_through,
)
from tests.workers.teachers.strict_vendors import (
    BY_NAME,
    CONTENT_REFUSALS,
    VENDORS,
    Body,
    Endpoint,
    Refusal,
    Script,
    serving,
)
from workers.step.teacher_session import open_teacher
from workers.teachers.prompts.candidate_and_label import unfence
from workers.teachers.protocol import TeacherFailed

pytestmark = pytest.mark.usefixtures("committed_db")
PAID_HALF = (
    StepName.SLICING,
    StepName.SYNTHESIS,
    StepName.VERIFICATION,
    StepName.SELECTION,
    StepName.LABELING,
)
PRICE = {"input_usd_per_mtok": 0.5, "output_usd_per_mtok": 1.5}


def script(answer: Any) -> Script:
    """Candidates where none is shown to label; else the answer to the shown text, as often as asked for."""
    texts = messages()

    def write(asked: Sequence[Mapping[str, Any]], n: int) -> list[str]:
        question = asked[-1]["content"]
        if "\nMessage:\n" not in question:
            return list(itertools.islice(texts, n))
        return [answer(unfence(question)[-1])] * n

    return write


def label_of(text: str) -> str:
    return f"The label is **{LABELS['charged' in text or 'parcel' in text]}**."


def compile_at(endpoint: Endpoint, *, dialect: str | None, base: dict[str, Any], **teacher: Any) -> Compile:
    told = {"provider": "openai_compatible", "base_url": endpoint.base_url, "model": endpoint.vendor.model}
    told |= {"price": PRICE, "dialect": dialect, "concurrency": 4, **teacher}
    return make_compile(make_tenant(), **(base | {"teacher": told, "budget": {"usd": 50}}))


@pytest.fixture
def loopback(settings):
    def allow(endpoint: Endpoint) -> None:
        settings.KOLM_ALLOW_PRIVATE_TEACHERS = (endpoint.base_url.removesuffix("/v1"),)

    return allow


def label_base() -> dict[str, Any]:
    return {
        "examples": {"inline": told_apart(24), "holdout": 0.5},
        "sampling": {"n_candidates": 6, "label_samples": 3},
    }


class Filter:
    """A vendor's filter, which refuses the first few texts that it is to label, each in another vendor's words; and how
    often it was asked about each."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self._left = iter(CONTENT_REFUSALS.values())
        self._refusals: dict[str, Refusal | None] = {}
        self._turn = threading.Lock()

    @property
    def refused(self) -> set[str]:
        return {text for text, refusal in self._refusals.items() if refusal is not None}

    def refuse(self, body: Body) -> Refusal | None:
        question = body["messages"][-1]["content"]
        if "\nMessage:\n" not in question or "test of the connection" in question:
            return None
        with self._turn:
            text = unfence(question)[-1]
            self.asked[text] += 1
            if text not in self._refusals:
                self._refusals[text] = next(self._left, None)
            return self._refusals[text]


def walk_paid_half(row: Compile) -> None:
    """A thinking model that nobody knows fails once and is asked again with room, as the pipeline does."""
    run = start(row)
    for name in PAID_HALF:
        try:
            walk_through(run, name)
        except TeacherFailed as failed:
            if failed.code != "teacher_only_thought" or not failed.retryable:
                raise
            walk_through(run, name)


@pytest.mark.nightly
@pytest.mark.parametrize("is_known", [True, False], ids=["known", "unknown"])
@pytest.mark.parametrize("vendor", VENDORS, ids=lambda vendor: vendor.name)
def test_a_label_task_is_written_and_labelled_at_every_vendor(vendor, is_known, loopback):
    with serving(vendor, script(label_of)) as endpoint:
        loopback(endpoint)
        row = compile_at(endpoint, dialect=vendor.dialect if is_known else None, base=label_base())
        walk_paid_half(row)
        rows = candidates(row, state__in=("trained", "left_out"))
        assert len(rows) == 4
        assert all(sum(one.votes.values()) == 3 for one in rows)
        n_refused = len(endpoint.refused)
        with tenant_scope(row.tenant_id):
            learnt = lessons_of(row.tenant_id, endpoint.base_url, vendor.model)
    check_money(row)
    assert n_refused <= 4 * 12, "no more than each of the calls in flight at first may learn"
    if is_known:
        assert n_refused <= {"anthropic": 4, "azure": 8, "xai": 4, "nameless": 48}.get(vendor.name, 0)
    told = step(row, StepName.LABELING)
    assert told.status == "succeeded"
    assert bool(learnt) == bool(n_refused) or vendor.thoughts


@pytest.mark.parametrize("is_known", [True, False], ids=["known", "unknown"])
@pytest.mark.parametrize("vendor", VENDORS, ids=lambda vendor: vendor.name)
def test_a_json_task_is_answered_at_every_vendor(vendor, is_known, loopback):
    with serving(vendor, script(json_answer)) as endpoint:
        loopback(endpoint)
        base = json_spec() | {"sampling": {"n_candidates": 6, "label_samples": 2}}
        row = compile_at(endpoint, dialect=vendor.dialect if is_known else None, base=base)
        walk_paid_half(row)
        assert candidates(row, state__in=("trained", "left_out"))
        formats = [body.get("response_format", {}).get("type") for body in endpoint.answered]
        n_tools = sum("tools" in body for body in endpoint.answered)
        made = calls(row)
    check_money(row)
    if vendor.name == "anthropic" and is_known:
        assert n_tools == sum(call.step == StepName.LABELING for call in made) > 0
        assert not any(call.usage_flags for call in made)
    else:
        assert n_tools == 0
    takes_schema = {"openai", "openai-reasoning", "azure", "gemini", "mistral", "magistral", "groq", "fireworks"}
    if vendor.name in takes_schema:
        assert "json_schema" in formats
    if vendor.name == "deepseek":
        assert "json_object" in formats


def test_what_one_compile_learnt_the_next_one_knows_and_another_tenant_does_not(loopback):
    vendor = BY_NAME["openai-reasoning"]
    with serving(vendor, script(label_of)) as endpoint:
        loopback(endpoint)
        row = compile_at(endpoint, dialect=None, base=label_base())
        walk_paid_half(row)
        n_refused = len(endpoint.refused)
        assert n_refused
        spec = parse_spec(row.spec)
        prices = kept_prices(row.estimate, spec.teacher, book=price_book())
        with open_teacher(row.tenant_id, spec, prices) as again:
            assert {lesson.option for lesson in again.teacher.lessons} >= {"token_limit", "temperature", "logprobs"}
        with open_teacher(make_tenant().id, spec, prices) as other:
            assert other.teacher.lessons == ()


def test_thoughts_are_metered_within_the_output_and_paid(loopback):
    with serving(BY_NAME["gemini"], script(label_of)) as endpoint:
        loopback(endpoint)
        row = compile_at(endpoint, dialect="gemini", base=label_base())
        walk_paid_half(row)
    made = [call for call in calls(row) if call.step == StepName.LABELING]
    assert all(call.thought_tokens == 300 < call.output_tokens for call in made)
    check_money(row)


@pytest.mark.nightly
def test_a_text_that_a_filter_refuses_costs_its_candidate_and_not_the_compile(loopback):
    filter = Filter()
    with serving(replace(BY_NAME["openai"], refuse=filter.refuse), script(label_of)) as endpoint:
        loopback(endpoint)
        sampling = {"n_candidates": 24, "k_select": 12, "label_samples": 3, "on_gap": ["drop_k"]}
        row = compile_at(endpoint, dialect="openai", base=label_base() | {"sampling": sampling})
        walk_paid_half(row)
        with tenant_scope(row.tenant_id):
            assert lessons_of(row.tenant_id, endpoint.base_url, "gpt-4o-mini") == ()
    unverified = {one.text for one in candidates(row, state="unverified")}
    assert unverified == filter.refused
    assert len(unverified) == len(CONTENT_REFUSALS)
    assert {filter.asked[text] for text in unverified} == {1}
    assert candidates(row, state="trained")
    check_money(row)


def test_a_candidate_that_reached_its_limit_is_none(loopback):
    long = " ".join(["word"] * 100)

    def write(asked: Sequence[Mapping[str, Any]], n: int) -> list[str]:
        return [long + str(i) for i in range(n)] if "\nMessage:\n" not in asked[-1]["content"] else [label_of("")] * n

    with serving(BY_NAME["openai"], write) as endpoint:
        loopback(endpoint)
        base = label_base() | {"sampling": {"n_candidates": 4, "candidate_max_tokens": 16, "on_gap": ["drop_k"]}}
        row = compile_at(endpoint, dialect="openai", base=base)
        walk_through(start(row), StepName.SLICING, StepName.SYNTHESIS)
    assert {tuple(one.reasons) for one in candidates(row)} == {("cut",)}


def test_a_candidate_that_did_not_end_by_itself_is_none(loopback, monkeypatch):
    whole, words = Endpoint._choice, itertools.cycle(["model_length", "abort", "SAFETY"])
    monkeypatch.setattr(Endpoint, "_choice", lambda *args: whole(*args) | {"finish_reason": next(words)})
    with serving(BY_NAME["openai"], script(label_of)) as endpoint:
        loopback(endpoint)
        base = label_base() | {"sampling": {"n_candidates": 6, "on_gap": ["drop_k"]}}
        row = compile_at(endpoint, dialect="openai", base=base)
        walk_through(start(row), StepName.SLICING, StepName.SYNTHESIS)
    assert {tuple(one.reasons) for one in candidates(row)} == {("cut",), ("filtered",)}

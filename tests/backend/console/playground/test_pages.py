"""The playground: a student by way of a runner (played through the lease API's own functions), the teacher by way of
the worker's own task against a real server on loopback; what either says is hostile text."""

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from html import escape
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.db import connection
from django.utils import timezone

from backend.artifacts import revoking
from backend.domain.ids import Prefix, decode_id, encode_id
from backend.domain.jobs.runner_jobs import RunnerJobKind
from backend.domain.roles import Role
from backend.runner_jobs import leases
from backend.runner_jobs.models import RunnerJob
from backend.serving import playground
from backend.serving.models import AnswerState, PlaygroundAnswer
from backend.tenants.actors import SYSTEM
from backend.tenants.isolation import tenant_scope
from backend.usage import accounts, holds
from backend.usage.models import UsageFact
from backend.valkey import pause
from tests.backend.console.pages import get, logged_in, post
from tests.compile_factories import make_artifact, make_compile, make_receipts, public_id
from tests.factories import make_tenant
from tests.workers.teachers.hostile import HostileTeacher, answer, completion_body
from workers.tasks import ask_teacher
from workers.teachers.grammar.files import shipped_grammar
from workers.teachers.grammar.model import GrammarModel
from workers.teachers.grammar.server import serving

pytestmark = pytest.mark.usefixtures("committed_db")

ROUTER = yaml.safe_load((Path(__file__).parents[4] / "examples" / "refund-router.yaml").read_text())
HOSTILE = "<script>alert(1)</script>"
URL = "/app/playground"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, committed_db: None) -> None:
    RunnerJob.objects.all().delete()
    monkeypatch.setattr(playground, "STUDENT_WAIT_S", 0.3)
    pause.note_answer()  # a test before may have taken Redis away


@pytest.fixture
def tenant(committed_db: None) -> Any:
    return make_tenant()


@pytest.fixture(scope="module")
def grammar() -> Iterator[str]:
    with serving(GrammarModel(shipped_grammar()), host="127.0.0.1", port=0) as server:
        yield server.url


def publish(tenant, *, version=1, **changes):
    row = make_compile(tenant, **(ROUTER | changes))
    make_receipts(row)
    return make_artifact(row, version=version)


@contextmanager
def runner(label: str = "refund", *, answer: dict[str, Any] | None = None) -> Iterator[None]:
    """Answers every `infer` job with `answer`, else with one label."""
    stop = threading.Event()

    def work() -> None:
        try:
            while not stop.wait(0.02):
                claim = leases.claim("r1", [RunnerJobKind.INFER])
                if claim is not None:
                    outputs = [answer or {"label": label, "confidence": 0.87, "latency_us": 812}]
                    key = (decode_id(Prefix.RUNNER_JOB, claim.job_id), claim.token)
                    leases.report_success(*key, {"outputs": outputs, "load_ms": 5})
        finally:
            connection.close()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(10)


def ask(client, artifact, text="give me my money back", **form):
    answer = post(client, f"{URL}/ask", {"artifact": public_id(artifact), "text": text} | form)
    return answer["Location"].split("answer=")[1]


def row_of(tenant, answer_id):
    with tenant_scope(tenant.id):
        return PlaygroundAnswer.objects.of_tenant(tenant.id).get(id=decode_id(Prefix.PLAYGROUND_ANSWER, answer_id))


def facts_of(tenant):
    with tenant_scope(tenant.id):
        return list(UsageFact.objects.of_tenant(tenant.id).order_by("sku"))


def work_off(tenant, answer_id):
    """What the worker does with the hint."""
    ask_teacher(str(tenant.id), str(decode_id(Prefix.PLAYGROUND_ANSWER, answer_id)))


def test_without_an_artifact_the_page_says_how_one_comes_to_be(tenant):
    assert re.search(r"/v1/compiles .*-d ", get(logged_in(tenant), URL))


def test_student_and_teacher_stand_side_by_side_with_what_each_cost(tenant, grammar, settings, monkeypatch):
    settings.KOLM_GRAMMAR_URL = grammar
    monkeypatch.setattr(playground, "STUDENT_WAIT_S", 10.0)
    artifact, client = publish(tenant), logged_in(tenant)
    with runner("refund_status"):
        answer_id = ask(client, artifact, teacher="1")
    waiting = get(client, f"{URL}?answer={answer_id}")
    assert "refund_status" in waiting
    assert "0.870" in waiting
    assert 'hx-trigger="every 1s"' in waiting
    work_off(tenant, answer_id)
    text = get(client, f"{URL}?answer={answer_id}")
    row = row_of(tenant, answer_id)
    assert row.state == AnswerState.ANSWERED
    assert row.label in {label["name"] for label in ROUTER["output"]["labels"]}
    assert row.label in text
    facts = facts_of(tenant)
    assert {fact.step for fact in facts} == {"playground", "run"}
    assert sum(fact.amount_microusd for fact in facts if fact.step == "playground") == row.cost_microusd > 0
    assert "hx-trigger" not in get(client, f"{URL}/answers/{answer_id}")


def test_a_hint_that_comes_twice_asks_and_charges_once(tenant, grammar, settings):
    settings.KOLM_GRAMMAR_URL = grammar
    artifact, client = publish(tenant), logged_in(tenant)
    answer_id = ask(client, artifact, teacher="1")
    work_off(tenant, answer_id)
    n = len(facts_of(tenant))
    work_off(tenant, answer_id)
    assert len(facts_of(tenant)) == n > 0


def test_the_version_before_answers_too_when_it_is_wanted(tenant, monkeypatch):
    monkeypatch.setattr(playground, "STUDENT_WAIT_S", 10.0)
    publish(tenant)
    newest, client = publish(tenant, version=2), logged_in(tenant)
    with runner():
        answer_id = ask(client, newest, previous="1")
    assert [said["version"] for said in row_of(tenant, answer_id).students] == [2, 1]
    text = get(client, f"{URL}?answer={answer_id}")
    assert "it cost nothing" in text
    assert f"{ROUTER['name']} v1" in text


def test_without_a_runner_the_page_says_so_and_nothing_is_charged(tenant):
    artifact, client = publish(tenant), logged_in(tenant)
    text = get(client, f"{URL}?answer={ask(client, artifact)}")
    assert "No runner answered within" in text
    assert facts_of(tenant) == []


def own_teacher(server: HostileTeacher) -> dict[str, Any]:
    return {
        "provider": "openai_compatible",
        "model": "m<b>",
        "base_url": server.base_url,
        "price": {"input_usd_per_mtok": 1, "output_usd_per_mtok": 2},
    }


def test_what_a_teacher_makes_up_is_shown_as_text_and_is_no_label(tenant, settings):
    with HostileTeacher(answer(200, json.dumps(completion_body(HOSTILE * 50)).encode())) as server:
        settings.KOLM_ALLOW_PRIVATE_TEACHERS = (server.base_url.removesuffix("/v1"),)
        artifact, client = publish(tenant, teacher=own_teacher(server)), logged_in(tenant)
        answer_id = ask(client, artifact, text=HOSTILE, teacher="1")
        work_off(tenant, answer_id)
    text = get(client, f"{URL}?answer={answer_id}")
    assert HOSTILE not in text
    assert "&lt;script&gt;" in text
    assert "no label won" in text
    assert "m&lt;b&gt;" in text
    assert all(len(vote["said"]) <= 200 for vote in row_of(tenant, answer_id).votes)


def test_a_teacher_that_breaks_off_is_a_sentence_and_no_charge(tenant, settings):
    with HostileTeacher(answer(401, b"")) as server:
        settings.KOLM_ALLOW_PRIVATE_TEACHERS = (server.base_url.removesuffix("/v1"),)
        artifact, client = publish(tenant, teacher=own_teacher(server)), logged_in(tenant)
        answer_id = ask(client, artifact, teacher="1")
        work_off(tenant, answer_id)
    row = row_of(tenant, answer_id)
    assert row.state == AnswerState.FAILED
    assert row.message
    assert escape(row.message) in get(client, f"{URL}?answer={answer_id}")
    assert facts_of(tenant) == []


def test_a_question_that_nobody_takes_stops_waiting(tenant):
    artifact, client = publish(tenant), logged_in(tenant)
    answer_id = ask(client, artifact, teacher="1")
    with tenant_scope(tenant.id):
        PlaygroundAnswer.objects.of_tenant(tenant.id).update(created_at=timezone.now() - timedelta(minutes=2))
    text = get(client, f"{URL}/answers/{answer_id}")
    assert "No worker answered" in text
    assert "hx-trigger" not in text
    work_off(tenant, answer_id)
    assert row_of(tenant, answer_id).state == AnswerState.QUEUED


@pytest.mark.parametrize("form", [{"text": ""}, {"text": " \n"}, {"text": "x" * 4001}, {"artifact": ""}])
def test_a_form_without_a_text_or_artifact_asks_nobody(tenant, form):
    artifact = publish(tenant)
    whole = {"artifact": public_id(artifact), "text": "hello"} | form
    post(logged_in(tenant), f"{URL}/ask", whole, status=400)
    assert not RunnerJob.objects.filter(tenant_id=tenant.id).exists()


def test_a_revoked_artifact_is_not_asked_nor_one_of_a_tenant_at_its_cap(tenant):
    artifact, client = publish(tenant), logged_in(tenant)
    with tenant_scope(tenant.id):
        holds.release(tenant.id, artifact.compile_id)
        accounts.set_cap(tenant.id, 0, actor=SYSTEM)
    post(client, f"{URL}/ask", {"artifact": public_id(artifact), "text": "x", "teacher": "1"}, status=402)
    revoking.revoke(tenant.id, artifact.id, reason="wrong", actor=SYSTEM)
    post(client, f"{URL}/ask", {"artifact": public_id(artifact), "text": "x"}, status=409)
    assert not RunnerJob.objects.filter(tenant_id=tenant.id).exists()


def test_what_was_typed_is_gone_a_day_later_for_every_tenant(tenant):
    artifact, client = publish(tenant), logged_in(tenant)
    old, new = ask(client, artifact, text="yesterday"), ask(client, artifact, text="today")
    with tenant_scope(tenant.id):
        rows = PlaygroundAnswer.objects.of_tenant(tenant.id)
        rows.filter(id=decode_id(Prefix.PLAYGROUND_ANSWER, old)).update(created_at=timezone.now() - timedelta(days=2))
    assert playground.forget_playground() >= 1
    get(client, f"{URL}?answer={old}", status=404)
    assert "today" in get(client, f"{URL}?answer={new}")


def test_viewers_cannot_spend_and_another_tenants_tries_are_not_there(tenant):
    other = make_tenant("Other")
    theirs = publish(other)
    answer_id = ask(logged_in(other), theirs)
    get(logged_in(tenant, Role.VIEWER), URL, status=403)
    client = logged_in(tenant)
    get(client, f"{URL}?answer={answer_id}", status=404)
    get(client, f"{URL}/answers/{answer_id}", status=404)
    post(client, f"{URL}/ask", {"artifact": public_id(theirs), "text": "x"}, status=404)
    assert encode_id(Prefix.ARTIFACT, theirs.id) not in get(client, URL)


def test_a_span_students_fields_are_marked_in_the_input_and_the_unsure_ones_come_first(tenant, monkeypatch):
    monkeypatch.setattr(playground, "STUDENT_WAIT_S", 10.0)
    text = f"a \U0001f6cb for {HOSTILE} in Malmö"
    fields = [
        {"path": "/city", "start": text.index("Malmö"), "end": len(text), "confidence_ppm": 990_000},
        {"path": f"/{HOSTILE}", "start": 8, "end": 8 + len(HOSTILE), "confidence_ppm": 420_000},
        {"path": "/within", "start": 9, "end": 15, "confidence_ppm": 970_000},  # inside the one before
        {"path": "/when", "start": None, "end": None, "confidence_ppm": 900_000},
        {"path": "/beyond", "start": 3, "end": 10_000, "confidence_ppm": 900_000},
    ]
    output = {"output": json.dumps({"city": HOSTILE}), "finish_reason": "stop", "n_tokens": 0, "latency_us": 812}
    row = make_compile(tenant, **ROUTER)
    make_receipts(row)
    artifact, client = make_artifact(row, task_type="json"), logged_in(tenant)
    with runner(answer=output | {"confidence": 0.4, "fields": fields}):
        answer_id = ask(client, artifact, text=text)
    page = get(client, f"{URL}?answer={answer_id}")
    assert HOSTILE not in page
    assert '<mark class="model" title="/city (read here, 0.990)">Malmö</mark>' in page
    marked = re.findall(r'<mark class="(\w+)" title="([^"]*)">([^<]*)</mark>', page)
    assert "".join(part for kind, _, part in marked if kind == "unsure") == escape(HOSTILE)
    assert "".join(part for _, title, part in marked if "/within" in title) == "script"
    assert "1 field unsure" in page
    order = [page.index(f"<bdi>{name}") for name in ("/&lt;script&gt;", "/when", "/within", "/city")]
    assert order == sorted(order)
    assert page.count("chosen, not copied") == 2
    assert "0.400" in page


def test_a_json_answer_of_rules_says_so_with_the_precision_that_was_measured(tenant, monkeypatch):
    monkeypatch.setattr(playground, "STUDENT_WAIT_S", 10.0)
    fields = [{"path": "/order", "start": 7, "end": 11, "confidence_ppm": 951_000}]
    output = {"output": '{"order": "7719"}', "finish_reason": "stop", "n_tokens": 0, "latency_us": 12, "rule": 0}
    row = make_compile(tenant, **ROUTER)
    make_receipts(row)
    artifact, client = make_artifact(row, task_type="json"), logged_in(tenant)
    with runner(answer=output | {"confidence": 0.951, "fields": fields}):
        answer_id = ask(client, artifact, text="cancel 7719")
    page = get(client, f"{URL}?answer={answer_id}")
    assert "the field rules, without the model" in page
    assert '<mark class="model" title="/order (read here, 0.951)">7719</mark>' in page
    with runner(answer=output | {"fields": []}):  # rules of a release that measured no precision of whole answers
        answer_id = ask(client, artifact, text="cancel 7719")
    page = get(client, f"{URL}?answer={answer_id}")
    assert "the field rules, without the model" in page
    assert "<mark" not in page

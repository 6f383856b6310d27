"""The embedder and the models of a preflight that somebody waits for: the answer to one question of
`preflight.teacher_checks`. The call belongs to no compile; one that fails is not charged."""

import logging
from dataclasses import asdict
from uuid import UUID

from django.utils import timezone

from backend.compiles.lifecycle.submission import estimate_now
from backend.domain.errors import KolmError
from backend.domain.money.pricing import TeacherPrice
from backend.domain.planning.preflight.asked_models import AskedModel, asked_models
from backend.domain.planning.preflight.lines import Check, PreflightLine, failed_line, passed_line, skipped_line
from backend.domain.planning.preflight.teacher_lines import DEADLINE_S, skipped_lines, slow_line
from backend.domain.spec.parsing import Spec, parse_spec
from backend.preflight.asking import FIRST, has_failed
from backend.preflight.teacher_checks import Question, answer, question, wake
from backend.tenants.isolation import tenant_scope
from backend.usage.ledger import Fact, record
from workers.embedding.sentence import load_embedder
from workers.preflight.gold_checks import gold_lines
from workers.preflight.tiny_call import line_of_failure, lines_of_answer, open_asked, tiny_request
from workers.step.spending import pays_teacher_itself
from workers.step.teacher_calls import with_thoughts, worst_cost
from workers.teachers.protocol import Completion, CompletionRequest, Teacher, TeacherFailed, Usage

log = logging.getLogger("kolm.preflight")

STEP = "preflight"


def answer_preflight(tenant_id: UUID, check_id: UUID) -> None:
    """Answer one question, if anybody still waits for it. Whoever asked hears of every failure."""
    asked = question(tenant_id, check_id)
    if asked is None:
        return
    facts: list[Fact] = []
    try:
        lines, facts = _answer(tenant_id, parse_spec(asked.spec), asked)
    except KolmError as error:
        lines = [failed_line(asked.check, error.message, code=error.code, what_to_do="Fix this and try again.")]
    except Exception:
        log.exception("preflight %s failed", check_id)
        text = "No model was called: something broke on our side; it is logged."
        lines = [failed_line(asked.check, text, code="internal_error", what_to_do="Ask again in a minute.")]
    with tenant_scope(tenant_id):
        answer(tenant_id, check_id, lines)
        if facts:
            record(tenant_id, facts, compile_id=None, step=STEP)
    wake(check_id)


def _answer(tenant_id: UUID, spec: Spec, question: Question) -> tuple[list[PreflightLine], list[Fact]]:
    """The lines of the model that the question is about, beside the teacher's those of the embedder and of gold that
    fails checks. Where one of these failed, the teacher is not asked."""
    asked = next(model for model in asked_models(spec) if model.check is question.check)
    lines: list[PreflightLine] = []
    if asked.check is Check.TEACHER:
        lines = [_embedder_line(spec.embedder), *gold_lines(tenant_id, spec)]
    if has_failed(lines):
        return [*lines, skipped_line(asked.check, f"The {asked.name} was not asked: {FIRST}.")], []
    if not asked.is_asked:
        return [*lines, *skipped_lines(spec)], []
    of_model, facts = _ask(tenant_id, spec, asked, question.id)
    return [*lines, *of_model], facts


def _embedder_line(name: str | None) -> PreflightLine:
    try:
        return passed_line(Check.EMBEDDER, f"The embedder loads: {load_embedder(name).identity.partition('@')[0]}.")
    except (ImportError, OSError, RuntimeError, ValueError) as error:
        log.exception("the embedder does not load")
        sentence = f"The embedder does not load on a worker ({type(error).__name__})."
        what_to_do = "The operator's log of the worker says why; nothing in the spec fixes it."
        return failed_line(Check.EMBEDDER, sentence, code="embedder_unavailable", what_to_do=what_to_do)


def _ask(tenant_id: UUID, spec: Spec, asked: AskedModel, check_id: UUID) -> tuple[list[PreflightLine], list[Fact]]:
    prices = estimate_now(spec).teacher
    try:
        with open_asked(tenant_id, spec, asked, prices) as session:
            request, completion = _ask_with_room(session.teacher, asked)
            most = worst_cost(session.price, request)
            own_key = pays_teacher_itself(asked.spec)
            facts = _facts(check_id, completion.usage, session.price, most, is_own_key=own_key)
            lines = lines_of_answer(
                asked,
                session.teacher,
                asdict(completion.choices[0]),
                latency_ms=completion.latency_ms,
                cost=sum(fact.amount_microusd + fact.provider_microusd for fact in facts),
            )
    except KolmError as error:
        line = slow_line(asked) if error.code == "teacher_timeout" else line_of_failure(asked, error)
        return [line], []
    return lines, facts


def _ask_with_room(teacher: Teacher, asked: AskedModel) -> tuple[CompletionRequest, Completion]:
    """Ask once; once more a model that thought until its limit, now that it is known to think, and with room for it."""
    request = with_thoughts(teacher, tiny_request(asked))
    try:
        return request, teacher.complete(request, deadline_s=DEADLINE_S)
    except TeacherFailed as failed:
        if failed.code != "teacher_only_thought":
            raise
    request = with_thoughts(teacher, tiny_request(asked))
    return request, teacher.complete(request, deadline_s=DEADLINE_S)


def _facts(check_id: UUID, usage: Usage, price: TeacherPrice, most_microusd: int, *, is_own_key: bool) -> list[Fact]:
    parts = price.parts(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cached_tokens=usage.cached_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        most_microusd=most_microusd,
    )
    asked_at = timezone.now().isoformat()
    return [
        Fact(
            sku=f"teacher.{price.model[:170]}.{part.kind}_token",
            quantity=part.quantity,
            unit="token",
            amount_microusd=0 if is_own_key else part.amount_microusd,
            provider_microusd=part.amount_microusd if is_own_key else 0,
            price_version=price.version,
            source_key=f"preflight:{check_id}:{asked_at}:{part.kind}_token",
            is_estimated=usage.estimated or usage.disputed,
        )
        for part in parts
    ]

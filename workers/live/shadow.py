"""A live answer beside its teacher's: the worker's half of `backend.serving.gateway.shadowing`.

Asked as a compile's labelling asks. Agreement is what the held-out accuracy was: equality for labels, exactness or
field F1 for json, and for texts a win or a tie before the teacher as a judge, asked both ways round (or the passed
checks, where the spec goes by those; no teacher is asked then). The text is gone when this ends, however it ends; a
call that failed is not charged and not counted.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from backend.domain.answers.json_values import BadAnswer, field_scores, is_exact, parse_answer
from backend.domain.answers.labels import vote
from backend.domain.errors import KolmError
from backend.domain.evaluation.generative import Verdict, verdict_of
from backend.domain.money.pricing import TeacherPrice, kept_book
from backend.domain.money.teacher_prices import kept_prices
from backend.domain.spec.parsing import (
    JsonOutput,
    LabelOutput,
    Spec,
    TextOutput,
    first_votes,
    label_names,
    read_stored_spec,
)
from backend.serving.deployments import subjects_of
from backend.serving.gateway.shadowing import Question, abandon, question, record_comparison
from backend.tenants.isolation import tenant_scope
from backend.usage.accounts import check_open
from backend.usage.ledger import Fact, record
from workers.scoring.answer_checks import failed_checks
from workers.step.spending import pays_teacher_itself
from workers.step.teacher_calls import with_thoughts, worst_cost
from workers.step.teacher_session import TeacherSession, open_teacher
from workers.teachers.prompts.answer import item_request
from workers.teachers.prompts.candidate_and_label import parse_label
from workers.teachers.prompts.pairwise import pairwise_request, parse_preference
from workers.teachers.protocol import Completion, CompletionRequest
from workers.training.votes import agree

log = logging.getLogger("kolm.shadow")

DEADLINE_S = 45.0
STEP = "shadow"
PPM = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    completion: Completion
    most_microusd: int


@dataclass(slots=True, kw_only=True)
class _Teacher:
    """The teacher with what it was asked, within the day's money."""

    session: TeacherSession
    left_microusd: int
    calls: list[_Call]

    def ask(self, request: CompletionRequest) -> list[str] | None:
        """Ask for its replies; None where the money does not reach."""
        request = with_thoughts(self.session.teacher, request)
        worst = worst_cost(self.session.price, request)
        if worst > self.left_microusd:
            return None
        self.left_microusd -= worst
        completion = self.session.teacher.complete(request, deadline_s=DEADLINE_S)
        self.calls.append(_Call(completion=completion, most_microusd=worst))
        return [choice.text for choice in completion.choices]


def compare_answer(tenant_id: UUID, answer_id: UUID) -> None:
    """Compare once; what fails is logged without the text and counts for nothing."""
    asked = question(tenant_id, answer_id)
    if asked is None:
        return
    try:
        with tenant_scope(tenant_id):
            check_open(tenant_id, None)
        spec = read_stored_spec(asked.compile.spec)
        kept = asked.compile.estimate
        prices = kept_prices(kept, spec.teacher, book=kept_book(kept.get("price_version", "")))
        with open_teacher(tenant_id, spec, prices) as session:
            teacher = _Teacher(session=session, left_microusd=asked.left_microusd, calls=[])
            agreement = _agreement(spec, asked, teacher)
            price, model = session.price, session.teacher.identity.model
    except KolmError as error:
        log.warning("shadow %s: %s", answer_id, error.code)
        abandon(asked)
        return
    except Exception:
        abandon(asked)
        raise
    facts = _facts(asked, teacher.calls, price, model, is_own_key=pays_teacher_itself(spec))
    _save(asked, facts, agreement)


def _agreement(spec: Spec, asked: Question, teacher: _Teacher) -> int | None:
    """The agreement of the served answer with the teacher, in ppm; None where there is nothing to compare with."""
    if isinstance(spec.output, TextOutput) and spec.output.accuracy == "checks":
        (failed,) = failed_checks(spec.output, [(asked.text, asked.answer)])
        return 0 if failed else PPM
    request = item_request(
        spec, asked.text, n=first_votes(spec), temperature=spec.sampling.temperature_labels, seed=None
    )
    replies = teacher.ask(request)
    if replies is None:
        return None
    if isinstance(spec.output, LabelOutput):
        allowed = label_names(spec)
        label = vote([parse_label(text, allowed) for text in replies], allowed).label
        return None if label is None else PPM * (parse_label(asked.answer, allowed) == label)
    (agreed,) = agree(spec, [(asked.text, replies)])
    if not agreed.answer:
        return None
    if isinstance(spec.output, JsonOutput):
        return json_agreement(asked.answer, agreed.answer, is_exact_wanted=spec.output.accuracy == "exact")
    if spec.output.accuracy == "exact":
        return PPM * (asked.answer.strip() == agreed.answer.strip())
    return _preference(spec, asked, agreed.answer, teacher)


def json_agreement(student: str, teacher: str, *, is_exact_wanted: bool) -> int:
    """
    >>> json_agreement('{"a": 1, "b": 2}', '{"a": 1, "b": 3}', is_exact_wanted=False)
    500000
    """
    try:
        value = parse_answer(student)
    except BadAnswer:
        return 0
    gold = parse_answer(teacher)
    return PPM * is_exact(value, gold) if is_exact_wanted else field_scores(value, gold).f1_ppm


def _preference(spec: Spec, asked: Question, agreed: str, teacher: _Teacher) -> int | None:
    """The teacher's preference between the served answer and its own, asked both ways round; None without money."""
    if asked.answer.strip() == agreed.strip():
        return PPM
    orders = (asked.answer, agreed), (agreed, asked.answer)
    first, second = (teacher.ask(pairwise_request(spec, asked.text, a, b)) for a, b in orders)
    if first is None or second is None:
        return None
    verdict = verdict_of(parse_preference(first[0]), parse_preference(second[0]))
    return 0 if verdict == Verdict.LOSS else PPM


def _save(asked: Question, facts: Sequence[Fact], agreement: int | None) -> None:
    tenant_id = asked.row.tenant_id
    cost = sum(fact.amount_microusd + fact.provider_microusd for fact in facts)
    with tenant_scope(tenant_id):
        subject = subjects_of(tenant_id, [asked.row.deployment_id])[asked.row.deployment_id]
        # first: whoever counts holds the account's lock
        record(tenant_id, facts, compile_id=None, step=STEP, subject=subject)
        record_comparison(asked, agreement_ppm=agreement, cost_microusd=cost)


def _facts(asked: Question, calls: Sequence[_Call], price: TeacherPrice, model: str, *, is_own_key: bool) -> list[Fact]:
    facts = []
    for number, call in enumerate(calls):
        usage = call.completion.usage
        parts = price.parts(
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cached_tokens=usage.cached_tokens,
            cache_write_tokens=usage.cache_write_tokens,
            most_microusd=call.most_microusd,
        )
        facts += [
            Fact(
                sku=f"teacher.{model[:170]}.{part.kind}_token",
                quantity=part.quantity,
                unit="token",
                amount_microusd=0 if is_own_key else part.amount_microusd,
                provider_microusd=part.amount_microusd if is_own_key else 0,
                price_version=price.version,
                source_key=f"shadow:{asked.row.id}:{number}:{part.kind}_token",
                is_estimated=usage.estimated or usage.disputed,
            )
            for part in parts
        ]
    return facts

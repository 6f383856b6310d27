"""The teacher's answer to one text in the playground: the answer to `backend.serving.playground`.

Asked as a compile's labelling asks: the same prompt, the same number of answers, the label by vote, the answer of a
json or text task by consensus of what passes its checks. The call belongs to no compile, so no compile's budget carries
it. A call that fails is not charged.
"""

import logging
import time
from collections import Counter
from dataclasses import dataclass
from uuid import UUID

from backend.domain.answers.labels import vote
from backend.domain.errors import KolmError
from backend.domain.money.pricing import TeacherPrice, price_book
from backend.domain.money.teacher_prices import TeacherPrices, kept_prices
from backend.domain.spec.parsing import LabelOutput, Spec, first_votes, label_names, read_stored_spec
from backend.serving.models import PlaygroundAnswer
from backend.serving.playground import MAX_SHOWN, Vote, answer, fail, question
from backend.tenants.isolation import tenant_scope
from backend.usage.ledger import Fact, record
from workers.step.spending import pays_teacher_itself
from workers.step.teacher_calls import with_thoughts, worst_cost
from workers.step.teacher_session import open_teacher
from workers.teachers.prompts.answer import item_request
from workers.teachers.prompts.candidate_and_label import parse_label
from workers.teachers.protocol import Completion
from workers.training.votes import agree, valid_answers

log = logging.getLogger("kolm.playground")

DEADLINE_S = 45.0
STEP = "playground"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    completion: Completion
    price: TeacherPrice
    most_microusd: int
    model: str
    latency_ms: int


def answer_playground(tenant_id: UUID, answer_id: UUID) -> None:
    """Ask once and write down what was said. Whoever waits hears of every failure: nobody asks again by himself."""
    asked_for = question(tenant_id, answer_id)
    if asked_for is None:
        return
    row, compile = asked_for
    try:
        spec = read_stored_spec(compile.spec)
        prices = kept_prices(compile.estimate, spec.teacher, book=price_book())
        asked = _ask(tenant_id, spec, prices, row.text)
    except KolmError as error:
        fail(tenant_id, answer_id, error.message)
        return
    except Exception:
        log.exception("playground %s failed", answer_id)
        fail(tenant_id, answer_id, "Something broke on our side; it is logged.")
        return
    _save(tenant_id, row, spec, asked)


def _ask(tenant_id: UUID, spec: Spec, prices: TeacherPrices, text: str) -> _Asked:
    with open_teacher(tenant_id, spec, prices) as session:
        request = with_thoughts(
            session.teacher,
            item_request(spec, text, n=first_votes(spec), temperature=spec.sampling.temperature_labels, seed=None),
        )
        began = time.monotonic()
        completion = session.teacher.complete(request, deadline_s=DEADLINE_S)
        return _Asked(
            completion=completion,
            price=session.price,
            most_microusd=worst_cost(session.price, request),
            model=session.teacher.identity.model,
            latency_ms=completion.latency_ms or round((time.monotonic() - began) * 1000),
        )


def _save(tenant_id: UUID, row: PlaygroundAnswer, spec: Spec, asked: _Asked) -> None:
    replies = [choice.text for choice in asked.completion.choices]
    agreed, votes = (
        _label_votes(spec, replies) if isinstance(spec.output, LabelOutput) else _answer_votes(spec, row, replies)
    )
    facts = _facts(row, asked, is_own_key=pays_teacher_itself(spec))
    with tenant_scope(tenant_id):
        answer(
            tenant_id,
            row.id,
            label=agreed,
            votes=votes,
            model=asked.model,
            latency_ms=asked.latency_ms,
            cost_microusd=sum(fact.amount_microusd + fact.provider_microusd for fact in facts),
        )
        record(tenant_id, facts, compile_id=None, step=STEP)


def _label_votes(spec: Spec, replies: list[str]) -> tuple[str | None, list[Vote]]:
    allowed = label_names(spec)
    labels = [parse_label(text, allowed) for text in replies]
    counted = Counter(zip(replies, labels, strict=True)).most_common()
    return vote(labels, allowed).label, [Vote(reply=text[:MAX_SHOWN], label=label, n=n) for (text, label), n in counted]


def _answer_votes(spec: Spec, row: PlaygroundAnswer, replies: list[str]) -> tuple[str | None, list[Vote]]:
    """The answer that speaks for all, whatever the agreement; a vote's `label` is the answer when it is valid."""
    valid = valid_answers(spec, row.text, replies)
    counted = Counter(zip(replies, valid, strict=True)).most_common()
    (agreed,) = agree(spec, [(row.text, replies)])
    return agreed.answer or None, [Vote(reply=text, label=valid_answer, n=n) for (text, valid_answer), n in counted]


def _facts(row: PlaygroundAnswer, asked: _Asked, *, is_own_key: bool) -> list[Fact]:
    usage = asked.completion.usage
    parts = asked.price.parts(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cached_tokens=usage.cached_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        most_microusd=asked.most_microusd,
    )
    return [
        Fact(
            sku=f"teacher.{asked.model[:170]}.{part.kind}_token",
            quantity=part.quantity,
            unit="token",
            amount_microusd=0 if is_own_key else part.amount_microusd,
            provider_microusd=part.amount_microusd if is_own_key else 0,
            price_version=asked.price.version,
            source_key=f"playground:{row.id}:{part.kind}_token",
            is_estimated=usage.estimated or usage.disputed,
        )
        for part in parts
    ]

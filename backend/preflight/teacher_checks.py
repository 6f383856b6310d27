"""The tiny calls to a spec's models: asked for here, made by a worker (the web process calls no teacher), each answered
in a row that both can see. An answer that passed counts for ten minutes for whatever asks the same model in the same
way, a compile's own beginning too; one that failed is asked again, since somebody may have mended it.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.utils import timezone

from backend.compiles.models import TeacherCheck
from backend.compiles.states import TeacherCheckState
from backend.domain.canonical import sha256_of
from backend.domain.errors import PaymentRequired
from backend.domain.planning.preflight.asked_models import AskedModel, asked_models
from backend.domain.planning.preflight.lines import Check, LineStatus, PreflightLine, failed_line, warning_line
from backend.domain.planning.preflight.teacher_lines import DEADLINE_S, SLOW
from backend.domain.spec.parsing import JsonOutput, LabelOutput, Spec, canonical_spec, label_names
from backend.queue import TaskName, enqueue
from backend.rest.async_queries import let_go
from backend.tenants.isolation import tenant_scope
from backend.usage.accounts import check_open
from backend.wakeups import announce, listening

COUNTS_FOR = timedelta(minutes=10)
GIVE_UP = timedelta(seconds=90)  # a question that no worker took by then is not asked any more
WAIT_S = DEADLINE_S + 15.0  # a worker may have to load its embedder first
LOOK_AGAIN_S = 0.5
_OPEN = (TeacherCheckState.QUEUED, TeacherCheckState.ASKED)
# of the teacher: what says nothing about whether and how it answers
_OTHER = frozenset({"price", "concurrency", "fallback_model", "recording"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A tiny call for a worker to make: which of the spec's models it is to ask."""

    id: UUID
    spec: dict[str, Any]
    check: Check


def check_digest(asked: AskedModel) -> str:
    """The digest of all that the answer depends on: endpoint, model, key, options, the form of the answer, and what a
    worker looks at beside the teacher."""
    spec, plain = asked.spec, canonical_spec(asked.spec)
    teacher = {name: value for name, value in plain["teacher"].items() if name not in _OTHER}
    schema = spec.output.answer_schema if isinstance(spec.output, JsonOutput) else None
    labels = (spec.task, label_names(spec)) if isinstance(spec.output, LabelOutput) else None
    reward = None if asked.reward is None else (asked.reward.api, asked.reward.rubric)
    # as text: a schema may hold numbers that canonical JSON refuses
    form = repr((asked.check.value, spec.output.type, schema, labels, reward, _beside(asked, plain)))
    return sha256_of({"teacher": teacher, "form": form})


def _beside(asked: AskedModel, plain: dict[str, Any]) -> object:
    """The embedder, and of a task with checks gold, checks and gate: a worker looks at them with the teacher."""
    if asked.check is not Check.TEACHER:
        return None
    held = [plain[name] for name in ("name", "examples", "output", "gate")] if plain["output"].get("checks") else None
    return plain["embedder"], held


def passed_before(tenant_id: UUID, asked: AskedModel) -> list[PreflightLine] | None:
    """The lines of an answer that passed within ten minutes, in the caller's transaction."""
    since = timezone.now() - COUNTS_FOR
    rows = TeacherCheck.objects.of_tenant(tenant_id).filter(digest=check_digest(asked), answered_at__gt=since)
    row = rows.filter(status=TeacherCheckState.PASSED).first()
    return None if row is None else [PreflightLine.from_json(line) for line in row.lines]


def keep_answer(tenant_id: UUID, asked: AskedModel, lines: Sequence[PreflightLine]) -> None:
    """Keep the answer that a compile's own call got, in the caller's transaction."""
    now = timezone.now()
    values = {"spec": None, "status": _state_of(lines), "lines": [line.to_json() for line in lines]}
    TeacherCheck.objects.update_or_create(
        tenant_id=tenant_id, digest=check_digest(asked), defaults=values | {"asked_at": now, "answered_at": now}
    )


def ask_models(tenant_id: UUID, spec: Spec, *, wait_s: float = WAIT_S) -> list[PreflightLine]:
    """The lines of the embedder, the teacher and the other models, of before or asked for now, all at the same time.
    Outside a transaction."""
    models = asked_models(spec)
    with tenant_scope(tenant_id):
        known = {asked.check: passed_before(tenant_id, asked) for asked in models}
        open_ones = [asked for asked in models if known[asked.check] is None]
        if open_ones:
            try:
                check_open(tenant_id, None)
            except PaymentRequired as refused:
                what_to_do = "Raise the spend cap or the budget, or wait for the next month."
                return [failed_line(Check.BUDGET, refused.message, code=refused.code, what_to_do=what_to_do)]
        questions = {asked.check: _queue(tenant_id, spec, asked) for asked in open_ones}
    sent = {
        check: enqueue(TaskName.PREFLIGHT_ASK, tenant_id=str(tenant_id), check_id=str(check_id))
        for check, check_id in questions.items()
    }
    until = time.monotonic() + wait_s
    lines: list[PreflightLine] = []
    for asked in models:
        lines += known[asked.check] or []
        if (check_id := questions.get(asked.check)) is None:
            continue
        if sent[asked.check]:
            lines += _wait(tenant_id, asked, check_id, until=until, wait_s=wait_s)
        else:
            lines += _give_up(tenant_id, asked, check_id, "the workers cannot be reached just now")
    return lines


def _wait(tenant_id: UUID, asked: AskedModel, check_id: UUID, *, until: float, wait_s: float) -> list[PreflightLine]:
    """The lines of one question when a worker has answered it, or that none did until then."""
    with listening(check_id) as wait:
        while True:
            with tenant_scope(tenant_id):
                row = TeacherCheck.objects.of_tenant(tenant_id).get(id=check_id)
            left_s = until - time.monotonic()
            if row.status not in _OPEN:
                return [PreflightLine.from_json(line) for line in row.lines]
            if left_s <= 0:
                return _give_up(tenant_id, asked, check_id, f"no worker answered within {wait_s:.0f} s")
            let_go()  # a request that waits must not hold a connection of the pool
            wait(min(left_s, LOOK_AGAIN_S))


def _queue(tenant_id: UUID, spec: Spec, asked: AskedModel) -> UUID:
    question = {"check": asked.check.value, "spec": canonical_spec(spec)}
    values = {"spec": question, "status": TeacherCheckState.QUEUED, "lines": [], "answered_at": None}
    row, _ = TeacherCheck.objects.update_or_create(
        tenant_id=tenant_id, digest=check_digest(asked), defaults=values | {"asked_at": timezone.now()}
    )
    id: UUID = row.id
    return id


def _give_up(tenant_id: UUID, asked: AskedModel, check_id: UUID, why: str) -> list[PreflightLine]:
    """Nobody waits any more: a question that no worker took goes, and the spec in it. Who waits for the same one reads
    the line there."""
    sentence = f"It is not known whether the {asked.name} answers: {why}."
    what_to_do = f"Ask again in a minute; a compile asks the {asked.name} before it pays for anything."
    line = warning_line(asked.check, sentence, code="no_worker", what_to_do=what_to_do)
    with tenant_scope(tenant_id):
        rows = TeacherCheck.objects.of_tenant(tenant_id).filter(id=check_id, status=TeacherCheckState.QUEUED)
        rows.update(status=TeacherCheckState.FAILED, spec=None, lines=[line.to_json()])
    return [line]


def question(tenant_id: UUID, check_id: UUID) -> Question | None:
    """The question, once: a message that comes twice asks the teacher once. None when nobody waits any more."""
    with tenant_scope(tenant_id):
        rows = TeacherCheck.objects.of_tenant(tenant_id).filter(id=check_id, status=TeacherCheckState.QUEUED)
        if not rows.filter(asked_at__gt=timezone.now() - GIVE_UP).update(status=TeacherCheckState.ASKED):
            return None
        row = TeacherCheck.objects.of_tenant(tenant_id).get(id=check_id)
    if row.spec is None:
        return None
    return Question(id=row.id, spec=row.spec["spec"], check=Check(row.spec["check"]))


def answer(tenant_id: UUID, check_id: UUID, lines: Sequence[PreflightLine]) -> None:
    """Keep the lines, in the caller's transaction. The spec goes: it has done its work."""
    TeacherCheck.objects.of_tenant(tenant_id).filter(id=check_id, status=TeacherCheckState.ASKED).update(
        spec=None, status=_state_of(lines), lines=[line.to_json() for line in lines], answered_at=timezone.now()
    )


def wake(check_id: UUID) -> None:
    """Wake who waits for the answer, once it is committed."""
    announce(check_id)


def _state_of(lines: Sequence[PreflightLine]) -> TeacherCheckState:
    """The state of an answer: one that did not come in time says nothing that a compile could go by."""
    is_failed = any(line.status is LineStatus.FAILED or line.code == SLOW for line in lines)
    return TeacherCheckState.FAILED if is_failed else TeacherCheckState.PASSED

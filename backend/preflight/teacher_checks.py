"""The one tiny call to a teacher: asked for here, made by a worker (the web process calls no teacher), answered in a
row that both can see. An answer that passed counts for ten minutes for whatever asks the same teacher in the same way,
a compile's own beginning too; one that failed is asked again, since somebody may have mended it.
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
from backend.domain.planning.preflight.lines import Check, LineStatus, PreflightLine, failed_line, warning_line
from backend.domain.planning.preflight.teacher_lines import DEADLINE_S
from backend.domain.spec.parsing import JsonOutput, Spec, canonical_spec
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
    """A tiny call for a worker to make."""

    id: UUID
    spec: dict[str, Any]


def check_digest(spec: Spec) -> str:
    """The digest of all that the call's outcome depends on: endpoint, model, key, options, the form of the answer."""
    teacher = {name: value for name, value in canonical_spec(spec)["teacher"].items() if name not in _OTHER}
    schema = spec.output.answer_schema if isinstance(spec.output, JsonOutput) else None
    verifies = any(not verifier.gate for verifier in spec.verifiers)
    # as text: a schema may hold numbers that canonical JSON refuses
    return sha256_of({"teacher": teacher, "form": repr((spec.output.type, schema, verifies))})


def passed_before(tenant_id: UUID, spec: Spec) -> list[PreflightLine] | None:
    """The lines of an answer that passed within ten minutes, in the caller's transaction."""
    since = timezone.now() - COUNTS_FOR
    rows = TeacherCheck.objects.of_tenant(tenant_id).filter(digest=check_digest(spec), answered_at__gt=since)
    row = rows.filter(status=TeacherCheckState.PASSED).first()
    return None if row is None else [PreflightLine.from_json(line) for line in row.lines]


def keep_answer(tenant_id: UUID, spec: Spec, lines: Sequence[PreflightLine]) -> None:
    """Keep the answer that a compile's own call got, in the caller's transaction."""
    now = timezone.now()
    values = {"spec": None, "status": _state_of(lines), "lines": [line.to_json() for line in lines]}
    TeacherCheck.objects.update_or_create(
        tenant_id=tenant_id, digest=check_digest(spec), defaults=values | {"asked_at": now, "answered_at": now}
    )


def ask_teacher(tenant_id: UUID, spec: Spec, *, wait_s: float = WAIT_S) -> list[PreflightLine]:
    """The lines of the embedder and the teacher, of before or asked for now. Outside a transaction."""
    with tenant_scope(tenant_id):
        lines = passed_before(tenant_id, spec)
        if lines is not None:
            return lines
        try:
            check_open(tenant_id, None)
        except PaymentRequired as refused:
            what_to_do = "Raise the spend cap or the budget, or wait for the next month."
            return [failed_line(Check.BUDGET, refused.message, code=refused.code, what_to_do=what_to_do)]
        check_id = _queue(tenant_id, spec)
    with listening(check_id) as wait:
        if not enqueue(TaskName.PREFLIGHT_ASK, tenant_id=str(tenant_id), check_id=str(check_id)):
            return _give_up(tenant_id, check_id, "the workers cannot be reached just now")
        until = time.monotonic() + wait_s
        while True:
            with tenant_scope(tenant_id):
                row = TeacherCheck.objects.of_tenant(tenant_id).get(id=check_id)
            left_s = until - time.monotonic()
            if row.status not in _OPEN:
                return [PreflightLine.from_json(line) for line in row.lines]
            if left_s <= 0:
                return _give_up(tenant_id, check_id, f"no worker answered within {wait_s:.0f} s")
            let_go()  # a request that waits must not hold a connection of the pool
            wait(min(left_s, LOOK_AGAIN_S))


def _queue(tenant_id: UUID, spec: Spec) -> UUID:
    values = {"spec": canonical_spec(spec), "status": TeacherCheckState.QUEUED, "lines": [], "answered_at": None}
    row, _ = TeacherCheck.objects.update_or_create(
        tenant_id=tenant_id, digest=check_digest(spec), defaults=values | {"asked_at": timezone.now()}
    )
    id: UUID = row.id
    return id


def _give_up(tenant_id: UUID, check_id: UUID, why: str) -> list[PreflightLine]:
    """Nobody waits any more: a question that no worker took goes, and the spec in it."""
    with tenant_scope(tenant_id):
        rows = TeacherCheck.objects.of_tenant(tenant_id).filter(id=check_id, status=TeacherCheckState.QUEUED)
        rows.update(status=TeacherCheckState.FAILED, spec=None)
    sentence = f"It is not known whether the teacher answers: {why}."
    what_to_do = "Ask again in a minute; a compile asks the teacher before it pays for anything."
    return [warning_line(Check.TEACHER, sentence, code="no_worker", what_to_do=what_to_do)]


def question(tenant_id: UUID, check_id: UUID) -> Question | None:
    """The question, once: a message that comes twice asks the teacher once. None when nobody waits any more."""
    with tenant_scope(tenant_id):
        rows = TeacherCheck.objects.of_tenant(tenant_id).filter(id=check_id, status=TeacherCheckState.QUEUED)
        if not rows.filter(asked_at__gt=timezone.now() - GIVE_UP).update(status=TeacherCheckState.ASKED):
            return None
        row = TeacherCheck.objects.of_tenant(tenant_id).get(id=check_id)
    return None if row.spec is None else Question(id=row.id, spec=row.spec)


def answer(tenant_id: UUID, check_id: UUID, lines: Sequence[PreflightLine]) -> None:
    """Keep the lines, in the caller's transaction. The spec goes: it has done its work."""
    TeacherCheck.objects.of_tenant(tenant_id).filter(id=check_id, status=TeacherCheckState.ASKED).update(
        spec=None, status=_state_of(lines), lines=[line.to_json() for line in lines], answered_at=timezone.now()
    )


def wake(check_id: UUID) -> None:
    """Wake who waits for the answer, once it is committed."""
    announce(check_id)


def _state_of(lines: Sequence[PreflightLine]) -> TeacherCheckState:
    is_failed = any(line.status is LineStatus.FAILED for line in lines)
    return TeacherCheckState.FAILED if is_failed else TeacherCheckState.PASSED

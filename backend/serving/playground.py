"""The playground: an artifact's answer beside its teacher's.

The students answer by way of a runner while the request waits; the teacher is asked by a worker (the web process calls
no teacher), which finds the question in a row and puts the answer there (`workers/live/playground`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db import connection
from django.utils import timezone

from backend.artifacts.models import Artifact
from backend.artifacts.revoking import check_usable
from backend.compiles.models import Compile
from backend.domain.errors import InvalidInput, Unavailable
from backend.domain.evaluation.spans import MAX_SPANS
from backend.domain.ids import Prefix, encode_id
from backend.queue import TaskName, enqueue
from backend.serving.models import AnswerState, PlaygroundAnswer
from backend.serving.running import run_inputs
from backend.tenants.isolation import tenant_scope
from backend.usage.accounts import check_open
from backend.wakeups import announce

MAX_CHARS = 4_000
STUDENT_WAIT_S = 12.0
GIVE_UP = timedelta(seconds=90)  # a question that no worker took by then is not asked any more
MAX_SHOWN = 200  # of a label that a teacher made up
MAX_ANSWER = 20_000  # of the answer of a json or text task
MAX_VOTE_CHARS = 2_000  # of a reply, word for word


@dataclass(frozen=True, slots=True, kw_only=True)
class Vote:
    """An answer of the teacher, and how often it came; `label` is None where it was none of the labels, or no valid
    answer."""

    reply: str
    label: str | None
    n: int

    def to_json(self) -> dict[str, Any]:
        return {"said": self.reply[:MAX_VOTE_CHARS], "label": self.label and self.label[:MAX_ANSWER], "n": self.n}


def ask(tenant_id: UUID, artifacts: Sequence[Artifact], text: str, *, teacher: bool) -> PlaygroundAnswer:
    """Put a text before these artifacts and, with `teacher`, before the teacher of the first one's compile. Outside a
    transaction: workers must see the question, runners the jobs. Raises InvalidInput, Conflict for a revoked artifact,
    PaymentRequired where nothing more may be spent."""
    if not text.strip() or len(text) > MAX_CHARS:
        raise InvalidInput(f"Write a text of up to {MAX_CHARS:,} characters.")
    for row in artifacts:
        check_usable(row)
    with tenant_scope(tenant_id):
        check_open(tenant_id, None)
        asked = PlaygroundAnswer.objects.create(
            tenant_id=tenant_id,
            artifact_id=artifacts[0].id,
            compile_id=artifacts[0].compile_id,
            text=text,
            state=AnswerState.QUEUED if teacher else AnswerState.NOT_ASKED,
        )
    if teacher and not enqueue(TaskName.PLAYGROUND_ASK, tenant_id=str(tenant_id), answer_id=str(asked.id)):
        fail(tenant_id, asked.id, "The workers cannot be reached just now; try again.")
    students = [_student(row, text) for row in artifacts]
    with tenant_scope(tenant_id):
        PlaygroundAnswer.objects.of_tenant(tenant_id).filter(id=asked.id).update(students=students)
    return asked


def _student(row: Artifact, text: str) -> dict[str, Any]:
    answer: dict[str, Any] = {"artifact": encode_id(Prefix.ARTIFACT, row.id), "name": row.name, "version": row.version}
    try:
        result, cost_microusd = run_inputs(row, [text], wait_s=STUDENT_WAIT_S)
    except Unavailable as error:
        return answer | {"error": error.message}
    output = result.outputs[0]
    if "label" in output:
        answer |= {"label": output["label"][:MAX_SHOWN], "confidence_ppm": round(output["confidence"] * 1_000_000)}
        answer |= {"is_unsure": output.get("is_unsure", False)}
    else:
        answer |= {"label": output["output"][:MAX_ANSWER], "n_tokens": output["n_tokens"]}
        answer |= {"is_cut": output["finish_reason"] != "stop"}
        if "confidence" in output:
            answer |= {"confidence_ppm": round(output["confidence"] * 1_000_000)}
        if "fields" in output:
            answer |= {"fields": output["fields"][:MAX_SPANS]}
    if "rule" in output:
        answer |= {"rule": output["rule"]}
    return answer | {
        "latency_us": output["latency_us"],
        "load_ms": result.load_ms,
        "cost_microusd": cost_microusd,
    }


def question(tenant_id: UUID, answer_id: UUID) -> tuple[PlaygroundAnswer, Compile] | None:
    """Return the question, once: a message that comes twice asks the teacher once. None when there is nothing to
    ask."""
    with tenant_scope(tenant_id):
        rows = PlaygroundAnswer.objects.of_tenant(tenant_id).filter(id=answer_id, state=AnswerState.QUEUED)
        if not rows.filter(created_at__gt=timezone.now() - GIVE_UP).update(state=AnswerState.ASKED):
            return None
        asked = PlaygroundAnswer.objects.of_tenant(tenant_id).get(id=answer_id)
        compile = Compile.objects.of_tenant(tenant_id).filter(id=asked.compile_id).first()
    if compile is None:
        fail(tenant_id, answer_id, "The artifact’s compile is not there any more, and its spec names the teacher.")
        return None
    return asked, compile


def answer(
    tenant_id: UUID,
    answer_id: UUID,
    *,
    label: str | None,
    votes: Sequence[Vote],
    model: str,
    latency_ms: int,
    cost_microusd: int,
) -> None:
    """Store the teacher's answer, in the transaction that books the call."""
    PlaygroundAnswer.objects.of_tenant(tenant_id).filter(id=answer_id).update(
        state=AnswerState.ANSWERED,
        label=(label or "")[:MAX_ANSWER],
        votes=[vote.to_json() for vote in votes],
        model=model[:200],
        latency_ms=latency_ms,
        cost_microusd=cost_microusd,
    )
    announce(answer_id)


def fail(tenant_id: UUID, answer_id: UUID, message: str) -> None:
    """The teacher's side ends here, with a sentence for who asked."""
    open_states = (AnswerState.QUEUED, AnswerState.ASKED)
    with tenant_scope(tenant_id):
        rows = PlaygroundAnswer.objects.of_tenant(tenant_id).filter(id=answer_id, state__in=open_states)
        rows.update(state=AnswerState.FAILED, message=message[:500])
    announce(answer_id)


def is_overdue(row: PlaygroundAnswer) -> bool:
    """Return whether the teacher's answer will not come any more: no worker runs, or the one that asked died."""
    is_open = row.state in (AnswerState.QUEUED, AnswerState.ASKED)
    return is_open and row.created_at < timezone.now() - GIVE_UP


def forget_playground() -> int:
    """Delete what is older than a day, of all tenants; return how many rows went. Upkeep calls this."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT kolm_sweep_playground()")
        return int(cursor.fetchone()[0])

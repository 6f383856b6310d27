"""The playground: a text put before an artifact, the version before it, and the teacher of its compile."""

from typing import Any
from uuid import UUID

from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_GET, require_POST

from backend.artifacts.models import Artifact
from backend.console.access import ConsoleRequest, page
from backend.console.marked_text import is_unsure, pieces
from backend.console.rows_and_forms import own_row
from backend.domain.answers.json_values import BadAnswer, is_exact, parse_answer
from backend.domain.errors import InvalidInput
from backend.domain.evaluation.spans import Span, model_spans
from backend.domain.ids import Prefix, encode_id
from backend.domain.roles import Permission
from backend.serving.models import AnswerState, PlaygroundAnswer
from backend.serving.playground import MAX_CHARS, ask, is_overdue
from backend.tenants.isolation import tenant_scope

SHOWN_ARTIFACTS = 100
SHOWN_TRIES = 10
SHOWN_FIELDS = 60  # of one answer, the least sure first
NO_ANSWER_MESSAGE = "No worker answered in time: all are busy, or none is running here. Try again."


@require_GET
@page(Permission.COMPILE)
def playground(request: ConsoleRequest) -> HttpResponse:
    """The form, and with `?answer=` what came of a try."""
    tenant_id = request.team_session.tenant_id
    row = None
    if request.GET.get("answer"):
        row = own_row(PlaygroundAnswer, tenant_id, Prefix.PLAYGROUND_ANSWER, request.GET["answer"])
    chosen = encode_id(Prefix.ARTIFACT, row.artifact_id) if row is not None else request.GET.get("artifact", "")
    context = {"artifacts": _choices(tenant_id), "chosen": chosen, "max_chars": MAX_CHARS, "tries": _tries(tenant_id)}
    if row is not None:
        context |= _answer_context(row)
        context |= {"run_path": f"/v1/artifacts/{chosen}/run", "run_body": {"inputs": [row.text]}}
    return render(request, "console/playground/page.html", context)


@require_POST
@page(Permission.COMPILE, atomic=False)
def ask_both(request: ConsoleRequest) -> HttpResponse:
    """Ask both. Not atomic: runners and workers must see what they are asked."""
    session, form = request.team_session, request.POST
    with tenant_scope(session.tenant_id):
        if not form.get("artifact"):
            raise InvalidInput("Choose an artifact to ask.")
        artifact = own_row(Artifact, session.tenant_id, Prefix.ARTIFACT, form["artifact"])
        artifacts = [artifact, *(_before(artifact) if form.get("previous") else [])]
    row = ask(session.tenant_id, artifacts, form.get("text", ""), teacher=bool(form.get("teacher")))
    public_id = encode_id(Prefix.PLAYGROUND_ANSWER, row.id)
    return redirect(f"{reverse('console:playground')}?answer={public_id}")


@require_GET
@page(Permission.COMPILE)
def teacher_panel(request: ConsoleRequest, answer: str) -> HttpResponse:
    """The teacher's side alone, for the page that waits for it."""
    row = own_row(PlaygroundAnswer, request.team_session.tenant_id, Prefix.PLAYGROUND_ANSWER, answer)
    return render(request, "console/playground/teacher.html", _answer_context(row))


def _answer_context(row: PlaygroundAnswer) -> dict[str, Any]:
    is_late = is_overdue(row)
    label = row.label or None
    return {
        "row": row,
        "is_label": all("is_cut" not in student for student in row.students),
        "answer_id": encode_id(Prefix.PLAYGROUND_ANSWER, row.id),
        "is_waiting": row.state in (AnswerState.QUEUED, AnswerState.ASKED) and not is_late,
        "failure": NO_ANSWER_MESSAGE if is_late else row.message,
        "n_votes": sum(vote["n"] for vote in row.votes),
        "n_for_label": sum(vote["n"] for vote in row.votes if label and vote["label"] == label),
        "students": [
            student
            | _spans(student, row.text)
            | {"agrees": label is not None and _is_same(student.get("label"), label)}
            for student in row.students
        ],
    }


def _spans(student: dict[str, Any], text: str) -> dict[str, Any]:
    """A span student's fields, and its input with their places marked; nothing of another student."""
    if "fields" not in student:
        return {}
    spans = sorted(model_spans(student["fields"], text), key=lambda span: span.confidence_ppm or 0)
    shown = spans[:SHOWN_FIELDS]
    return {
        "pieces": pieces(text, shown),
        "fields": [_field(span, text) for span in shown],
        "n_more": len(spans) - len(shown),
        "n_unsure": sum(map(is_unsure, spans)),
    }


def _field(span: Span, text: str) -> dict[str, Any]:
    return {
        "path": span.path,
        "text": None if span.start is None else text[span.start : span.end],
        "confidence_ppm": span.confidence_ppm,
        "is_unsure": is_unsure(span),
    }


def _is_same(answer: str | None, label: str) -> bool:
    """Compare labels and texts as they stand, JSON by its value."""
    if answer is None or answer == label:
        return answer == label
    try:
        return is_exact(parse_answer(answer), parse_answer(label))
    except BadAnswer:
        return False


def _choices(tenant_id: UUID) -> list[tuple[str, Artifact]]:
    rows = Artifact.objects.of_tenant(tenant_id).filter(revoked_at=None).order_by("name", "-version")
    return [(encode_id(Prefix.ARTIFACT, row.id), row) for row in rows.defer("manifest", "evaluation")[:SHOWN_ARTIFACTS]]


def _before(artifact: Artifact) -> list[Artifact]:
    """The newest version before it that is not revoked."""
    rows = Artifact.objects.of_tenant(artifact.tenant_id).filter(
        name=artifact.name, version__lt=artifact.version, revoked_at=None
    )
    return list(rows.order_by("-version")[:1])


def _tries(tenant_id: UUID) -> list[tuple[str, PlaygroundAnswer]]:
    rows = PlaygroundAnswer.objects.of_tenant(tenant_id).order_by("-created_at", "-id")[:SHOWN_TRIES]
    return [(encode_id(Prefix.PLAYGROUND_ANSWER, row.id), row) for row in rows]

"""The shadow: a share of live requests whose answers are compared with the teacher's.

Opt in, by deployment. What is kept for the worker is the request's one input and the answer, sealed, for an hour at
most; the comparison deletes it and keeps a number. The worker's half is `workers/live/shadow`.
"""

import json
import logging
import random
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from django.db import DatabaseError, connection
from django.db.models import F, Sum
from django.utils import timezone

from backend.artifacts.models import Artifact
from backend.compiles.models import Compile
from backend.domain.errors import KolmError
from backend.domain.ids import Prefix, encode_id
from backend.domain.webhooks.events import EventType
from backend.queue import TaskName, enqueue
from backend.serving import deployments
from backend.serving.gateway.admission import Admitted
from backend.serving.models import SHADOW, Deployment, DeploymentHour, ShadowAnswer
from backend.serving.reading import drift_of
from backend.serving.shapes import DeploymentShape
from backend.tenants.actors import SYSTEM
from backend.tenants.isolation import tenant_scope
from backend.tenants.sealing import seal, unseal
from backend.webhooks.emit import emit

logger = logging.getLogger("kolm.shadow")

MAX_INPUT_CHARS = 8_000
MAX_BYTES = 262_144  # of an answer on the wire; a longer one is not compared
WHY = "regression"


@dataclass(slots=True, kw_only=True)
class Sample:
    """One request that was chosen, and what its answer was so far."""

    tenant_id: UUID
    deployment_id: UUID
    artifact_id: UUID
    text: str
    _parts: list[bytes] = field(default_factory=list)
    _size: int = 0

    def saw(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size <= MAX_BYTES:
            self._parts.append(piece)

    def answer(self) -> str | None:
        """The whole answer's text; None where it was too long, broken off, or nothing that can be compared."""
        return answer_text(b"".join(self._parts)) if self._size <= MAX_BYTES else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question to the worker: what was asked and answered, and the compile whose teacher is asked."""

    row: ShadowAnswer
    text: str
    answer: str
    deployment: Deployment
    compile: Compile
    left_microusd: int


def sample(admitted: Admitted, path: str, body: dict[str, Any]) -> Sample | None:
    """Choose the request, by its deployment's share. Only what the artifact was trained for can be compared: one user
    message, one choice, no tools, answered by the primary artifact or the canary alike."""
    row = admitted.routed.deployment
    if row is None or not row.shadow_share_ppm or not row.shadow_microusd_per_day:
        return None
    if random.random() * 1_000_000 >= row.shadow_share_ppm:
        return None
    if admitted.routed.what.task_type != "json" and wants_schema(body):
        return None
    text = single_input(path, body)
    if text is None:
        return None
    return Sample(
        tenant_id=admitted.routed.tenant_id,
        deployment_id=row.id,
        artifact_id=admitted.routed.artifact_id,
        text=text,
    )


def wants_schema(body: dict[str, Any]) -> bool:
    """Say whether the answer is asked for in JSON of the caller's, which a teacher's label or text is not equal to.

    >>> wants_schema({"response_format": {"type": "json_schema"}}), wants_schema({"text": {"format": {"type": "text"}}})
    (True, False)
    """
    text = body.get("text")
    asked = (body.get("response_format"), text.get("format") if isinstance(text, dict) else None)
    return any(isinstance(one, dict) and one.get("type") == "json_schema" for one in asked)


def single_input(path: str, body: dict[str, Any]) -> str | None:
    """
    >>> single_input("/v1/chat/completions", {"messages": [{"role": "user", "content": "where is it?"}]})
    'where is it?'
    """
    if (body.get("n") or 1) != 1 or body.get("tools"):
        return None
    if path.endswith("/responses"):
        text = body.get("input") if not body.get("instructions") else None
    elif path.endswith("/chat/completions"):
        messages = body.get("messages")
        if not isinstance(messages, list) or len(messages) != 1 or not isinstance(messages[0], dict):
            return None
        text = messages[0].get("content") if messages[0].get("role") == "user" else None
    else:
        text = body.get("prompt")
    return text if isinstance(text, str) and 0 < len(text) <= MAX_INPUT_CHARS else None


def answer_text(data: bytes) -> str | None:
    """The text of an OpenAI answer: one JSON object, or server-sent events up to `[DONE]`; None for one that was cut
    short."""
    text = data.decode("utf-8", "replace")
    try:
        if text.lstrip().startswith("{"):
            whole = json.loads(text)
            return _response_text(whole) if whole.get("object") == "response" else _text_of(whole["choices"][0])
        events = [line[5:].strip() for line in text.splitlines() if line.startswith("data:")]
        if text.startswith("event: response."):
            return _response_text(json.loads(events[-1])["response"])
        if not events or events[-1] != "[DONE]":
            return None
        chunks = [json.loads(event) for event in events[:-1]]
        return "".join(_text_of(choice) for chunk in chunks for choice in chunk["choices"])
    except (ValueError, KeyError, IndexError, TypeError, AttributeError):
        return None


def _response_text(response: dict[str, Any]) -> str:
    return "".join(part["text"] for item in response["output"] for part in item["content"])


def _text_of(choice: dict[str, Any]) -> str:
    message = choice.get("message") or choice.get("delta") or {"content": choice.get("text")}
    return str(message.get("content") or "")


def keep_sample(sample: Sample) -> None:
    """Put a whole answer where the worker finds it. Never raises: the caller has his answer."""
    answer = sample.answer()
    if not answer:
        return
    sealed = seal(sample.tenant_id, json.dumps({"text": sample.text, "answer": answer}).encode(), purpose=SHADOW)
    try:
        with tenant_scope(sample.tenant_id):
            row = ShadowAnswer.objects.create(
                tenant_id=sample.tenant_id,
                deployment_id=sample.deployment_id,
                artifact_id=sample.artifact_id,
                sealed=sealed,
            )
    except DatabaseError as error:
        logger.warning("a shadow answer was not kept: %s", type(error).__name__)
        return
    enqueue(TaskName.SHADOW_COMPARE, tenant_id=str(sample.tenant_id), answer_id=str(row.id))


def question(tenant_id: UUID, answer_id: UUID) -> Question | None:
    """Return the question, once: a message that comes twice asks the teacher once. None where there is nothing to ask,
    or the day's money for it is spent."""
    with tenant_scope(tenant_id):
        rows = ShadowAnswer.objects.of_tenant(tenant_id).filter(id=answer_id)
        if not rows.filter(is_asked=False).update(is_asked=True):
            return None
        row = rows.get()
        deployment = Deployment.objects.of_tenant(tenant_id).filter(id=row.deployment_id).first()
        artifact = Artifact.objects.of_tenant(tenant_id).filter(id=row.artifact_id).first()
        compile = None
        if deployment is not None and artifact is not None:
            compile = Compile.objects.of_tenant(tenant_id).filter(id=artifact.compile_id).first()
        left = 0 if deployment is None else deployment.shadow_microusd_per_day - spent_today(deployment)
        if deployment is None or compile is None or left <= 0:
            rows.delete()
            return None
    texts = json.loads(unseal(tenant_id, bytes(row.sealed), purpose=SHADOW))
    return Question(
        row=row,
        text=texts["text"],
        answer=texts["answer"],
        deployment=deployment,
        compile=compile,
        left_microusd=left,
    )


def spent_today(row: Deployment) -> int:
    """Return what was spent of the deployment's daily money for the shadow, since midnight UTC."""
    midnight = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    hours = DeploymentHour.objects.of_tenant(row.tenant_id).filter(deployment_id=row.id, hour__gte=midnight)
    return int(hours.aggregate(n=Sum("shadow_microusd"))["n"] or 0)


def record_comparison(asked: Question, *, agreement_ppm: int | None, cost_microusd: int) -> None:
    """Count a comparison (None: the teacher said nothing to compare with; it cost all the same) and forget its text;
    tell, once a version, when the evidence is enough. In the transaction that books the teacher's calls."""
    row, tenant_id = asked.row, asked.row.tenant_id
    is_one = agreement_ppm is not None
    _counter(row, n_shadow=int(is_one), shadow_agreement_ppm=agreement_ppm or 0, shadow_microusd=cost_microusd)
    ShadowAnswer.objects.of_tenant(tenant_id).filter(id=row.id).delete()
    _look_for_regression(tenant_id, row.deployment_id)


def abandon(asked: Question) -> None:
    """The teacher did not answer, or not so that it could be compared: the text goes all the same."""
    with tenant_scope(asked.row.tenant_id):
        ShadowAnswer.objects.of_tenant(asked.row.tenant_id).filter(id=asked.row.id).delete()


def forget_shadow() -> int:
    """Delete what nobody compared within an hour, of all tenants; return how many rows went. Upkeep calls this."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT kolm_sweep_shadow()")
        return int(cursor.fetchone()[0])


def _counter(row: ShadowAnswer, **more: int) -> None:
    hour = timezone.now().replace(minute=0, second=0, microsecond=0)
    place = {"deployment_id": row.deployment_id, "artifact_id": row.artifact_id, "hour": hour}
    DeploymentHour.objects.of_tenant(row.tenant_id).get_or_create(tenant_id=row.tenant_id, **place)
    counters = DeploymentHour.objects.of_tenant(row.tenant_id).filter(**place)
    counters.update(**{name: F(name) + amount for name, amount in more.items()})


def _look_for_regression(tenant_id: UUID, deployment_id: UUID) -> None:
    row = Deployment.objects.of_tenant(tenant_id).select_for_update().filter(id=deployment_id).first()
    if row is None or row.regression_version == row.version:
        return
    drift = drift_of(row)
    if drift is None or not drift.is_regression:
        return
    regression = {
        "artifact": encode_id(Prefix.ARTIFACT, row.artifact_id),
        "n_compared": drift.n,
        "agreement_ppm": drift.agreement_ppm,
        "floor_ppm": drift.floor_ppm,
        "rolled_back": False,
    }
    row.regression_version = row.version
    row.save(update_fields=["regression_version"])
    if row.drift_rollback and row.previous_artifact_id is not None:
        try:
            row = deployments.roll_back(row, actor=SYSTEM, why=WHY)
            regression["rolled_back"] = True
        except KolmError as error:  # the one from before was revoked: there is nothing to go back to
            logger.warning("no rollback of %s: %s", encode_id(Prefix.DEPLOYMENT, row.id), error.code)
    emit(tenant_id, EventType.DEPLOYMENT_REGRESSION, {"object": DeploymentShape.of(row) | {"regression": regression}})

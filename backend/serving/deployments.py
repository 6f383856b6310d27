"""Deployments: made, changed, promoted, rolled back, drained. Each change is a revision of the history, a line of the
audit log and an event, in one transaction under the deployment's lock."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.utils import timezone

from backend.artifacts.models import Artifact
from backend.artifacts.revoking import check_usable
from backend.compiles.models import Compile
from backend.domain.answers.same_form import is_same_form
from backend.domain.errors import Conflict, InvalidInput, NotFound
from backend.domain.ids import Prefix, decode_id, encode_id
from backend.domain.serving.deployments import Answering, answering, mismatch
from backend.domain.webhooks.events import EventType
from backend.serving.models import Deployment, DeploymentRevision
from backend.serving.shapes import DeploymentShape, settings_of
from backend.tenants import audit
from backend.tenants.actors import Actor
from backend.usage.subjects import Subject
from backend.webhooks.emit import emit

MOST = 500  # deployments of a tenant


@dataclass(frozen=True, slots=True, kw_only=True)
class Canary:
    artifact: str
    share_ppm: int


def create(
    tenant_id: UUID, *, name: str, artifact: str, canary: Canary | None, fields: dict[str, Any], actor: Actor
) -> Deployment:
    """A new name. Raises Conflict where it is taken or the artifact is revoked, NotFound, InvalidInput."""
    rows = Deployment.objects.of_tenant(tenant_id)
    if rows.filter(name=name).exists():
        raise Conflict(f"There is already a deployment {name!r}; change or delete it.", code="deployment_exists")
    if rows.count() >= MOST:
        raise Conflict(f"A tenant has at most {MOST} deployments; delete one.", code="too_many_deployments")
    artifact_row, what = usable(tenant_id, artifact)
    row = Deployment(
        tenant_id=tenant_id,
        name=name,
        task_type=what.task_type,
        artifact_id=artifact_row.id,
        version=0,
        **fields,
    )
    _set_base(row, what)
    _set_canary(row, canary)
    row.save(force_insert=True)
    return _revise(row, "created", actor, EventType.DEPLOYMENT_CREATED)


def subjects_of(tenant_id: UUID, ids: Iterable[UUID | None]) -> dict[UUID | None, Subject]:
    """The subjects that the answers of these deployments are booked under; one that is gone keeps its place without a
    name."""
    wanted = {id for id in ids if id is not None}
    known = {row.id: row for row in Deployment.objects.of_tenant(tenant_id).filter(id__in=wanted)}
    return {
        id: Subject(name=known[id].name, deployment_id=id, tags=known[id].tags)
        if id in known
        else Subject(deployment_id=id)
        for id in wanted
    }


def change(row: Deployment, fields: dict[str, Any], *, actor: Actor) -> Deployment:
    """New settings; `canary` among them is a Canary or None for none."""
    changed = dict(fields)
    if "canary" in changed:
        _set_canary(row, changed.pop("canary"))
    for name, value in changed.items():
        setattr(row, name, value)
    return _revise(row, "changed", actor)


def promote(row: Deployment, artifact: str | None, *, actor: Actor) -> Deployment:
    """The canary, or the artifact that is named, answers everything from here on."""
    if artifact is None:
        if row.canary_artifact_id is None:
            raise Conflict("This deployment has no canary to promote; name an `artifact`.", code="no_canary")
        artifact = encode_id(Prefix.ARTIFACT, row.canary_artifact_id)
    candidate, what = _fitting(row, artifact)
    if candidate.id == row.artifact_id:
        raise Conflict("This artifact is already the primary one.", code="already_primary")
    _answer_with(row, candidate.id, what)
    return _revise(row, "promoted", actor)


def roll_back(row: Deployment, *, actor: Actor, why: str = "") -> Deployment:
    """The artifact from before the last promotion answers again; doing it twice takes it back."""
    if row.previous_artifact_id is None:
        raise Conflict("There is no previous artifact to roll back to.", code="no_previous")
    candidate, what = _fitting(row, encode_id(Prefix.ARTIFACT, row.previous_artifact_id))
    _answer_with(row, candidate.id, what)
    return _revise(row, "rolled_back", actor, data={"why": why} if why else {})


def drain(row: Deployment, *, actor: Actor) -> Deployment:
    """No new requests; those under way end. Draining again changes nothing."""
    if row.draining_since is not None:
        return row
    row.draining_since = timezone.now()
    return _revise(row, "drained", actor)


def start(row: Deployment, *, actor: Actor) -> Deployment:
    """Take requests again."""
    if row.draining_since is None:
        return row
    row.draining_since = None
    return _revise(row, "started", actor)


def delete(row: Deployment, *, actor: Actor) -> None:
    """The name is free again; the history stays until the tenant goes."""
    _revise(row, "deleted", actor)
    row.delete()


def lock_deployment(tenant_id: UUID, public_id: str) -> Deployment:
    """The tenant's deployment, locked until the transaction ends. Raises NotFound."""
    rows = Deployment.objects.of_tenant(tenant_id).select_for_update()
    row = rows.filter(id=decode_id(Prefix.DEPLOYMENT, public_id)).first()
    if row is None:
        raise NotFound(f"There is no deployment {public_id[:60]!r}.")
    return row


def usable(tenant_id: UUID, public_id: str) -> tuple[Artifact, Answering]:
    """An artifact that can be deployed. Raises NotFound, Conflict for a revoked one, InvalidInput for one that no
    server loads."""
    row = Artifact.objects.of_tenant(tenant_id).filter(id=decode_id(Prefix.ARTIFACT, public_id)).first()
    if row is None:
        raise NotFound(f"There is no artifact {public_id[:60]!r}.")
    check_usable(row)
    what = answering(row.manifest)
    if what.student is None:
        raise not_deployable(public_id)
    return row, what


def not_deployable(public_id: str) -> InvalidInput:
    return InvalidInput(
        f"No server loads an artifact of this kind; ask it with POST /v1/artifacts/{public_id}/run.",
        code="not_deployable",
    )


def fitting(row: Deployment, candidates: Sequence[Artifact]) -> list[Artifact]:
    """Keep of some artifacts those that can answer in the place of the deployment's."""
    return [candidate for candidate, why in zip(candidates, _mismatches(row, candidates), strict=True) if why is None]


def _fitting(row: Deployment, public_id: str) -> tuple[Artifact, Answering]:
    """Raises InvalidInput (canary_mismatch) for an artifact that cannot answer in the place of the deployment's."""
    candidate, what = usable(row.tenant_id, public_id)
    (why,) = _mismatches(row, [candidate])
    if why is not None:
        raise InvalidInput(why, code="canary_mismatch")
    return candidate, what


def _mismatches(row: Deployment, candidates: Sequence[Artifact]) -> list[str | None]:
    primary = Artifact.objects.of_tenant(row.tenant_id).get(id=row.artifact_id)
    compiles = Compile.objects.of_tenant(row.tenant_id)
    compiles = compiles.filter(id__in={one.compile_id for one in (primary, *candidates)})
    outputs = dict(compiles.values_list("id", "spec__output"))
    asked, own = outputs.get(primary.compile_id) or {}, answering(primary.manifest)
    return [
        mismatch(answering(one.manifest), own, is_same_form=is_same_form(outputs.get(one.compile_id) or {}, asked))
        for one in candidates
    ]


def _set_canary(row: Deployment, canary: Canary | None) -> None:
    row.canary_artifact_id, row.canary_share_ppm = None, 0
    if canary is not None:
        candidate, _ = _fitting(row, canary.artifact)
        if candidate.id == row.artifact_id:
            raise Conflict("The canary is the primary artifact itself; name another one.", code="already_primary")
        row.canary_artifact_id, row.canary_share_ppm = candidate.id, canary.share_ppm


def _answer_with(row: Deployment, artifact_id: UUID, what: Answering) -> None:
    row.previous_artifact_id, row.artifact_id = row.artifact_id, artifact_id
    _set_base(row, what)
    row.canary_artifact_id, row.canary_share_ppm = None, 0
    row.answering_since = timezone.now()


def _set_base(row: Deployment, what: Answering) -> None:
    row.base_id, row.base_sha256 = what.base_id[:200], what.base_sha256


def _revise(
    row: Deployment,
    action: str,
    actor: Actor,
    event: EventType = EventType.DEPLOYMENT_UPDATED,
    *,
    data: dict[str, Any] | None = None,
) -> Deployment:
    row.version += 1
    row.updated_at = timezone.now()
    row.save()
    DeploymentRevision.objects.create(
        tenant_id=row.tenant_id,
        deployment_id=row.id,
        version=row.version,
        action=action,
        actor_kind=actor.kind,
        actor_id=actor.id[:64],
        data=settings_of(row) | (data or {}),
        created_at=row.updated_at,
    )
    public_id = encode_id(Prefix.DEPLOYMENT, row.id)
    emit(row.tenant_id, event, {"object": DeploymentShape.of(row) | {"action": action}})
    audit.note(
        row.tenant_id,
        actor=actor,
        action=f"deployment.{action}",
        target=public_id,
        data={"name": row.name, "version": row.version},
    )
    return row

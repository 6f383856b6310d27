"""The deployment pages: under which names artifacts answer, what they did in the last day, and changing that."""

from collections.abc import Iterable
from datetime import timedelta
from decimal import Decimal, InvalidOperation
from typing import Any
from uuid import UUID

from django.conf import settings
from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_GET, require_POST

from backend.artifacts.models import Artifact
from backend.console.access import ConsoleRequest, page
from backend.console.deployments.charts import agreement_chart, by_hour, first_token_chart, tokens_chart
from backend.console.rows_and_forms import microusd, own_row
from backend.domain.cost_tags import read_tags, tag_line
from backend.domain.errors import CustomerError, InvalidInput
from backend.domain.ids import Prefix, encode_id
from backend.domain.roles import Permission
from backend.domain.serving.deployments import answering
from backend.serving import deployments as acts
from backend.serving import reading
from backend.serving.api.serializers import NewDeployment
from backend.serving.deployments import Canary
from backend.serving.models import Deployment
from backend.serving.shapes import DeploymentFiguresShape, DeploymentShape

SPAN = timedelta(hours=24)
VERBS = {"promote": "promoted", "rollback": "rolled back", "drain": "drained", "start": "started"}
MOST_CHOICES = 200  # artifacts in the form; more are named by the API


@require_GET
@page(Permission.VIEW)
def deployments(request: ConsoleRequest) -> HttpResponse:
    return render(request, "console/deployments/list.html", _list(request))


@require_POST
@page(Permission.RELEASE)
def create(request: ConsoleRequest) -> HttpResponse:
    session, form = request.team_session, request.POST
    serializer = NewDeployment(data={"name": form.get("name", "").strip(), "artifact": form.get("artifact", "")})
    try:
        if not serializer.is_valid():
            raise InvalidInput(" ".join(str(error) for errors in serializer.errors.values() for error in errors))
        name, artifact = serializer.validated_data["name"], serializer.validated_data["artifact"]
        row = acts.create(session.tenant_id, name=name, artifact=artifact, canary=None, fields={}, actor=session.actor)
    except CustomerError as error:
        context = _list(request) | {"error": error.message, "form": form}
        return render(request, "console/deployments/list.html", context, status=422)
    messages.success(request, f"{row.name} answers.")
    return redirect("console:deployment", encode_id(Prefix.DEPLOYMENT, row.id))


@require_GET
@page(Permission.VIEW)
def deployment(request: ConsoleRequest, deployment: str) -> HttpResponse:
    row = own_row(Deployment, request.team_session.tenant_id, Prefix.DEPLOYMENT, deployment)
    return render(request, "console/deployments/one.html", _one(request, row))


@require_POST
@page(Permission.RELEASE)
def act(request: ConsoleRequest, deployment: str, verb: str) -> HttpResponse:
    """promote, rollback, drain or start."""
    session = request.team_session
    if verb not in VERBS:
        raise InvalidInput(f"A deployment can be {', '.join(VERBS.values())}.")
    row = acts.lock_deployment(session.tenant_id, deployment)
    if verb == "promote":
        acts.promote(row, request.POST.get("artifact") or None, actor=session.actor)
    else:
        {"rollback": acts.roll_back, "drain": acts.drain, "start": acts.start}[verb](row, actor=session.actor)
    messages.success(request, f"{row.name} is {VERBS[verb]}.")
    return redirect("console:deployment", deployment)


@require_POST
@page(Permission.RELEASE)
def change(request: ConsoleRequest, deployment: str) -> HttpResponse:
    """The canary, the cost tags, or what belongs to the shadow and to drift, as the form says."""
    session, form = request.team_session, request.POST
    row = acts.lock_deployment(session.tenant_id, deployment)
    if form.get("part") == "canary":
        artifact = form.get("artifact", "")
        share = _share(form.get("share", "0"), field="The canary’s share")
        fields: dict[str, Any] = {"canary": Canary(artifact=artifact, share_ppm=share) if artifact else None}
    elif form.get("part") == "tags":
        fields = {"tags": read_tags(form.get("tags", ""))}
    else:
        share = _share(form.get("share", "0"), field="The shadow’s share")
        fields = {
            "shadow_share_ppm": share,
            "shadow_microusd_per_day": microusd(form.get("usd", ""), field="The shadow’s budget") if share else 0,
            "drift_rollback": form.get("rollback") == "1",
        }
    acts.change(row, fields, actor=session.actor)
    messages.success(request, f"{row.name} is changed.")
    return redirect("console:deployment", deployment)


@require_POST
@page(Permission.RELEASE)
def delete(request: ConsoleRequest, deployment: str) -> HttpResponse:
    row = acts.lock_deployment(request.team_session.tenant_id, deployment)
    acts.delete(row, actor=request.team_session.actor)
    messages.success(request, f"{row.name} is deleted; its artifacts are kept.")
    return redirect("console:deployments")


def _list(request: ConsoleRequest) -> dict[str, Any]:
    tenant_id, now = request.team_session.tenant_id, timezone.now()
    rows = reading.list_deployments(tenant_id)
    names = _names(tenant_id, [row.artifact_id for row in rows])
    shown_rows = []
    for row, hours in reading.hours_of_all(rows, now - SPAN, now):
        shown_rows.append((DeploymentShape.of(row), names.get(row.artifact_id, ""), DeploymentFiguresShape.of(hours)))
    chosen, artifacts = request.GET.get("artifact", ""), _choices(_deployable(tenant_id))
    return {
        "rows": shown_rows,
        "artifacts": artifacts,
        "chosen": chosen,
        "may_release": request.team_session.may(Permission.RELEASE),
        "example": {"name": "my-model", "artifact": artifacts[0][0]} if artifacts else None,
    }


def _one(request: ConsoleRequest, row: Deployment) -> dict[str, Any]:
    tenant_id, now = request.team_session.tenant_id, timezone.now()
    hours = by_hour(reading.hours_of(row, now - SPAN, now), since=now - SPAN, until=now)
    shape = reading.detail(row, now=now)
    shape["last_24h"] = [figures | _answerers(figures) for figures in shape["last_24h"]]
    own = [id for id in (row.artifact_id, row.canary_artifact_id, row.previous_artifact_id) if id is not None]
    names = {encode_id(Prefix.ARTIFACT, id): name for id, name in _names(tenant_id, own).items()}
    others = [one for one in _choices(acts.fitting(row, _deployable(tenant_id))) if one[0] != shape["artifact"]]
    n_requests = sum(figures["n_requests"] for figures in shape["last_24h"])
    return {
        "row": row,
        "deployment": shape,
        "public_id": shape["id"],
        "names": names,
        "others": others,
        "n_requests": n_requests,
        "charts": [tokens_chart(hours), first_token_chart(hours)] if n_requests else [],
        "agreement": agreement_chart(hours, shape["drift"]["floor_ppm"]) if _is_compared(hours) else None,
        "tags": tag_line(row.tags),
        "path": f"/v1/deployments/{shape['id']}",
        "base_url": settings.KOLM_PUBLIC_URL,
        "may_release": request.team_session.may(Permission.RELEASE),
    }


def _answerers(figures: dict[str, Any]) -> dict[str, Any]:
    """Return how many requests a model answered, and the rules' share of all that were answered."""
    n_answered = figures["n_requests"] - figures["n_failed"] - figures["n_canceled"]
    share = figures["n_rule"] * 1_000_000 // n_answered if n_answered else None
    return {"n_model": n_answered - figures["n_rule"], "rule_ppm": share}


def _is_compared(hours: Any) -> bool:
    return any(figures is not None and figures["n_shadow"] for _, figures in hours)


def _names(tenant_id: UUID, ids: list[UUID]) -> dict[UUID, str]:
    rows = Artifact.objects.of_tenant(tenant_id).filter(id__in=set(ids))
    return {row.id: f"{row.name} v{row.version}" for row in rows}


def _deployable(tenant_id: UUID) -> list[Artifact]:
    """List the artifacts that can be deployed, the newest first."""
    rows = Artifact.objects.of_tenant(tenant_id).filter(revoked_at=None).order_by("-created_at", "-id")[:MOST_CHOICES]
    return [row for row in rows if answering(row.manifest).student is not None]


def _choices(rows: Iterable[Artifact]) -> list[tuple[str, str]]:
    """(id, name and version) of each."""
    return [(encode_id(Prefix.ARTIFACT, row.id), f"{row.name} v{row.version}") for row in rows]


def _share(text: str, *, field: str) -> int:
    """Read per cent as ppm. Raises InvalidInput."""
    try:
        value = Decimal(text.strip().rstrip("%") or "0")
    except InvalidOperation:
        raise InvalidInput(f"{field} is a percentage, such as 5.") from None
    if not value.is_finite() or not 0 <= value <= 100:
        raise InvalidInput(f"{field} must be between 0 and 100 percent.")
    return int(value * 10_000)

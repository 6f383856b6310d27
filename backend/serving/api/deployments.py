"""/v1/deployments: names under which artifacts answer at the OpenAI-compatible addresses."""

from datetime import timedelta
from decimal import Decimal
from typing import Any, ClassVar

from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers as s
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from backend.domain.errors import NotFound
from backend.domain.ids import Prefix, decode_id
from backend.rest.pagination import PAGE_PARAMETERS, list_page, page_schema, whole_list
from backend.rest.strict import StrictSerializer, check_query
from backend.serving import deployments, reading
from backend.serving.api.serializers import DeploymentChange, NewDeployment
from backend.serving.deployments import Canary
from backend.serving.models import Deployment
from backend.serving.shapes import DeploymentDetailShape, DeploymentHourShape, DeploymentShape
from backend.tenants.api_keys.authentication import IsTenant
from backend.tenants.idempotency import IDEMPOTENCY_KEY, idempotent
from backend.tenants.permissions import HasScope

DEPLOYMENTS: list[type[BasePermission]] = [IsTenant, HasScope("deployments")]
MAX_HOURS = 24 * 31


class Promotion(StrictSerializer):
    artifact = s.CharField(max_length=64, required=False, help_text="`art_...`; left out: the canary.")


class Nothing(StrictSerializer):
    """A body without fields."""


class DeploymentsView(APIView):
    permission_classes = DEPLOYMENTS

    @extend_schema(
        operation_id="deployments_list",
        parameters=PAGE_PARAMETERS,
        responses=page_schema("DeploymentList", DeploymentShape()),
    )
    def get(self, request: Request) -> Response:
        """All deployments, newest first."""
        rows = Deployment.objects.of_tenant(request.auth.tenant_id)
        return list_page(request, rows, prefix=Prefix.DEPLOYMENT, render=DeploymentShape.of)

    @extend_schema(
        operation_id="deployments_create",
        parameters=[IDEMPOTENCY_KEY],
        request=NewDeployment,
        responses={201: DeploymentShape},
    )
    @idempotent
    def post(self, request: Request) -> Response:
        """Let an artifact answer under a name. The name is the `model` of POST /v1/chat/completions."""
        form = NewDeployment(data=request.data)
        form.is_valid(raise_exception=True)
        values = dict(form.validated_data)
        row = deployments.create(
            request.auth.tenant_id,
            name=values.pop("name"),
            artifact=values.pop("artifact"),
            canary=_canary(values.pop("canary", None)),
            fields=_fields(values),
            actor=request.auth.actor,
        )
        return Response(DeploymentShape.of(row), status=201)


class DeploymentView(APIView):
    permission_classes = DEPLOYMENTS

    @extend_schema(operation_id="deployments_get", responses=DeploymentDetailShape)
    def get(self, request: Request, deployment: str) -> Response:
        """One deployment with the last day's numbers by artifact, the engines that ran, and its history."""
        check_query(request.query_params, [])
        return Response(reading.detail(find_deployment(request, deployment)))

    @extend_schema(operation_id="deployments_change", request=DeploymentChange, responses=DeploymentShape)
    def patch(self, request: Request, deployment: str) -> Response:
        """Change settings, or set or remove (null) the canary. What is left out stays."""
        row = deployments.lock_deployment(request.auth.tenant_id, deployment)
        form = DeploymentChange(data=request.data)
        form.is_valid(raise_exception=True)
        values = dict(form.validated_data)
        fields = {"canary": _canary(values.pop("canary"))} if "canary" in values else {}
        row = deployments.change(row, fields | _fields(values), actor=request.auth.actor)
        return Response(DeploymentShape.of(row))

    @extend_schema(operation_id="deployments_delete", responses={204: None})
    def delete(self, request: Request, deployment: str) -> Response:
        """Take the name away: the next request to it is answered 404. Artifacts stay."""
        deployments.delete(deployments.lock_deployment(request.auth.tenant_id, deployment), actor=request.auth.actor)
        return Response(status=204)


class HoursView(APIView):
    permission_classes = DEPLOYMENTS

    @extend_schema(
        operation_id="deployments_hours",
        parameters=[OpenApiParameter("hours", OpenApiTypes.INT, description=f"1 to {MAX_HOURS}; 24 if not given.")],
        responses=page_schema("DeploymentHourList", DeploymentHourShape()),
    )
    def get(self, request: Request, deployment: str) -> Response:
        """Counters by hour and artifact, oldest first: requests, tokens, times, agreement with the teacher."""
        check_query(request.query_params, ["hours"])
        text = request.query_params.get("hours", "24")
        if not (text.isascii() and text.isdigit() and len(text) < 6 and 1 <= int(text) <= MAX_HOURS):
            raise s.ValidationError({"hours": [f"A whole number from 1 to {MAX_HOURS}."]})
        row, now = find_deployment(request, deployment), timezone.now()
        hours = reading.hours_of(row, now - timedelta(hours=int(text)), now)
        return whole_list([DeploymentHourShape.of([hour]) for hour in hours])


class _VerbView(APIView):
    permission_classes: ClassVar = DEPLOYMENTS

    def act(self, request: Request, deployment: str, verb: Any) -> Response:
        row = deployments.lock_deployment(request.auth.tenant_id, deployment)
        form = Nothing(data=request.data)
        form.is_valid(raise_exception=True)
        return Response(DeploymentShape.of(verb(row, actor=request.auth.actor)))


class PromoteView(APIView):
    permission_classes: ClassVar = DEPLOYMENTS

    @extend_schema(
        operation_id="deployments_promote", parameters=[IDEMPOTENCY_KEY], request=Promotion, responses=DeploymentShape
    )
    @idempotent
    def post(self, request: Request, deployment: str) -> Response:
        """The canary (or `artifact`) answers everything; what answered before can be rolled back to."""
        row = deployments.lock_deployment(request.auth.tenant_id, deployment)
        form = Promotion(data=request.data)
        form.is_valid(raise_exception=True)
        row = deployments.promote(row, form.validated_data.get("artifact"), actor=request.auth.actor)
        return Response(DeploymentShape.of(row))


class RollbackView(_VerbView):
    @extend_schema(
        operation_id="deployments_rollback", parameters=[IDEMPOTENCY_KEY], request=Nothing, responses=DeploymentShape
    )
    @idempotent
    def post(self, request: Request, deployment: str) -> Response:
        """The artifact from before the last promotion answers again, and the canary is gone."""
        return self.act(request, deployment, deployments.roll_back)


class DrainView(_VerbView):
    @extend_schema(
        operation_id="deployments_drain", parameters=[IDEMPOTENCY_KEY], request=Nothing, responses=DeploymentShape
    )
    @idempotent
    def post(self, request: Request, deployment: str) -> Response:
        """Take no new requests; those under way end. `state` is `draining`, and `stopped` a quarter of an hour on."""
        return self.act(request, deployment, deployments.drain)


class StartView(_VerbView):
    @extend_schema(
        operation_id="deployments_start", parameters=[IDEMPOTENCY_KEY], request=Nothing, responses=DeploymentShape
    )
    @idempotent
    def post(self, request: Request, deployment: str) -> Response:
        """Take requests again after a drain."""
        return self.act(request, deployment, deployments.start)


def find_deployment(request: Request, public_id: str) -> Deployment:
    """Raises NotFound, for another tenant's too."""
    rows = Deployment.objects.of_tenant(request.auth.tenant_id)
    row = rows.filter(id=decode_id(Prefix.DEPLOYMENT, public_id)).first()
    if row is None:
        raise NotFound(f"There is no deployment {public_id[:60]!r}.")
    return row


def _canary(canary: dict[str, Any] | None) -> Canary | None:
    return None if canary is None else Canary(artifact=canary["artifact"], share_ppm=_ppm(canary["share"]))


def _fields(values: dict[str, Any]) -> dict[str, Any]:
    """The request's settings as columns."""
    fields = {
        column: values[name]
        for name, column in (
            ("idle_minutes", "idle_minutes"),
            ("pinned", "is_pinned"),
            ("max_concurrent", "max_concurrent"),
            ("tags", "tags"),
        )
        if name in values
    }
    shadow, drift = values.get("shadow", {}), values.get("drift", {})
    if "share" in shadow:
        fields["shadow_share_ppm"] = _ppm(shadow["share"])
    if "usd_per_day" in shadow:
        fields["shadow_microusd_per_day"] = int(shadow["usd_per_day"] * 1_000_000)
    if "margin" in drift:
        fields["drift_margin_ppm"] = _ppm(drift["margin"])
    if "rollback" in drift:
        fields["drift_rollback"] = drift["rollback"]
    return fields


def _ppm(share: Decimal) -> int:
    return round(share * 1_000_000)

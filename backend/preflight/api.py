"""/v1/specs/validate: a spec is checked, and with `preflight=true` whether its compile can end."""

from dataclasses import dataclass
from typing import Any, ClassVar
from uuid import UUID

from django.db import transaction
from django.utils.decorators import method_decorator
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers as s
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from backend.compiles.lifecycle import submission
from backend.compiles.uploads.rows import with_upload_ids
from backend.domain.planning.estimates import Estimate
from backend.domain.planning.preflight.lines import Check, LineStatus, Preflight, PreflightLine
from backend.domain.spec.parsing import Spec, canonical_spec, parse_spec
from backend.preflight.asking import preflight_of
from backend.rest.shapes import Constant, Shape
from backend.rest.strict import StrictSerializer, check_query
from backend.tenants.api_keys.authentication import IsTenant
from backend.tenants.isolation import tenant_scope
from backend.tenants.permissions import HasScope, Scope, lacking


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    spec: Spec
    estimate: Estimate | None
    preflight: Preflight | None = None


class PreflightLineShape(Shape[PreflightLine]):
    check = s.ChoiceField([check.value for check in Check])
    status = s.ChoiceField([status.value for status in LineStatus])
    sentence = s.CharField()
    what_to_do = s.CharField(help_text="What mends it; empty where there is nothing to do.")
    code = s.CharField(help_text="Of what failed or is doubtful; empty else. It never changes its meaning.")


class PreflightShape(Shape[Preflight]):
    passed = s.BooleanField(help_text="Whether no line failed. Warnings do not refuse a compile.")
    lines = PreflightLineShape(many=True)


class ValidationShape(Shape[Validation]):
    object = Constant("spec_validation")
    valid = s.BooleanField(help_text="With `preflight=true` false where a line failed.")
    spec = s.JSONField(help_text="The spec with every default filled in.")
    estimate = s.JSONField(allow_null=True, help_text="null where the teacher's model has no price.")
    preflight = PreflightShape(allow_null=True, help_text="With `preflight=true`: the list, line by line.")

    def get_valid(self, row: Validation) -> bool:
        return row.preflight is None or row.preflight.passed

    def get_spec(self, row: Validation) -> dict[str, Any]:
        return canonical_spec(row.spec)

    def get_estimate(self, row: Validation) -> dict[str, Any] | None:
        return None if row.estimate is None else row.estimate.to_json()


class ValidateQuery(StrictSerializer):
    preflight = s.BooleanField(
        default=False,
        help_text="Whether to look if the compile can end: a runner looks at the base, and the teacher, its fallback "
        "model, the model that gives rewards and the judge of drafts are asked one tiny call each, which is billed. "
        "Needs the scope compiles:write.",
    )


@method_decorator(transaction.non_atomic_requests, name="dispatch")
class SpecValidateView(APIView):
    """Validate outside a transaction: with `preflight` the view waits for a runner and a worker."""

    permission_classes: ClassVar[list[type[BasePermission]]] = [IsTenant, HasScope("compiles:read")]

    @extend_schema(
        operation_id="specs_validate",
        parameters=[ValidateQuery],
        request=OpenApiTypes.OBJECT,
        responses=ValidationShape,
    )
    def post(self, request: Request) -> Response:
        """Check a spec without starting anything: 200 with every default filled in and an estimate, or 422 with all
        problems. With `preflight=true` 200 with the list of what a compile of it would meet, and what to do."""
        check_query(request.query_params, ValidateQuery().fields)
        query = ValidateQuery(data=request.query_params.dict())
        query.is_valid(raise_exception=True)
        tenant_id: UUID = request.auth.tenant_id
        if not query.validated_data["preflight"]:
            with tenant_scope(tenant_id):
                spec, expected = submission.check(tenant_id, request.data)
            return Response(ValidationShape.of(Validation(spec=spec, estimate=expected)))
        if Scope.COMPILES_WRITE not in request.auth.scopes:
            raise lacking(Scope.COMPILES_WRITE)  # the call to the teacher costs money
        with tenant_scope(tenant_id):
            spec = parse_spec(with_upload_ids(tenant_id, request.data))
        preflight, estimate = preflight_of(tenant_id, spec)
        return Response(ValidationShape.of(Validation(spec=spec, estimate=estimate, preflight=preflight)))

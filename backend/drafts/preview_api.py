"""POST /v1/drafts/preview: what would be offered for a spec, and what that would save."""

from typing import Any
from uuid import UUID

from django.db import transaction
from django.utils.decorators import method_decorator
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from backend.domain.spec.parsing import canonical_spec, parse_spec
from backend.drafts.previews import preview
from backend.drafts.serializers import PreviewShape
from backend.rest.strict import check_query
from backend.tenants.api_keys.authentication import IsTenant
from backend.tenants.permissions import HasScope

WAIT_S = 10.0


@method_decorator(transaction.non_atomic_requests, name="dispatch")
class PreviewView(APIView):
    """Not atomic: the question must be visible to workers while this request waits for the answer."""

    permission_classes: list[type[BasePermission]] = [IsTenant, HasScope("drafts:read")]

    @extend_schema(operation_id="drafts_preview", request=OpenApiTypes.OBJECT, responses=PreviewShape)
    def post(self, request: Request) -> Response:
        """Which drafts would be offered for this spec, slice by slice, and what that is expected to save. Nothing is
        asked of the teacher, nothing is spent."""
        check_query(request.query_params, [])
        spec = parse_spec(request.data)
        tenant_id: UUID = request.auth.tenant_id
        answer: dict[str, Any] = preview(tenant_id, canonical_spec(spec), wait_s=WAIT_S)
        return Response({"object": "draft_preview", "family": spec.family, **answer})

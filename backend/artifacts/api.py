"""/v1/artifacts, the receipts of a compile, and the deployment's public keys."""

from typing import ClassVar

from django.db import DatabaseError, transaction
from django.http import HttpRequest, HttpResponse, JsonResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers as s
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from backend.artifacts.models import Artifact, Receipt
from backend.artifacts.revoking import check_usable, revoke
from backend.artifacts.shapes import ArtifactShape, ReceiptShape, VerificationShape
from backend.artifacts.signing import keyring
from backend.blobs import get_blob
from backend.compiles.api.compiles import READ_ONLY, find_compile
from backend.domain.artifact import kolm_verify
from backend.domain.errors import NotFound
from backend.domain.ids import Prefix, decode_id
from backend.rest.pagination import PAGE_PARAMETERS, list_page, page_schema, whole_list
from backend.rest.problems import problem_for
from backend.rest.strict import StrictSerializer, check_query
from backend.tenants.api_keys.authentication import IsTenant
from backend.tenants.idempotency import IDEMPOTENCY_KEY, idempotent
from backend.tenants.permissions import HasScope

ARTIFACTS: list[type[BasePermission]] = [IsTenant, HasScope("artifacts:read")]


class Revocation(StrictSerializer):
    reason = s.CharField(max_length=500, default="", allow_blank=True, help_text="Shown with the artifact.")


class ArtifactsView(APIView):
    permission_classes = ARTIFACTS

    @extend_schema(
        operation_id="artifacts_list",
        parameters=[*PAGE_PARAMETERS, OpenApiParameter("name", OpenApiTypes.STR)],
        responses=page_schema("ArtifactList", ArtifactShape()),
    )
    def get(self, request: Request) -> Response:
        """All published artifacts, newest first."""
        rows = Artifact.objects.of_tenant(request.auth.tenant_id)
        if "name" in request.query_params:
            rows = rows.filter(name=request.query_params["name"])
        return list_page(request, rows, prefix=Prefix.ARTIFACT, render=ArtifactShape.of, filters=("name",))


class ArtifactView(APIView):
    permission_classes = ARTIFACTS

    @extend_schema(operation_id="artifacts_get", responses=ArtifactShape)
    def get(self, request: Request, artifact: str) -> Response:
        """One artifact with its manifest."""
        check_query(request.query_params, [])
        return Response(ArtifactShape.of(find_artifact(request, artifact)))


class DownloadView(APIView):
    permission_classes = ARTIFACTS

    @extend_schema(
        operation_id="artifacts_download",
        parameters=[OpenApiParameter("revoked", OpenApiTypes.STR, enum=["true"], description="Also if revoked.")],
        responses={(200, "application/vnd.kolm"): OpenApiTypes.BINARY},
    )
    def get(self, request: Request, artifact: str) -> HttpResponse:
        """The `.kolm` itself. Its ETag is its sha256; the bytes never change. A revoked one comes only to those who
        ask with `?revoked=true`."""
        check_query(request.query_params, ["revoked"])
        row = find_artifact(request, artifact)
        if request.query_params.get("revoked") != "true":
            check_usable(row)
        etag = f'"{row.sha256}"'
        if request.headers.get("If-None-Match") == etag:
            response = HttpResponse(status=304)
        else:
            data = get_blob(row.tenant_id, row.sha256)
            response = HttpResponse(data, content_type="application/vnd.kolm")
            response["Content-Disposition"] = f'attachment; filename="{row.name}-{row.version}.kolm"'
        response["ETag"] = etag
        response["Cache-Control"] = "private, immutable, max-age=31536000"
        return response


class RevokeView(APIView):
    permission_classes: ClassVar = [IsTenant, HasScope("artifacts:write")]

    @extend_schema(
        operation_id="artifacts_revoke", parameters=[IDEMPOTENCY_KEY], request=Revocation, responses=ArtifactShape
    )
    @idempotent
    def post(self, request: Request, artifact: str) -> Response:
        """Take the artifact out of use: /run and a plain /download answer 409 from here on. For good; revoking again
        changes nothing."""
        row = find_artifact(request, artifact)
        form = Revocation(data=request.data)
        form.is_valid(raise_exception=True)
        row = revoke(row.tenant_id, row.id, reason=form.validated_data["reason"], actor=request.auth.actor)
        return Response(ArtifactShape.of(row))


class VerifyView(APIView):
    permission_classes = ARTIFACTS

    @extend_schema(operation_id="artifacts_verify", request=None, responses=VerificationShape)
    def post(self, request: Request, artifact: str) -> Response:
        """Verify the stored bytes with the code that `kolm verify` runs, against this installation's keys. Your own
        copy of both is stronger evidence."""
        row = find_artifact(request, artifact)
        return Response(VerificationShape.of(kolm_verify.verify(get_blob(row.tenant_id, row.sha256), keyring())))


class ReceiptsView(APIView):
    permission_classes = READ_ONLY

    @extend_schema(operation_id="compiles_receipts", responses=page_schema("ReceiptList", ReceiptShape()))
    def get(self, request: Request, compile: str) -> Response:
        """The compile's chain of signed receipts, one a step, also of a compile that failed or was canceled."""
        check_query(request.query_params, [])
        row = find_compile(request, compile)
        receipts = Receipt.objects.of_tenant(row.tenant_id).filter(compile_id=row.id).order_by("seq")
        return whole_list([ReceiptShape.of(receipt) for receipt in receipts])


@transaction.non_atomic_requests
def public_keys(request: HttpRequest) -> HttpResponse:
    """The keyring to pin: `kolm trust https://…/.well-known/kolm-keys.json`. 503 without the database, never a part:
    who pins must not miss a revocation."""
    try:
        return JsonResponse(keyring())
    except DatabaseError as fault:
        return problem_for(request, fault)


def find_artifact(request: Request, public_id: str) -> Artifact:
    """The tenant's artifact behind a public id. Raises NotFound, for another tenant's too."""
    row = Artifact.objects.of_tenant(request.auth.tenant_id).filter(id=decode_id(Prefix.ARTIFACT, public_id)).first()
    if row is None:
        raise NotFound(f"There is no artifact {public_id[:60]!r}.")
    return row

"""/v1/uploads and /v1/teacher_keys: what a spec points at."""

from typing import Any, ClassVar

from django.db import transaction
from django.http import HttpResponse
from django.utils.decorators import method_decorator
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.parsers import BaseParser
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from backend.compiles import teacher_keys
from backend.compiles.api.serializers import TeacherKeyRequest, TeacherKeyTestRequest
from backend.compiles.api.shapes import TeacherKeyShape, TeacherKeyTestShape, UploadShape
from backend.compiles.models import TeacherKey, Upload
from backend.compiles.uploads import UploadPurpose, store_upload
from backend.domain.errors import InvalidInput, NotFound, Problem
from backend.domain.ids import Prefix, decode_id, encode_id
from backend.rest.pagination import PAGE_PARAMETERS, list_page, page_schema
from backend.rest.strict import check_query
from backend.tenants.api_keys.authentication import IsTenant
from backend.tenants.idempotency import IDEMPOTENCY_KEY, idempotent
from backend.tenants.isolation import tenant_scope
from backend.tenants.permissions import HasScope, Scope


class LinesParser(BaseParser):
    """JSON lines as they come; they are read row by row later."""

    media_type = "application/x-ndjson"

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Any = None) -> bytes:
        return bytes(stream.read())


class OctetsParser(LinesParser):
    media_type = "application/octet-stream"


class UploadsView(APIView):
    permission_classes: list[type[BasePermission]] = [IsTenant, HasScope("uploads")]
    parser_classes: ClassVar = [LinesParser, OctetsParser]

    @extend_schema(
        operation_id="uploads_list",
        parameters=PAGE_PARAMETERS,
        responses=page_schema("UploadList", UploadShape()),
    )
    def get(self, request: Request) -> Response:
        """All uploads, newest first."""
        rows = Upload.objects.of_tenant(request.auth.tenant_id)
        return list_page(request, rows, prefix=Prefix.UPLOAD, render=UploadShape.of)

    @extend_schema(
        operation_id="uploads_create",
        parameters=[
            IDEMPOTENCY_KEY,
            OpenApiParameter(
                "purpose", OpenApiTypes.STR, required=True, enum=[purpose.value for purpose in UploadPurpose]
            ),
            OpenApiParameter(
                "sha256", OpenApiTypes.STR, description="Of the body, hexadecimal: a truncated upload is refused."
            ),
        ],
        request={"application/x-ndjson": OpenApiTypes.BINARY},
        responses={201: UploadShape},
    )
    @idempotent
    def post(self, request: Request) -> Response:
        """Upload up to 5 MB of JSON lines: `{"input"}` for captures, `{"input", "output"}` for examples (with
        `"group"` and `"split"` where a row has them), `{"item", "completions"}` for a recording."""
        check_query(request.query_params, ["purpose", "sha256"])
        purpose = request.query_params.get("purpose", "")
        if purpose not in set(UploadPurpose):
            message = f"`purpose` is one of {', '.join(UploadPurpose)}."
            raise InvalidInput(message, problems=(Problem(pointer="/purpose", message=message),))
        data = request.data if isinstance(request.data, bytes) else b""
        row = store_upload(
            request.auth.tenant_id, UploadPurpose(purpose), data, sha256=request.query_params.get("sha256")
        )
        shape = UploadShape.of(row)
        return Response(shape, status=201, headers={"Location": f"/v1/uploads/{shape['id']}"})


class UploadView(APIView):
    permission_classes: list[type[BasePermission]] = [IsTenant, HasScope("uploads")]

    @extend_schema(operation_id="uploads_get", responses=UploadShape)
    def get(self, request: Request, upload: str) -> Response:
        """One upload; its rows are not shown again."""
        check_query(request.query_params, [])
        row = Upload.objects.of_tenant(request.auth.tenant_id).filter(id=decode_id(Prefix.UPLOAD, upload)).first()
        if row is None:
            raise NotFound("There is no such upload.")
        return Response(UploadShape.of(row))


class TeacherKeysView(APIView):
    permission_classes: list[type[BasePermission]] = [IsTenant, HasScope("teacher_keys")]

    @extend_schema(
        operation_id="teacher_keys_list",
        parameters=PAGE_PARAMETERS,
        responses=page_schema("TeacherKeyList", TeacherKeyShape()),
    )
    def get(self, request: Request) -> Response:
        """All stored teacher keys, never their secrets."""
        rows = TeacherKey.objects.of_tenant(request.auth.tenant_id)
        return list_page(request, rows, prefix=Prefix.TEACHER_KEY, render=TeacherKeyShape.of)

    @extend_schema(
        operation_id="teacher_keys_create",
        parameters=[IDEMPOTENCY_KEY],
        request=TeacherKeyRequest,
        responses={201: TeacherKeyShape},
    )
    @idempotent
    def post(self, request: Request) -> Response:
        """Store your key for a teacher. It is sealed at rest and opened only by the worker that calls the teacher."""
        form = TeacherKeyRequest(data=request.data)
        form.is_valid(raise_exception=True)
        wanted = form.validated_data
        row = teacher_keys.store(
            request.auth.tenant_id, name=wanted["name"], secret=wanted["secret"], actor=request.auth.actor
        )
        shape = TeacherKeyShape.of(row)
        return Response(shape, status=201, headers={"Location": f"/v1/teacher_keys/{shape['id']}"})


class TeacherKeyView(APIView):
    permission_classes: list[type[BasePermission]] = [IsTenant, HasScope("teacher_keys")]

    @extend_schema(operation_id="teacher_keys_get", responses=TeacherKeyShape)
    def get(self, request: Request, key: str) -> Response:
        """One teacher key, without its secret."""
        check_query(request.query_params, [])
        row = teacher_keys.find(request.auth.tenant_id, decode_id(Prefix.TEACHER_KEY, key))
        return Response(TeacherKeyShape.of(row))

    @extend_schema(operation_id="teacher_keys_delete", responses={204: None})
    def delete(self, request: Request, key: str) -> HttpResponse:
        """Forget a teacher key. Compiles that still need it end as failed and say so."""
        teacher_keys.delete(request.auth.tenant_id, decode_id(Prefix.TEACHER_KEY, key), actor=request.auth.actor)
        return HttpResponse(status=204)


@method_decorator(transaction.non_atomic_requests, name="dispatch")
class TeacherKeyTestView(APIView):
    """A view without a transaction: none waits for the provider. It needs the right to compile too, because whoever
    may start a compile may have a stored key sent to an address of his choice, and nobody else."""

    permission_classes: list[type[BasePermission]] = [
        IsTenant,
        HasScope("teacher_keys"),
        HasScope(Scope.COMPILES_WRITE),
    ]
    spending_methods: ClassVar = ("POST",)

    @extend_schema(operation_id="teacher_keys_test", request=TeacherKeyTestRequest, responses=TeacherKeyTestShape)
    def post(self, request: Request, key: str) -> Response:
        """Ask the provider at `base_url` for its list of models with this key, within eight seconds: it costs nothing,
        changes nothing, and says whether the key opens. May be sent again as often as one likes."""
        from backend.compiles.teacher_key_trials import try_key  # opens keys and connections: only where it is asked

        with tenant_scope(request.auth.tenant_id):
            row = teacher_keys.find(request.auth.tenant_id, decode_id(Prefix.TEACHER_KEY, key))
        form = TeacherKeyTestRequest(data=request.data)
        form.is_valid(raise_exception=True)
        verdict = try_key(row, form.validated_data["base_url"])
        return Response(
            {
                "id": encode_id(Prefix.TEACHER_KEY, row.id),
                "object": "teacher_key_test",
                "passed": verdict.is_good,
                "detail": verdict.text[:1].upper() + verdict.text[1:],
            }
        )

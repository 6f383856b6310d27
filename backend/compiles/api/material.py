"""/v1/teacher_keys: the customer's keys for teachers."""

from typing import ClassVar

from django.db import transaction
from django.http import HttpResponse
from django.utils.decorators import method_decorator
from drf_spectacular.utils import extend_schema
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from backend.compiles import teacher_keys
from backend.compiles.api.serializers import TeacherKeyRequest, TeacherKeyTestRequest
from backend.compiles.api.shapes import TeacherKeyShape, TeacherKeyTestShape
from backend.compiles.models import TeacherKey
from backend.domain.ids import Prefix, decode_id, encode_id
from backend.rest.pagination import PAGE_PARAMETERS, list_page, page_schema
from backend.rest.strict import check_query
from backend.tenants.api_keys.authentication import IsTenant
from backend.tenants.idempotency import IDEMPOTENCY_KEY, idempotent
from backend.tenants.isolation import tenant_scope
from backend.tenants.permissions import HasScope, Scope


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

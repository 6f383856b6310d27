"""A urlconf whose views raise what the path says: every kind of error, without waiting for it to happen."""

from typing import Any

from django.core.exceptions import PermissionDenied, SuspiciousOperation
from django.db import DataError, OperationalError, transaction
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import include, path
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from backend.domain import errors
from backend.domain.errors import Problem
from backend.rest.problems import problem_for
from backend.rest.strict import StrictSerializer
from backend.tenants.idempotency import idempotent
from backend.tenants.models import Tenant

RAISES: dict[str, Exception] = {
    "invalid_spec": errors.InvalidSpec(
        "Bad spec.", problems=(Problem(pointer="/task", message="is empty", code="empty"),)
    ),
    "invalid_input": errors.InvalidInput("Bad input."),
    "not_found": errors.NotFound("Not here."),
    "conflict": errors.Conflict("Not now."),
    "payment_required": errors.PaymentRequired("Cap reached."),
    "forbidden": errors.Forbidden("No."),
    "rate_limited": errors.TooManyRequests("Slow down.", retry_after_s=1.2),
    "customer": errors.CustomerError("Hm.", code="odd"),
    "unavailable": errors.Unavailable("Away."),
    "teacher_failed": errors.TeacherFailed("The teacher is gone."),
    "ours": errors.OurError("secret detail"),
    "bug": ZeroDivisionError("secret detail"),
    "data": DataError("secret detail"),
    "database": OperationalError("secret detail"),
    "http404": Http404("secret detail"),
    "denied": PermissionDenied("secret detail"),
    "suspicious": SuspiciousOperation("secret detail"),
}


class Raises(APIView):
    permission_classes: list[Any] = []

    def get(self, request: Request, what: str) -> Response:
        raise RAISES[what]


def plain(request: HttpRequest, what: str) -> HttpResponse:
    raise RAISES[what]


def caught(request: HttpRequest, what: str) -> HttpResponse:
    return problem_for(request, RAISES[what])


class Inner(StrictSerializer):
    size = serializers.IntegerField(min_value=1)


class Form(StrictSerializer):
    name = serializers.CharField(max_length=5)
    diversity_lambda = serializers.FloatField(default=0.3)
    inner = Inner(required=False)
    many = Inner(many=True, required=False)


class Echo(APIView):
    permission_classes: list[Any] = []

    def post(self, request: Request) -> Response:
        form = Form(data=request.data)
        form.is_valid(raise_exception=True)
        return Response(form.validated_data)


class Spends(APIView):
    """Renames the tenant, then fails if asked to: is the effect kept without its answer?"""

    spending_methods = ("POST",)

    def get(self, request: Request) -> Response:
        return Response({})

    @idempotent
    def post(self, request: Request) -> Response:
        n = Tenant.objects.filter(id=request.auth.tenant_id).update(name=request.data["name"])
        if request.data.get("fail"):
            raise errors.Conflict("After the effect.")
        return Response({"renamed": n}, status=201, headers={"Location": "/here"})


async def asynchronous(request: HttpRequest) -> HttpResponse:
    return HttpResponse("ok")


urlpatterns = [
    path("raises/<str:what>", Raises.as_view()),
    path("plain/<str:what>", plain),
    path("caught/<str:what>", caught),
    path("echo", Echo.as_view()),
    path("spends", Spends.as_view()),
    path("async", transaction.non_atomic_requests(asynchronous)),
    path("", include("backend.urls")),
]

handler400 = "backend.rest.problems.bad_request"
handler403 = "backend.rest.problems.permission_denied"
handler404 = "backend.rest.problems.not_found"
handler500 = "backend.rest.problems.server_error"

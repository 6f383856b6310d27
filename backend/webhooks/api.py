"""/v1/webhook_endpoints. Events and deliveries are in `log_api`."""

from typing import ClassVar
from uuid import UUID

from django.db import transaction
from django.utils.decorators import method_decorator
from drf_spectacular.utils import extend_schema
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from backend.domain.ids import Prefix, decode_id
from backend.domain.webhooks.events import EventType
from backend.rest.pagination import PAGE_PARAMETERS, list_page, page_schema
from backend.rest.strict import check_query
from backend.tenants.api_keys.authentication import IsTenant
from backend.tenants.idempotency import IDEMPOTENCY_KEY, idempotent
from backend.tenants.isolation import tenant_scope
from backend.tenants.permissions import HasScope
from backend.webhooks import deliveries, endpoints
from backend.webhooks.models import WebhookEndpoint
from backend.webhooks.secrets import receiver_secrets
from backend.webhooks.serializers import EndpointChanges, NewEndpoint, ReplayRequest, Rolling, TestSend
from backend.webhooks.shapes import DeliveryDetailShape, EndpointShape, EndpointWithSecret, ReplayShape

WEBHOOKS: list[type[BasePermission]] = [IsTenant, HasScope("webhooks")]
WRITE: list[type[BasePermission]] = [IsTenant, HasScope("webhooks:write")]


class EndpointsView(APIView):
    permission_classes = WEBHOOKS

    @extend_schema(
        operation_id="webhook_endpoints_list",
        parameters=PAGE_PARAMETERS,
        responses=page_schema("WebhookEndpointList", EndpointShape()),
    )
    def get(self, request: Request) -> Response:
        """All endpoints, newest first; never their secrets."""
        rows = WebhookEndpoint.objects.of_tenant(request.auth.tenant_id).filter(deleted_at=None)
        return list_page(request, rows, prefix=Prefix.WEBHOOK_ENDPOINT, render=EndpointShape.of)

    @extend_schema(
        operation_id="webhook_endpoints_create",
        parameters=[IDEMPOTENCY_KEY],
        request=NewEndpoint,
        responses={201: EndpointWithSecret},
    )
    @idempotent
    def post(self, request: Request) -> Response:
        """A new endpoint, with what verifies its signatures: the shared `secret`, or the `public_key`."""
        form = NewEndpoint(data=request.data)
        form.is_valid(raise_exception=True)
        row, secret = endpoints.create(request.auth.tenant_id, actor=request.auth.actor, **form.validated_data)
        body = EndpointShape.of(row) | receiver_secrets(secret)
        return Response(body, status=201, headers={"Location": f"/v1/webhook_endpoints/{body['id']}"})


class EndpointView(APIView):
    permission_classes = WEBHOOKS

    @extend_schema(operation_id="webhook_endpoints_get", responses=EndpointShape)
    def get(self, request: Request, endpoint: str) -> Response:
        """One endpoint."""
        check_query(request.query_params, [])
        return Response(EndpointShape.of(endpoints.find(request.auth.tenant_id, _id(endpoint))))

    @extend_schema(operation_id="webhook_endpoints_update", request=EndpointChanges, responses=EndpointShape)
    def patch(self, request: Request, endpoint: str) -> Response:
        """Change url, events or description. What is still to be sent goes to the new URL."""
        existing = endpoints.find(request.auth.tenant_id, _id(endpoint))
        form = EndpointChanges(data=request.data)
        form.is_valid(raise_exception=True)
        row = endpoints.update(request.auth.tenant_id, existing.id, actor=request.auth.actor, **form.validated_data)
        return Response(EndpointShape.of(row))

    @extend_schema(operation_id="webhook_endpoints_delete", responses={200: EndpointShape})
    def delete(self, request: Request, endpoint: str) -> Response:
        """Delete it. What is still to be sent to it is canceled; its log stays for 30 days."""
        row = endpoints.delete(request.auth.tenant_id, _id(endpoint), actor=request.auth.actor)
        return Response(EndpointShape.of(row))


class RollView(APIView):
    permission_classes = WRITE

    @extend_schema(
        operation_id="webhook_endpoints_roll",
        parameters=[IDEMPOTENCY_KEY],
        request=Rolling,
        responses=EndpointWithSecret,
    )
    @idempotent
    def post(self, request: Request, endpoint: str) -> Response:
        """A new secret. Until the overlap is over each request carries two signatures, of the new and the old one."""
        existing = endpoints.find(request.auth.tenant_id, _id(endpoint))
        form = Rolling(data=request.data)
        form.is_valid(raise_exception=True)
        row, secret = endpoints.roll(
            request.auth.tenant_id, existing.id, actor=request.auth.actor, **form.validated_data
        )
        return Response(EndpointShape.of(row) | receiver_secrets(secret))


class RevealView(APIView):
    permission_classes = WRITE

    @extend_schema(
        operation_id="webhook_endpoints_reveal",
        parameters=[IDEMPOTENCY_KEY],
        request=None,
        responses=EndpointWithSecret,
    )
    @idempotent
    def post(self, request: Request, endpoint: str) -> Response:
        """The secret once more. The audit log says which key asked."""
        row, secret = endpoints.reveal(request.auth.tenant_id, _id(endpoint), actor=request.auth.actor)
        return Response(EndpointShape.of(row) | receiver_secrets(secret))


class EnableView(APIView):
    permission_classes = WRITE

    @extend_schema(
        operation_id="webhook_endpoints_enable", parameters=[IDEMPOTENCY_KEY], request=None, responses=EndpointShape
    )
    @idempotent
    def post(self, request: Request, endpoint: str) -> Response:
        """Send to it again. What was canceled while it was disabled is sent by /replay."""
        row = endpoints.set_enabled(request.auth.tenant_id, _id(endpoint), enabled=True, actor=request.auth.actor)
        return Response(EndpointShape.of(row))


class DisableView(APIView):
    permission_classes = WRITE

    @extend_schema(
        operation_id="webhook_endpoints_disable", parameters=[IDEMPOTENCY_KEY], request=None, responses=EndpointShape
    )
    @idempotent
    def post(self, request: Request, endpoint: str) -> Response:
        """Send nothing to it. What is still to be sent is canceled."""
        row = endpoints.set_enabled(request.auth.tenant_id, _id(endpoint), enabled=False, actor=request.auth.actor)
        return Response(EndpointShape.of(row))


class ReplayFailedView(APIView):
    permission_classes = WRITE

    @extend_schema(
        operation_id="webhook_endpoints_replay",
        parameters=[IDEMPOTENCY_KEY],
        request=ReplayRequest,
        responses={202: ReplayShape},
    )
    @idempotent
    def post(self, request: Request, endpoint: str) -> Response:
        """Send again what failed or was canceled since then, up to 10,000 deliveries, once a minute: the same ids and
        bodies, new timestamps."""
        row = endpoints.find(request.auth.tenant_id, _id(endpoint))
        form = ReplayRequest(data=request.data)
        form.is_valid(raise_exception=True)
        n = deliveries.replay_failed(request.auth.tenant_id, row.id, form.validated_data["since"])
        return Response({"object": "webhook_replay", "n_deliveries": n}, status=202)


@method_decorator(transaction.non_atomic_requests, name="dispatch")
class TestView(APIView):
    """A view without a transaction: none waits for the receiver."""

    permission_classes = WRITE
    spending_methods: ClassVar = ("POST",)

    @extend_schema(operation_id="webhook_endpoints_test", request=TestSend, responses=DeliveryDetailShape)
    def post(self, request: Request, endpoint: str) -> Response:
        """Send a test event to this endpoint now, once, and answer with what came of it, within ten seconds. Works for
        a disabled endpoint too."""
        from backend.webhooks.trial_sends import send_test  # brings httpx, which a web process may never need

        tenant_id: UUID = request.auth.tenant_id
        with tenant_scope(tenant_id):
            existing = endpoints.find(tenant_id, _id(endpoint))
        form = TestSend(data=request.data)
        form.is_valid(raise_exception=True)
        row = send_test(tenant_id, existing.id, EventType(form.validated_data["type"]))
        with tenant_scope(tenant_id):
            return Response(DeliveryDetailShape.of(row))


def _id(public_id: str) -> UUID:
    return decode_id(Prefix.WEBHOOK_ENDPOINT, public_id)

"""/v1/webhook_events and /v1/webhook_deliveries: what happened, and what came of telling it."""

from uuid import UUID

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from backend.domain.errors import InvalidInput, NotFound
from backend.domain.ids import Prefix, decode_id, encode_id
from backend.rest.pagination import PAGE_PARAMETERS, list_page, page_schema
from backend.rest.strict import check_query
from backend.tenants.api_keys.authentication import IsTenant
from backend.tenants.idempotency import IDEMPOTENCY_KEY, idempotent
from backend.tenants.permissions import HasScope
from backend.webhooks import deliveries, feed
from backend.webhooks.models import DeliveryStatus, WebhookDelivery, WebhookEvent
from backend.webhooks.shapes import DeliveryDetailShape, DeliveryShape, EventShape, FeedShape

READ: list[type[BasePermission]] = [IsTenant, HasScope("webhooks:read")]
FEED_LIMIT = 100


class EventsView(APIView):
    permission_classes = READ

    @extend_schema(
        operation_id="webhook_events_list",
        parameters=[*PAGE_PARAMETERS, OpenApiParameter("type", OpenApiTypes.STR)],
        responses=page_schema("WebhookEventList", EventShape()),
    )
    def get(self, request: Request) -> Response:
        """The events of the last 90 days, newest first, whether an endpoint got them or not."""
        rows = WebhookEvent.objects.of_tenant(request.auth.tenant_id)
        if "type" in request.query_params:
            rows = rows.filter(type=request.query_params["type"])
        return list_page(request, rows, prefix=Prefix.WEBHOOK_EVENT, render=EventShape.of, filters=("type",))


class FeedView(APIView):
    permission_classes = READ

    @extend_schema(
        operation_id="webhook_events_feed",
        parameters=[
            OpenApiParameter("after", OpenApiTypes.STR, description="`next_cursor` of the last answer, or `start`.")
        ],
        responses=FeedShape,
    )
    def get(self, request: Request) -> Response:
        """Follow events: up to 100 after the cursor `after`, oldest first; none is ever inserted before one that was
        returned. Without `after`: no events, and the cursor from which to follow new ones."""
        check_query(request.query_params, ["after"])
        tenant_id: UUID = request.auth.tenant_id
        after = request.query_params.get("after")
        if after is None:
            last = feed.newest(tenant_id)
            cursor = feed.START if last is None else encode_id(Prefix.WEBHOOK_EVENT, last)
            return Response({"object": "list", "data": [], "has_more": False, "next_cursor": cursor})
        rows = feed.events_after(tenant_id, after, limit=FEED_LIMIT)
        cursor = encode_id(Prefix.WEBHOOK_EVENT, rows[-1].id) if rows else after
        data = [EventShape.of(row) for row in rows]
        body = {"object": "list", "data": data, "has_more": len(rows) == FEED_LIMIT, "next_cursor": cursor}
        return Response(body)


class EventView(APIView):
    permission_classes = READ

    @extend_schema(operation_id="webhook_events_get", responses=EventShape)
    def get(self, request: Request, event: str) -> Response:
        """One event with the body that its deliveries carry."""
        check_query(request.query_params, [])
        id = decode_id(Prefix.WEBHOOK_EVENT, event)
        row = WebhookEvent.objects.of_tenant(request.auth.tenant_id).filter(id=id).first()
        if row is None:
            raise NotFound("There is no such event.")
        return Response(EventShape.of(row))


class DeliveriesView(APIView):
    permission_classes = READ

    @extend_schema(
        operation_id="webhook_deliveries_list",
        parameters=[
            *PAGE_PARAMETERS,
            OpenApiParameter("endpoint", OpenApiTypes.STR),
            OpenApiParameter("event", OpenApiTypes.STR),
            OpenApiParameter("status", OpenApiTypes.STR, enum=[status.value for status in DeliveryStatus]),
        ],
        responses=page_schema("WebhookDeliveryList", DeliveryShape()),
    )
    def get(self, request: Request) -> Response:
        """The deliveries of the last 30 days, newest first."""
        rows = WebhookDelivery.objects.of_tenant(request.auth.tenant_id).select_related("event")
        query = request.query_params
        if "endpoint" in query:
            rows = rows.filter(endpoint_id=decode_id(Prefix.WEBHOOK_ENDPOINT, query["endpoint"]))
        if "event" in query:
            rows = rows.filter(event_id=decode_id(Prefix.WEBHOOK_EVENT, query["event"]))
        if "status" in query:
            rows = rows.filter(status=_status(query["status"]))
        filters = ("endpoint", "event", "status")
        return list_page(request, rows, prefix=Prefix.WEBHOOK_DELIVERY, render=DeliveryShape.of, filters=filters)


class DeliveryView(APIView):
    permission_classes = READ

    @extend_schema(operation_id="webhook_deliveries_get", responses=DeliveryDetailShape)
    def get(self, request: Request, delivery: str) -> Response:
        """One delivery with its body and every attempt."""
        check_query(request.query_params, [])
        return Response(DeliveryDetailShape.of(_find(request, delivery)))


class ReplayView(APIView):
    permission_classes: list[type[BasePermission]] = [IsTenant, HasScope("webhooks:write")]

    @extend_schema(
        operation_id="webhook_deliveries_replay",
        parameters=[IDEMPOTENCY_KEY],
        request=None,
        responses={202: DeliveryShape},
    )
    @idempotent
    def post(self, request: Request, delivery: str) -> Response:
        """Send it again now, with the whole schedule before it: the same id and body, a new timestamp."""
        row = deliveries.replay(request.auth.tenant_id, _find(request, delivery).id)
        return Response(DeliveryShape.of(row), status=202)


def _find(request: Request, public_id: str) -> WebhookDelivery:
    id = decode_id(Prefix.WEBHOOK_DELIVERY, public_id)
    row = WebhookDelivery.objects.of_tenant(request.auth.tenant_id).select_related("event").filter(id=id).first()
    if row is None:
        raise NotFound("There is no such delivery.")
    return row


def _status(text: str) -> DeliveryStatus:
    try:
        return DeliveryStatus(text)
    except ValueError:
        known = ", ".join(DeliveryStatus)
        raise InvalidInput(f"`status` is one of {known}, not {text[:20]!r}.", code="invalid_request") from None

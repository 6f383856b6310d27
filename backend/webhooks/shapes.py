"""Answers about webhooks: endpoints, events, deliveries and their attempts."""

import json
from typing import Any

from rest_framework import serializers as s

from backend.domain.ids import Prefix
from backend.domain.webhooks.schedule import WAITS_S
from backend.domain.webhooks.signing import Scheme
from backend.rest.shapes import Constant, PublicId, Shape, TextOrNull, Time
from backend.webhooks.models import (
    DeliveryStatus,
    EndpointStatus,
    WebhookAttempt,
    WebhookDelivery,
    WebhookEndpoint,
    WebhookEvent,
)

MAX_LOG = 100  # attempts in the answer about one delivery


class EndpointShape(Shape[WebhookEndpoint]):
    id = PublicId(Prefix.WEBHOOK_ENDPOINT)
    object = Constant("webhook_endpoint")
    url = s.CharField()
    description = s.CharField()
    events = s.ListField(child=s.CharField())
    signature = s.ChoiceField([scheme.value for scheme in Scheme])
    status = s.ChoiceField([status.value for status in EndpointStatus])
    disabled_reason = TextOrNull(help_text="requested, gone (it answered 410) or failing.")
    disabled_at = Time(allow_null=True)
    failing_since = Time(allow_null=True, help_text="The first failure since the last success.")
    last_success_at = Time(allow_null=True)
    old_secret_until = Time(allow_null=True, help_text="After a roll: until then both secrets sign.")
    created_at = Time()


class EndpointWithSecret(EndpointShape):
    # EndpointShape.of(row) | receiver_secrets(secret)

    secret = s.CharField(allow_null=True, help_text="whsec_..., of a v1 endpoint.")
    public_key = s.CharField(allow_null=True, help_text="whpk_..., of a v1a endpoint.")


class EventShape(Shape[WebhookEvent]):
    id = PublicId(Prefix.WEBHOOK_EVENT, help_text="The webhook-id of every delivery.")
    object = Constant("webhook_event")
    type = s.CharField()
    timestamp = s.DateTimeField()
    data = s.JSONField()
    body = s.CharField(help_text="The bytes that are signed and sent.")
    created_at = Time()

    def get_timestamp(self, row: WebhookEvent) -> Any:
        return json.loads(bytes(row.body))["timestamp"]

    def get_data(self, row: WebhookEvent) -> Any:
        return json.loads(bytes(row.body))["data"]

    def get_body(self, row: WebhookEvent) -> str:
        return bytes(row.body).decode()


class FeedShape(s.Serializer[Any]):
    object = s.ChoiceField(["list"])
    data = EventShape(many=True)
    has_more = s.BooleanField()
    next_cursor = s.CharField(help_text="Send it as `after`; there is always one.")


class DeliveryShape(Shape[WebhookDelivery]):  # of a row whose event is loaded
    id = PublicId(Prefix.WEBHOOK_DELIVERY)
    object = Constant("webhook_delivery")
    event = PublicId(Prefix.WEBHOOK_EVENT, source="event_id")
    type = s.CharField(source="event.type")
    endpoint = PublicId(Prefix.WEBHOOK_ENDPOINT, source="endpoint_id")
    status = s.ChoiceField([status.value for status in DeliveryStatus])
    test = s.BooleanField(source="is_test")
    attempts = s.IntegerField()
    attempts_left = s.IntegerField()
    status_code = s.IntegerField(allow_null=True, help_text="Of the last attempt.")
    error = TextOrNull(help_text="Of the last attempt, in one word.")
    next_attempt_at = Time(source="next_at", allow_null=True)
    created_at = Time()
    ended_at = Time(allow_null=True)

    def get_attempts_left(self, row: WebhookDelivery) -> int:
        return max(0, (1 if row.is_test else len(WAITS_S)) - row.tries) if row.status == "pending" else 0


class ResponseShape(Shape[WebhookAttempt]):
    status_code = s.IntegerField()
    headers = s.DictField(child=s.CharField(), source="response_headers")
    body = s.CharField(source="response_head", help_text="The first 2 KB.")
    size_bytes = s.IntegerField(source="response_bytes", help_text="Read, at most a little more than 64 KB.")
    cut = s.BooleanField(source="response_is_cut")


class AttemptShape(Shape[WebhookAttempt]):
    object = Constant("webhook_attempt")
    number = s.IntegerField()
    url = s.CharField()
    request_headers = s.DictField(child=s.CharField())
    response = ResponseShape(allow_null=True)
    error = TextOrNull()
    detail = TextOrNull()
    latency_ms = s.IntegerField()
    created_at = Time()

    def get_response(self, row: WebhookAttempt) -> WebhookAttempt | None:
        return None if row.status_code is None else row


class DeliveryDetailShape(DeliveryShape):
    body = s.CharField()
    log = AttemptShape(many=True, help_text="Newest first.")

    def get_body(self, row: WebhookDelivery) -> str:
        return bytes(row.event.body).decode()

    def get_log(self, row: WebhookDelivery) -> list[WebhookAttempt]:
        attempts = WebhookAttempt.objects.of_tenant(row.tenant_id).filter(delivery_id=row.id)
        return list(attempts.order_by("-number")[:MAX_LOG])


class ReplayShape(s.Serializer[Any]):
    object = s.ChoiceField(["webhook_replay"])
    n_deliveries = s.IntegerField()

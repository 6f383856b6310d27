"""The requests and answers of the addresses of webhooks."""

from typing import Any

from rest_framework import serializers as s

from backend.domain.webhooks.events import EventType, known_patterns
from backend.domain.webhooks.signing import Scheme
from backend.rest.strict import StrictSerializer
from backend.webhooks.endpoints import DEFAULT_OVERLAP_S, MAX_OVERLAP_S
from backend.webhooks.models import DeliveryStatus, EndpointStatus

_EVENTS_HELP = "Types, nouns (`compile.*`) or `*` for everything."


def _patterns(**options: Any) -> s.ListField:
    return s.ListField(
        child=s.ChoiceField(choices=known_patterns()),
        allow_empty=False,
        max_length=50,
        help_text=_EVENTS_HELP,
        **options,
    )


class NewEndpoint(StrictSerializer):
    url = s.CharField(max_length=2000, help_text="https, on a public address.")
    events = _patterns(default=["*"])
    description = s.CharField(max_length=200, default="", allow_blank=True)
    signature = s.ChoiceField(
        choices=[scheme.value for scheme in Scheme],
        default="v1",
        help_text="v1: HMAC-SHA256 with a shared secret. v1a: Ed25519, you get the public key.",
    )


class EndpointChanges(StrictSerializer):
    url = s.CharField(max_length=2000, required=False)
    events = _patterns(required=False)
    description = s.CharField(max_length=200, allow_blank=True, required=False)


class Rolling(StrictSerializer):
    overlap_s = s.IntegerField(
        min_value=0,
        max_value=MAX_OVERLAP_S,
        default=DEFAULT_OVERLAP_S,
        help_text="For how long the old secret signs too: 0 to 7 days, a day if not given.",
    )


class TestSend(StrictSerializer):
    type = s.ChoiceField(
        choices=[type.value for type in EventType],
        default=EventType.TEST.value,
        help_text='Whose example is sent, with `"test": true` in `data`.',
    )


class ReplayRequest(StrictSerializer):
    since = s.DateTimeField(help_text="What was created since then and failed or was canceled.")


class EndpointShape(s.Serializer[Any]):
    id = s.CharField()
    object = s.ChoiceField(["webhook_endpoint"])
    url = s.CharField()
    description = s.CharField()
    events = s.ListField(child=s.CharField())
    signature = s.ChoiceField([scheme.value for scheme in Scheme])
    status = s.ChoiceField([status.value for status in EndpointStatus])
    disabled_reason = s.CharField(allow_null=True, help_text="requested, gone (it answered 410) or failing.")
    disabled_at = s.DateTimeField(allow_null=True)
    failing_since = s.DateTimeField(allow_null=True, help_text="The first failure since the last success.")
    last_success_at = s.DateTimeField(allow_null=True)
    old_secret_until = s.DateTimeField(allow_null=True, help_text="After a roll: until then both secrets sign.")
    created_at = s.DateTimeField()


class EndpointWithSecret(EndpointShape):
    secret = s.CharField(allow_null=True, help_text="whsec_..., of a v1 endpoint.")
    public_key = s.CharField(allow_null=True, help_text="whpk_..., of a v1a endpoint.")


class EventShape(s.Serializer[Any]):
    id = s.CharField(help_text="The webhook-id of every delivery.")
    object = s.ChoiceField(["webhook_event"])
    type = s.CharField()
    timestamp = s.DateTimeField()
    data = s.JSONField()
    body = s.CharField(help_text="The bytes that are signed and sent.")
    created_at = s.DateTimeField()


class FeedShape(s.Serializer[Any]):
    object = s.ChoiceField(["list"])
    data = EventShape(many=True)
    has_more = s.BooleanField()
    next_cursor = s.CharField(help_text="Send it as `after`; there is always one.")


class DeliveryShape(s.Serializer[Any]):
    id = s.CharField()
    object = s.ChoiceField(["webhook_delivery"])
    event = s.CharField()
    type = s.CharField()
    endpoint = s.CharField()
    status = s.ChoiceField([status.value for status in DeliveryStatus])
    test = s.BooleanField()
    attempts = s.IntegerField()
    attempts_left = s.IntegerField()
    status_code = s.IntegerField(allow_null=True, help_text="Of the last attempt.")
    error = s.CharField(allow_null=True, help_text="Of the last attempt, in one word.")
    next_attempt_at = s.DateTimeField(allow_null=True)
    created_at = s.DateTimeField()
    ended_at = s.DateTimeField(allow_null=True)


class ResponseShape(s.Serializer[Any]):
    status_code = s.IntegerField()
    headers = s.DictField(child=s.CharField())
    body = s.CharField(help_text="The first 2 KB.")
    size_bytes = s.IntegerField(help_text="Read, at most a little more than 64 KB.")
    cut = s.BooleanField()


class AttemptShape(s.Serializer[Any]):
    object = s.ChoiceField(["webhook_attempt"])
    number = s.IntegerField()
    url = s.CharField()
    request_headers = s.DictField(child=s.CharField())
    response = ResponseShape(allow_null=True)
    error = s.CharField(allow_null=True)
    detail = s.CharField(allow_null=True)
    latency_ms = s.IntegerField()
    created_at = s.DateTimeField()


class DeliveryDetailShape(DeliveryShape):
    body = s.CharField()
    log = AttemptShape(many=True, help_text="Newest first.")


class ReplayShape(s.Serializer[Any]):
    object = s.ChoiceField(["webhook_replay"])
    n_deliveries = s.IntegerField()

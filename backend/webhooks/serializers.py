"""Requests about webhooks."""

from typing import Any

from rest_framework import serializers as s

from backend.domain.webhooks.events import EventType, known_patterns
from backend.domain.webhooks.signing import Scheme
from backend.rest.strict import StrictSerializer
from backend.webhooks.endpoints import DEFAULT_OVERLAP_S, MAX_OVERLAP_S

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

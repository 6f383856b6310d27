"""Queries of the draft cache."""

from rest_framework import serializers as s

from backend.domain.drafts.vocabulary import DraftState
from backend.rest.strict import StrictSerializer

MAX_Q = 200


class StatsQuery(StrictSerializer):
    family = s.CharField(required=False, max_length=100)
    since = s.DateTimeField(required=False, help_text="RFC 3339; look-ups and the comparison from then on.")


class ListQuery(StrictSerializer):
    family = s.CharField(required=False, max_length=100)
    state = s.ChoiceField([state.value for state in DraftState], required=False)
    q = s.CharField(required=False, max_length=MAX_Q, trim_whitespace=False, help_text="Part of the text.")


class PurgeQuery(StrictSerializer):
    family = s.CharField(max_length=100, help_text="The family whose drafts are deleted.")

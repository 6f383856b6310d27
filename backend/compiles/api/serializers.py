"""Requests about compiles and their material."""

from rest_framework import serializers as s

from backend.domain.planning.ablations import Arm
from backend.rest.strict import StrictSerializer


class ResumeRequest(StrictSerializer):
    budget_microusd = s.IntegerField(
        required=False, min_value=1, max_value=10**12, help_text="A new, larger budget in micro-USD."
    )


class AblationRequest(StrictSerializer):
    arm = s.ChoiceField(
        [arm.value for arm in Arm],
        help_text="all: label and train on every valid candidate; random: as many as were selected, drawn by the seed; "
        "fixed: what is selected at the K of `plan: fixed`, of a compile whose plan was auto.",
    )
    budget_microusd = s.IntegerField(
        required=False,
        min_value=1,
        max_value=10**12,
        help_text="What the arm may cost, micro-USD; left out, the budget of the compile that is ablated.",
    )


class TeacherKeyRequest(StrictSerializer):
    name = s.CharField(max_length=100, help_text="What you call this key.")
    secret = s.CharField(
        max_length=500,
        trim_whitespace=True,
        write_only=True,
        help_text="The key itself; it is sealed and never shown again.",
    )


class TeacherKeyTestRequest(StrictSerializer):
    base_url = s.CharField(
        max_length=2_000, help_text="The provider's address up to /v1, as in a spec: https://api.example.com/v1."
    )


class EstimateQuery(StrictSerializer):
    drafts = s.BooleanField(default=False, help_text="Whether to ask what the draft cache would save.")

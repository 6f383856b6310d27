"""Requests about deployments."""

from decimal import Decimal

from rest_framework import serializers as s

from backend.domain.ids import Prefix
from backend.rest.cost_tags import CostTags
from backend.rest.strict import StrictSerializer

_NAME = r"^[a-z0-9](?:[a-z0-9._-]{0,61}[a-z0-9])?\Z"


def _share(most: str = "1") -> s.DecimalField:
    return s.DecimalField(max_digits=7, decimal_places=6, min_value=Decimal(0), max_value=Decimal(most))


class CanaryForm(StrictSerializer):
    artifact = s.CharField(max_length=64, help_text="`art_...`, of the deployment's base and kind of task.")
    share = _share()


class ShadowForm(StrictSerializer):
    """A share of live requests is put to the teacher of the artifact's compile. Opt in: the text goes to that teacher,
    as it did when the artifact was compiled."""

    share = s.DecimalField(max_digits=7, decimal_places=6, min_value=Decimal(0), max_value=Decimal(1), required=False)
    usd_per_day = s.DecimalField(
        max_digits=9, decimal_places=2, min_value=Decimal(0), max_value=Decimal(10_000), required=False
    )


class DriftForm(StrictSerializer):
    margin = s.DecimalField(
        max_digits=7,
        decimal_places=6,
        min_value=Decimal("0.005"),
        max_value=Decimal("0.5"),
        required=False,
        help_text="How far agreement with the teacher may lie below the held-out accuracy; 0.05 if not given.",
    )
    rollback = s.BooleanField(required=False, help_text="Roll back by itself when a regression is found.")


class DeploymentChange(StrictSerializer):
    canary = CanaryForm(required=False, allow_null=True)
    idle_minutes = s.IntegerField(
        min_value=0,
        max_value=10_080,
        required=False,
        help_text="Without requests for that long, servers may unload the adapter; 0: as they see fit.",
    )
    pinned = s.BooleanField(required=False, help_text="Servers keep the adapter loaded.")
    max_concurrent = s.IntegerField(
        min_value=1, max_value=256, required=False, help_text="Requests of yours that one server runs at a time; 32."
    )
    shadow = ShadowForm(required=False)
    drift = DriftForm(required=False)
    tags = CostTags(required=False)


class NewDeployment(DeploymentChange):
    name = s.RegexField(
        _NAME,
        max_length=63,
        error_messages={
            "invalid": "Lower-case letters, digits, dots, dashes and underscores; it begins and ends with a letter or "
            "a digit."
        },
        help_text="Unique in the tenant: what requests name as `model`.",
    )
    artifact = s.CharField(max_length=64, help_text="`art_...`")

    def validate_name(self, value: str) -> str:
        if value.startswith((f"{Prefix.ARTIFACT}_", f"{Prefix.DEPLOYMENT}_")):
            raise s.ValidationError("A name does not begin like an id.", code="invalid")
        return value

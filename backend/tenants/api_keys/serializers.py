"""The public shapes of tenants and API keys."""

from typing import Any

from rest_framework import serializers

from backend.domain.ids import Prefix, encode_id
from backend.rest.strict import StrictSerializer
from backend.rest.times import rfc3339
from backend.tenants.api_keys.permission_presets import PRESETS
from backend.tenants.models import ApiKey, Tenant
from backend.tenants.permissions import ALL_SCOPES


class NewApiKey(StrictSerializer):
    name = serializers.CharField(max_length=100, help_text="For people: where the key is used.")
    scopes = serializers.ListField(
        child=serializers.ChoiceField(choices=ALL_SCOPES),
        allow_empty=False,
        max_length=len(ALL_SCOPES),
        required=False,
        help_text="What the key may do. This, or `preset`.",
    )
    preset = serializers.ChoiceField(
        [(preset.name, preset.allows) for preset in PRESETS.values()],
        required=False,
        help_text="The scopes of a purpose, as they are now; a key's scopes never change. This, or `scopes`.",
    )
    live = serializers.BooleanField(default=True, help_text="sk_live_ or sk_test_.")
    expires_at = serializers.DateTimeField(default=None, allow_null=True)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """`scopes` is there afterwards, whichever of the two was sent."""
        if ("scopes" in attrs) == ("preset" in attrs):
            raise serializers.ValidationError({"scopes": "Give either scopes or a preset."})
        return {"scopes": list(PRESETS[attrs["preset"]].scopes)} | attrs if "preset" in attrs else attrs


class ApiKeyShape(serializers.Serializer[Any]):
    object = serializers.ChoiceField(["api_key"])
    id = serializers.CharField()
    name = serializers.CharField()
    live = serializers.BooleanField()
    prefix = serializers.CharField(help_text="How the key begins.")
    last4 = serializers.CharField()
    scopes = serializers.ListField(child=serializers.CharField())
    created_at = serializers.DateTimeField()
    expires_at = serializers.DateTimeField(allow_null=True)
    revoked_at = serializers.DateTimeField(allow_null=True)
    last_used_at = serializers.DateTimeField(allow_null=True, help_text="To the minute.")


class ShownOnceApiKey(ApiKeyShape):
    secret = serializers.CharField(help_text="The key itself, in this answer and never again.")


class TenantShape(serializers.Serializer[Any]):
    object = serializers.ChoiceField(["tenant"])
    id = serializers.CharField()
    name = serializers.CharField()
    created_at = serializers.DateTimeField()


def render_api_key(row: ApiKey) -> dict[str, Any]:
    return {
        "object": "api_key",
        "id": encode_id(Prefix.API_KEY, row.id),
        "name": row.name,
        "live": row.is_live,
        "prefix": row.prefix,
        "last4": row.last4,
        "scopes": row.scopes,
        "created_at": rfc3339(row.created_at),
        "expires_at": rfc3339(row.expires_at),
        "revoked_at": rfc3339(row.revoked_at),
        "last_used_at": rfc3339(row.last_used_at),
    }


def render_tenant(row: Tenant) -> dict[str, Any]:
    return {
        "object": "tenant",
        "id": encode_id(Prefix.TENANT, row.id),
        "name": row.name,
        "created_at": rfc3339(row.created_at),
    }

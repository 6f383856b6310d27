"""Answers about tenants and API keys."""

from rest_framework import serializers as s

from backend.domain.ids import Prefix
from backend.rest.shapes import Constant, PublicId, Shape, Time
from backend.tenants.models import ApiKey, Tenant


class ApiKeyShape(Shape[ApiKey]):
    object = Constant("api_key")
    id = PublicId(Prefix.API_KEY)
    name = s.CharField()
    live = s.BooleanField(source="is_live")
    prefix = s.CharField(help_text="How the key begins.")
    last4 = s.CharField()
    scopes = s.ListField(child=s.CharField())
    tags = s.DictField(child=s.CharField(), help_text="Cost tags: what is used with it is on the bill under them.")
    created_at = Time()
    expires_at = Time(allow_null=True)
    revoked_at = Time(allow_null=True)
    last_used_at = Time(allow_null=True, help_text="To the minute.")


class ShownOnceApiKey(ApiKeyShape):  # ApiKeyShape.of(row) | {"secret": secret}
    secret = s.CharField(help_text="The key itself, in this answer and never again.")


class TenantShape(Shape[Tenant]):
    object = Constant("tenant")
    id = PublicId(Prefix.TENANT)
    name = s.CharField()
    created_at = Time()

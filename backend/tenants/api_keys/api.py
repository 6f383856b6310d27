"""/v1/tenant and /v1/api_keys."""

from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.utils import extend_schema
from rest_framework import serializers as s
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from backend.domain.errors import Forbidden
from backend.domain.ids import Prefix, decode_id
from backend.rest.cost_tags import CostTags
from backend.rest.pagination import PAGE_PARAMETERS, list_page, page_schema
from backend.rest.strict import StrictSerializer, check_query
from backend.tenants.api_keys import issuing
from backend.tenants.api_keys.authentication import Caller, IsTenant
from backend.tenants.api_keys.permission_presets import PRESETS
from backend.tenants.api_keys.shapes import ApiKeyShape, ShownOnceApiKey, TenantShape
from backend.tenants.idempotency import IDEMPOTENCY_KEY, idempotent
from backend.tenants.models import ApiKey, Tenant
from backend.tenants.permissions import ALL_SCOPES, HasScope

KEYS: list[type[BasePermission]] = [IsTenant, HasScope("api_keys")]


class NewApiKey(StrictSerializer):
    name = s.CharField(max_length=100, help_text="For people: where the key is used.")
    scopes = s.ListField(
        child=s.ChoiceField(choices=ALL_SCOPES),
        allow_empty=False,
        max_length=len(ALL_SCOPES),
        required=False,
        help_text="What the key may do. This, or `preset`.",
    )
    preset = s.ChoiceField(
        [(preset.name, preset.allows) for preset in PRESETS.values()],
        required=False,
        help_text="The scopes of a purpose, as they are now; a key's scopes never change. This, or `scopes`.",
    )
    live = s.BooleanField(default=True, help_text="sk_live_ or sk_test_.")
    expires_at = s.DateTimeField(default=None, allow_null=True)
    tags = CostTags(default=dict)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """`scopes` is there afterwards, whichever of the two was sent."""
        if ("scopes" in attrs) == ("preset" in attrs):
            raise s.ValidationError({"scopes": "Give either scopes or a preset."})
        return {"scopes": list(PRESETS[attrs["preset"]].scopes)} | attrs if "preset" in attrs else attrs


class ApiKeyChange(StrictSerializer):
    tags = CostTags()


class ApiKeyScheme(OpenApiAuthenticationExtension):
    """The form of our authentication in the OpenAPI document, registered by the import of this module."""

    target_class = "backend.tenants.api_keys.authentication.ApiKeyAuthentication"
    name = "api_key"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer", "bearerFormat": "sk_live_..."}


class TenantView(APIView):
    permission_classes = [IsTenant, HasScope("tenant:read")]

    @extend_schema(operation_id="tenant_get", responses=TenantShape)
    def get(self, request: Request) -> Response:
        """The tenant that the API key belongs to."""
        check_query(request.query_params, [])
        return Response(TenantShape.of(Tenant.objects.get(id=request.auth.tenant_id)))


class ApiKeysView(APIView):
    permission_classes = KEYS

    @extend_schema(
        operation_id="api_keys_list",
        parameters=PAGE_PARAMETERS,
        responses=page_schema("ApiKeyList", ApiKeyShape()),
    )
    def get(self, request: Request) -> Response:
        """All keys, revoked and expired ones too; never their secrets."""
        rows = ApiKey.objects.of_tenant(request.auth.tenant_id)
        return list_page(request, rows, prefix=Prefix.API_KEY, render=ApiKeyShape.of)

    @extend_schema(
        operation_id="api_keys_create",
        parameters=[IDEMPOTENCY_KEY],
        request=NewApiKey,
        responses={201: ShownOnceApiKey},
    )
    @idempotent
    def post(self, request: Request) -> Response:
        """A new key. `secret` is in this answer and never again. A key can give no scope that it does not have."""
        form = NewApiKey(data=request.data)
        form.is_valid(raise_exception=True)
        wanted = form.validated_data
        _check_not_above(request.auth, wanted["scopes"])
        row, secret = issuing.issue(
            request.auth.tenant_id,
            name=wanted["name"],
            scopes=wanted["scopes"],
            is_live=wanted["live"],
            expires_at=wanted["expires_at"],
            tags=wanted["tags"],
            actor=request.auth.actor,
        )
        body = ApiKeyShape.of(row) | {"secret": secret}
        return Response(body, status=201, headers={"Location": f"/v1/api_keys/{body['id']}"})


class ApiKeyView(APIView):
    permission_classes = KEYS

    @extend_schema(operation_id="api_keys_get", responses=ApiKeyShape)
    def get(self, request: Request, key: str) -> Response:
        """One key, without its secret."""
        check_query(request.query_params, [])
        return Response(ApiKeyShape.of(issuing.find(request.auth.tenant_id, decode_id(Prefix.API_KEY, key))))

    @extend_schema(operation_id="api_keys_change", request=ApiKeyChange, responses=ApiKeyShape)
    def patch(self, request: Request, key: str) -> Response:
        """Other cost tags, for what is used with the key from now on. Scopes never change."""
        caller: Caller = request.auth
        key_id = issuing.find(caller.tenant_id, decode_id(Prefix.API_KEY, key)).id
        form = ApiKeyChange(data=request.data)
        form.is_valid(raise_exception=True)
        row = issuing.set_tags(caller.tenant_id, key_id, form.validated_data["tags"], actor=caller.actor)
        return Response(ApiKeyShape.of(row))


class RevokeApiKeyView(APIView):
    permission_classes = KEYS

    @extend_schema(operation_id="api_keys_revoke", parameters=[IDEMPOTENCY_KEY], request=None, responses=ApiKeyShape)
    @idempotent
    def post(self, request: Request, key: str) -> Response:
        """The key opens nothing from now on. Revoking it again changes nothing."""
        caller: Caller = request.auth
        row = issuing.revoke(caller.tenant_id, decode_id(Prefix.API_KEY, key), actor=caller.actor)
        return Response(ApiKeyShape.of(row))


def _check_not_above(caller: Caller, scopes: list[str]) -> None:
    above = sorted(set(scopes) - caller.scopes)
    if above:
        raise Forbidden(
            f"A key cannot grant a scope that it lacks, {str(above[0])!r}; ask with one that has it.",
            code="missing_scope",
        )

"""/v1/tenant and /v1/api_keys."""

from drf_spectacular.utils import extend_schema
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from backend.domain.errors import Forbidden
from backend.domain.ids import Prefix, decode_id
from backend.rest.pagination import PAGE_PARAMETERS, list_page, page_schema
from backend.rest.strict import check_query
from backend.tenants.api_keys import issuing
from backend.tenants.api_keys.authentication import Caller, IsTenant
from backend.tenants.api_keys.serializers import (
    ApiKeyShape,
    NewApiKey,
    ShownOnceApiKey,
    TenantShape,
    render_api_key,
    render_tenant,
)
from backend.tenants.idempotency import IDEMPOTENCY_KEY, idempotent
from backend.tenants.models import ApiKey, Tenant
from backend.tenants.permissions import HasScope

KEYS: list[type[BasePermission]] = [IsTenant, HasScope("api_keys")]


class TenantView(APIView):
    permission_classes = [IsTenant, HasScope("tenant:read")]

    @extend_schema(operation_id="tenant_get", responses=TenantShape)
    def get(self, request: Request) -> Response:
        """The tenant that the API key belongs to."""
        check_query(request.query_params, [])
        return Response(render_tenant(Tenant.objects.get(id=request.auth.tenant_id)))


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
        return list_page(request, rows, prefix=Prefix.API_KEY, render=render_api_key)

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
            actor=request.auth.actor,
        )
        body = render_api_key(row) | {"secret": secret}
        return Response(body, status=201, headers={"Location": f"/v1/api_keys/{body['id']}"})


class ApiKeyView(APIView):
    permission_classes = KEYS

    @extend_schema(operation_id="api_keys_get", responses=ApiKeyShape)
    def get(self, request: Request, key: str) -> Response:
        """One key, without its secret."""
        check_query(request.query_params, [])
        return Response(render_api_key(issuing.find(request.auth.tenant_id, decode_id(Prefix.API_KEY, key))))


class RevokeApiKeyView(APIView):
    permission_classes = KEYS

    @extend_schema(operation_id="api_keys_revoke", parameters=[IDEMPOTENCY_KEY], request=None, responses=ApiKeyShape)
    @idempotent
    def post(self, request: Request, key: str) -> Response:
        """The key opens nothing from now on. Revoking it again changes nothing."""
        caller: Caller = request.auth
        row = issuing.revoke(caller.tenant_id, decode_id(Prefix.API_KEY, key), actor=caller.actor)
        return Response(render_api_key(row))


def _check_not_above(caller: Caller, scopes: list[str]) -> None:
    above = sorted(set(scopes) - caller.scopes)
    if above:
        raise Forbidden(
            f"A key cannot give away a scope that it lacks, {above[0]!r}; ask with one that has it.",
            code="missing_scope",
        )

"""The permissions of an API key, its scopes, and the check that asks for one."""

from enum import StrEnum
from typing import TYPE_CHECKING, Any

from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request

from backend.domain.errors import Forbidden

if TYPE_CHECKING:  # DRF imports this module while it imports its views
    from rest_framework.views import APIView


class Scope(StrEnum):
    COMPILES_READ = "compiles:read"
    COMPILES_WRITE = "compiles:write"
    ARTIFACTS_READ = "artifacts:read"
    ARTIFACTS_WRITE = "artifacts:write"
    ARTIFACTS_RUN = "artifacts:run"
    DEPLOYMENTS_READ = "deployments:read"
    DEPLOYMENTS_WRITE = "deployments:write"
    UPLOADS_READ = "uploads:read"
    UPLOADS_WRITE = "uploads:write"
    TEACHER_KEYS_READ = "teacher_keys:read"
    TEACHER_KEYS_WRITE = "teacher_keys:write"
    DRAFTS_READ = "drafts:read"
    DRAFTS_WRITE = "drafts:write"
    USAGE_READ = "usage:read"
    BILLING_READ = "billing:read"
    BILLING_WRITE = "billing:write"
    API_KEYS_READ = "api_keys:read"
    API_KEYS_WRITE = "api_keys:write"
    TENANT_READ = "tenant:read"
    TEAM_READ = "team:read"
    TEAM_WRITE = "team:write"
    AUDIT_READ = "audit:read"
    WEBHOOKS_READ = "webhooks:read"
    WEBHOOKS_WRITE = "webhooks:write"


ALL_SCOPES: tuple[str, ...] = tuple(Scope)


def HasScope(scope: str) -> type[BasePermission]:
    """The permission class for a scope: `HasScope("artifacts:run")`; `HasScope("compiles")` asks for `:read` or
    `:write` as the method does. Whoever holds `:write` may read too."""

    class Permission(BasePermission):
        def has_permission(self, request: Request, view: "APIView") -> bool:
            wanted = scope
            if ":" not in scope:
                wanted += ":read" if request.method in SAFE_METHODS else ":write"
            if not _holds(request.auth, wanted):
                raise lacking(wanted)
            return True

    Permission.__name__ = f"HasScope_{scope.replace(':', '_')}"
    return Permission


def lacking(scope: str) -> Forbidden:
    """Return the refusal of a key without the scope."""
    return Forbidden(
        f"This API key lacks the scope {str(scope)!r}; make one that has it on the console's page API keys, or under"
        " /v1/api_keys.",
        code="missing_scope",
    )


def _holds(caller: Any, wanted: str) -> bool:
    scopes: frozenset[str] = getattr(caller, "scopes", frozenset())
    noun, _, verb = wanted.partition(":")
    return wanted in scopes or (verb == "read" and f"{noun}:write" in scopes)

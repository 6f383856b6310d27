"""The scopes of a new key as the form shows them, and which of them a role may give: a key is no way around a role."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from backend.console.access import Visit
from backend.domain.errors import Forbidden, InvalidInput
from backend.domain.roles import Permission
from backend.tenants.scopes import ALL_SCOPES

# What a member needs to give a scope away: the noun's own permission, or that of one scope of it.
_NEEDS = {
    "compiles:write": Permission.COMPILE,
    "uploads:write": Permission.COMPILE,
    "artifacts:run": Permission.COMPILE,
    "artifacts:write": Permission.RELEASE,
    "deployments:write": Permission.RELEASE,
    "drafts:write": Permission.RELEASE,
    "api_keys": Permission.KEYS,
    "teacher_keys": Permission.KEYS,
    "webhooks": Permission.WEBHOOKS,
    "webhook_endpoints": Permission.WEBHOOKS,
    "usage": Permission.BILLS_READ,
    "billing:read": Permission.BILLS_READ,
    "billing:write": Permission.BILLS_WRITE,
    "budgets:read": Permission.BILLS_READ,
    "budgets:write": Permission.BILLS_WRITE,
    "account:read": Permission.BILLS_READ,
    "account:write": Permission.BILLS_WRITE,
    "team": Permission.TEAM,
    "audit": Permission.AUDIT,
    "audit_log": Permission.AUDIT,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeBox:
    name: str
    verb: str
    is_allowed: bool
    is_checked: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeGroup:
    """The scopes of one noun."""

    noun: str
    boxes: Sequence[ScopeBox]


# Enough to compile, watch and run; everything else is a decision.
USUAL = frozenset(
    {"compiles:write", "compiles:read", "artifacts:read", "artifacts:run", "uploads:read", "uploads:write"}
)


def needed_for(scope: str) -> Permission:
    """A scope that this table does not know can be read by all and written by those who may change settings."""
    noun, _, verb = scope.partition(":")
    fallback = Permission.VIEW if verb == "read" else Permission.SETTINGS
    return _NEEDS.get(scope) or _NEEDS.get(noun) or fallback


def scope_groups(visit: Visit, checked: Iterable[str] = USUAL) -> list[ScopeGroup]:
    """All scopes by noun, in the order of the API's list."""
    chosen = set(checked)
    groups: dict[str, list[ScopeBox]] = {}
    for scope in ALL_SCOPES:
        noun, _, verb = str(scope).partition(":")
        is_allowed = visit.may(needed_for(str(scope)))
        box = ScopeBox(name=str(scope), verb=verb, is_allowed=is_allowed, is_checked=is_allowed and scope in chosen)
        groups.setdefault(noun, []).append(box)
    return [ScopeGroup(noun=noun.replace("_", " "), boxes=boxes) for noun, boxes in groups.items()]


def check_scopes(visit: Visit, scopes: Sequence[str]) -> list[str]:
    """The scopes if the member may give them. Raises InvalidInput, Forbidden (missing_role)."""
    if not scopes:
        raise InvalidInput("Choose at least one scope: a key without any opens nothing.")
    for scope in scopes:
        if scope in ALL_SCOPES and not visit.may(needed_for(scope)):
            raise Forbidden(
                f"Your role, {visit.role}, may not give a key the scope {scope!r}; ask an owner or admin.",
                code="missing_role",
            )
    return list(scopes)

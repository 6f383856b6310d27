"""The scopes of a new key as the form shows them, and which of them a role may give: a key is no way around a role."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from backend.console.access import TeamSession
from backend.domain.errors import Forbidden, InvalidInput
from backend.domain.roles import Permission
from backend.tenants.api_keys.permission_presets import PRESETS, Preset
from backend.tenants.permissions import ALL_SCOPES

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


CHOSEN = "chosen"  # the form's value for boxes that a person ticked


@dataclass(frozen=True, slots=True, kw_only=True)
class PresetChoice:
    """A preset as far as the member's role may give it away; `lacking` is what is left out of it."""

    preset: Preset
    lacking: Sequence[str]
    is_checked: bool


def preset_choices(session: TeamSession, checked: str) -> list[PresetChoice]:
    """Return the choices in the presets' own order. One of which the role may give nothing is left out."""
    rows = []
    for preset in PRESETS.values():
        lacking = [scope for scope in preset.scopes if not session.may(needed_for(scope))]
        if len(lacking) < len(preset.scopes):
            rows.append(PresetChoice(preset=preset, lacking=lacking, is_checked=preset.name == checked))
    return rows


def scopes_of_form(session: TeamSession, preset: str, boxes: Sequence[str]) -> list[str]:
    """The scopes that the form asks for: the preset's that the role may give, or the boxes. Raises InvalidInput,
    Forbidden (missing_role)."""
    if preset == CHOSEN:
        return check_scopes(session, boxes)
    if preset not in PRESETS:
        raise InvalidInput("Choose one of the offered purposes.")
    if boxes:  # or a key would get more than what was ticked
        raise InvalidInput("Scopes are ticked: choose “Custom scopes” to use them, or untick them all.")
    return check_scopes(session, [scope for scope in PRESETS[preset].scopes if session.may(needed_for(scope))])


def needed_for(scope: str) -> Permission:
    """A scope that this table does not know can be read by all and written by those who may change settings."""
    noun, _, verb = scope.partition(":")
    fallback = Permission.VIEW if verb == "read" else Permission.SETTINGS
    return _NEEDS.get(scope) or _NEEDS.get(noun) or fallback


def scope_groups(session: TeamSession, checked: Iterable[str] = ()) -> list[ScopeGroup]:
    """All scopes by noun, in the order of the API's list."""
    chosen = set(checked)
    groups: dict[str, list[ScopeBox]] = {}
    for scope in ALL_SCOPES:
        noun, _, verb = str(scope).partition(":")
        is_allowed = session.may(needed_for(str(scope)))
        box = ScopeBox(name=str(scope), verb=verb, is_allowed=is_allowed, is_checked=is_allowed and scope in chosen)
        groups.setdefault(noun, []).append(box)
    return [ScopeGroup(noun=noun.replace("_", " "), boxes=boxes) for noun, boxes in groups.items()]


def check_scopes(session: TeamSession, scopes: Sequence[str]) -> list[str]:
    """The scopes if the member may give them. Raises InvalidInput, Forbidden (missing_role)."""
    if not scopes:
        raise InvalidInput("Choose at least one scope: a key without any can do nothing.")
    for scope in scopes:
        if scope in ALL_SCOPES and not session.may(needed_for(scope)):
            raise Forbidden(
                f"Your role, {session.role}, cannot give a key the scope {scope!r}; ask an owner or admin.",
                code="missing_role",
            )
    return list(scopes)

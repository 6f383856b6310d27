"""The presets of permissions, for what keys are mostly used for: named lists of scopes. The console's form, the API,
`kolm keys create` and `manage.py create_api_key` offer them; a key keeps the scopes that its preset had when it was
made.

tests/gpu_runners/kolm/test_presets.py runs every command with a key of every preset.
"""

from dataclasses import dataclass

from backend.tenants.permissions import ALL_SCOPES, Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """`allows` is for people: what a key of it can do, and what it cannot."""

    name: str
    title: str
    allows: str
    scopes: tuple[str, ...]


# what a person's `kolm` does: every command but `keys create` and `keys revoke`, so that a key that leaks from a laptop
# cannot make itself a successor
_NOT_ON_A_LAPTOP = {Scope.API_KEYS_WRITE, Scope.TEAM_READ, Scope.TEAM_WRITE, Scope.AUDIT_READ}

COMMAND_LINE = Preset(
    name="command_line",
    title="Command line",
    allows="All kolm commands and the tour, budgets and deployments included; cannot make or revoke keys.",
    scopes=tuple(scope for scope in ALL_SCOPES if scope not in _NOT_ON_A_LAPTOP),
)
CI = Preset(
    name="ci",
    title="CI",
    allows="Compiles specs, waits, compares with the last version, downloads artifacts. Sees no bills, drafts or keys.",
    scopes=(
        Scope.COMPILES_READ,
        Scope.COMPILES_WRITE,
        Scope.ARTIFACTS_READ,
        Scope.UPLOADS_READ,
        Scope.UPLOADS_WRITE,
        Scope.TENANT_READ,
    ),
)
SERVING = Preset(
    name="serving",
    title="Serving",
    allows="For an application: runs deployments and artifacts. Downloads no model, compiles and changes nothing.",
    scopes=(Scope.ARTIFACTS_RUN, Scope.DEPLOYMENTS_READ, Scope.TENANT_READ),
)
READ_ONLY = Preset(
    name="read_only",
    title="Read only",
    allows="Reads everything and downloads artifacts; changes and spends nothing.",
    scopes=tuple(scope for scope in ALL_SCOPES if scope.endswith(":read")),
)
EVERYTHING = Preset(
    name="everything",
    title="Everything",
    allows="Everything: makes and revokes keys, changes the team, reads the audit log.",
    scopes=ALL_SCOPES,
)

PRESETS: dict[str, Preset] = {preset.name: preset for preset in (COMMAND_LINE, CI, SERVING, READ_ONLY, EVERYTHING)}

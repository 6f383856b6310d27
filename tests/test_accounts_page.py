"""docs/accounts.md tells the roles as backend/domain/roles.py has them, and the presets of keys.

`python -m tests.test_accounts_page` writes the tables."""

import re
from collections.abc import Sequence
from pathlib import Path

from backend.domain.roles import ALLOWED, Permission, Role
from backend.tenants.api_keys.permission_presets import PRESETS
from backend.tenants.permissions import ALL_SCOPES

PAGE = Path(__file__).parent.parent / "docs" / "accounts.md"
MEANS = {
    Permission.VIEW: "see compiles, artifacts, drafts and data",
    Permission.COMPILE: "start and stop compiles, upload data, run artifacts",
    Permission.RELEASE: "revoke artifacts, purge drafts",
    Permission.KEYS: "make and revoke API keys, store teacher keys",
    Permission.WEBHOOKS: "webhooks",
    Permission.BILLS_READ: "see usage and bills",
    Permission.BILLS_WRITE: "plan, payment, budgets",
    Permission.TEAM: "invite and remove people, change roles",
    Permission.AUDIT: "read the audit log",
    Permission.SETTINGS: "name, retention, login rules",
    Permission.OWN: "appoint owners, export everything, delete the team",
}


def table() -> str:
    rows = []
    for permission in Permission:
        cells = " | ".join("yes" if permission in ALLOWED[role] else "" for role in Role)
        rows.append(f"| {MEANS[permission]} | {cells} |".replace("|  |", "| |").replace("|  |", "| |"))
    return "\n".join(rows)


def presets() -> str:
    return "\n".join(f"| `{preset.name}` | {preset.allows} | {short(preset.scopes)} |" for preset in PRESETS.values())


def short(scopes: Sequence[str]) -> str:
    """`compiles:read,write` for two scopes of one noun."""
    if tuple(scopes) == ALL_SCOPES:
        return "all"
    verbs: dict[str, list[str]] = {}
    for scope in scopes:
        noun, _, verb = scope.partition(":")
        verbs.setdefault(noun, []).append(verb)
    return ", ".join(f"`{noun}:{','.join(found)}`" for noun, found in verbs.items())


def written(name: str) -> str:
    table_of = rf"<!-- {name}:[^\n]*\n[^\n]*\n\|---\|[^\n]*\n(.*?)\n<!-- /{name} -->"
    found = re.search(table_of, PAGE.read_text(), re.DOTALL)
    return found[1] if found else ""


def test_the_page_has_the_roles_of_the_code():
    assert written("roles") == table()


def test_the_page_has_the_presets_of_the_code():
    assert written("presets") == presets()


def test_every_permission_is_told():
    assert set(MEANS) == set(Permission)


if __name__ == "__main__":
    for name, rows in (("roles", table()), ("presets", presets())):
        begin, end = f"\n<!-- {name}:", f"<!-- /{name} -->"
        head, _, rest = PAGE.read_text().partition(begin)
        part, _, tail = rest.partition(end)
        lines = part.split("\n")[:3]  # the comment and the table's head
        PAGE.write_text(head + begin + "\n".join([*lines, rows, ""]) + end + tail)

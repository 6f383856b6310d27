"""docs/accounts.md tells the roles as backend/domain/roles.py has them.

`python -m tests.test_accounts_page` writes the table."""

import re
from pathlib import Path

from backend.domain.roles import ALLOWED, Permission, Role

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
    Permission.SETTINGS: "name, retention, log-in rules",
    Permission.OWN: "make owners, export everything, delete the team",
}


def table() -> str:
    rows = []
    for permission in Permission:
        cells = " | ".join("yes" if permission in ALLOWED[role] else "" for role in Role)
        rows.append(f"| {MEANS[permission]} | {cells} |".replace("|  |", "| |").replace("|  |", "| |"))
    return "\n".join(rows)


def written() -> str:
    return re.search(r"<!-- roles:.*?\|---\|.*?\n(.*?)\n<!-- /roles -->", PAGE.read_text(), re.DOTALL).group(1)


def test_the_page_has_the_roles_of_the_code():
    assert written() == table()


def test_every_permission_is_told():
    assert set(MEANS) == set(Permission)


if __name__ == "__main__":
    PAGE.write_text(PAGE.read_text().replace(written(), table()))

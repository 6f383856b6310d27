"""The rights in a team: five roles, one table."""

from enum import StrEnum


class Role(StrEnum):
    OWNER = "owner"
    ADMIN = "admin"
    DEVELOPER = "developer"
    BILLING = "billing"
    VIEWER = "viewer"


class Permission(StrEnum):
    """The permissions that a page or a button of the console asks for."""

    VIEW = "view"  # compiles, artifacts, drafts, data: reading
    COMPILE = "compile"  # start, cancel and resume compiles, upload data, run artifacts
    RELEASE = "release"  # revoke artifacts, purge drafts
    KEYS = "keys"  # API keys and teacher keys
    WEBHOOKS = "webhooks"
    BILLS_READ = "bills_read"
    BILLS_WRITE = "bills_write"  # plan, payment, budgets
    TEAM = "team"  # invite, remove, change roles
    AUDIT = "audit"  # read the audit log
    SETTINGS = "settings"  # retention, log-in rules
    OWN = "own"  # delete the tenant, export everything, make owners


_READS = frozenset({Permission.VIEW, Permission.BILLS_READ})
_BUILDS = _READS | {Permission.COMPILE, Permission.RELEASE, Permission.KEYS, Permission.WEBHOOKS}

ALLOWED: dict[Role, frozenset[Permission]] = {
    Role.OWNER: frozenset(Permission),
    Role.ADMIN: frozenset(Permission) - {Permission.OWN},
    Role.DEVELOPER: _BUILDS,
    Role.BILLING: _READS | {Permission.BILLS_WRITE},
    Role.VIEWER: frozenset({Permission.VIEW}),
}


def allows(role: Role, permission: Permission) -> bool:
    return permission in ALLOWED[role]


def may_grant(giver: Role, role: Role) -> bool:
    """Return whether a member of role `giver` may give or take `role`: owners are made by owners alone."""
    return allows(giver, Permission.TEAM) and (role != Role.OWNER or allows(giver, Permission.OWN))

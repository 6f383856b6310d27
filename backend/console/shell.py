"""The frame of every page of the console: where one can go, where one is, as whom.

No query: everything is in `request.team_session`, which `access.page` made. Pages without one (login) get no
navigation.
"""

from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.http import HttpRequest
from django.urls import reverse

from backend.domain.ids import Prefix, encode_id
from backend.domain.roles import Permission

# Where this machine's own stack puts letters, for the one person who tries it out; "" where mail is really sent, or
# where strangers could read this.
IS_LOCAL = urlsplit(settings.KOLM_PUBLIC_URL).hostname in ("127.0.0.1", "localhost", "::1")
MAIL_FOLDER = settings.KOLM_MAIL_URL[1] if IS_LOCAL and settings.KOLM_MAIL_URL[0] == "dir" else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NavItem:
    """One line of the navigation. `names` are the pages that belong to it; `keys` the keyboard's way there."""

    label: str
    names: tuple[str, ...]
    needs: Permission
    keys: str = ""


BUILD = (
    NavItem(label="Overview", names=("overview",), needs=Permission.VIEW, keys="g o"),
    NavItem(
        label="Compiles",
        names=("compiles", "compile", "compile_data", "compile_compare"),
        needs=Permission.VIEW,
        keys="g c",
    ),
    NavItem(label="New compile", names=("start", "compile_new"), needs=Permission.COMPILE, keys="n"),
    NavItem(label="Data", names=("uploads", "upload"), needs=Permission.VIEW, keys="g u"),
    NavItem(label="Artifacts", names=("artifacts", "artifact"), needs=Permission.VIEW, keys="g a"),
    NavItem(label="Playground", names=("playground",), needs=Permission.COMPILE, keys="g p"),
    NavItem(label="Draft cache", names=("drafts",), needs=Permission.VIEW, keys="g d"),
    NavItem(label="Recipe registry", names=("registry",), needs=Permission.VIEW, keys="g r"),
)
RUN = (
    NavItem(label="Deployments", names=("deployments", "deployment"), needs=Permission.VIEW, keys="g y"),
    NavItem(label="Usage & bills", names=("bills", "invoice", "budgets"), needs=Permission.BILLS_READ, keys="g b"),
    NavItem(label="Webhooks", names=("webhooks", "webhook"), needs=Permission.WEBHOOKS, keys="g w"),
    NavItem(label="API keys", names=("api_keys",), needs=Permission.KEYS, keys="g k"),
)
TEAM = (
    NavItem(label="Team", names=("team",), needs=Permission.TEAM, keys="g t"),
    NavItem(label="Audit log", names=("audit",), needs=Permission.AUDIT, keys="g l"),
    NavItem(label="Settings", names=("settings",), needs=Permission.KEYS, keys="g s"),
)


def shell(request: HttpRequest) -> dict[str, Any]:
    """Django's context processor: `team_session`, `nav` (groups of lines), `shell` (addresses around them)."""
    session = getattr(request, "team_session", None)
    around = {"version": settings.KOLM_VERSION, "docs_url": "/docs/errors", "mail_folder": MAIL_FOLDER}
    if session is None:
        return {"team_session": None, "nav": (), "shell": around}
    match = request.resolver_match
    here = match.url_name if match else None
    groups = [[_line(place, here) for place in group if session.may(place.needs)] for group in (BUILD, RUN, TEAM)]
    teams = [
        {"id": encode_id(Prefix.TENANT, m.tenant_id), "name": m.tenant_name, "role": m.role}
        for m in session.memberships
        if m.tenant_id != session.tenant_id
    ]
    around |= {
        "teams": teams,
        "search_url": _address("search"),
        "switch_url": _address("switch_tenant"),
        "security_url": _address("security"),
        "new_team_url": _address("welcome"),
    }
    return {"team_session": session, "nav": groups, "shell": around}


def _line(place: NavItem, here: str | None) -> dict[str, Any]:
    return {
        "label": place.label,
        "href": _address(place.names[0]),
        "keys": place.keys,
        "is_here": here == place.names[0],
        "is_within": here in place.names,
    }


def _address(name: str) -> str:
    return reverse(f"console:{name}")

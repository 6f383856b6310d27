"""API keys: made (and shown once), listed, revoked."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_GET, require_POST

from backend.console.access import ConsoleRequest, page, recently_authenticated
from backend.console.keys.scopes import CHOSEN, preset_choices, scope_groups, scopes_of_form
from backend.console.rows_and_forms import page_of
from backend.domain.cost_tags import read_tags, tag_line
from backend.domain.errors import InvalidInput, PaymentRequired
from backend.domain.ids import Prefix, decode_id, encode_id
from backend.domain.roles import Permission
from backend.tenants.api_keys import issuing
from backend.tenants.api_keys.permission_presets import COMMAND_LINE
from backend.tenants.models import ApiKey
from backend.usage.models import Budget

LIFETIMES = {"30": "30 days", "90": "90 days", "365": "a year", "never": "never expires"}
USUAL_LIFETIME = "90"
MAX_NAME = 100


@require_GET
@page(Permission.KEYS)
def api_keys(request: ConsoleRequest) -> HttpResponse:
    """All keys, newest first; never their secrets."""
    return render(request, "console/keys/list.html", _context(request))


@require_POST
@page(Permission.KEYS)
@recently_authenticated
def create(request: ConsoleRequest) -> HttpResponse:
    """The answer is the page with the secret in it, which is never stored: not a redirect, not cached."""
    session, form = request.team_session, request.POST
    try:
        row, secret = issuing.issue(
            session.tenant_id,
            name=_name(form.get("name", "")),
            scopes=scopes_of_form(session, form.get("preset", CHOSEN), form.getlist("scopes")),
            is_live=form.get("kind", "live") == "live",
            expires_at=_expiry(form.get("expires", USUAL_LIFETIME)),
            tags=read_tags(form.get("tags", "")),
            actor=session.actor,
        )
    except (InvalidInput, PaymentRequired) as error:
        context = _context(request, checked=form.getlist("scopes")) | {"error": error.message, "form": form}
        return render(request, "console/keys/list.html", context, status=422)
    line = f'curl -sS "{settings.KOLM_PUBLIC_URL}/v1/compiles?limit=5" -H "Authorization: Bearer {secret}"'
    context = _context(request) | {"made": row, "secret": secret, "curl_line": line}
    response = render(request, "console/keys/list.html", context)
    response["Cache-Control"] = "no-store"
    return response


@require_POST
@page(Permission.KEYS)
def tags(request: ConsoleRequest, key: str) -> HttpResponse:
    """Other cost tags, for what is used with the key from now on."""
    session, wanted = request.team_session, read_tags(request.POST.get("tags", ""))
    row = issuing.set_tags(session.tenant_id, decode_id(Prefix.API_KEY, key), wanted, actor=session.actor)
    messages.success(request, f"What is used with {row.name} from now on is on the bill under its new tags.")
    return redirect("console:api_keys")


@require_POST
@page(Permission.KEYS)
def revoke(request: ConsoleRequest, key: str) -> HttpResponse:
    """Revoke a key: from now on it opens nothing."""
    session = request.team_session
    row = issuing.revoke(session.tenant_id, decode_id(Prefix.API_KEY, key), actor=session.actor)
    messages.success(request, f"The key {row.name} is revoked.")
    return redirect("console:api_keys")


def _context(request: ConsoleRequest, *, checked: Sequence[str] = ()) -> dict[str, Any]:
    session, now = request.team_session, timezone.now()
    preset = request.POST.get("preset", COMMAND_LINE.name)
    shown_page = page_of(
        ApiKey.objects.of_tenant(session.tenant_id).order_by("-created_at", "-id"), request.GET.get("page")
    )
    may_see_budgets = session.may(Permission.BILLS_READ)
    budgets = _budgets(session.tenant_id, shown_page.object_list) if may_see_budgets else {}
    return {
        "page_obj": shown_page,
        "may_see_budgets": may_see_budgets,
        "rows": [
            {
                "public_id": encode_id(Prefix.API_KEY, row.id),
                "key": row,
                "state": _state(row, now),
                "budget": budgets.get(row.id),
                "tags": tag_line(row.tags),
            }
            for row in shown_page.object_list
        ],
        "presets": preset_choices(session, preset),
        "chosen": CHOSEN,
        "is_chosen": preset == CHOSEN,
        "groups": scope_groups(session, checked),
        "lifetimes": LIFETIMES,
        "lifetime": request.POST.get("expires", USUAL_LIFETIME),
        "max_name": MAX_NAME,
    }


def _budgets(tenant_id: UUID, keys: Sequence[ApiKey]) -> dict[UUID | None, Budget]:
    rows = Budget.objects.of_tenant(tenant_id).filter(api_key_id__in=[key.id for key in keys])
    return {row.api_key_id: row for row in rows}


def _state(row: ApiKey, now: datetime) -> str:
    if row.revoked_at is not None:
        return "revoked"
    return "expired" if row.expires_at is not None and row.expires_at <= now else "active"


def _name(text: str) -> str:
    name = text.strip()
    if not name or len(name) > MAX_NAME:
        raise InvalidInput(f"Give the key a name of 1 to {MAX_NAME} characters, such as where it is used.")
    return name


def _expiry(choice: str) -> datetime | None:
    if choice not in LIFETIMES:
        raise InvalidInput("Choose one of the offered lifetimes.")
    return None if choice == "never" else timezone.now() + timedelta(days=int(choice))

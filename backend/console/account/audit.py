"""The audit log page: filter, verify, take it along."""

import json
from typing import Any

from django.core.paginator import Paginator
from django.http import HttpResponse, StreamingHttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET, require_POST

from backend.console.access import page
from backend.domain.ids import Prefix, encode_id
from backend.domain.money.plans import Entitlement, check_entitlement
from backend.domain.roles import Permission
from backend.rest.streaming import streamed_file
from backend.tenants import audit
from backend.tenants.isolation import tenant_scope
from backend.tenants.models import AuditEntry, AuditHead
from backend.tenants.team.seats import plan_of

PER_PAGE = 50
FILTERS = ("action", "actor", "target")
NOUNS = (
    "api_key",
    "artifact",
    "billing",
    "budget",
    "compile",
    "draft",
    "drafts",
    "invitation",
    "member",
    "plan",
    "retention",
    "settings",
    "teacher_key",
    "tenant",
    "webhook_endpoint",
)


@require_GET
@page(Permission.AUDIT)
def audit_page(request: Any) -> HttpResponse:
    rows = AuditEntry.objects.of_tenant(request.team_session.tenant_id).order_by("-seq")
    asked = {
        name: request.GET.get(name, "").strip()[:100].replace("\x00", "") for name in ("action", "actor", "target")
    }
    if asked["action"]:
        exact = "action" if "." in asked["action"] else "action__startswith"
        rows = rows.filter(**{exact: asked["action"] + ("" if "." in asked["action"] else ".")})
    if asked["actor"]:
        rows = rows.filter(actor_label__icontains=asked["actor"]) | rows.filter(actor_id=asked["actor"])
    if asked["target"]:
        rows = rows.filter(target=asked["target"])
    shown_page = Paginator(rows, PER_PAGE).get_page(request.GET.get("page"))
    context = {
        "page_obj": shown_page,
        "asked": asked,
        "nouns": NOUNS,
        "head": AuditHead.objects.of_tenant(request.team_session.tenant_id).first(),
        "may_export": plan_of(request.team_session.tenant_id).audit_log,
    }
    return render(request, "console/account/audit.html", context)


@require_POST
@page(Permission.AUDIT)
def verify_audit(request: Any) -> HttpResponse:
    """Compute the chain again from its first line."""
    tenant_id = request.team_session.tenant_id
    context = {
        "problems": audit.verify_chain(tenant_id),
        "head": AuditHead.objects.of_tenant(tenant_id).first(),
    }
    template = "verdict" if getattr(request, "htmx", False) else "verified"
    return render(request, f"console/account/audit_{template}.html", context)


@require_GET
@page(Permission.AUDIT, atomic=False)
def export_audit(request: Any) -> HttpResponse | StreamingHttpResponse:
    """JSON lines, oldest first: what each digest covers, and the digest. Raises PaymentRequired where the plan has no
    audit log to take along."""
    tenant_id = request.team_session.tenant_id
    with tenant_scope(tenant_id):
        check_entitlement(plan_of(tenant_id), Entitlement.AUDIT_LOG)
        lines = [json.dumps(line, ensure_ascii=False).encode() + b"\n" for line in audit.export_lines(tenant_id)]
    name = f"audit-{encode_id(Prefix.TENANT, tenant_id)}.jsonl"
    return streamed_file(request, iter(lines), content_type="application/x-ndjson", filename=name)

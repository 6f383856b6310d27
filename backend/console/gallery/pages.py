"""The gallery: a card for each task, into the editor or off at once."""

from typing import Any

from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST

from backend.compiles.lifecycle import submission
from backend.console.access import ConsoleRequest, page
from backend.console.compiles.editor import example_text
from backend.console.compiles.spec_text import read_spec
from backend.console.gallery.tasks import read_measured, tasks
from backend.domain.canonical import sha256_hex
from backend.domain.errors import NotFound
from backend.domain.ids import Prefix, encode_id
from backend.domain.roles import Permission
from backend.rest.new_ids import new_uuid7
from backend.tenants.audit import note
from backend.tenants.idempotency import run_once


@page(Permission.VIEW)
def gallery(request: ConsoleRequest) -> HttpResponse:
    context: dict[str, Any] = {
        "tasks": tasks(),
        "day": read_measured()["day"],
        "may_compile": request.team_session.may(Permission.COMPILE),
        "token": new_uuid7().hex,
    }
    return render(request, "console/gallery/gallery.html", context)


@require_POST
@page(Permission.COMPILE)
def gallery_start(request: ConsoleRequest, task: str) -> HttpResponse:
    """Compile the task as it stands. The button pressed twice starts one compile."""
    if task not in {one.name for one in tasks()}:
        raise NotFound("There is no such task in the gallery.")
    value = read_spec(example_text(task)).value
    token = f"{request.POST.get('token', '')[:64]}\n{task}"
    public_id = run_once(
        request.team_session.tenant_id,
        f"console/gallery/{sha256_hex(token.encode('utf-8', 'replace'))}",
        lambda: _submit(request, value),
    )
    return redirect("console:compile", public_id)


def _submit(request: ConsoleRequest, value: Any) -> str:
    session = request.team_session
    public_id = encode_id(Prefix.COMPILE, submission.submit(session.tenant_id, value, api_key_id=None).id)
    note(session.tenant_id, actor=session.actor, action="compile.created", target=public_id)
    return public_id

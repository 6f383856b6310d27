"""The acts of a person on a compile: verify its chain, cancel it, resume it, ablate it. Each is a POST that leads back
to a page."""

from decimal import Decimal, InvalidOperation

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST

from backend.compiles.lifecycle import ablations, transitions
from backend.console.access import ConsoleRequest, page
from backend.console.compiles.receipts import verify_compile
from backend.console.compiles.rows import find_compile
from backend.domain.errors import InvalidInput
from backend.domain.ids import Prefix, encode_id
from backend.domain.planning.ablations import Arm
from backend.domain.roles import Permission
from backend.tenants.audit import note

MAX_USD = 100_000


@require_POST
@page(Permission.VIEW)
def verify(request: ConsoleRequest, compile: str) -> HttpResponse:
    """The chain and the artifact, checked now; a fragment to htmx, else a page of its own."""
    row = find_compile(request, compile)
    context = {"row": row, "id": compile, "checked": verify_compile(row.tenant_id, row.id)}
    return render(request, f"console/compiles/{'_verified' if request.htmx else 'verified'}.html", context)


@require_POST
@page(Permission.COMPILE)
def cancel(request: ConsoleRequest, compile: str) -> HttpResponse:
    session = request.team_session
    row = transitions.cancel(session.tenant_id, find_compile(request, compile).id, actor=session.actor)
    word = "Canceled." if row.status == "canceled" else "Canceling; teacher and runner stop within seconds."
    messages.success(request, f"{word} What is done and paid for is kept.")
    return redirect("console:compile", compile)


@require_POST
@page(Permission.COMPILE)
def resume(request: ConsoleRequest, compile: str) -> HttpResponse:
    session, budget = request.team_session, _microusd(request.POST.get("budget_usd", ""))
    row = find_compile(request, compile)
    transitions.resume(session.tenant_id, row.id, budget_microusd=budget, actor=session.actor)
    messages.success(request, "It is resumed: it continues at the first unfinished step.")
    return redirect("console:compile", compile)


@require_POST
@page(Permission.COMPILE)
def ablate(request: ConsoleRequest, compile: str) -> HttpResponse:
    """An arm of this compile: without its selection, with a random one, or with a fixed plan."""
    arm = request.POST.get("arm", "")
    if arm not in set(Arm):
        raise InvalidInput(f"An arm is one of {', '.join(Arm)}.", code="invalid_request")
    source = find_compile(request, compile)
    budget = _microusd(request.POST.get("budget_usd", ""))
    row = ablations.start(source, Arm(arm), budget_microusd=budget, api_key_id=None)
    public_id, data = encode_id(Prefix.COMPILE, row.id), {"of": compile, "arm": arm}
    note(
        request.team_session.tenant_id,
        actor=request.team_session.actor,
        action="compile.created",
        target=public_id,
        data=data,
    )
    messages.success(request, f"The arm {arm} is started.")
    return redirect("console:compile", public_id)


def _microusd(text: str) -> int | None:
    """A field in US dollars; None where it is empty."""
    if not text.strip():
        return None
    try:
        amount = Decimal(text.strip().removeprefix("$"))
    except InvalidOperation:
        amount = Decimal("NaN")
    if not amount.is_finite() or not 0 < amount <= MAX_USD:
        raise InvalidInput(
            f"A budget is a number of US dollars above 0, at most {MAX_USD:,}, such as 5 or 0.25.",
            code="invalid_request",
        )
    return int(amount * 1_000_000)

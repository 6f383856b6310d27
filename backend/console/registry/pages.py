"""The registry of recipes: its epochs, and what this workspace put in."""

from django.conf import settings
from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_POST

from backend.console.access import ConsoleRequest, page
from backend.console.rows_and_forms import page_of
from backend.domain.errors import InvalidInput
from backend.domain.roles import Permission
from backend.registry.contributing import withdraw as withdraw_all
from backend.registry.models import Contribution, Epoch

SHOWN_EPOCHS = 20


@require_GET
@page(Permission.VIEW)
def registry(request: ConsoleRequest) -> HttpResponse:
    """Everybody's epochs and one's own rows, all of them: what is not shown here is not there."""
    mine = Contribution.objects.of_tenant(request.team_session.tenant_id).order_by("shape", "run", "id")
    context = {
        "epochs": Epoch.objects.defer("data").order_by("-number")[:SHOWN_EPOCHS],
        "page_obj": page_of(mine, request.GET.get("page")),
        "k": settings.KOLM_REGISTRY_K,
        "may_release": request.team_session.may(Permission.RELEASE),
    }
    return render(request, "console/registry/registry.html", context)


@require_POST
@page(Permission.RELEASE)
def withdraw(request: ConsoleRequest) -> HttpResponse:
    """Everything at once; the word typed is the confirmation."""
    if request.POST.get("confirm", "").strip() != "withdraw":
        raise InvalidInput("Type the word withdraw; nothing was withdrawn.")
    n_gone = withdraw_all(request.team_session.tenant_id, actor=request.team_session.actor)
    messages.success(request, f"{n_gone:,} entries are withdrawn; the next epoch is built without them.")
    return redirect("console:registry")

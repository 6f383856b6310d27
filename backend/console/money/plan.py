"""The plans beside each other, buying one and managing what was bought: Stripe's pages take the payment."""

from django.conf import settings
from django.http import HttpResponse, HttpResponseRedirect
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_GET, require_POST

from backend.billing import checkout as shop
from backend.billing.models import Subscription, SubscriptionStatus
from backend.console.access import ConsoleRequest, page
from backend.domain.money.plans import plan, plans
from backend.domain.roles import Permission
from backend.usage.accounts import account_of

LIVE = (SubscriptionStatus.ACTIVE, SubscriptionStatus.PAST_DUE)
CAME_BACK = ("done", "canceled")


@require_GET
@page(Permission.BILLS_READ)
def plan_page(request: ConsoleRequest) -> HttpResponse:
    tenant_id = request.team_session.tenant_id
    subscription = Subscription.objects.of_tenant(tenant_id).filter(status__in=LIVE).order_by("-id").first()
    came_back = request.GET.get("checkout", "")
    context = {
        "current": plan(account_of(tenant_id).plan),
        "plans": plans(),
        "subscription": subscription,
        "has_subscription": subscription is not None,
        "can_pay": bool(settings.KOLM_STRIPE_KEY),
        "came_back": came_back if came_back in CAME_BACK else "",
        "may_write": request.team_session.may(Permission.BILLS_WRITE),
    }
    return render(request, "console/bills/plan.html", context)


@require_GET
@page(Permission.BILLS_READ)
def came_back(request: ConsoleRequest) -> HttpResponse:
    """Show the bills to people whom Stripe's pages send back."""
    query = request.GET.urlencode()
    return redirect(f"{reverse('console:plan')}?{query}" if "checkout" in request.GET else "console:bills")


@require_POST
@page(Permission.BILLS_WRITE, atomic=False)
def checkout(request: ConsoleRequest) -> HttpResponse:
    """Buy a plan. Not atomic: Stripe is asked for the address of its page."""
    session = request.team_session
    if not settings.KOLM_STRIPE_KEY:
        return redirect("console:plan")  # which says what is missing
    return HttpResponseRedirect(shop.start(session.tenant_id, request.POST.get("plan", ""), session.actor))


@require_POST
@page(Permission.BILLS_WRITE, atomic=False)
def portal(request: ConsoleRequest) -> HttpResponse:
    session = request.team_session
    if not settings.KOLM_STRIPE_KEY:
        return redirect("console:plan")
    return HttpResponseRedirect(shop.open_portal(session.tenant_id, session.actor))

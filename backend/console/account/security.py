"""A person's own login: second factors, sessions, addresses, teams. The pages that change them are allauth's; so is the
start of single sign-on, beside a page for a provider that does not answer."""

from typing import Any

from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from allauth.socialaccount.models import SocialAccount
from allauth.socialaccount.providers.openid_connect.views import login
from allauth.usersessions.models import UserSession
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from backend.console.access import person_page
from backend.domain.ids import Prefix, encode_id
from backend.tenants.team.membership import memberships_of


@require_GET
@person_page
def security(request: Any) -> HttpResponse:
    factors = list(Authenticator.objects.filter(user=request.user).order_by("created_at"))
    by_type = {kind: [f for f in factors if f.type == kind] for kind in Authenticator.Type.values}
    codes = by_type[Authenticator.Type.RECOVERY_CODES]
    context = {
        "totp": by_type[Authenticator.Type.TOTP],
        "passkeys": by_type[Authenticator.Type.WEBAUTHN],
        "n_codes": len(codes[0].wrap().get_unused_codes()) if codes else 0,
        "has_codes": bool(codes),
        "addresses": EmailAddress.objects.filter(user=request.user).order_by("-primary", "email"),
        "n_sessions": len(UserSession.objects.purge_and_list(request.user)),
        "accounts": SocialAccount.objects.filter(user=request.user),
        "teams": [(m, encode_id(Prefix.TENANT, m.tenant_id)) for m in memberships_of(request.user.pk)],
        "must": request.GET.get("must", "")[:100],
    }
    return render(request, "console/account/security.html", context)


def start_sso(request: HttpRequest, provider_id: str) -> HttpResponse:
    """Ask the provider, through allauth, where to send the person; a page where it does not answer."""
    import requests

    try:
        answer: Any = login(request, provider_id)
    except requests.RequestException:
        return render(request, "socialaccount/away.html", {"provider_id": provider_id}, status=502)
    return answer

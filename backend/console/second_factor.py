"""Teams may demand a second factor of their people."""

from typing import Any

from allauth.mfa.models import Authenticator
from django.http import HttpResponse
from django.shortcuts import redirect

from backend.tenants.team.team_settings import settings_of

FACTORS = (Authenticator.Type.TOTP, Authenticator.Type.WEBAUTHN)


def has_factor(user_id: int) -> bool:
    return Authenticator.objects.filter(user_id=user_id, type__in=FACTORS).exists()


def missing_factor(session: Any) -> HttpResponse | None:
    """Return where to go instead of the page, in the tenant's scope; None for who has what the team demands."""
    if not settings_of(session.tenant_id).is_mfa_required or has_factor(session.user_id):
        return None
    answer = redirect("console:security")
    answer["Location"] += "?must=factor"
    return answer

"""How people come in: what we tell django-allauth.

An address is kept in lower case. Sign-up is open, or with KOLM_SIGNUP=closed for people who hold an open invitation and
for those who come from a company's own log-in.
"""

import time
from typing import Any

from allauth.account.adapter import DefaultAccountAdapter
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter
from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from django.contrib.auth.signals import user_logged_in
from django.dispatch import receiver
from django.http import HttpRequest

from backend.tenants import invitations

INVITATION_IN_SESSION = "invitation"
LOGGED_IN_AT = "logged_in_at"


class AccountAdapter(DefaultAccountAdapter):
    def clean_email(self, email: str) -> str:
        return super().clean_email(email).strip().lower()

    def is_open_for_signup(self, request: HttpRequest) -> bool:
        if settings.KOLM_SIGNUP == "open":
            return True
        token = request.session.get(INVITATION_IN_SESSION, "")
        return bool(token) and invitations.look_up(token) is not None

    def populate_username(self, request: HttpRequest, user: Any) -> None:
        """The user name is the address, as `create_user` makes it; nobody types it."""
        user.username = user.email

    def get_login_redirect_url(self, request: HttpRequest) -> str:
        return "/app/"

    def get_email_verification_redirect_url(self, email_address: Any) -> str:
        """The person comes from a letter, not logged in as a rule: the log-in page leads on."""
        return "/app/"


class SocialAccountAdapter(DefaultSocialAccountAdapter):
    def is_open_for_signup(self, request: HttpRequest, sociallogin: Any) -> bool:
        """Who runs this kolm chose the providers: their people may come in."""
        return True


@receiver(user_logged_in)
def remember_when(sender: Any, request: HttpRequest | None, user: AbstractBaseUser, **kwargs: Any) -> None:
    """For `recently_authenticated`: of this session, not of the person."""
    if request is not None and hasattr(request, "session"):
        request.session[LOGGED_IN_AT] = time.time()

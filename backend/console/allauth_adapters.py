"""The adapters of django-allauth: how people sign up and log in.

An address is kept in lower case. Sign-up is open, or with KOLM_SIGNUP=closed for people who hold an open invitation and
for those who come by single sign-on.
"""

import time
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from allauth.account.adapter import DefaultAccountAdapter
from allauth.core.internal import ratelimit
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter
from allauth.usersessions.models import UserSession
from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from django.contrib.auth.signals import user_logged_in
from django.dispatch import receiver
from django.http import HttpRequest

from backend.console.returning import with_return
from backend.tenants.team import invitations

INVITATION_IN_SESSION = "invitation"
LOGGED_IN_AT = "logged_in_at"
BY_ACCOUNT = "login_failed_by_account"  # in ACCOUNT_RATE_LIMITS


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
        """The person comes from an e-mail, perhaps in another browser than he signed up in: the login page leads on."""
        return "/app/"

    def get_email_confirmation_url(self, request: HttpRequest, emailconfirmation: Any) -> str:
        """The link of the e-mail leads to where the person wanted to go when he signed up."""
        return with_return(str(super().get_email_confirmation_url(request, emailconfirmation)), request)

    def is_safe_url(self, url: str) -> bool:
        """No control character in a `next=`: browsers drop a tab or a line feed and then read another address."""
        has_controls = any(unicodedata.category(character)[0] == "C" for character in url)
        return not has_controls and "\\" not in url and bool(super().is_safe_url(url))

    def send_mail(self, template_prefix: str, email: str, context: dict[str, Any]) -> None:
        """Every e-mail leads to KOLM_PUBLIC_URL, whatever Host the request had that asked for it."""
        links = {name: _public(value) for name, value in context.items() if name.endswith("_url")}
        site = Site(domain=urlsplit(settings.KOLM_PUBLIC_URL).netloc, name=settings.KOLM_SITE_NAME)
        more = {"current_site": site, "public_url": settings.KOLM_PUBLIC_URL}
        super().send_mail(template_prefix, email, context | links | more)

    def _get_login_attempts_cache_key(self, request: HttpRequest, **credentials: Any) -> str:
        """Wrong passwords are counted by address and account together, so a stranger's shut nobody else out. Without
        the request's Host, that would give every port a count of its own."""
        return f"{ratelimit.get_ip(request)} {_login_of(credentials)}"

    def pre_authenticate(self, request: HttpRequest, **credentials: Any) -> None:
        """Guessers from many addresses share a count by account. It does not stop addresses from which the person is
        or was logged in: those have only their own."""
        super().pre_authenticate(request, **credentials)
        self._account_usage: ratelimit.RateLimitUsage | None = None
        login = _login_of(credentials)
        if _is_known_address(login, str(self.get_client_ip(request))):
            return
        self._account_usage = ratelimit.consume(request, app="allauth.account", action=BY_ACCOUNT, key=login)
        if not self._account_usage:
            raise self.validation_error("too_many_login_attempts")

    def _rollback_login_failed_rl_usage(self) -> None:
        super()._rollback_login_failed_rl_usage()
        if self._account_usage:
            self._account_usage.rollback()

    def _delete_login_attempts_cached_email(self, request: HttpRequest, **credentials: Any) -> None:
        super()._delete_login_attempts_cached_email(request, **credentials)
        ratelimit.clear(request, app="allauth.account", action=BY_ACCOUNT, key=_login_of(credentials))


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A site, as the templates of allauth's e-mails read it."""

    domain: str
    name: str


def _public(value: Any) -> str:
    url = urlsplit(str(value))
    return settings.KOLM_PUBLIC_URL + urlunsplit(("", "", url.path, url.query, url.fragment))


def _login_of(credentials: Mapping[str, Any]) -> str:
    return str(credentials.get("email") or credentials.get("username") or "").strip().lower()


def _is_known_address(login: str, ip: str) -> bool:
    """An address of IPv6 counts by its network, as in the limits: a person's address in it changes by the day."""
    known = UserSession.objects.filter(user__username=login).values_list("ip", flat=True).distinct()[:1000]
    return ratelimit.truncate_ip(ip) in {ratelimit.truncate_ip(str(each)) for each in known}


class SocialAccountAdapter(DefaultSocialAccountAdapter):
    def is_open_for_signup(self, request: HttpRequest, sociallogin: Any) -> bool:
        """The operator of this installation chose the providers, so their people may come in."""
        return True


@receiver(user_logged_in)
def remember_when(sender: Any, request: HttpRequest | None, user: AbstractBaseUser, **kwargs: Any) -> None:
    """Note the time of a login in the session, for `recently_authenticated`."""
    if request is not None and hasattr(request, "session"):
        request.session[LOGGED_IN_AT] = time.time()

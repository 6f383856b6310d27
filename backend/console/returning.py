"""The way back to where a person came from, kept until he is logged in: the `next` of the addresses of log-in, sign-up,
the link in the confirmation e-mail and the page that names a team. Only addresses of this site are kept
(`AccountAdapter.is_safe_url`)."""

from typing import Any
from urllib.parse import urlencode, urlsplit

from allauth.account.utils import get_next_redirect_url
from django.contrib import messages
from django.contrib.auth import REDIRECT_FIELD_NAME
from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django_htmx.http import HttpResponseClientRedirect

CONSOLE = "/app/"
NOT_TAKEN = "You are not logged in any more, so what you sent was not taken. Log in, then send it again."


def asked_return(request: HttpRequest) -> str:
    """The address in `next`; "" where there is none, or where it leads to another site."""
    return get_next_redirect_url(request) or ""


def page_of(request: Any) -> str:
    """The page that the person looks at: of a form or a part of a page, that which holds it."""
    if request.htmx:
        return request.htmx.current_url_abs_path or CONSOLE
    if request.method in ("GET", "HEAD"):
        return str(request.get_full_path())
    came_from = urlsplit(request.headers.get("Referer", ""))
    if came_from.netloc != request.get_host():
        return CONSOLE
    return came_from.path + (f"?{came_from.query}" if came_from.query else "")


def to_log_in(request: Any) -> HttpResponse:
    """Lead to the log-in page and from there back. A part of a page takes the whole page along. Of a form that was sent
    too late the log-in page says that it was not taken."""
    if request.method == "POST" and not request.htmx:
        messages.warning(request, NOT_TAKEN)
    answer = redirect_to_login(page_of(request))
    return HttpResponseClientRedirect(answer.url) if request.htmx else answer


def to_welcome(request: Any) -> HttpResponse:
    """Lead to the page where a person without a team names one, and from there on."""
    came_from = page_of(request)
    query = "" if came_from in (CONSOLE, "") else "?" + urlencode({REDIRECT_FIELD_NAME: came_from})
    return redirect(reverse("console:welcome") + query)


def with_return(url: str, request: HttpRequest | None) -> str:
    """`url` with the `next` of the request, where it has one that may be kept."""
    came_from = asked_return(request) if request is not None else ""
    if not came_from:
        return url
    return f"{url}{'&' if urlsplit(url).query else '?'}{urlencode({REDIRECT_FIELD_NAME: came_from})}"

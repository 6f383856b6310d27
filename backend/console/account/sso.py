"""Single sign-on: allauth's view, and a page where the company's server does not answer."""

from typing import Any

from allauth.socialaccount.providers.openid_connect.views import login
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render


def start_sso(request: HttpRequest, provider_id: str) -> HttpResponse:
    """allauth asks the provider where to send people, and raises what `requests` raises."""
    import requests

    try:
        answer: Any = login(request, provider_id)
    except requests.RequestException:
        return render(request, "socialaccount/away.html", {"provider_id": provider_id}, status=502)
    return answer

"""The sender of a body to the console: the person whose session comes with it."""

from http.cookies import CookieError, SimpleCookie
from importlib import import_module

from django.conf import settings
from django.contrib.auth import SESSION_KEY


def sender_by_session(path: str, cookies: str) -> str | None:
    try:
        morsel = SimpleCookie(cookies).get(settings.SESSION_COOKIE_NAME)
    except CookieError:
        return None
    if morsel is None or not morsel.value:
        return None
    session = import_module(settings.SESSION_ENGINE).SessionStore(session_key=morsel.value[:100])
    person = session.get(SESSION_KEY)
    return None if person is None else f"person {person}"

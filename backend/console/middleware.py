"""The console's middleware, for the console's addresses alone: the API, with its keys, pays nothing for sessions.

Django's own middleware is written for threads and would cost every API request a hop into one and back, each. Here a
console request hops once and walks all of them there.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

from allauth.usersessions.middleware import UserSessionsMiddleware
from asgiref.sync import async_to_sync, iscoroutinefunction, markcoroutinefunction, sync_to_async
from csp.middleware import CSPMiddleware
from django.contrib.auth.middleware import AuthenticationMiddleware
from django.contrib.messages.middleware import MessageMiddleware
from django.contrib.sessions.middleware import SessionMiddleware
from django.http import HttpRequest, HttpResponse, HttpResponseNotFound
from django.middleware.clickjacking import XFrameOptionsMiddleware
from django.middleware.csrf import CsrfViewMiddleware
from django.middleware.gzip import GZipMiddleware
from django_htmx.middleware import HtmxMiddleware
from whitenoise.middleware import WhiteNoiseMiddleware

CONSOLE = ("/app/", "/accounts/")
STATIC = "/static/"

Handler = Callable[[HttpRequest], Any]


def is_console(path: str) -> bool:
    return path in ("/", "/app", "/pricing") or path.startswith(CONSOLE)


def _whole(files: Handler) -> Handler:
    """Files as whole answers: they are small, and an asynchronous server would warn of a file that it has to read."""

    def answer(request: HttpRequest) -> HttpResponse:
        response = files(request)
        if not response.streaming:
            return response
        whole = HttpResponse(b"".join(response.streaming_content), status=response.status_code)
        whole.headers = response.headers
        response.close()
        return whole

    return answer


@cache
def static_files() -> Handler:
    """WhiteNoise, which looks through the folders once a process and not in each handler of one."""
    return _whole(WhiteNoiseMiddleware(lambda request: HttpResponseNotFound()))


class PageGzip(GZipMiddleware):
    """Pages are compressed: a table of ids is a fifth of its length then. Streams are not, they must not wait. Django's
    CSRF tokens are masked anew in every answer and its gzip adds a random length, against guessing by size (BREACH)."""

    def process_response(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        return response if response.streaming else super().process_response(request, response)


class ConsoleStack:
    """Static files, sessions, CSRF, login and CSP, around the console's views. allauth's own stands in MIDDLEWARE: it
    insists, and it is cheap."""

    sync_capable = async_capable = True

    def __init__(self, get_response: Handler) -> None:
        self._get_response = get_response
        self._is_async = iscoroutinefunction(get_response)
        inner = async_to_sync(get_response) if self._is_async else get_response
        handler: Handler = inner
        for middleware in (UserSessionsMiddleware, HtmxMiddleware, MessageMiddleware, AuthenticationMiddleware):
            handler = middleware(handler)
        self._csrf = CsrfViewMiddleware(handler)
        handler = PageGzip(XFrameOptionsMiddleware(CSPMiddleware(SessionMiddleware(self._csrf))))
        self._console = handler
        self._static = static_files()
        if self._is_async:
            markcoroutinefunction(self)
            self._console = sync_to_async(handler)
            self._static = sync_to_async(self._static, thread_sensitive=False)
            self.process_view = self._process_view_async
        else:
            self.process_view = self._process_view

    def __call__(self, request: HttpRequest) -> Any:
        if request.path_info.startswith(STATIC):
            return self._static(request)
        return self._console(request) if is_console(request.path_info) else self._get_response(request)

    def _process_view(
        self, request: HttpRequest, view: Handler, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> HttpResponse | None:
        if not is_console(request.path_info):
            return None
        refused: HttpResponse | None = self._csrf.process_view(request, view, args, kwargs)
        return refused

    async def _process_view_async(
        self, request: HttpRequest, view: Handler, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> HttpResponse | None:
        return self._process_view(request, view, args, kwargs)

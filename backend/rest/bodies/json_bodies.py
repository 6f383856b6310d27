"""The reading of JSON bodies, and the form of answers.

What Postgres cannot keep (NUL, unpaired surrogates) and what readers would disagree on (NaN, a key twice) is refused by
`backend.domain.strict_json`, in one pass, so that nothing behind it has to ask.

A body above `AHEAD_BYTES` is parsed by `parse_ahead`, in a thread that parses one body at a time: neither on the event
loop, nor while the request holds a connection of the pool. Eight bodies of 1 MB at once take turns there, and the
threads of other requests compete with one for the interpreter instead of eight.
"""

import asyncio
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import IO, Any, TypeVar

from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest, HttpResponse
from django.utils.decorators import sync_and_async_middleware
from rest_framework.exceptions import ParseError
from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.parsers import BaseParser
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request

from backend.domain.strict_json import BadJson, read_json

AHEAD_BYTES = 16_000
_LONG_BYTES = 128_000
# two, so that a body of 20 kB does not stand behind other people's of 1 MB
_short_bodies = ThreadPoolExecutor(max_workers=1, thread_name_prefix="json")
_long_bodies = ThreadPoolExecutor(max_workers=1, thread_name_prefix="json-long")

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outcome:
    """The outcome for a body that was parsed ahead."""

    value: Any = None
    error: ParseError | None = None


class AlwaysJson(DefaultContentNegotiation):
    """Answers are JSON whatever `Accept` says, as RFC 9110 allows: a client that cannot read it can still read the
    status."""

    def select_renderer(
        self, request: Request, renderers: Any, format_suffix: str | None = None
    ) -> tuple[BaseRenderer, str]:
        return renderers[0], renderers[0].media_type


class StrictJSONParser(BaseParser):
    media_type = "application/json"

    def parse(self, stream: IO[bytes], media_type: str | None = None, parser_context: Any = None) -> Any:
        request = (parser_context or {}).get("request")
        if request is not None and hasattr(request, "_request"):
            return json_of(request._request)
        return parse_json(stream.read())


def json_of(request: HttpRequest) -> Any:
    """The value of the request's body, parsed ahead or now. Raises ParseError."""
    outcome: _Outcome | None = getattr(request, "json_outcome", None)
    if outcome is None:
        return parse_json(request.body)
    if outcome.error is not None:
        raise outcome.error
    return outcome.value


@sync_and_async_middleware
def parse_ahead(get_response: Callable[[HttpRequest], Any]) -> Callable[[HttpRequest], Any]:
    """Parses the long JSON bodies of the API before a view, its transaction and its connection are there. Without an
    event loop there is nothing to be ahead of."""
    if not iscoroutinefunction(get_response):
        return get_response

    async def ahead(request: HttpRequest) -> HttpResponse:
        if _is_long_json(request):
            request.json_outcome = await off_the_loop(_outcome, request.body)
        return await get_response(request)

    return ahead


def _is_long_json(request: HttpRequest) -> bool:
    length = request.META.get("CONTENT_LENGTH") or "0"
    is_json = request.content_type in ("application/json", "") and request.path.startswith("/v1/")
    return is_json and length.isdecimal() and int(length) > AHEAD_BYTES


def _outcome(body: bytes) -> _Outcome:
    try:
        return _Outcome(value=parse_json(body))
    except ParseError as error:
        return _Outcome(error=error)


async def off_the_loop(parse: Callable[[bytes], T], body: bytes) -> T:
    """`parse(body)`, in the parsing thread where the body is long. `parse` is Python code or calls some often: a C call
    that takes a second holds the interpreter for a second in any thread."""
    if len(body) <= AHEAD_BYTES:
        return parse(body)
    executor = _long_bodies if len(body) > _LONG_BYTES else _short_bodies
    return await asyncio.get_running_loop().run_in_executor(executor, parse, body)


def parse_lenient(body: bytes) -> Any:
    """The value of a JSON text of a runner: NaN is a number there, as it is in training. Raises ValueError."""
    try:
        return json.loads(body, object_pairs_hook=_as_dict)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _as_dict(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build a dict, as `json` does by itself; in Python other threads get their turn in between."""
    return dict(pairs)


def parse_json(body: bytes) -> Any:
    """The value of a JSON text. Raises ParseError with a code and, where it helps, the place."""
    try:
        return read_json(body)
    except BadJson as fault:
        raise ParseError(str(fault), code=fault.code) from None

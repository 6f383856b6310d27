"""How JSON bodies are read and which form answers have.

What Postgres cannot keep (NUL, unpaired surrogates) and what readers would disagree on (NaN, a key twice) is refused
here, so that nothing behind it has to ask. All of it in one pass: what a body costs grows with its length and nothing
else.

A body above `AHEAD_BYTES` is parsed by `parse_ahead`, in a thread that parses one body at a time: neither on the event
loop, nor while the request holds a connection of the pool. Eight bodies of 1 MB at once take turns there, and the
threads of other requests compete with one for the interpreter instead of eight.
"""

import asyncio
import json
import re
from collections.abc import Callable, Collection, Iterable
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

MAX_DEPTH = 64
AHEAD_BYTES = 16_000
_LONG_BYTES = 128_000
# the escapes that may stand for what Postgres cannot keep; the characters themselves are no JSON or no UTF-8
_SUSPECT = re.compile(r"\\u(?:0000|[dD][89a-fA-F])")
# two, so that a body of 20 kB does not stand behind other people's of 1 MB
_short_bodies = ThreadPoolExecutor(max_workers=1, thread_name_prefix="json")
_long_bodies = ThreadPoolExecutor(max_workers=1, thread_name_prefix="json-long")

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outcome:
    """Of a body that was parsed ahead."""

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
    """What `json` does by itself; in Python other threads get their turn in between."""
    return dict(pairs)


def parse_json(body: bytes) -> Any:
    """The value of a JSON text. Raises ParseError with a code and, where it helps, the place."""
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as fault:
        raise ParseError(
            f"The body is not UTF-8: byte {fault.start} is wrong; encode it as UTF-8.", code="invalid_utf8"
        ) from None
    try:
        value = json.loads(text, object_pairs_hook=_no_key_twice, parse_constant=_no_constant, parse_float=_finite)
    except json.JSONDecodeError as fault:
        raise ParseError(
            f"The body is not JSON: {fault.msg} at line {fault.lineno}, column {fault.colno}.", code="malformed_json"
        ) from None
    except RecursionError:
        raise ParseError("The body is nested too deeply; flatten it.", code="malformed_json") from None
    except ValueError as fault:  # an integer of more than 4300 digits
        raise ParseError(f"The body is not JSON we take: {fault}", code="malformed_json") from None
    if _is_too_deep(value):
        raise ParseError(f"The body is nested more than {MAX_DEPTH} levels deep; flatten it.", code="malformed_json")
    if _SUSPECT.search(text) and not all(_is_kept(string) for string in _strings(value)):
        raise ParseError(
            "The body has a string with a NUL or half a surrogate pair in it; remove it.", code="malformed_json"
        )
    return value


def _no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) == len(pairs):
        return value
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            break
        seen.add(key)
    raise ParseError(f"The body has the key {key[:60]!r} twice in one object; keep one.", code="malformed_json")


def _finite(digits: str) -> float:
    number = float(digits)
    if number in (float("inf"), float("-inf")):
        raise ParseError(
            f"The body has the number {digits[:40]}, which is larger than numbers here can be; send a smaller one.",
            code="malformed_json",
        )
    return number


def _no_constant(name: str) -> None:
    raise ParseError(
        f"The body is not JSON: {name} is not a JSON number; send a number or null.", code="malformed_json"
    )


def _is_too_deep(value: Any) -> bool:
    """Whether anything stands deeper than MAX_DEPTH, looked at level by level."""
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(MAX_DEPTH):
        level = [below for container in level for below in _children(container) if isinstance(below, dict | list)]
        if not level:
            return False
    return any(level)


def _children(container: Any) -> Collection[Any]:
    return container.values() if isinstance(container, dict) else container


def _strings(value: Any) -> Iterable[str]:
    """All of them, keys too, in no order."""
    left = [value]
    while left:
        found = left.pop()
        if isinstance(found, str):
            yield found
        elif isinstance(found, dict):
            yield from found
            left.extend(found.values())
        elif isinstance(found, list):
            left.extend(found)


def _is_kept(text: str) -> bool:
    """Whether Postgres can keep it."""
    if "\x00" in text:
        return False
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True

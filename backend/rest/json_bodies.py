"""How JSON bodies are read and which form answers have.

What Postgres cannot keep (NUL, unpaired surrogates) and what readers would disagree on (NaN, a key twice) is refused
here, so that nothing behind it has to ask.
"""

import json
from collections.abc import Mapping
from typing import IO, Any

from rest_framework.exceptions import ParseError
from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.parsers import BaseParser
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request

MAX_DEPTH = 64


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
        return parse_json(stream.read())


def parse_json(body: bytes) -> Any:
    """The value of a JSON text. Raises ParseError with a code and, where it helps, the place."""
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as fault:
        raise ParseError(
            f"The body is not UTF-8: byte {fault.start} is wrong; encode it as UTF-8.", code="invalid_utf8"
        ) from None
    try:
        value = json.loads(text, object_pairs_hook=_no_key_twice, parse_constant=_no_constant)
    except json.JSONDecodeError as fault:
        raise ParseError(
            f"The body is not JSON: {fault.msg} at line {fault.lineno}, column {fault.colno}.", code="malformed_json"
        ) from None
    except RecursionError:
        raise ParseError("The body is nested too deeply; flatten it.", code="malformed_json") from None
    except ValueError as fault:  # an integer of more than 4300 digits
        raise ParseError(f"The body is not JSON we take: {fault}", code="malformed_json") from None
    _check(value, depth=0)
    return value


def _no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ParseError(f"The body has the key {twice[:60]!r} twice in one object; keep one.", code="malformed_json")
    return value


def _no_constant(name: str) -> None:
    raise ParseError(
        f"The body is not JSON: {name} is not a JSON number; send a number or null.", code="malformed_json"
    )


def _check(value: Any, *, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise ParseError(f"The body is nested more than {MAX_DEPTH} levels deep; flatten it.", code="malformed_json")
    if isinstance(value, str):
        if "\x00" in value or not _is_unicode(value):
            raise ParseError(
                "The body has a string with a NUL or half a surrogate pair in it; remove it.", code="malformed_json"
            )
    elif isinstance(value, Mapping):
        for key, below in value.items():
            _check(key, depth=depth)
            _check(below, depth=depth + 1)
    elif isinstance(value, list):
        for below in value:
            _check(below, depth=depth + 1)


def _is_unicode(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True

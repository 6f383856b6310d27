"""JSON bodies of strangers, read strictly and in one pass: what a body costs grows with its length and nothing else.

Refused is what readers would disagree on (a key twice, NaN, numbers beyond a float) and what no store and no tokenizer
takes (NUL, half a surrogate pair), so that nothing behind it has to ask.
"""

import json
import re
from collections.abc import Collection, Iterable
from typing import Any

MAX_DEPTH = 64
MAX_DIGITS = 4_300  # of a whole number: reading one takes quadratic time, and Python reads no longer ones
# the escapes that may stand for what cannot be kept; the characters themselves are no JSON or no UTF-8
_SUSPECT = re.compile(r"\\u(?:0000|[dD][89a-fA-F])")


class BadJson(ValueError):
    """The message is for who sent the body; `code` is invalid_utf8 or malformed_json."""

    def __init__(self, message: str, *, code: str = "malformed_json") -> None:
        super().__init__(message)
        self.code = code


def read_json(body: bytes) -> Any:
    """The value of a JSON text. Raises BadJson, with the place where it helps.

    >>> read_json(b'{"a": 1, "a": 2}')
    Traceback (most recent call last):
    backend.domain.strict_json.BadJson: The body has the key 'a' twice in one object; keep one.
    """
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as fault:
        raise BadJson(
            f"The body is not UTF-8: byte {fault.start} is wrong; encode it as UTF-8.", code="invalid_utf8"
        ) from None
    try:
        value = json.loads(
            text, object_pairs_hook=_no_key_twice, parse_constant=_no_constant, parse_float=_finite, parse_int=_whole
        )
    except json.JSONDecodeError as fault:
        raise BadJson(f"The body is not JSON: {fault.msg} at line {fault.lineno}, column {fault.colno}.") from None
    except RecursionError:
        raise BadJson("The body is nested too deeply; flatten it.") from None
    if _is_too_deep(value):
        raise BadJson(f"The body is nested more than {MAX_DEPTH} levels deep; flatten it.")
    if _SUSPECT.search(text) and not all(_is_kept(string) for string in _strings(value)):
        raise BadJson("The body has a string with a NUL or half a surrogate pair in it; remove it.")
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
    raise BadJson(f"The body has the key {key[:60]!r} twice in one object; keep one.")


def _whole(digits: str) -> int:
    if len(digits.removeprefix("-")) > MAX_DIGITS:
        raise BadJson(
            f"The body has a whole number of {len(digits):,} digits; at most {MAX_DIGITS:,} are read, send it as text."
        )
    return int(digits)


def _finite(digits: str) -> float:
    number = float(digits)
    if number in (float("inf"), float("-inf")):
        raise BadJson(
            f"The body has the number {digits[:40]}, which is larger than numbers here can be; send a smaller one."
        )
    return number


def _no_constant(name: str) -> None:
    raise BadJson(f"The body is not JSON: {name} is not a JSON number; send a number or null.")


def _is_too_deep(value: Any) -> bool:
    """Return whether anything stands deeper than MAX_DEPTH, looked at level by level."""
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(MAX_DEPTH):
        level = [below for container in level for below in _children(container) if isinstance(below, dict | list)]
        if not level:
            return False
    return True


def _children(container: Any) -> Collection[Any]:
    return container.values() if isinstance(container, dict) else container


def _strings(value: Any) -> Iterable[str]:
    """All of them, keys too, in no order."""
    left = [value]
    while left:
        node = left.pop()
        if isinstance(node, str):
            yield node
        elif isinstance(node, dict):
            yield from node
            left.extend(node.values())
        elif isinstance(node, list):
            left.extend(node)


def _is_kept(text: str) -> bool:
    if "\x00" in text:
        return False
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True

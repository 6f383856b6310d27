"""The parts of a decoded answer that a check's `field` names."""

from collections.abc import Iterator


def parts_at(value: object, pointer: str) -> list[object]:
    """The values that an RFC 6901 pointer finds, with `*` for each element of a list or each value of an object; empty
    where there is nothing. parts_at({"items": [{"n": 1}, {"n": 2}]}, "/items/*/n") == [1, 2]."""
    parts = [value]
    for token in pointer.split("/")[1:]:
        parts = [part for one in parts for part in _below(one, token)]
    return parts


def _below(value: object, token: str) -> Iterator[object]:
    if isinstance(value, dict):
        name = token.replace("~1", "/").replace("~0", "~")
        if token == "*":
            yield from value.values()
        elif name in value:
            yield value[name]
    elif isinstance(value, list):
        if token == "*":
            yield from value
        elif token.isdecimal() and token.isascii() and int(token) < len(value):
            yield value[int(token)]

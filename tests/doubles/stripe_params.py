"""Parameters of requests to the Stripe double, checked against the SDK's own TypedDicts in `stripe.params`.

The SDK's types are generated from Stripe's OpenAPI description ("File generated from our OpenAPI spec", their first
line), so what they do not know the service does not know either.
"""

import functools
import importlib
import re
import typing
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, Literal, NotRequired, Required, get_args, get_origin
from urllib.parse import parse_qsl

import stripe
from typing_extensions import is_typeddict

_OF_EVERY_REQUEST = frozenset(stripe.RequestOptions.__annotations__)


class Refused(Exception):
    """A 4xx as Stripe writes it (API reference, "Errors": an `error` with type, code, message and param)."""

    def __init__(
        self, message: str, *, status: int = 400, code: str = "", param: str = "", type: str = "invalid_request_error"
    ) -> None:
        super().__init__(message)
        self.status = status
        self.body = {"error": {"type": type, "message": message, "code": code or None, "param": param or None}}


def nested(form: str) -> dict[str, Any]:
    """`a[b][0]=x` as {"a": {"b": ["x"]}}: API reference, "Form-encoded request bodies"."""
    root: dict[str, Any] = {}
    for name, value in parse_qsl(form, keep_blank_values=True):
        parts = [part for part in re.split(r"[\[\]]+", name) if part]
        here = root
        for part in parts[:-1]:
            here = here.setdefault(part, {})
        here[parts[-1]] = value
    return typing.cast(dict[str, Any], _lists(root))


def _lists(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if value and all(key.isdigit() for key in value):
        return [_lists(value[key]) for key in sorted(value, key=int)]
    return {key: _lists(below) for key, below in value.items()}


@functools.cache
def params_type(name: str) -> Any:
    """`billing.meter_create` -> the TypedDict MeterCreateParams."""
    package, _, last = name.rpartition(".")
    module = importlib.import_module(f"stripe.params.{package}._{last}_params".replace("..", "."))
    return getattr(module, "".join(part.title() for part in last.split("_")) + "Params")


def checked(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters with their types. Raises Refused for one that is unknown, missing or of another type."""
    return typing.cast(dict[str, Any], _struct(params_type(name), given, ""))


def _struct(shape: Any, given: Any, at: str) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        raise Refused(f"Invalid object: {at}", param=at, code="parameter_invalid")
    hints = _hints(shape)
    for key in given:
        if key not in hints:
            name = f"{at}[{key}]" if at else key
            # page "Error codes": parameter_unknown
            raise Refused(f"Received unknown parameter: {name}", param=name, code="parameter_unknown")
    for key in shape.__required_keys__:
        if key not in given:
            name = f"{at}[{key}]" if at else key
            # page "Error codes": parameter_missing
            raise Refused(f"Missing required param: {name}.", param=name, code="parameter_missing")
    return {key: _value(hints[key], value, f"{at}[{key}]" if at else key) for key, value in given.items()}


@functools.cache
def _hints(shape: Any) -> dict[str, Any]:
    names = {**vars(stripe), **vars(typing), "StripeContext": object, "Decimal": Decimal}
    names |= vars(importlib.import_module(shape.__module__))
    # the SDK writes some literals as "Literal['a', 'b']|str": a string may be anything there
    found: dict[str, Any] = {}
    for base in reversed([shape, *getattr(shape, "__orig_bases__", ())]):
        for key, hint in getattr(base, "__annotations__", {}).items():
            if key not in _OF_EVERY_REQUEST:
                found[key] = _resolved(hint, names)
    return found


def _resolved(hint: Any, names: dict[str, Any]) -> Any:
    if isinstance(hint, typing.ForwardRef):
        hint = hint.__forward_arg__
    if isinstance(hint, str):
        text = re.sub(r"UntypedStripeObject\[\w+\]", "object", hint)
        return _resolved(eval(text, names), names)  # the SDK's own annotations
    if get_origin(hint) in (NotRequired, Required):
        return _resolved(get_args(hint)[0], names)
    if get_origin(hint) is list:
        return list[_resolved(get_args(hint)[0], names)]  # type: ignore[misc]
    if get_origin(hint) is typing.Union or type(hint).__name__ == "UnionType":
        parts = tuple(_resolved(part, names) for part in get_args(hint))
        return typing.Union[parts]  # noqa: UP007
    return hint


def _value(hint: Any, value: Any, at: str) -> Any:
    origin, options = get_origin(hint), get_args(hint)
    if origin is typing.Union or type(hint).__name__ == "UnionType":
        return _one_of(options, value, at)
    if origin is Literal:
        if value not in options:
            raise Refused(f"Invalid {at}: must be one of {', '.join(map(str, options))}", param=at)
        return value
    if origin is list:
        if not isinstance(value, list):
            raise Refused(f"Invalid array: {at}", param=at)
        return [_value(options[0], item, f"{at}[{i}]") for i, item in enumerate(value)]
    if is_typeddict(hint):
        return _struct(hint, value, at)
    return _plain(hint, value, at)


def _one_of(options: tuple[Any, ...], value: Any, at: str) -> Any:
    fault: Refused | None = None
    for option in sorted(options, key=lambda option: option is str):
        try:
            return _value(option, value, at)
        except Refused as refused:
            fault = fault or refused
    assert fault is not None
    raise fault


def _plain(hint: Any, value: Any, at: str) -> Any:
    if get_origin(hint) is dict or hint is object:
        return value
    if not isinstance(value, str):
        raise Refused(f"Invalid string: {at}", param=at)
    if hint is bool:
        if value not in ("true", "false"):
            raise Refused(f"Invalid boolean: {value}", param=at)
        return value == "true"
    if hint is int:
        if not re.fullmatch(r"-?\d+", value):
            raise Refused(f"Invalid integer: {value}", param=at, code="parameter_invalid_integer")
        return int(value)
    if hint in (Decimal, float):
        try:
            return Decimal(value)
        except InvalidOperation:
            raise Refused(f"Invalid decimal: {value}", param=at) from None
    return value

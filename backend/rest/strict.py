"""Serializers that refuse what they do not know: a misspelt option must not become a silent default."""

import difflib
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

from django.http import QueryDict
from rest_framework import serializers
from rest_framework.exceptions import ErrorDetail

MAX_UNKNOWN = 20  # keys that are named in an answer; looking for what each was meant to be takes a millisecond


class StrictSerializer(serializers.Serializer[Any]):
    """An input shape. Unknown keys are reported together with whatever else is wrong, each with the key that was
    probably meant."""

    def to_internal_value(self, data: Any) -> Any:
        unknown = unknown_keys(data, self.fields) if isinstance(data, Mapping) else {}
        try:
            value = super().to_internal_value(data)
        except serializers.ValidationError as fault:
            if isinstance(fault.detail, dict):
                raise serializers.ValidationError(unknown | fault.detail) from None
            raise
        if unknown:
            raise serializers.ValidationError(unknown)
        return value


def check_query(query: QueryDict, known: Iterable[str]) -> None:
    """Refuse query parameters that this address does not have."""
    unknown = unknown_keys(query, known)
    if unknown:
        raise serializers.ValidationError(unknown)
    broken = {
        key: [ErrorDetail("No value here has a NUL character; remove it.", code="invalid")]
        for key, values in query.lists()
        if any("\x00" in value for value in values)
    }
    if broken:
        raise serializers.ValidationError(broken)


def unknown_keys(keys: Iterable[Any], known: Iterable[str]) -> dict[str, list[ErrorDetail]]:
    """Return what is wrong with the first of the keys that are not known."""
    names = list(known)
    unknown = (str(key) for key in keys if key not in names)
    return {key: [ErrorDetail(_unknown(key, names), code="unknown_parameter")] for key in islice(unknown, MAX_UNKNOWN)}


def _unknown(key: str, known: list[str]) -> str:
    near = difflib.get_close_matches(key[:60], known, n=1, cutoff=0.6)
    if near:
        return f"There is no parameter {key[:60]!r}; did you mean {near[0]!r}?"
    return f"There is no parameter {key[:60]!r}; known here: {', '.join(sorted(known)) or 'none'}."

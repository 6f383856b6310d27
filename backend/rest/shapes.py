"""Answers, described once: a `Shape` is what OpenAPI says of an answer and what turns a row into it.

Each field reads the row's attribute of its name (or `source`), or what `get_<name>` makes of the row:

    class UploadShape(Shape[Upload]):
        id = PublicId(Prefix.UPLOAD)
        object = Constant("upload")
        n_rows = s.IntegerField(help_text="Lines that hold an example.")
        is_empty = s.BooleanField()
        created_at = Time()

        def get_is_empty(self, row: Upload) -> bool:
            return row.n_rows == 0

    UploadShape.of(row)

A docstring of a shape is published: OpenAPI shows it. What requests may hold is `rest.strict`'s.
"""

from collections.abc import Callable
from functools import cache, cached_property
from operator import attrgetter
from typing import Any, ClassVar, TypeVar
from uuid import UUID

from rest_framework import serializers as s

from backend.domain.ids import Prefix, encode_id
from backend.rest.times import rfc3339

Row = TypeVar("Row")


class Shape(s.Serializer[Row]):
    first: ClassVar[tuple[str, ...]] = ()  # fields that the answer begins with; inherited ones come first otherwise

    @classmethod
    def of(cls, row: Row) -> dict[str, Any]:
        """Return the answer for `row`, ready for JSON."""
        return _renderer(cls).to_representation(row)

    def to_representation(self, instance: Row) -> dict[str, Any]:
        return {name: _render(field, read(instance)) for name, field, read in self._readers}

    @cached_property
    def _readers(self) -> list[tuple[str, "AnyField", Callable[[Row], Any]]]:
        names = dict.fromkeys((*self.first, *self.fields))
        return [(name, self.fields[name], self._reader(name, self.fields[name])) for name in names]

    def _reader(self, name: str, field: "AnyField") -> Callable[[Row], Any]:
        if hasattr(self, f"get_{name}") and not hasattr(s.Serializer, f"get_{name}"):  # a field may be called `value`
            return getattr(self, f"get_{name}")  # type: ignore[no-any-return]
        is_plain = field.source.isidentifier() and type(field).get_attribute is s.Field.get_attribute
        return _attribute_reader(field) if is_plain else field.get_attribute


AnyField = s.Field[Any, Any, Any, Any]


def _attribute_reader(field: AnyField) -> Callable[[Any], Any]:
    """Read as `Field.get_attribute` does, with less work, but raise AttributeError where the row has none."""
    of_row = attrgetter(field.source)
    return lambda row: field.get_attribute(row) if isinstance(row, dict) else of_row(row)


def _render(field: AnyField, value: Any) -> Any:
    return None if value is None else field.to_representation(value)


@cache
def _renderer(shape: type[Shape[Any]]) -> Shape[Any]:
    """Making a serializer copies all its fields; rendering changes none of them, so that one serves all threads."""
    return shape()


class PublicId(s.CharField):
    """A UUID as the API writes it: `cmp_...`."""

    def __init__(self, prefix: Prefix, **options: Any) -> None:
        super().__init__(**options)
        self._prefix = prefix

    def to_representation(self, value: UUID) -> str:
        return encode_id(self._prefix, value)


class Time(s.DateTimeField):
    """RFC 3339, UTC, milliseconds."""

    def to_representation(self, value: Any) -> str | None:
        return rfc3339(value)


class TextOrNull(s.CharField):
    """A text that the row keeps as "" where there is none."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_null=True, **options)

    def to_representation(self, value: str) -> str | None:  # type: ignore[override]
        return value or None


class Constant(s.ChoiceField):
    """One word, the same for every row: the `object` of an answer."""

    def __init__(self, word: str) -> None:
        super().__init__([word])
        self._word = word

    def get_attribute(self, instance: Any) -> str:
        return self._word

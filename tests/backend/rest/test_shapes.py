from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from rest_framework import serializers as s

from backend.domain.ids import Prefix, encode_id
from backend.rest.shapes import Constant, PublicId, Shape, TextOrNull, Time

ID = UUID("0192f3a0-0000-7000-8000-000000000001")
AT = datetime(2026, 11, 25, 11, 7, 53, 123_456, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    number: int
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Book:
    id: UUID = ID
    title: str = "Refunds"
    note: str = ""
    n_read: int | None = None
    facts: dict[str, Any] | None = None
    cover: Page | None = None
    pages: list[Page] = field(default_factory=list)
    value: int = 3
    printed_at: datetime | None = None


class PageShape(Shape[Page]):
    number = s.IntegerField()
    text = TextOrNull()


class BookShape(Shape[Book]):
    id = PublicId(Prefix.UPLOAD)
    object = Constant("book")
    name = s.CharField(source="title")
    note = TextOrNull()
    n_read = s.IntegerField(allow_null=True)
    facts = s.DictField(allow_null=True)
    is_empty = s.BooleanField()
    value = s.IntegerField()
    cover = PageShape(allow_null=True)
    cover_number = s.IntegerField(source="cover.number", allow_null=True)
    pages = PageShape(many=True)
    printed_at = Time(allow_null=True)

    def get_is_empty(self, row: Book) -> bool:
        return not row.pages


def test_a_row_is_rendered_field_by_field_in_the_order_of_the_class() -> None:
    pages = [Page(number=1, text="a"), Page(number=2)]
    book = Book(note="read it", n_read=0, facts={"a": 1, "b": None}, cover=pages[1], pages=pages, printed_at=AT)
    answer = BookShape.of(book)
    assert answer == {
        "id": encode_id(Prefix.UPLOAD, ID),
        "object": "book",
        "name": "Refunds",
        "note": "read it",
        "n_read": 0,
        "facts": {"a": 1, "b": None},
        "is_empty": False,
        "value": 3,
        "cover": {"number": 2, "text": None},
        "cover_number": 2,
        "pages": [{"number": 1, "text": "a"}, {"number": 2, "text": None}],
        "printed_at": "2026-11-25T11:07:53.123Z",
    }
    assert list(answer) == list(BookShape().fields)


def test_what_a_row_does_not_have_is_null() -> None:
    answer = BookShape.of(Book())
    empty = {name for name, value in answer.items() if value is None}
    assert empty == {"note", "n_read", "facts", "cover", "cover_number", "printed_at"}
    assert (answer["pages"], answer["is_empty"]) == ([], True)


def test_whole_numbers_stay_whole_and_a_text_may_look_like_one() -> None:
    class Shelf(Shape[dict[str, Any]]):
        n = s.IntegerField()
        share = s.FloatField()
        name = s.CharField()

    answer = Shelf.of({"n": 3, "share": 1.0, "name": "3"})
    assert [type(value) for value in answer.values()] == [int, float, str]


def test_a_hook_is_what_the_field_renders() -> None:
    class Summary(Shape[Book]):
        cover = PageShape(allow_null=True)
        n_pages = s.IntegerField()

        def get_cover(self, row: Book) -> Page | None:
            return row.pages[0] if row.pages else None

        def get_n_pages(self, row: Book) -> int:
            return len(row.pages)

    assert Summary.of(Book(pages=[Page(number=7)])) == {"cover": {"number": 7, "text": None}, "n_pages": 1}
    assert Summary.of(Book()) == {"cover": None, "n_pages": 0}


def test_a_part_may_be_made_of_the_whole_row() -> None:
    class Names(Shape[Book]):
        title = s.CharField()

    class Named(Shape[Book]):
        names = Names(source="*")

    assert Named.of(Book()) == {"names": {"title": "Refunds"}}


def test_a_shape_has_the_fields_of_the_one_it_extends_first_and_may_leave_some_out() -> None:
    class Detail(PageShape):
        text = None  # type: ignore[assignment]
        n = s.IntegerField(source="number")

    class Turned(Detail):
        first = ("n",)

    assert list(Detail.of(Page(number=1)).items()) == [("number", 1), ("n", 1)]
    assert list(Turned.of(Page(number=1))) == ["n", "number"]
    assert list(PageShape.of(Page(number=1))) == ["number", "text"]


def test_a_row_without_the_attribute_is_an_error_also_where_null_is_allowed() -> None:
    class Wrong(Shape[Page]):
        numbr = s.IntegerField(allow_null=True)

    with pytest.raises(AttributeError):
        Wrong.of(Page(number=1))


def test_many_threads_render_one_shape_at_once_from_its_first_row_on() -> None:
    class Fresh(BookShape):
        pass

    books = [Book(title=f"book {i}", value=i, pages=[Page(number=i)], cover=Page(number=-i)) for i in range(400)]
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(Fresh.of, books))
    assert answers == [BookShape.of(book) for book in books]
    assert [answer["value"] for answer in answers] == list(range(400))


def test_shapes_of_different_classes_share_nothing() -> None:
    class Other(BookShape):
        object = Constant("other")

    assert (Other.of(Book())["object"], BookShape.of(Book())["object"]) == ("other", "book")

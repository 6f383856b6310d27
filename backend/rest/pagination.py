"""Lists: newest first, by cursor. A cursor is the public id of a row, so that it can be read, kept and typed.

No offsets and no totals: both get slower with every row, and lie while rows are added.
"""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar
from uuid import UUID

from django.db import models
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, inline_serializer
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from backend.domain.errors import InvalidInput, NotFound, Problem
from backend.domain.ids import Prefix, decode_id, encode_id
from backend.rest.strict import check_query

MAX_LIMIT = 100
DEFAULT_LIMIT = 20
_CHUNK = 500  # rows fetched at once by a search

_M = TypeVar("_M", bound=models.Model)

# For `extend_schema(parameters=[*PAGE_PARAMETERS, ...])`.
PAGE_PARAMETERS = [
    OpenApiParameter("limit", OpenApiTypes.INT, description=f"1 to {MAX_LIMIT}; {DEFAULT_LIMIT} if not given."),
    OpenApiParameter("after", OpenApiTypes.STR, description="The id after which (towards older) the page begins."),
    OpenApiParameter("before", OpenApiTypes.STR, description="The id before which (towards newer) the page ends."),
]


def list_page(
    request: Request,
    rows: models.QuerySet[_M],
    *,
    prefix: Prefix,
    render: Callable[[_M], Any],
    filters: Iterable[str] = (),
) -> Response:
    """One page of `rows` (already filtered to the tenant) as asked for by the query; `filters` are the view's own
    parameters."""
    ordered, limit, is_backwards = _page_query(request, rows, prefix, filters)
    page = list(ordered[: limit + 1])
    edge = page[limit - 1] if len(page) > limit else None
    return Response(_page(page[:limit], render, prefix, edge=edge, is_backwards=is_backwards))


def search_page(
    request: Request,
    rows: models.QuerySet[_M],
    *,
    prefix: Prefix,
    render: Callable[[_M], Any],
    matches: Callable[[_M], bool],
    most: int,
    filters: Iterable[str] = (),
) -> Response:
    """List a page as `list_page` does, of the rows that `matches` keeps, for what the database cannot search. At most
    `most` rows are looked at; where the search ended at that, `truncated` is true and `next_cursor` goes on behind the
    last of them."""
    ordered, limit, is_backwards = _page_query(request, rows, prefix, filters)
    matching: list[_M] = []
    last, n_seen, has_more = None, 0, False
    for row in ordered[: most + 1].iterator(chunk_size=_CHUNK):
        if len(matching) == limit or n_seen == most:
            has_more = True
            break
        last, n_seen = row, n_seen + 1
        if matches(row):
            matching.append(row)
    body = _page(matching, render, prefix, edge=last if has_more else None, is_backwards=is_backwards)
    return Response(body | {"truncated": has_more and len(matching) < limit})


def whole_list(data: list[dict[str, Any]]) -> Response:
    """Answer a list that is never longer than a page."""
    return Response({"object": "list", "data": data, "has_more": False, "next_cursor": None})


def page_schema(name: str, item: serializers.BaseSerializer[Any]) -> serializers.BaseSerializer[Any]:
    """Return the schema of what `list_page` answers, for OpenAPI: `extend_schema(responses=page_schema("CompileList",
    CompileSerializer()))`."""
    return inline_serializer(
        name,
        {
            "object": serializers.ChoiceField(["list"]),
            "data": serializers.ListField(child=item),
            "has_more": serializers.BooleanField(),
            "next_cursor": serializers.CharField(allow_null=True),
        },
    )


def _page_query(
    request: Request, rows: models.QuerySet[_M], prefix: Prefix, filters: Iterable[str]
) -> tuple[models.QuerySet[_M], int, bool]:
    """The rows beyond the cursor in the order in which to walk them, how many make a page, and whether the walk goes
    towards newer ones."""
    query = request.query_params
    check_query(query, ["limit", "after", "before", *filters])
    limit = _limit(query.get("limit", str(DEFAULT_LIMIT)))
    if "after" in query and "before" in query:
        raise _invalid("before", "Give either `after` or `before`, not both.")
    is_backwards = "before" in query
    order = ("created_at", "id") if is_backwards else ("-created_at", "-id")
    cursor = query.get("before") or query.get("after")
    beyond = _beyond(rows, cursor, prefix, tenant_id=request.auth.tenant_id, newer=is_backwards)
    return beyond.order_by(*order), limit, is_backwards


def _page(
    page: list[_M], render: Callable[[_M], Any], prefix: Prefix, *, edge: _M | None, is_backwards: bool
) -> dict[str, Any]:
    """`edge` is the row behind which the next page begins (send it as `before` when walking towards newer rows, else as
    `after`); None at the end of the list."""
    rows = page[::-1] if is_backwards else page
    return {
        "object": "list",
        "data": [render(row) for row in rows],
        "has_more": edge is not None,
        "next_cursor": None if edge is None else encode_id(prefix, edge.pk),
    }


def _beyond(
    rows: models.QuerySet[_M], cursor: str | None, prefix: Prefix, *, tenant_id: UUID, newer: bool
) -> models.QuerySet[_M]:
    if cursor is None:
        return rows
    name = "before" if newer else "after"
    try:
        # not among `rows`: a row that has left the filter since it was shown still marks its place
        edge = rows.model._default_manager.filter(tenant_id=tenant_id, pk=decode_id(prefix, cursor)).first()
    except NotFound:
        edge = None
    if edge is None:
        raise _invalid(name, f"`{name}` names no row of this list: {cursor[:60]!r}; take an id from the list.")
    at, key = edge.created_at, edge.pk  # type: ignore[attr-defined]
    past = "gt" if newer else "lt"
    return rows.filter(
        models.Q(**{f"created_at__{past}": at}) | models.Q(**{"created_at": at, f"id__{past}": key}),
        **{f"created_at__{past}e": at},  # lets the index be used as one range
    )


def _limit(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 6 and 1 <= int(text) <= MAX_LIMIT):
        raise _invalid("limit", f"`limit` is a whole number from 1 to {MAX_LIMIT}, not {text[:20]!r}.")
    return int(text)


def _invalid(parameter: str, message: str) -> InvalidInput:
    problem = Problem(pointer=f"/{parameter}", message=message)
    return InvalidInput(message, code="invalid_request", problems=(problem,))

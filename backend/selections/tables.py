"""The rows of a result, page by page or as a file of JSON lines: picks, and all rows with what became of them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request

from backend.blobs import get_json
from backend.domain.errors import Conflict, InvalidInput, Problem
from backend.domain.jobs.runner_jobs import SelectResult
from backend.rest.strict import check_query
from backend.selections.models import Selection, SelectionStatus

DEFAULT_LIMIT = 100
MAX_LIMIT = 1_000
JSONL = "application/x-ndjson"

PARAMETERS = [
    OpenApiParameter("limit", OpenApiTypes.INT, description=f"1 to {MAX_LIMIT}; {DEFAULT_LIMIT} if not given."),
    OpenApiParameter("after", OpenApiTypes.STR, description="`next_cursor` of the page before."),
    OpenApiParameter(
        "format", OpenApiTypes.STR, enum=["json", "jsonl"], description="jsonl: everything at once, an object a line."
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultRow:
    """One row of a result. `rank` (1 is the best) and `nearest_pick_ppm` are None of a row that was not picked."""

    id: str
    state: str
    rank: int | None
    score: float | None
    label: str | None
    cluster: int | None
    nearest_pick_ppm: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """`n` rows of which `at(i)` is the one at place i, from 0."""

    n: int
    at: Callable[[int], ResultRow]

    def page(self, start: int, limit: int) -> dict[str, Any]:
        end = min(start + limit, self.n)
        has_more = end < self.n
        data = [self.at(i) for i in range(start, end)]
        return {"object": "list", "data": data, "has_more": has_more, "next_cursor": str(end) if has_more else None}


def picks_of(row: Selection) -> Table:
    """The picks, best first. Raises Conflict before there is a result."""
    columns, result = _read(row)
    at = _rows(columns, result)
    return Table(n=len(result.picks), at=lambda place: at(result.picks[place]))


def rows_of(row: Selection) -> Table:
    """All rows in the order of the request. Raises Conflict before there is a result."""
    columns, result = _read(row)
    return Table(n=len(columns["ids"]), at=_rows(columns, result))


def _rows(columns: dict[str, Any], result: SelectResult) -> Callable[[int], ResultRow]:
    ids, scores, labels = columns["ids"], columns["scores"], columns["labels"]
    ranks = {i: rank for rank, i in enumerate(result.picks, start=1)}
    below = frozenset(result.floor_dropped)

    def at(i: int) -> ResultRow:
        rank = ranks.get(i)
        return ResultRow(
            id=ids[i],
            state="picked" if rank else "below_floor" if i in below else "dropped",
            rank=rank,
            score=None if scores is None else scores[i],
            label=None if labels is None else labels[i],
            cluster=None if result.cluster_of[i] < 0 else result.cluster_of[i],
            nearest_pick_ppm=result.nearest_pick_ppm[rank - 1] if rank else None,
        )

    return at


def read_paging(request: Request) -> tuple[int, int, bool]:
    """(start, limit, is_jsonl) as the query asks."""
    query = request.query_params
    check_query(query, ["limit", "after", "format"])
    limit = _count(query.get("limit", str(DEFAULT_LIMIT)), "limit", most=MAX_LIMIT, least=1)
    start = _count(query.get("after", "0"), "after", most=10**6, least=0)
    form = query.get("format", "json")
    if form not in ("json", "jsonl"):
        raise _invalid("format", f"`format` is json or jsonl, not {form[:20]!r}.")
    return start, limit, form == "jsonl"


def _read(row: Selection) -> tuple[dict[str, Any], SelectResult]:
    if row.status != SelectionStatus.SUCCEEDED:
        raise Conflict(f"This selection has no result (it is {row.status}).", code="no_result")
    return get_json(row.tenant_id, row.columns_sha256), SelectResult.from_json(
        get_json(row.tenant_id, row.result_sha256)
    )


def _count(text: str, name: str, *, most: int, least: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 9 and least <= int(text) <= most):
        raise _invalid(name, f"`{name}` is a whole number from {least} to {most}, not {text[:20]!r}.")
    return int(text)


def _invalid(parameter: str, message: str) -> InvalidInput:
    return InvalidInput(message, code="invalid_request", problems=(Problem(pointer=f"/{parameter}", message=message),))

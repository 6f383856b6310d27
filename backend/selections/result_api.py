"""/v1/select/{id}/picks and /rows: a result row by row."""

import json

from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from backend.rest.pagination import page_schema
from backend.rest.shapes import Shape
from backend.selections import tables
from backend.selections.api import SELECTIONS, find_selection
from backend.selections.conclusion import conclude
from backend.selections.models import Selection
from backend.selections.shapes import PickShape, SelectRowShape
from backend.selections.tables import ResultRow, Table


class PicksView(APIView):
    permission_classes = SELECTIONS

    @extend_schema(
        operation_id="select_picks",
        parameters=tables.PARAMETERS,
        responses={
            (200, "application/json"): page_schema("PickList", PickShape()),
            (200, tables.JSONL): OpenApiTypes.BINARY,
        },
    )
    def get(self, request: Request, selection: str) -> HttpResponse:
        """The picks, best first, with score, cluster and the distance to the nearest other pick."""
        paging = tables.read_paging(request)
        return _answer(tables.picks_of(_concluded_selection(request, selection)), PickShape, *paging)


class SelectRowsView(APIView):
    permission_classes = SELECTIONS

    @extend_schema(
        operation_id="select_rows",
        parameters=tables.PARAMETERS,
        responses={
            (200, "application/json"): page_schema("SelectRowList", SelectRowShape()),
            (200, tables.JSONL): OpenApiTypes.BINARY,
        },
    )
    def get(self, request: Request, selection: str) -> HttpResponse:
        """Every row in the order it was sent: picked, dropped or below the score floor, and its cluster."""
        paging = tables.read_paging(request)
        return _answer(tables.rows_of(_concluded_selection(request, selection)), SelectRowShape, *paging)


def _answer(table: Table, shape: type[Shape[ResultRow]], start: int, limit: int, is_jsonl: bool) -> HttpResponse:
    if is_jsonl:
        rows = (shape.of(table.at(i)) for i in range(table.n))
        lines = (json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in rows)
        return HttpResponse(b"".join(lines), content_type=tables.JSONL)
    page = table.page(start, limit)
    return Response(page | {"data": [shape.of(row) for row in page["data"]]})


def _concluded_selection(request: Request, public_id: str) -> Selection:
    return conclude(find_selection(request, public_id))

"""/v1/teacher_prices: what a teacher's tokens cost where a spec declares no price."""

from collections.abc import Iterator
from typing import Any, ClassVar

from django.conf import settings
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers as s
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from backend.domain.money.teacher_prices import price_json, row_price
from backend.domain.money.vendor_prices import PriceRow, PriceTable, shipped_prices
from backend.rest.pagination import page_schema, whole_list
from backend.rest.strict import check_query
from backend.tenants.api_keys.authentication import IsTenant
from backend.tenants.permissions import HasScope


class TeacherPriceShape(s.Serializer[Any]):
    """Amounts are decimal strings: US dollars per million tokens."""

    version = s.CharField(help_text="Names the row; usage facts quote it.")
    model = s.CharField()
    input_usd_per_mtok = s.CharField()
    cached_input_usd_per_mtok = s.CharField()
    cache_write_usd_per_mtok = s.CharField()
    output_usd_per_mtok = s.CharField()
    origin = s.ChoiceField(["spec", "operator", "vendor", "book"], help_text="Whose price it is.")
    place = s.CharField(help_text="The provider or host; empty for a price of the spec or of the price book.")
    as_of = s.DateField(allow_null=True, help_text="The day on which the price was read at its source.")
    until = s.DateField(allow_null=True, help_text="The last day that the vendor published it for; null: no end.")
    source = s.CharField()
    note = s.CharField()


class ListedPriceShape(TeacherPriceShape):
    object = s.ChoiceField(["teacher_price"])
    batch_discount = s.CharField(allow_null=True, help_text="Share that the vendor's batch endpoint takes off.")


class TeacherPricesView(APIView):
    permission_classes: ClassVar[list[type[BasePermission]]] = [IsTenant, HasScope("compiles:read")]

    @extend_schema(
        operation_id="teacher_prices_list",
        parameters=[
            OpenApiParameter("place", OpenApiTypes.STR, description="A provider, or a host of the operator's."),
            OpenApiParameter("model", OpenApiTypes.STR),
        ],
        responses=page_schema("TeacherPriceList", ListedPriceShape()),
    )
    def get(self, request: Request) -> Response:
        """Teachers' prices with date and source: the operator's, then the vendors' that none of those replaces. A
        spec's own `teacher.price` goes before them."""
        check_query(request.query_params, ["place", "model"])
        wanted = {name: request.query_params[name] for name in ("place", "model") if name in request.query_params}
        rows = (listed_json(*pair) for pair in prices_in_force())
        return whole_list([row for row in rows if wanted.items() <= row.items()])


def prices_in_force() -> Iterator[tuple[PriceTable, PriceRow]]:
    operator: PriceTable = settings.KOLM_TEACHER_PRICES
    yield from ((operator, row) for row in operator.rows)
    shipped = shipped_prices()
    for row in shipped.rows:
        if any(operator.find(host, row.model) is None for host in row.hosts):
            yield shipped, row


def listed_json(table: PriceTable, row: PriceRow) -> dict[str, Any]:
    discount = None if row.batch_discount is None else format(row.batch_discount, "f")
    return {"object": "teacher_price", **price_json(row_price(row, table.origin)), "batch_discount": discount}

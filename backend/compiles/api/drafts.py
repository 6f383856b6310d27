"""/v1/drafts/stats and /v1/compiles/{id}/drafts: what drafts saved, and which the teacher kept and refused. They stand
here and not in `backend.drafts` because they set the draft cache's log beside what the compiles were billed."""

from typing import Any, ClassVar

from drf_spectacular.utils import extend_schema
from rest_framework import serializers as s
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from backend.compiles.api.compiles import find_compile
from backend.compiles.draft_savings import DraftSavings, savings_by_family
from backend.compiles.draft_shapes import DraftSavingsShape, DraftStatsListShape, SliceDraftsShape
from backend.compiles.draft_verdicts import asked_drafts
from backend.compiles.models import Slice
from backend.drafts.shapes import FamilyStatsShape
from backend.drafts.statistics import stats
from backend.drafts.tallies import FamilyStats
from backend.rest.pagination import page_schema, whole_list
from backend.rest.strict import StrictSerializer, check_query
from backend.tenants.api_keys.authentication import IsTenant
from backend.tenants.permissions import HasScope


class StatsQuery(StrictSerializer):
    family = s.CharField(required=False, max_length=100)
    since = s.DateTimeField(required=False, help_text="RFC 3339; look-ups and the comparison from then on.")


class VerdictsQuery(StrictSerializer):
    slice = s.CharField(required=False, max_length=100, help_text="The slice of this name alone.")
    limit = s.IntegerField(
        default=10, min_value=1, max_value=100, help_text="The most drafts of each verdict, in one slice."
    )


class DraftStatsView(APIView):
    permission_classes: ClassVar = [IsTenant, HasScope("drafts:read")]

    @extend_schema(operation_id="drafts_stats", parameters=[StatsQuery], responses=DraftStatsListShape)
    def get(self, request: Request) -> Response:
        """The draft cache in figures, by family, teacher and strategy: size, acceptance, saving, bad drafts, and the
        slices that were held back for comparison; `total` is the saving of all of them."""
        tenant_id, wanted = request.auth.tenant_id, _read(StatsQuery, request)
        savings = savings_by_family(tenant_id, **wanted)
        page = whole_list([_family(row, savings) for row in stats(tenant_id, **wanted)])
        page.data["total"] = DraftSavingsShape.of(sum(savings.values(), DraftSavings()))
        return page


class CompileDraftsView(APIView):
    permission_classes: ClassVar = [IsTenant, HasScope("drafts:read")]

    @extend_schema(
        operation_id="compiles_drafts",
        parameters=[VerdictsQuery],
        responses=page_schema("SliceDraftsList", SliceDraftsShape()),
    )
    def get(self, request: Request, compile: str) -> Response:
        """The drafts that the teacher was asked about for this compile, slice by slice: which it kept, which it
        refused. Drafts of the very same prompt are not among them."""
        wanted = _read(VerdictsQuery, request)
        row = find_compile(request, compile)
        rows = Slice.objects.of_tenant(row.tenant_id).filter(compile=row, drafts__isnull=False).order_by("position")
        slices = list(rows.defer("embedding", "exemplars", "selection"))
        asked = asked_drafts(row, slices)
        with_verdicts = [
            one for one in slices if one.position in asked.positions and one.name == wanted.get("slice", one.name)
        ]
        return whole_list([SliceDraftsShape.of(one) for one in asked.of_slices(with_verdicts, most=wanted["limit"])])


def _read(shape: type[StrictSerializer], request: Request) -> dict[str, Any]:
    check_query(request.query_params, shape().fields)
    query = shape(data=request.query_params.dict())
    query.is_valid(raise_exception=True)
    return dict(query.validated_data)


def _family(row: FamilyStats, savings: dict[str, DraftSavings]) -> dict[str, Any]:
    """One acceptance in both places: what is left of a family that was purged does not tell it any more."""
    body = FamilyStatsShape.of(row)
    body["saving"] = DraftSavingsShape.of(savings.get(row.family, DraftSavings()))
    body["lookups"]["acceptance"] = body["saving"]["acceptance"]
    return body

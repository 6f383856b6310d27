"""/v1/drafts/stats: what the draft cache holds. Offering drafts to the teacher is not on this deployment yet."""

from typing import ClassVar

from drf_spectacular.utils import extend_schema
from rest_framework import serializers as s
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from backend.drafts.queries import stats
from backend.rest.pagination import page_schema
from backend.rest.strict import check_query
from backend.rest.times import rfc3339
from backend.tenants.auth import IsTenant
from backend.tenants.scopes import HasScope


class DraftStatsShape(s.Serializer[object]):
    object = s.ChoiceField(["draft_stats"])
    family = s.CharField()
    teacher = s.CharField()
    embedder = s.CharField()
    n_drafts = s.IntegerField()
    n_tokens = s.IntegerField()
    cost_microusd = s.IntegerField(help_text="What the teacher was paid for them.")
    newest_at = s.DateTimeField()


class DraftStatsView(APIView):
    permission_classes: ClassVar = [IsTenant, HasScope("drafts:read")]

    @extend_schema(operation_id="drafts_stats", responses=page_schema("DraftStatsList", DraftStatsShape()))
    def get(self, request: Request) -> Response:
        """The candidates that no selection kept, by task family and teacher."""
        check_query(request.query_params, [])
        data = [
            {
                "object": "draft_stats",
                "family": row["family"],
                "teacher": row["teacher"],
                "embedder": row["embedder"],
                "n_drafts": row["n"],
                "n_tokens": row["tokens"],
                "cost_microusd": row["cost"],
                "newest_at": rfc3339(row["newest"]),
            }
            for row in stats(request.auth.tenant_id)
        ]
        return Response({"object": "list", "data": data, "has_more": False, "next_cursor": None})

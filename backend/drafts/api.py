"""/v1/drafts: what the draft cache holds, what it would offer a spec, and deleting from it. What it was worth
(/v1/drafts/stats) is in `backend.compiles.api.drafts`, which sees what the compiles were billed."""

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any, ClassVar
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet
from django.utils.decorators import method_decorator
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers as s
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from backend.domain.drafts.vocabulary import DraftState
from backend.domain.errors import NotFound
from backend.domain.ids import Prefix, decode_id
from backend.domain.spec.parsing import canonical_spec, parse_spec
from backend.drafts.models import Draft
from backend.drafts.previews import PreviewShape, preview
from backend.drafts.purging import delete_draft, purge_family
from backend.drafts.reading import Reader, drafts_of, verdicts_on
from backend.drafts.shapes import (
    DeletionShape,
    DraftDetailShape,
    DraftListShape,
    DraftShape,
    PurgeShape,
    VerdictShape,
)
from backend.rest.pagination import PAGE_PARAMETERS, list_page, search_page
from backend.rest.strict import StrictSerializer, check_query
from backend.tenants.api_keys.authentication import IsTenant
from backend.tenants.permissions import HasScope

DRAFTS: list[type[BasePermission]] = [IsTenant, HasScope("drafts")]
PREVIEW_WAIT_S = 10.0
MOST_SEARCHED = 5_000  # drafts that one search unseals
FILTERS = ("family", "state", "q")
MAX_Q = 200


class ListQuery(StrictSerializer):
    family = s.CharField(required=False, max_length=100)
    state = s.ChoiceField([state.value for state in DraftState], required=False)
    q = s.CharField(required=False, max_length=MAX_Q, trim_whitespace=False, help_text="Part of the text.")


class PurgeQuery(StrictSerializer):
    family = s.CharField(max_length=100, help_text="The family whose drafts are deleted.")


class DraftsView(APIView):
    permission_classes = DRAFTS

    @extend_schema(operation_id="drafts_list", parameters=[*PAGE_PARAMETERS, ListQuery], responses=DraftListShape)
    def get(self, request: Request) -> Response:
        """All drafts, newest first. `q` searches the texts, upper and lower case alike, up to 5,000 drafts a request:
        they are sealed, so that no index can help."""
        tenant_id: UUID = request.auth.tenant_id
        wanted = _read(ListQuery, request, others=("limit", "after", "before"))
        q = wanted.get("q", "").casefold()
        rows: QuerySet[Draft] = drafts_of(tenant_id, family=wanted.get("family"), state=wanted.get("state"))
        reader = Reader(tenant_id)

        def render(row: Draft) -> dict[str, Any]:
            return DraftShape.of(reader.open(row))

        if not q:
            page = list_page(request, rows, prefix=Prefix.DRAFT, render=render, filters=FILTERS)
            page.data["truncated"] = False
            return page
        return search_page(
            request,
            rows,
            prefix=Prefix.DRAFT,
            render=render,
            matches=lambda row: q in (reader.text(row) or "").casefold(),
            most=MOST_SEARCHED,
            filters=FILTERS,
        )

    @extend_schema(operation_id="drafts_purge", parameters=[PurgeQuery], responses={200: PurgeShape})
    def delete(self, request: Request) -> Response:
        """Delete all that is kept of a family. Its key is destroyed, so that copies of the texts in backups and logs
        of the database cannot be read either."""
        family = _read(PurgeQuery, request)["family"]
        purged = purge_family(request.auth.tenant_id, family, actor=request.auth.actor)
        return Response(PurgeShape.of(asdict(purged) | {"family": family}))


class DraftView(APIView):
    permission_classes = DRAFTS

    @extend_schema(operation_id="drafts_get", responses=DraftDetailShape)
    def get(self, request: Request, draft: str) -> Response:
        """One draft with its slice and what was said of it when it was offered."""
        check_query(request.query_params, [])
        row = find_draft(request, draft)
        reader = Reader(row.tenant_id)
        verdicts = [VerdictShape.of(verdict) for verdict in verdicts_on(row)]
        body = DraftShape.of(reader.open(row)) | {"slice_text": reader.slice_text(row), "verdicts": verdicts}
        return Response(body)

    @extend_schema(operation_id="drafts_delete", responses={200: DeletionShape})
    def delete(self, request: Request, draft: str) -> Response:
        """Delete a draft with every draft that began as its text."""
        check_query(request.query_params, [])
        row = find_draft(request, draft)
        n_deleted = delete_draft(row.tenant_id, row.id, actor=request.auth.actor)
        return Response(DeletionShape.of({"n_drafts": n_deleted}))


def find_draft(request: Request, public_id: str) -> Draft:
    """The tenant's draft behind a public id. Raises NotFound, for another tenant's too."""
    row = Draft.objects.of_tenant(request.auth.tenant_id).filter(id=decode_id(Prefix.DRAFT, public_id)).first()
    if row is None:
        raise NotFound(f"There is no draft {public_id[:60]!r}.")
    return row


def _read(shape: type[StrictSerializer], request: Request, others: Iterable[str] = ()) -> dict[str, Any]:
    """The query parameters by their shape. `others` are read elsewhere."""
    known = shape().fields
    check_query(request.query_params, [*known, *others])
    values = {name: value for name, value in request.query_params.items() if name in known}
    form = shape(data=values)
    form.is_valid(raise_exception=True)
    return dict(form.validated_data)


@method_decorator(transaction.non_atomic_requests, name="dispatch")
class PreviewView(APIView):
    """A view without a transaction: the question must be visible to workers while this request waits for the answer."""

    permission_classes: ClassVar = [IsTenant, HasScope("drafts:read")]

    @extend_schema(operation_id="drafts_preview", request=OpenApiTypes.OBJECT, responses=PreviewShape)
    def post(self, request: Request) -> Response:
        """The drafts that would be offered for this spec, slice by slice, and the saving to expect. The teacher is not
        asked and nothing is spent."""
        check_query(request.query_params, [])
        spec = parse_spec(request.data)
        tenant_id: UUID = request.auth.tenant_id
        answer: dict[str, Any] = preview(tenant_id, canonical_spec(spec), wait_s=PREVIEW_WAIT_S)
        return Response({"object": "draft_preview", "family": spec.family, **answer})

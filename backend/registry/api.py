"""/v1/registry: the epochs, which are the same for every tenant, and what the asking tenant put in."""

from typing import ClassVar

from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema, inline_serializer
from rest_framework import serializers as s
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from backend.domain.errors import InvalidInput, NotFound, Problem
from backend.domain.ids import Prefix, decode_id
from backend.domain.recipes.registry.epochs import prove
from backend.registry.contributing import MAX_OF_A_TENANT, withdraw
from backend.registry.models import Contribution, Epoch
from backend.registry.shapes import ContributionShape, EpochShape
from backend.rest.pagination import page_schema, whole_list
from backend.rest.strict import check_query
from backend.tenants.api_keys.authentication import IsTenant
from backend.tenants.permissions import HasScope

MOST_LISTED = 100
EPOCH_FILE = "application/vnd.kolm.epoch+json"


class EpochsView(APIView):
    permission_classes: ClassVar = [IsTenant, HasScope("artifacts:read")]

    @extend_schema(operation_id="registry_epochs", responses=page_schema("EpochList", EpochShape()))
    def get(self, request: Request) -> Response:
        """The newest 100 epochs of the registry of recipes, newest first."""
        check_query(request.query_params, [])
        return whole_list([EpochShape.of(row) for row in Epoch.objects.defer("data").order_by("-number")[:MOST_LISTED]])


class EpochView(APIView):
    permission_classes: ClassVar = [IsTenant, HasScope("artifacts:read")]

    @extend_schema(operation_id="registry_epoch", responses=EpochShape)
    def get(self, request: Request, epoch: str) -> Response:
        """One epoch, without its entries."""
        check_query(request.query_params, [])
        return Response(EpochShape.of(find_epoch(epoch)))


class EpochDownloadView(APIView):
    permission_classes: ClassVar = [IsTenant, HasScope("artifacts:read")]

    @extend_schema(operation_id="registry_epoch_download", responses={(200, EPOCH_FILE): OpenApiTypes.BINARY})
    def get(self, request: Request, epoch: str) -> HttpResponse:
        """The signed file. Its ETag is its sha256; the bytes never change."""
        check_query(request.query_params, [])
        row = find_epoch(epoch)
        etag = f'"{row.sha256}"'
        if request.headers.get("If-None-Match") == etag:
            response = HttpResponse(status=304)
        else:
            response = HttpResponse(bytes(row.data), content_type=EPOCH_FILE)
            response["Content-Disposition"] = f'attachment; filename="registry-{row.number}.epoch.json"'
        response["ETag"] = etag
        response["Cache-Control"] = "private, immutable, max-age=31536000"
        return response


class EpochProofView(APIView):
    permission_classes: ClassVar = [IsTenant, HasScope("artifacts:read")]

    @extend_schema(
        operation_id="registry_epoch_proof",
        parameters=[OpenApiParameter("index", OpenApiTypes.INT, description="The entry's place; 0 if not given.")],
        responses=inline_serializer(
            "EpochProof",
            {
                "format": s.CharField(),
                "entry": s.JSONField(),
                "index": s.IntegerField(),
                "path": s.ListField(child=s.CharField()),
                "head": s.JSONField(help_text="The DSSE envelope of the epoch."),
            },
        ),
    )
    def get(self, request: Request, epoch: str) -> Response:
        """The proof that an entry is in the epoch: the entry, the signed head, and the digests that lead from one to
        the other."""
        check_query(request.query_params, ["index"])
        row = find_epoch(epoch)
        return Response(prove(bytes(row.data), _index(request.query_params.get("index", "0"), row.n_entries)))


class ContributionsView(APIView):
    permission_classes: ClassVar = [IsTenant, HasScope("artifacts")]

    @extend_schema(
        operation_id="registry_contributions", responses=page_schema("ContributionList", ContributionShape())
    )
    def get(self, request: Request) -> Response:
        """Everything that this tenant has in the registry, also what no other tenant shares and no epoch holds."""
        check_query(request.query_params, [])
        rows = Contribution.objects.of_tenant(request.auth.tenant_id).order_by("shape", "run")[:MAX_OF_A_TENANT]
        return whole_list([ContributionShape.of(row) for row in rows])

    @extend_schema(operation_id="registry_withdraw", request=None, responses={204: None})
    def delete(self, request: Request) -> Response:
        """Take everything back. The next epoch counts without it; those that are published stay as they are. Compiles
        from before add nothing any more."""
        check_query(request.query_params, [])
        withdraw(request.auth.tenant_id, actor=request.auth.actor)
        return Response(status=204)


def find_epoch(public_id: str) -> Epoch:
    """Raises NotFound."""
    row = Epoch.objects.filter(id=decode_id(Prefix.EPOCH, public_id)).first()
    if row is None:
        raise NotFound(f"There is no epoch {public_id[:60]!r}.")
    return row


def _index(text: str, n_entries: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 6 and int(text) < n_entries):
        message = f"`index` is the place of an entry, a whole number below {n_entries}."
        raise InvalidInput(message, code="invalid_request", problems=(Problem(pointer="/index", message=message),))
    return int(text)

"""/v1/uploads: rows for specs, as JSON lines or in the form that a customer has them in."""

from typing import Any, ClassVar
from uuid import UUID

from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.parsers import BaseParser
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from backend.compiles.api.shapes import UploadShape
from backend.compiles.api.sources import SourceShape
from backend.compiles.models import Upload
from backend.compiles.uploads import deletion
from backend.compiles.uploads.files import purpose_of, read_source, store_source
from backend.compiles.uploads.rows import UploadPurpose, store_upload
from backend.domain.errors import InvalidInput, Problem
from backend.domain.ids import Prefix, decode_id
from backend.domain.source_data.columns import ColumnMapping
from backend.domain.source_data.profile import TaskKind
from backend.domain.source_data.source import Source, look_at
from backend.rest.pagination import PAGE_PARAMETERS, list_page, page_schema
from backend.rest.strict import check_query
from backend.tenants.api_keys.authentication import IsTenant
from backend.tenants.idempotency import IDEMPOTENCY_KEY, idempotent
from backend.tenants.permissions import HasScope


class BytesParser(BaseParser):
    """A body as it came; it is read later."""

    media_type = "application/octet-stream"

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Any = None) -> bytes:
        return bytes(stream.read())


class LinesParser(BytesParser):
    media_type = "application/x-ndjson"


class JsonParser(BytesParser):
    media_type = "application/json"


class CsvParser(BytesParser):
    media_type = "text/csv"


class TsvParser(BytesParser):
    media_type = "text/tab-separated-values"


class ParquetParser(BytesParser):
    media_type = "application/vnd.apache.parquet"


class ArrowParser(BytesParser):
    media_type = "application/vnd.apache.arrow.file"


AS_THEY_ARE = (LinesParser, BytesParser)
ALL_FORMS = (*AS_THEY_ARE, JsonParser, CsvParser, TsvParser, ParquetParser, ArrowParser)
FORMS = {parser.media_type: OpenApiTypes.BINARY for parser in ALL_FORMS}

COLUMNS = (
    OpenApiParameter("input", OpenApiTypes.STR, description="The column of inputs; several, joined by commas."),
    OpenApiParameter("output", OpenApiTypes.STR, description="The column of answers."),
    OpenApiParameter("group", OpenApiTypes.STR, description="The column of what must stay together."),
    OpenApiParameter("split", OpenApiTypes.STR, description="The column that says train or test."),
    OpenApiParameter("filename", OpenApiTypes.STR, description="Its ending helps to tell what the file is."),
)
COLUMN_NAMES = tuple(parameter.name for parameter in COLUMNS)


def source_of(request: Request) -> Source:
    """The file of a body under the mapping of the query; without `input` columns are chosen by their names."""
    query = request.query_params
    data = request.data if isinstance(request.data, bytes) else b""
    records = read_source(data, query.get("filename", "")[:200])
    if not query.get("input"):
        return look_at(records)
    inputs = tuple(name.strip() for name in query["input"].split(","))
    if query["input"] in records.columns:  # a name with a comma in it
        inputs = (query["input"],)
    others = {name: query.get(name) or None for name in ("output", "group", "split")}
    return look_at(records, mapping=ColumnMapping(inputs=inputs, **others))


class UploadsView(APIView):
    permission_classes: list[type[BasePermission]] = [IsTenant, HasScope("uploads")]
    parser_classes: ClassVar = ALL_FORMS

    @extend_schema(
        operation_id="uploads_list",
        parameters=[
            *PAGE_PARAMETERS,
            OpenApiParameter("purpose", OpenApiTypes.STR, enum=[purpose.value for purpose in UploadPurpose]),
            OpenApiParameter("name", OpenApiTypes.STR, description="Uploads of this name alone."),
        ],
        responses=page_schema("UploadList", UploadShape()),
    )
    def get(self, request: Request) -> Response:
        """Uploads, newest first; of one purpose or name where the query has it."""
        rows = Upload.objects.of_tenant(request.auth.tenant_id)
        if "purpose" in request.query_params:
            rows = rows.filter(purpose=_purpose(request.query_params["purpose"]))
        if "name" in request.query_params:
            rows = rows.filter(name=request.query_params["name"])
        return list_page(request, rows, prefix=Prefix.UPLOAD, render=UploadShape.of, filters=("purpose", "name"))

    @extend_schema(
        operation_id="uploads_create",
        parameters=[
            IDEMPOTENCY_KEY,
            OpenApiParameter(
                "purpose",
                OpenApiTypes.STR,
                enum=[purpose.value for purpose in UploadPurpose],
                description="Needed for JSON lines; of a table or chats it follows from what they hold.",
            ),
            OpenApiParameter("name", OpenApiTypes.STR, description="A spec may name the newest upload of a name."),
            OpenApiParameter(
                "sha256", OpenApiTypes.STR, description="Of the body, hexadecimal: a truncated upload is refused."
            ),
            *COLUMNS,
        ],
        request=FORMS,
        responses={201: UploadShape},
    )
    @idempotent
    def post(self, request: Request) -> Response:
        """Upload up to 5 MB of JSON lines: `{"input"}` for captures, `{"input", "output"}` for examples (with
        `"group"` and `"split"` where a row has them), `{"item", "completions"}` for a recording.

        Or a file as it is, up to 32 MB: CSV, TSV, JSON, Parquet or Arrow by its media type, or JSON lines of other
        keys with `input` naming one. Rows that cannot be used are left out; `POST /v1/uploads/inspect` says which."""
        check_query(request.query_params, ["purpose", "name", "sha256", *COLUMN_NAMES])
        query, tenant_id = request.query_params, request.auth.tenant_id
        media_type = (request.content_type or "").partition(";")[0].strip().lower()
        is_as_it_is = media_type in ("", *(parser.media_type for parser in AS_THEY_ARE)) and "input" not in query
        row = _store_lines(tenant_id, request) if is_as_it_is else _store_file(tenant_id, request)
        shape = UploadShape.of(row)
        return Response(shape, status=201, headers={"Location": f"/v1/uploads/{shape['id']}"})


def _store_lines(tenant_id: UUID, request: Request) -> Upload:
    query = request.query_params
    data = request.data if isinstance(request.data, bytes) else b""
    purpose = _purpose(query.get("purpose", ""))
    return store_upload(tenant_id, purpose, data, sha256=query.get("sha256"), name=query.get("name", ""))


def _store_file(tenant_id: UUID, request: Request) -> Upload:
    query = request.query_params
    source = source_of(request)
    if not source.rows:
        message = "No row of the file can be used; POST /v1/uploads/inspect says why."
        raise InvalidInput(message, code="invalid_upload")
    if "purpose" in query and _purpose(query["purpose"]) != purpose_of(source):
        message = f"The rows of this file are {purpose_of(source)}, not {query['purpose']}."
        raise InvalidInput(message, problems=(Problem(pointer="/purpose", message=message),))
    return store_source(tenant_id, source, name=query.get("name", ""))


def _purpose(text: str) -> UploadPurpose:
    if text not in set(UploadPurpose):
        message = f"`purpose` is one of {', '.join(UploadPurpose)}."
        raise InvalidInput(message, problems=(Problem(pointer="/purpose", message=message),))
    return UploadPurpose(text)


class InspectView(APIView):
    permission_classes: list[type[BasePermission]] = [IsTenant, HasScope("uploads")]
    parser_classes: ClassVar = ALL_FORMS

    @extend_schema(
        operation_id="uploads_inspect",
        parameters=[
            *COLUMNS,
            OpenApiParameter("kind", OpenApiTypes.STR, enum=[kind.value for kind in TaskKind]),
        ],
        request=FORMS,
        responses=SourceShape,
    )
    def post(self, request: Request) -> Response:
        """Look at a file of up to 32 MB without storing it: what it is, which columns are input and answer, the labels
        with their shares, what repeats, contradicts itself or leaks, and each reason for which rows cannot be used."""
        check_query(request.query_params, [*COLUMN_NAMES, "kind"])
        return Response(SourceShape.of(source_of(request)))


class UploadView(APIView):
    permission_classes: list[type[BasePermission]] = [IsTenant, HasScope("uploads")]

    @extend_schema(operation_id="uploads_get", responses=UploadShape)
    def get(self, request: Request, upload: str) -> Response:
        """One upload; its rows are not shown again."""
        check_query(request.query_params, [])
        return Response(UploadShape.of(deletion.find(request.auth.tenant_id, decode_id(Prefix.UPLOAD, upload))))

    @extend_schema(operation_id="uploads_delete", responses={204: None})
    def delete(self, request: Request, upload: str) -> HttpResponse:
        """Delete an upload with its rows. Compiles that have ended keep what they made of it; while one that is
        under way names it, it stays (409)."""
        deletion.delete(request.auth.tenant_id, decode_id(Prefix.UPLOAD, upload), actor=request.auth.actor)
        return HttpResponse(status=204)

"""/v1/select: K of the customer's own rows, chosen on a runner."""

import time
from typing import Any, BinaryIO, ClassVar, cast
from uuid import UUID

from django.db import transaction
from django.http import HttpResponse
from django.http.request import UnreadablePostError
from django.utils.decorators import method_decorator
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.fields import BooleanField, IntegerField
from rest_framework.parsers import BaseParser
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from backend.domain.errors import Conflict, InvalidInput, NotFound
from backend.domain.ids import Prefix, decode_id
from backend.rest.async_queries import let_go
from backend.rest.bodies.body_limits import LINES
from backend.rest.bodies.json_bodies import StrictJSONParser
from backend.rest.new_ids import new_uuid7
from backend.rest.pagination import PAGE_PARAMETERS, list_page, page_schema
from backend.rest.strict import check_query
from backend.runner_jobs import leases
from backend.runner_jobs.models import RunnerJob
from backend.runner_jobs.retention import ENDED
from backend.selections.conclusion import conclude
from backend.selections.models import Selection, SelectionStatus
from backend.selections.options import Number, OptionsRequest, read_options
from backend.selections.preferences import PREFER, preferred_wait_s
from backend.selections.receiving import LineReader, Received, receive_lines, receive_values
from backend.selections.retention import delete
from backend.selections.shapes import SelectionShape, SelectionSummary, SelectRequest
from backend.selections.submission import Order, order_of, refuse_too_many_open, submit
from backend.tenants.api_keys.authentication import IsTenant
from backend.tenants.idempotency import IDEMPOTENCY_KEY, idempotent
from backend.tenants.isolation import tenant_scope
from backend.tenants.permissions import HasScope
from backend.usage.accounts import check_open
from backend.wakeups import listening

SELECTIONS: list[type[BasePermission]] = [IsTenant, HasScope("compiles")]
LOOK_AGAIN_S = 1.0


class LinesParser(BaseParser):
    """Leaves the body where it is: `receive_lines` reads it."""

    media_type = LINES[0]

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Any = None) -> Any:
        return stream


class JsonlParser(LinesParser):
    media_type = LINES[1]


def _query_parameters() -> list[OpenApiParameter]:
    """The options as the query string of a body of lines takes them."""
    kinds = {IntegerField: OpenApiTypes.INT, Number: OpenApiTypes.NUMBER, BooleanField: OpenApiTypes.BOOL}
    return [
        OpenApiParameter(
            name,
            kinds.get(type(field), OpenApiTypes.STR),
            description=f"With JSON lines. {field.help_text or ''}".strip(),
            enum=list(field.choices) if hasattr(field, "choices") else None,
        )
        for name, field in OptionsRequest().fields.items()
    ]


class SelectionsView(APIView):
    permission_classes = SELECTIONS
    parser_classes: ClassVar = [StrictJSONParser, LinesParser, JsonlParser]
    spending_methods: ClassVar = ("POST",)

    @method_decorator(transaction.non_atomic_requests)
    def dispatch(self, *args: Any, **kwargs: Any) -> Any:
        """Run without a transaction: reading rows takes longer than one may, and the job must be visible to runners
        while the request waits for it."""
        return super().dispatch(*args, **kwargs)

    @extend_schema(
        operation_id="select_list",
        parameters=PAGE_PARAMETERS,
        responses=page_schema("SelectionList", SelectionShape()),
    )
    def get(self, request: Request) -> Response:
        """All selections of the last day, newest first, without their picks."""
        tenant_id: UUID = request.auth.tenant_id
        with tenant_scope(tenant_id):
            rows = Selection.objects.of_tenant(tenant_id)
            return list_page(
                request, rows, prefix=Prefix.SELECTION, render=lambda row: SelectionSummary.of(conclude(row))
            )

    @extend_schema(
        operation_id="select_create",
        parameters=[IDEMPOTENCY_KEY, PREFER, *_query_parameters()],
        request={"application/json": SelectRequest, "application/x-ndjson": OpenApiTypes.BINARY},
        responses={201: SelectionShape, 202: SelectionShape},
    )
    def post(self, request: Request) -> HttpResponse:
        """Choose K of up to 100,000 texts or embeddings. Waits for the result for a while (`Prefer: wait=10`): 201 with
        the result when it is there in time, else 202."""
        tenant_id: UUID = request.auth.tenant_id
        refuse_too_many_open(tenant_id)
        wait_s = preferred_wait_s(request)
        let_go()  # no connection of the pool waits for a long body
        order = _read(request, tenant_id)
        try:
            with tenant_scope(tenant_id):
                answer: HttpResponse = self._submit(request, order)
        except Exception:
            order.rows.forget()
            raise
        if "Idempotent-Replayed" in answer:
            order.rows.forget()
            return answer
        response = _wait(tenant_id, order.rows.selection_id, wait_s)
        if "Prefer" in request.headers:
            response["Preference-Applied"] = f"wait={wait_s:g}"
        return response

    @idempotent
    def _submit(self, request: Request, order: Order) -> Response:
        check_open(request.auth.tenant_id, request.auth.api_key_id)
        row = submit(order, api_key_id=request.auth.api_key_id)
        shape = SelectionShape.of(row)
        return Response(shape, status=202, headers={"Location": f"/v1/select/{shape['id']}"})


def _read(request: Request, tenant_id: UUID) -> Order:
    """The whole request, checked; its rows are in the blob store. Raises InvalidInput and ValidationError."""
    selection_id = new_uuid7()
    if (request.content_type or "").partition(";")[0].strip().lower() in LINES:
        check_query(request.query_params, OptionsRequest().fields)
        wish = read_options(request.query_params.dict())
        rows = _read_lines(request, tenant_id, selection_id)
    else:
        check_query(request.query_params, [])
        form = SelectRequest(data=request.data)
        form.is_valid(raise_exception=True)
        wish = read_options({name: value for name, value in request.data.items() if name != "rows"})
        rows = receive_values(tenant_id, selection_id, form.validated_data["rows"])
    try:
        return order_of(rows, wish)
    except InvalidInput:
        rows.forget()
        raise


def _read_lines(request: Request, tenant_id: UUID, selection_id: UUID) -> Received:
    lines = LineReader(cast(BinaryIO, request._request))
    rows = receive_lines(tenant_id, selection_id, lines)
    announced = request.META.get("CONTENT_LENGTH") or "0"
    if lines.n_bytes != int(announced):
        rows.forget()
        raise UnreadablePostError("the body broke off")
    request._request.streamed_sha256 = lines.sha256  # type: ignore[attr-defined]  # for `idempotent`
    return rows


def _wait(tenant_id: UUID, selection_id: UUID, wait_s: float) -> Response:
    """The selection when it has ended, or as it is after `wait_s`."""
    until = time.monotonic() + wait_s
    with tenant_scope(tenant_id):
        job_id = Selection.objects.of_tenant(tenant_id).values_list("runner_job_id", flat=True).get(id=selection_id)
    if wait_s > 0:
        with listening(job_id) as wait:
            while (left_s := until - time.monotonic()) > 0:
                if RunnerJob.objects.filter(id=job_id, status__in=ENDED).exists():
                    break
                let_go()
                wait(min(left_s, LOOK_AGAIN_S))
    with tenant_scope(tenant_id):
        row = Selection.objects.of_tenant(tenant_id).filter(id=selection_id).first()
        if row is None:
            raise Conflict("This selection was deleted while it was waited for.", code="selection_deleted")
        shape = SelectionShape.of(conclude(row))
    headers = {"Location": f"/v1/select/{shape['id']}"}
    return Response(shape, status=202 if row.ended_at is None else 201, headers=headers)


class SelectionView(APIView):
    permission_classes = SELECTIONS

    @extend_schema(operation_id="select_get", responses=SelectionShape)
    def get(self, request: Request, selection: str) -> Response:
        """One selection: status, progress, report with the cohesion log, the first picks."""
        check_query(request.query_params, [])
        row = find_selection(request, selection)
        return Response(SelectionShape.of(conclude(row)))

    @extend_schema(operation_id="select_delete", responses={204: None})
    def delete(self, request: Request, selection: str) -> HttpResponse:
        """Delete a selection with its rows and its result; one that is at work is stopped."""
        row = find_selection(request, selection)
        conclude(row)
        delete(row)
        return HttpResponse(status=204)


class CancelSelectionView(APIView):
    permission_classes = SELECTIONS

    @extend_schema(
        operation_id="select_cancel",
        parameters=[IDEMPOTENCY_KEY],
        request=None,
        responses={202: SelectionShape},
    )
    @idempotent
    def post(self, request: Request, selection: str) -> Response:
        """Stop a selection: a queued one ends now, a running one within seconds."""
        row = find_selection(request, selection)
        if conclude(row).ended_at is None:
            Selection.objects.of_tenant(row.tenant_id).filter(id=row.id).update(is_cancel_requested=True)
            leases.cancel(row.runner_job_id)
            row.refresh_from_db()
        elif row.status != SelectionStatus.CANCELED:
            raise Conflict(f"This selection has ended ({row.status}).", code="selection_ended")
        return Response(SelectionShape.of(conclude(row)), status=202)


def find_selection(request: Request, public_id: str) -> Selection:
    """The tenant's selection behind a public id. Raises NotFound, for another tenant's too."""
    row = Selection.objects.of_tenant(request.auth.tenant_id).filter(id=decode_id(Prefix.SELECTION, public_id)).first()
    if row is None:
        raise NotFound(f"There is no selection {public_id[:60]!r}.")
    return row

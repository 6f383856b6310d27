"""/v1/specs/schema, /v1/compiles and what hangs on a compile. The event stream is in `event_stream`, uploads and
teacher keys in `material_api`; a spec is checked in `backend.preflight`."""

from typing import ClassVar
from uuid import UUID

from django.db import transaction
from django.db.models import F
from django.utils.decorators import method_decorator
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from backend.compiles.api.serializers import EstimateQuery, ResumeRequest
from backend.compiles.api.shapes import EstimateShape
from backend.compiles.lifecycle import submission, transitions
from backend.compiles.models import Candidate, Compile, Slice, StepRun
from backend.compiles.shapes import CandidateShape, CompileShape, CompileSummary, SliceShape, StepShape, with_queue
from backend.domain.errors import NotFound
from backend.domain.ids import Prefix, decode_id
from backend.domain.lifecycle import CompileStatus
from backend.domain.spec.parsing import spec_json_schema
from backend.drafts.previews import expected_saving
from backend.rest.pagination import PAGE_PARAMETERS, list_page, page_schema, whole_list
from backend.rest.strict import check_query
from backend.tenants.api_keys.authentication import IsTenant
from backend.tenants.idempotency import IDEMPOTENCY_KEY, idempotent
from backend.tenants.isolation import tenant_scope
from backend.tenants.permissions import HasScope
from backend.usage.ledger import totals_of_compile
from backend.usage.reports import compile_bill
from backend.usage.shapes import BillShape, UsageTotalShape

COMPILES: list[type[BasePermission]] = [IsTenant, HasScope("compiles")]
READ_ONLY: list[type[BasePermission]] = [IsTenant, HasScope("compiles:read")]
DRAFTS_WAIT_S = 3.0  # an estimate waits less for a worker than a preview: it is complete without


class SpecSchemaView(APIView):
    permission_classes: ClassVar = []
    authentication_classes: ClassVar = []

    @extend_schema(operation_id="specs_schema", responses=OpenApiTypes.OBJECT, auth=[])
    def get(self, request: Request) -> Response:
        """The JSON Schema of a spec."""
        return Response(spec_json_schema())


class CompilesView(APIView):
    # no spending method: what a compile may spend is held in the ledger first, and upkeep finds it without a wake-up
    permission_classes = COMPILES

    @extend_schema(
        operation_id="compiles_list",
        parameters=[
            *PAGE_PARAMETERS,
            OpenApiParameter("status", OpenApiTypes.STR, enum=[status.value for status in CompileStatus]),
            OpenApiParameter("name", OpenApiTypes.STR),
        ],
        responses=page_schema("CompileList", CompileSummary()),
    )
    def get(self, request: Request) -> Response:
        """All compiles, newest first, without their specs, preflights, quality cards and drafts."""
        rows = Compile.objects.of_tenant(request.auth.tenant_id)
        for name in ("status", "name"):
            if name in request.query_params:
                rows = rows.filter(**{name: request.query_params[name]})
        filters = ("status", "name")
        rows = with_queue(rows, request.auth.tenant_id)
        return list_page(request, rows, prefix=Prefix.COMPILE, render=CompileSummary.of, filters=filters)

    @extend_schema(
        operation_id="compiles_create",
        parameters=[IDEMPOTENCY_KEY],
        request=OpenApiTypes.OBJECT,
        responses={202: CompileShape},
    )
    @idempotent
    def post(self, request: Request) -> Response:
        """Start a compile. The body is the spec (its schema is at /v1/specs/schema)."""
        row = submission.submit(request.auth.tenant_id, request.data, api_key_id=request.auth.api_key_id)
        row.refresh_from_db()
        shape = CompileShape.of(row)
        return Response(shape, status=202, headers={"Location": f"/v1/compiles/{shape['id']}"})


@method_decorator(transaction.non_atomic_requests, name="dispatch")
class EstimateView(APIView):
    """Estimate outside a transaction: with `drafts` the view waits for a worker."""

    permission_classes = READ_ONLY

    @extend_schema(
        operation_id="compiles_estimate",
        parameters=[EstimateQuery],
        request=OpenApiTypes.OBJECT,
        responses=EstimateShape,
    )
    def post(self, request: Request) -> Response:
        """Estimate what a spec would cost: low, expected and high per step in micro-USD, and whether its budget covers
        it. With `drafts=true` also what the draft cache is expected to save of that."""
        check_query(request.query_params, EstimateQuery().fields)
        query = EstimateQuery(data=request.query_params.dict())
        query.is_valid(raise_exception=True)
        tenant_id: UUID = request.auth.tenant_id
        with tenant_scope(tenant_id):
            spec, expected = submission.check(tenant_id, request.data)
        budget = spec.budget.microusd
        is_within = budget >= max(expected.total.low, expected.worst_batch)
        wants_drafts = query.validated_data["drafts"]
        body = {
            "object": "estimate",
            **expected.to_json(),
            "budget_microusd": budget,
            "within_budget": is_within,
            "draft_cache": expected_saving(tenant_id, spec, wait_s=DRAFTS_WAIT_S) if wants_drafts else None,
        }
        return Response(body)


class CompileView(APIView):
    permission_classes = READ_ONLY

    @extend_schema(operation_id="compiles_get", responses=CompileShape)
    def get(self, request: Request, compile: str) -> Response:
        """One compile with its spec, costs, evaluation and gate."""
        check_query(request.query_params, [])
        row = find_compile(request, compile)
        response = Response(CompileShape.of(row))
        # both: an event moves `sequence` and `last_progress_at` without a new version
        response["ETag"] = f'"{row.version}.{row.event_seq}"'
        return response


class StepsView(APIView):
    permission_classes = READ_ONLY

    @extend_schema(operation_id="compiles_steps", responses=page_schema("StepList", StepShape()))
    def get(self, request: Request, compile: str) -> Response:
        """The steps in order: state, progress, estimate beside actual cost, what each put out."""
        check_query(request.query_params, [])
        row = find_compile(request, compile)
        steps = StepRun.objects.filter(tenant_id=row.tenant_id, compile=row).order_by("position")
        return whole_list([StepShape.of(step) for step in steps])


class SlicesView(APIView):
    permission_classes = READ_ONLY

    @extend_schema(operation_id="compiles_slices", responses=page_schema("SliceList", SliceShape()))
    def get(self, request: Request, compile: str) -> Response:
        """The slices: k_requested and k_actual, the selection's report, what the pipeline did by itself."""
        check_query(request.query_params, [])
        row = find_compile(request, compile)
        slices = Slice.objects.filter(tenant_id=row.tenant_id, compile=row).order_by("position")
        return whole_list([SliceShape.of(part) for part in slices])


class CandidatesView(APIView):
    permission_classes = READ_ONLY

    @extend_schema(
        operation_id="compiles_candidates",
        parameters=[
            *PAGE_PARAMETERS,
            OpenApiParameter(
                "state",
                OpenApiTypes.STR,
                description="rejected, valid, picked, dropped, labeled, unverified, trained or left_out.",
            ),
            OpenApiParameter("slice", OpenApiTypes.STR, description="The slice's name."),
        ],
        responses=page_schema("CandidateList", CandidateShape()),
    )
    def get(self, request: Request, compile: str) -> Response:
        """Every candidate: kept, dropped or rejected, and why; its score, label, votes and cost."""
        row = find_compile(request, compile)
        rows = Candidate.objects.of_tenant(row.tenant_id).filter(compile=row)
        if "state" in request.query_params:
            rows = rows.filter(state=request.query_params["state"])
        if "slice" in request.query_params:
            rows = rows.filter(slice__name=request.query_params["slice"])
        rows = rows.annotate(slice_name=F("slice__name")).defer("embedding", "token_logprobs")
        filters = ("state", "slice")
        return list_page(request, rows, prefix=Prefix.CANDIDATE, render=CandidateShape.of, filters=filters)


class UsageView(APIView):
    permission_classes = READ_ONLY

    @extend_schema(operation_id="compiles_usage", responses=page_schema("UsageTotalList", UsageTotalShape()))
    def get(self, request: Request, compile: str) -> Response:
        """List what the compile used, by step and sku: the facts that `spent_microusd` and `waste_microusd` are the
        sums of."""
        check_query(request.query_params, [])
        row = find_compile(request, compile)
        return whole_list([UsageTotalShape.of(total) for total in totals_of_compile(row.tenant_id, row.id)])


class BillView(APIView):
    permission_classes = READ_ONLY

    @extend_schema(operation_id="compiles_bill", responses=BillShape)
    def get(self, request: Request, compile: str) -> Response:
        """Get the bill of the compile, step by step: charges, what kolm carries, credits for failures of ours, your
        own key's provider, what drafts saved."""
        check_query(request.query_params, [])
        row = find_compile(request, compile)
        return Response(BillShape.of(compile_bill(row.tenant_id, row.id)))


class CancelView(APIView):
    permission_classes = COMPILES

    @extend_schema(
        operation_id="compiles_cancel",
        parameters=[IDEMPOTENCY_KEY],
        request=None,
        responses={202: CompileShape},
    )
    @idempotent
    def post(self, request: Request, compile: str) -> Response:
        """Stop a compile. What was made and paid for stays; teacher and runner stop within seconds."""
        caller = request.auth
        row = transitions.cancel(caller.tenant_id, decode_id(Prefix.COMPILE, compile), actor=caller.actor)
        row.refresh_from_db()
        return Response(CompileShape.of(row), status=202)


class ResumeView(APIView):
    permission_classes = COMPILES
    # no spending method, as for a new compile: its budget is held in Postgres first

    @extend_schema(
        operation_id="compiles_resume",
        parameters=[IDEMPOTENCY_KEY],
        request=ResumeRequest,
        responses={202: CompileShape},
    )
    @idempotent
    def post(self, request: Request, compile: str) -> Response:
        """Go on with a failed, expired or canceled compile at its first unfinished step, with a larger budget if you
        give one."""
        form = ResumeRequest(data=request.data or {})
        form.is_valid(raise_exception=True)
        row = transitions.resume(
            request.auth.tenant_id,
            decode_id(Prefix.COMPILE, compile),
            budget_microusd=form.validated_data.get("budget_microusd"),
            actor=request.auth.actor,
        )
        row.refresh_from_db()
        return Response(CompileShape.of(row), status=202)


def find_compile(request: Request, public_id: str) -> Compile:
    """The tenant's compile behind a public id. Raises NotFound, for another tenant's too."""
    row = Compile.objects.of_tenant(request.auth.tenant_id).filter(id=decode_id(Prefix.COMPILE, public_id)).first()
    if row is None:
        raise NotFound(f"There is no compile {public_id[:60]!r}.")
    return row

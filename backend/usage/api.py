"""/v1/account, /v1/budgets, /v1/usage and /v1/bills: what may be spent, what was, and what it comes to."""

import csv
from datetime import UTC, date, datetime
from typing import Any
from uuid import UUID

from django.http import HttpRequest, StreamingHttpResponse
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from backend.domain.errors import InvalidInput, NotFound, Problem
from backend.domain.ids import Prefix, decode_id
from backend.rest.pagination import PAGE_PARAMETERS, list_page, page_schema
from backend.rest.streaming import streamed_file
from backend.rest.strict import StrictSerializer, check_query
from backend.tenants.api_keys.authentication import IsTenant
from backend.tenants.idempotency import IDEMPOTENCY_KEY, idempotent
from backend.tenants.permissions import HasScope
from backend.usage import accounts, budgets, reports
from backend.usage.bill_groups import groups_of, period_txs
from backend.usage.budgets import BudgetDeletion, BudgetShape
from backend.usage.models import Budget
from backend.usage.reports import TagFilter, month_forecast
from backend.usage.serializers import AccountChange, BudgetChange, NewBudget, TaggedSpanQuery, UsageQuery
from backend.usage.shapes import AccountShape, BillGroupsShape, BillShape, ForecastShape, UsageShape

BILLING: list[type[BasePermission]] = [IsTenant, HasScope("billing")]
READ_ONLY: list[type[BasePermission]] = [IsTenant, HasScope("billing:read")]


class AccountView(APIView):
    permission_classes = BILLING

    @extend_schema(operation_id="account_get", responses=AccountShape)
    def get(self, request: Request) -> Response:
        """The plan, the spend cap, and what this period's spending has left of it."""
        check_query(request.query_params, [])
        return Response(AccountShape.of(accounts.account_of(request.auth.tenant_id)))

    @extend_schema(operation_id="account_change", request=AccountChange, responses=AccountShape)
    def patch(self, request: Request) -> Response:
        """Set the monthly spend cap, as high as the plan allows. Nothing is ever spent beyond it."""
        wanted = _read(AccountChange, request.data)
        cap: int | None = wanted["cap_microusd"]
        return Response(AccountShape.of(accounts.set_cap(request.auth.tenant_id, cap, actor=request.auth.actor)))


class BudgetsView(APIView):
    permission_classes = BILLING

    @extend_schema(
        operation_id="budgets_list",
        parameters=PAGE_PARAMETERS,
        responses=page_schema("BudgetList", BudgetShape()),
    )
    def get(self, request: Request) -> Response:
        """All budgets, newest first."""
        rows = Budget.objects.of_tenant(request.auth.tenant_id)
        account = accounts.account_of(request.auth.tenant_id)
        return list_page(
            request, rows, prefix=Prefix.BUDGET, render=lambda row: BudgetShape.of(budgets.current(row, account))
        )

    @extend_schema(
        operation_id="budgets_create",
        parameters=[IDEMPOTENCY_KEY],
        request=NewBudget,
        responses={201: BudgetShape},
    )
    @idempotent
    def post(self, request: Request) -> Response:
        """A monthly budget for the whole team or for one API key. It tells you at 50, 80 and 100 %, and unless
        `hard_stop` is false nothing is started that would not fit."""
        wanted = _read(NewBudget, request.data)
        key = wanted["api_key"]
        row = budgets.create(
            request.auth.tenant_id,
            scope=wanted["scope"],
            api_key_id=None if key is None else decode_id(Prefix.API_KEY, key),
            cap_microusd=wanted["cap_microusd"],
            is_hard=wanted["hard_stop"],
            actor=request.auth.actor,
        )
        body = BudgetShape.of(row)
        return Response(body, status=201, headers={"Location": f"/v1/budgets/{body['id']}"})


class BudgetView(APIView):
    permission_classes = BILLING

    @extend_schema(operation_id="budgets_get", responses=BudgetShape)
    def get(self, request: Request, budget: str) -> Response:
        """One budget with what this month has used of it."""
        check_query(request.query_params, [])
        return Response(BudgetShape.of(budgets.in_period(find_budget(request.auth.tenant_id, budget))))

    @extend_schema(operation_id="budgets_change", request=BudgetChange, responses=BudgetShape)
    def patch(self, request: Request, budget: str) -> Response:
        """Another cap, or another kind of stop."""
        row = find_budget(request.auth.tenant_id, budget)
        wanted = _read(BudgetChange, request.data)
        changed = budgets.change(
            row,
            actor=request.auth.actor,
            cap_microusd=wanted.get("cap_microusd"),
            is_hard=wanted.get("hard_stop"),
        )
        return Response(BudgetShape.of(changed))

    @extend_schema(operation_id="budgets_delete", responses={200: BudgetDeletion})
    def delete(self, request: Request, budget: str) -> Response:
        """Take a budget away. The spend cap of the account stays."""
        row = find_budget(request.auth.tenant_id, budget)
        budgets.delete(row, actor=request.auth.actor)
        return Response(BudgetDeletion.of({"id": budget}))


class UsageReportView(APIView):
    permission_classes = READ_ONLY

    @extend_schema(operation_id="usage_report", parameters=[UsageQuery], responses=UsageShape)
    def get(self, request: Request) -> Response:
        """Usage by day, step, sku, API key, compile, deployment or a cost tag (`tag:team`); of one tag alone with
        `tag`."""
        wanted = _read(UsageQuery, request.query_params.dict(), request=request)
        start, end = _span(request.auth.tenant_id, wanted)
        rows = reports.usage_by(
            request.auth.tenant_id, wanted["group_by"], start, end, tag=TagFilter.read(wanted.get("tag"))
        )
        report = {"group_by": wanted["group_by"], "period_start": start, "period_end": end, "data": rows}
        sums = ("charged_microusd", "waste_microusd", "provider_microusd")
        return Response(UsageShape.of(report | {name: sum(getattr(row, name) for row in rows) for name in sums}))


class UsageCsvView(APIView):
    permission_classes = READ_ONLY

    @extend_schema(
        operation_id="usage_csv",
        parameters=[TaggedSpanQuery],
        responses={(200, "text/csv"): OpenApiTypes.STR},
    )
    def get(self, request: Request) -> StreamingHttpResponse:
        """Every usage fact as a line of CSV, oldest first; streamed, so that it may be long."""
        wanted = _read(TaggedSpanQuery, request.query_params.dict(), request=request)
        tenant_id: UUID = request.auth.tenant_id
        start, end = _span(tenant_id, wanted)
        return csv_response(request._request, tenant_id, start, end, tag=TagFilter.read(wanted.get("tag")))


class CurrentBillView(APIView):
    permission_classes = READ_ONLY

    @extend_schema(operation_id="bills_current", responses=BillShape)
    def get(self, request: Request) -> Response:
        """The bill of this period so far, with credits, what kolm pays itself and what drafts saved."""
        check_query(request.query_params, [])
        account = accounts.account_of(request.auth.tenant_id)
        bill = reports.period_bill(request.auth.tenant_id, account.period_start, account.period_end)
        return Response(BillShape.of(bill))


class ForecastView(APIView):
    permission_classes = READ_ONLY

    @extend_schema(operation_id="bills_forecast", responses=ForecastShape)
    def get(self, request: Request) -> Response:
        """A forecast of this period: the mean of its whole days, with an interval, or too early to
        say. docs/billing.md has the formula."""
        check_query(request.query_params, [])
        return Response(ForecastShape.of(month_forecast(request.auth.tenant_id)))


class BillGroupsView(APIView):
    permission_classes = READ_ONLY

    @extend_schema(
        operation_id="bills_groups",
        parameters=[OpenApiParameter("month", OpenApiTypes.STR, description="2026-11; this period if not given.")],
        responses=BillGroupsShape,
    )
    def get(self, request: Request) -> Response:
        """The bill by what it was for: compiles and deployments, the largest first, each with its steps. The groups
        and `credit_applied_microusd` sum to `total_microusd`."""
        check_query(request.query_params, ["month"])
        tenant_id: UUID = request.auth.tenant_id
        account = accounts.account_of(tenant_id)
        start, end = account.period_start, account.period_end
        if "month" in request.query_params:
            start, end = accounts.month_of(moment(f"{request.query_params['month'][:7]}-01", "month"))
        groups = groups_of(tenant_id, period_txs(tenant_id, start, end))
        bill = reports.period_bill(tenant_id, start, end)
        return Response(BillGroupsShape.of({"bill": bill, "groups": groups}))


class _Echo:
    def write(self, line: str) -> str:
        return line


def csv_response(
    request: HttpRequest, tenant_id: UUID, start: datetime, end: datetime, *, tag: TagFilter | None = None
) -> StreamingHttpResponse:
    """The facts between two moments as a file, for the API and the console."""
    writer = csv.writer(_Echo(), lineterminator="\r\n")
    lines = (writer.writerow(row).encode() for row in reports.csv_rows(tenant_id, start, end, tag=tag))
    name = f"kolm-usage-{start:%Y-%m-%d}.csv"
    return streamed_file(request, lines, content_type="text/csv; charset=utf-8", filename=name)


def find_budget(tenant_id: UUID, public_id: str) -> Budget:
    """The tenant's budget behind a public id. Raises NotFound."""
    row = Budget.objects.of_tenant(tenant_id).filter(id=decode_id(Prefix.BUDGET, public_id)).first()
    if row is None:
        raise NotFound(f"There is no budget {public_id[:60]!r}.")
    return row


def _read(shape: type[StrictSerializer], data: Any, *, request: Request | None = None) -> dict[str, Any]:
    if request is not None:
        check_query(request.query_params, shape().fields)
    form = shape(data=data)
    form.is_valid(raise_exception=True)
    return dict(form.validated_data)


def _span(tenant_id: UUID, wanted: dict[str, Any]) -> tuple[datetime, datetime]:
    start = moment(wanted["from"], "from") if "from" in wanted else accounts.account_of(tenant_id).period_start
    end = moment(wanted["to"], "to") if "to" in wanted else timezone.now()
    if end < start:
        raise _not_a_time("to", "`to` is before `from`.")
    return start, end


def moment(text: str, name: str) -> datetime:
    """A day or a time of a query. Raises InvalidInput."""
    try:
        if len(text) == len("2026-11-01"):  # parse_datetime would take it for a time without its zone
            return datetime.combine(date.fromisoformat(text), datetime.min.time(), tzinfo=UTC)
        at = parse_datetime(text)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        raise _not_a_time(name, f"`{name}` is a day (2026-11-01) or a time with its zone (2026-11-01T00:00:00Z).")
    return at


def _not_a_time(name: str, message: str) -> InvalidInput:
    return InvalidInput(message, problems=(Problem(pointer=f"/{name}", message=message, code="invalid_time"),))

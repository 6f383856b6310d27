"""The resources of an account: who may ask, what was used, what it costs, who is in the team."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from .resources import Resource
from .rows import ApiKey, Json, Row, TeacherKey, TeacherKeyTest, Tenant, build

Time = str | datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountState(Row):
    """The cap of this period, what is held for running compiles, and what was spent. A cap of None is none."""

    plan: str
    held_microusd: int
    spent_microusd: int
    cap_microusd: int | None = None
    credit_microusd: int = 0
    available_microusd: int | None = None
    period_start: datetime | None = None
    period_end: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageRow(Row):
    """One group of a usage report; `key` is the day, step, sku or id."""

    key: str
    n_facts: int
    charged_microusd: int
    waste_microusd: int = 0
    provider_microusd: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BillLine(Row):
    """`counted` lines add up to the total; the others (waste, own_key, draft_savings) only tell."""

    kind: str
    label: str
    amount_microusd: int
    counted: bool
    meter: str = ""
    step: str = ""
    sku: str = ""
    quantity: int | None = None
    unit: str = ""
    compile: str | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill(Row):
    lines: Sequence[BillLine]
    usage_microusd: int
    total_microusd: int
    total_cents: int = 0
    credited_microusd: int = 0
    waste_microusd: int = 0
    provider_microusd: int = 0
    draft_savings: Json | None = None
    compile: str | None = None
    period_start: datetime | None = None
    period_end: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget(Row):
    id: str
    scope: str
    cap_microusd: int
    hard_stop: bool = True
    spent_microusd: int = 0
    held_microusd: int = 0
    api_key: str | None = None
    period_start: datetime | None = None
    period_end: datetime | None = None
    created_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Invoice(Row):
    id: str
    number: str
    kind: str
    status: str
    total_microusd: int
    usage_microusd: int = 0
    credit_microusd: int = 0
    tax_microusd: int = 0
    lines: Sequence[Json] = ()
    hosted_url: str | None = None
    pdf_url: str | None = None
    period_start: datetime | None = None
    period_end: datetime | None = None
    created_at: datetime | None = None
    paid_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(Row):
    name: str
    title: str
    is_current: bool
    monthly_microusd: int | None = None
    spend_cap_microusd: int | None = None
    concurrent_compiles: int | None = None
    seats: int | None = None
    api_keys: int | None = None
    webhook_endpoints: int | None = None
    retention_days: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Member(Row):
    id: str
    email: str
    role: str
    created_at: datetime | None = None


class ApiKeys(Resource):
    def list(self, *, limit: int | None = None) -> Iterator[ApiKey]:
        return self._pages(ApiKey, "/v1/api_keys", limit=limit)

    def get(self, id: str) -> ApiKey:
        return build(ApiKey, self._get(f"/v1/api_keys/{id}"))

    def create(
        self,
        name: str,
        *,
        scopes: Sequence[str] | None = None,
        preset: str | None = None,
        live: bool | None = None,
        expires_at: Time = None,
    ) -> ApiKey:
        """Either `scopes` or a `preset` of them: command_line, ci, serving, read_only, everything. `secret` of the
        answer is shown this once."""
        body: dict[str, Any] = {"name": name}
        body |= {} if scopes is None else {"scopes": list(scopes)}
        body |= {} if preset is None else {"preset": preset}
        if live is not None:
            body["live"] = live
        if expires_at is not None:
            body["expires_at"] = expires_at.isoformat() if isinstance(expires_at, datetime) else expires_at
        return build(ApiKey, self._post("/v1/api_keys", body))

    def revoke(self, id: str) -> ApiKey:
        return build(ApiKey, self._post(f"/v1/api_keys/{id}/revoke"))


class TeacherKeys(Resource):
    def list(self, *, limit: int | None = None) -> Iterator[TeacherKey]:
        return self._pages(TeacherKey, "/v1/teacher_keys", limit=limit)

    def create(self, name: str, secret: str) -> TeacherKey:
        return build(TeacherKey, self._post("/v1/teacher_keys", {"name": name, "secret": secret}))

    def test(self, id: str, base_url: str) -> TeacherKeyTest:
        """Ask the provider at `base_url` (up to /v1) for its models with this key: it costs nothing."""
        return build(TeacherKeyTest, self._post(f"/v1/teacher_keys/{id}/test", {"base_url": base_url}))

    def delete(self, id: str) -> None:
        self.transport.send("DELETE", f"/v1/teacher_keys/{id}")


class Tenants(Resource):
    def get(self) -> Tenant:
        """Get the tenant that this key belongs to."""
        return build(Tenant, self._get("/v1/tenant"))


class Account(Resource):
    def get(self) -> AccountState:
        return build(AccountState, self._get("/v1/account"))

    def set_cap(self, cap_microusd: int | None) -> AccountState:
        """The most a period may cost, as high as the plan allows; None for no cap."""
        answer = self.transport.send("PATCH", "/v1/account", json={"cap_microusd": cap_microusd})
        return build(AccountState, answer.json())


class Usage(Resource):
    def by(self, group_by: str = "day", *, start: Time = None, end: Time = None) -> Sequence[UsageRow]:
        """`group_by`: day, step, sku, api_key or compile. `start` is in the report, `end` is not."""
        return self._all(UsageRow, "/v1/usage", **{"group_by": group_by, "from": start, "to": end})

    def csv(self, *, start: Time = None, end: Time = None) -> str:
        """Every usage fact as a line of CSV."""
        return self.transport.send("GET", "/v1/usage.csv", query={"from": start, "to": end}).text


class Bills(Resource):
    def current(self) -> Bill:
        return build(Bill, self._get("/v1/bills/current"))

    def of_compile(self, id: str) -> Bill:
        return build(Bill, self._get(f"/v1/compiles/{id}/bill"))


class Budgets(Resource):
    def list(self, *, limit: int | None = None) -> Iterator[Budget]:
        return self._pages(Budget, "/v1/budgets", limit=limit)

    def get(self, id: str) -> Budget:
        return build(Budget, self._get(f"/v1/budgets/{id}"))

    def create(self, *, cap_microusd: int, api_key: str | None = None, hard_stop: bool = True) -> Budget:
        """A month's budget of the whole account, or of one API key. Unless `hard_stop` is False, nothing is started
        that would not fit."""
        scope: dict[str, Any] = {"scope": "tenant"} if api_key is None else {"scope": "api_key", "api_key": api_key}
        return build(Budget, self._post("/v1/budgets", scope | {"cap_microusd": cap_microusd, "hard_stop": hard_stop}))

    def update(self, id: str, *, cap_microusd: int | None = None, hard_stop: bool | None = None) -> Budget:
        settings = {"cap_microusd": cap_microusd, "hard_stop": hard_stop}
        changes = {name: value for name, value in settings.items() if value is not None}
        return build(Budget, self.transport.send("PATCH", f"/v1/budgets/{id}", json=changes).json())

    def delete(self, id: str) -> None:
        self.transport.send("DELETE", f"/v1/budgets/{id}")


class Invoices(Resource):
    def list(self, *, limit: int | None = None) -> Iterator[Invoice]:
        return self._pages(Invoice, "/v1/invoices", limit=limit)

    def get(self, id: str) -> Invoice:
        return build(Invoice, self._get(f"/v1/invoices/{id}"))


class Plans(Resource):
    def list(self) -> Sequence[Plan]:
        return self._all(Plan, "/v1/plans")


class Members(Resource):
    def list(self, *, limit: int | None = None) -> Iterator[Member]:
        return self._pages(Member, "/v1/members", limit=limit)

"""The asyncio face of account.py, of which it is made: see tests/gpu_runners/kolm/async_sources.py."""

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from ..account import (
    AccountState,
    Bill,
    BillGroups,
    BillingDetails,
    Budget,
    Forecast,
    Invoice,
    Member,
    Plan,
    Time,
    UsageRow,
)
from ..rows import ApiKey, TeacherKey, TeacherKeyTest, Tenant, build
from .resource import Resource


class ApiKeys(Resource):
    def list(self, *, limit: int | None = None) -> AsyncIterator[ApiKey]:
        return self._pages(ApiKey, "/v1/api_keys", limit=limit)

    async def get(self, id: str) -> ApiKey:
        return build(ApiKey, await self._get(f"/v1/api_keys/{id}"))

    async def create(
        self,
        name: str,
        *,
        scopes: Sequence[str] | None = None,
        preset: str | None = None,
        live: bool | None = None,
        expires_at: Time = None,
        tags: Mapping[str, str] | None = None,
    ) -> ApiKey:
        """Either `scopes` or a `preset` of them: command_line, ci, serving, read_only, everything. `secret` of the
        answer is shown this once. What is used with the key is on the bill under its cost tags."""
        body: dict[str, Any] = {"name": name}
        body |= {} if scopes is None else {"scopes": list(scopes)}
        body |= {} if preset is None else {"preset": preset}
        body |= {} if tags is None else {"tags": dict(tags)}
        if live is not None:
            body["live"] = live
        if expires_at is not None:
            body["expires_at"] = expires_at.isoformat() if isinstance(expires_at, datetime) else expires_at
        return build(ApiKey, await self._post("/v1/api_keys", body))

    async def set_tags(self, id: str, tags: Mapping[str, str]) -> ApiKey:
        """Replace the cost tags, for what is used with the key from now on."""
        return build(
            ApiKey, (await self.transport.send("PATCH", f"/v1/api_keys/{id}", json={"tags": dict(tags)})).json()
        )

    async def revoke(self, id: str) -> ApiKey:
        return build(ApiKey, await self._post(f"/v1/api_keys/{id}/revoke"))


class TeacherKeys(Resource):
    def list(self, *, limit: int | None = None) -> AsyncIterator[TeacherKey]:
        return self._pages(TeacherKey, "/v1/teacher_keys", limit=limit)

    async def create(self, name: str, secret: str) -> TeacherKey:
        return build(TeacherKey, await self._post("/v1/teacher_keys", {"name": name, "secret": secret}))

    async def test(self, id: str, base_url: str) -> TeacherKeyTest:
        """Ask the provider at `base_url` (up to /v1) for its models with this key: it costs nothing."""
        return build(TeacherKeyTest, await self._post(f"/v1/teacher_keys/{id}/test", {"base_url": base_url}))

    async def delete(self, id: str) -> None:
        await self.transport.send("DELETE", f"/v1/teacher_keys/{id}")


class Tenants(Resource):
    async def get(self) -> Tenant:
        """Get the tenant that this key belongs to."""
        return build(Tenant, await self._get("/v1/tenant"))


class Account(Resource):
    async def get(self) -> AccountState:
        return build(AccountState, await self._get("/v1/account"))

    async def set_cap(self, cap_microusd: int | None) -> AccountState:
        """The most a period may cost, as high as the plan allows; None for no cap."""
        answer = await self.transport.send("PATCH", "/v1/account", json={"cap_microusd": cap_microusd})
        return build(AccountState, answer.json())


class Usage(Resource):
    async def by(
        self, group_by: str = "day", *, start: Time = None, end: Time = None, tag: str | None = None
    ) -> Sequence[UsageRow]:
        """`group_by`: day, step, sku, api_key, compile, deployment or a cost tag (tag:team). `start` is in the report,
        `end` is not. `tag`: usage with this tag alone, as in team:search."""
        return await self._all(UsageRow, "/v1/usage", **{"group_by": group_by, "from": start, "to": end, "tag": tag})

    async def csv(self, *, start: Time = None, end: Time = None, tag: str | None = None) -> str:
        """Every usage fact as a line of CSV."""
        return (await self.transport.send("GET", "/v1/usage.csv", query={"from": start, "to": end, "tag": tag})).text


class Bills(Resource):
    async def current(self) -> Bill:
        return build(Bill, await self._get("/v1/bills/current"))

    async def groups(self, month: str | None = None) -> BillGroups:
        """The bill of this period, or of a month (2026-11), by compile and by deployment."""
        path = "/v1/bills/groups" if month is None else f"/v1/bills/groups?month={month}"
        return build(BillGroups, await self._get(path))

    async def forecast(self) -> Forecast:
        return build(Forecast, await self._get("/v1/bills/forecast"))

    async def of_compile(self, id: str) -> Bill:
        return build(Bill, await self._get(f"/v1/compiles/{id}/bill"))


class Budgets(Resource):
    def list(self, *, limit: int | None = None) -> AsyncIterator[Budget]:
        return self._pages(Budget, "/v1/budgets", limit=limit)

    async def get(self, id: str) -> Budget:
        return build(Budget, await self._get(f"/v1/budgets/{id}"))

    async def create(self, *, cap_microusd: int, api_key: str | None = None, hard_stop: bool = True) -> Budget:
        """A month's budget of the whole account, or of one API key. Unless `hard_stop` is False, nothing is started
        that would not fit."""
        scope: dict[str, Any] = {"scope": "tenant"} if api_key is None else {"scope": "api_key", "api_key": api_key}
        return build(
            Budget, await self._post("/v1/budgets", scope | {"cap_microusd": cap_microusd, "hard_stop": hard_stop})
        )

    async def update(self, id: str, *, cap_microusd: int | None = None, hard_stop: bool | None = None) -> Budget:
        settings = {"cap_microusd": cap_microusd, "hard_stop": hard_stop}
        changes = {name: value for name, value in settings.items() if value is not None}
        return build(Budget, (await self.transport.send("PATCH", f"/v1/budgets/{id}", json=changes)).json())

    async def delete(self, id: str) -> None:
        await self.transport.send("DELETE", f"/v1/budgets/{id}")


class Invoices(Resource):
    def list(self, *, limit: int | None = None) -> AsyncIterator[Invoice]:
        return self._pages(Invoice, "/v1/invoices", limit=limit)

    async def get(self, id: str) -> Invoice:
        return build(Invoice, await self._get(f"/v1/invoices/{id}"))

    async def pdf(self, id: str) -> bytes:
        """The invoice as a file. The same bytes each time."""
        return (await self.transport.send("GET", f"/v1/invoices/{id}/pdf")).content

    async def details(self) -> BillingDetails:
        """Get whom invoices are made out to."""
        return build(BillingDetails, await self._get("/v1/billing/details"))

    async def change_details(self, **changes: str) -> BillingDetails:
        """`changes`: name, address, vat_id. Invoices that were made keep theirs."""
        return build(BillingDetails, (await self.transport.send("PATCH", "/v1/billing/details", json=changes)).json())


class Plans(Resource):
    async def list(self) -> Sequence[Plan]:
        return await self._all(Plan, "/v1/plans")


class Members(Resource):
    def list(self, *, limit: int | None = None) -> AsyncIterator[Member]:
        return self._pages(Member, "/v1/members", limit=limit)

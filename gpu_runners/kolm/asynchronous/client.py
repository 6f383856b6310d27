"""The asyncio face of client.py, of which it is made: see tests/gpu_runners/kolm/async_sources.py."""

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

import httpx

from ..client import VERSION
from ..saved import access
from ..transport import MAX_ATTEMPTS
from .account import Account, ApiKeys, Bills, Budgets, Invoices, Members, Plans, TeacherKeys, Tenants, Usage
from .deployments import Chats, Deployments
from .resources import Artifacts, Compiles, Drafts, Uploads
from .transport import Transport
from .webhooks import WebhookDeliveries, WebhookEndpoints, WebhookEvents


class AsyncClient:
    """A client of one installation. It asks where and as whom its arguments say, else KOLM_API_URL and KOLM_API_KEY,
    else the login that `kolm login` saved (`profile` names another than the default one).

    >>> client = AsyncClient("sk_test_...", "https://kolm.example")
    >>> client.base_url
    'https://kolm.example'
    """

    def __init__(
        self,
        api_key: str | None = None,
        base_url: str | None = None,
        *,
        profile: str | None = None,
        timeout_s: float = 30.0,
        max_attempts: int = MAX_ATTEMPTS,
        http: httpx.AsyncClient | None = None,
    ) -> None:
        """`http` brings a connection pool, proxy or certificates of your own; it is then yours to close."""
        credentials = access(api_key, base_url, profile)
        self.base_url, self._owns_http = (credentials.url, http is None)
        self._http = http or httpx.AsyncClient()
        self._http.base_url = httpx.URL(credentials.url)
        self._http.timeout = httpx.Timeout(timeout_s)
        self._http.headers["User-Agent"] = f"kolm-python/{VERSION}"
        self.key = credentials.key
        if credentials.key is not None:
            self._http.headers["Authorization"] = f"Bearer {credentials.key}"
        self.transport = Transport(http=self._http, max_attempts=max_attempts)
        self.compiles = Compiles(self.transport)
        self.artifacts = Artifacts(self.transport)
        self.deployments = Deployments(self.transport)
        self.chats = Chats(self.transport)
        self.drafts = Drafts(self.transport)
        self.uploads = Uploads(self.transport)
        self.api_keys = ApiKeys(self.transport)
        self.teacher_keys = TeacherKeys(self.transport)
        self.tenant = Tenants(self.transport)
        self.account = Account(self.transport)
        self.usage = Usage(self.transport)
        self.bills = Bills(self.transport)
        self.budgets = Budgets(self.transport)
        self.invoices = Invoices(self.transport)
        self.plans = Plans(self.transport)
        self.members = Members(self.transport)
        self.webhook_endpoints = WebhookEndpoints(self.transport)
        self.webhook_events = WebhookEvents(self.transport)
        self.webhook_deliveries = WebhookDeliveries(self.transport)

    async def get(self, path: str, query: Mapping[str, Any] | None = None) -> Any:
        """Any address of the API, as parsed JSON; so are the others. What the typed resources are made of."""
        return (await self.transport.send("GET", path, query=query)).json()

    async def post(
        self, path: str, body: Any = None, *, idempotency_key: str | None = None, attempts: int | None = None
    ) -> Any:
        """Safe to repeat, and repeated: a second arrival of the same key is answered with the first one's result."""
        sent = {} if body is None else body
        answer = await self.transport.send(
            "POST", path, json=sent, idempotency_key=idempotency_key, max_attempts=attempts
        )
        return answer.json() if answer.content else None

    async def patch(self, path: str, body: Any) -> Any:
        return (await self.transport.send("PATCH", path, json=body)).json()

    async def delete(self, path: str, query: Mapping[str, Any] | None = None) -> Any:
        answer = await self.transport.send("DELETE", path, query=query)
        return answer.json() if answer.content else None

    async def download(self, path: str) -> bytes:
        return (await self.transport.send("GET", path)).content

    async def close(self) -> None:
        if self._owns_http:
            await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

"""The asyncio face of webhooks.py, of which it is made: see tests/gpu_runners/kolm/async_sources.py."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

from ..rows import build
from ..webhooks import WebhookDelivery, WebhookEndpoint, WebhookEvent
from .resource import Resource


class WebhookEndpoints(Resource):
    def list(self, *, limit: int | None = None) -> AsyncIterator[WebhookEndpoint]:
        return self._pages(WebhookEndpoint, "/v1/webhook_endpoints", limit=limit)

    async def get(self, id: str) -> WebhookEndpoint:
        return build(WebhookEndpoint, await self._get(f"/v1/webhook_endpoints/{id}"))

    async def create(self, url: str, *, events: Sequence[str] = ("*",), **more: Any) -> WebhookEndpoint:
        body = {"url": url, "events": list(events), **more}
        return build(WebhookEndpoint, await self._post("/v1/webhook_endpoints", body))

    async def update(self, id: str, **changes: Any) -> WebhookEndpoint:
        return build(
            WebhookEndpoint, (await self.transport.send("PATCH", f"/v1/webhook_endpoints/{id}", json=changes)).json()
        )

    async def roll(self, id: str, **overlap: int) -> WebhookEndpoint:
        """A new secret; for a while (`overlap_s`) both sign."""
        return build(WebhookEndpoint, await self._post(f"/v1/webhook_endpoints/{id}/roll", dict(overlap)))

    async def reveal(self, id: str) -> WebhookEndpoint:
        return build(WebhookEndpoint, await self._post(f"/v1/webhook_endpoints/{id}/reveal"))

    async def enable(self, id: str) -> WebhookEndpoint:
        return build(WebhookEndpoint, await self._post(f"/v1/webhook_endpoints/{id}/enable"))

    async def disable(self, id: str) -> WebhookEndpoint:
        return build(WebhookEndpoint, await self._post(f"/v1/webhook_endpoints/{id}/disable"))

    async def test(self, id: str, *, type: str | None = None) -> WebhookDelivery:
        """Sent at once; the delivery as it went."""
        body = {} if type is None else {"type": type}
        return build(WebhookDelivery, await self._post(f"/v1/webhook_endpoints/{id}/test", body))

    async def replay_since(self, id: str, since: str) -> int:
        """Send again what failed since then; how many."""
        return int((await self._post(f"/v1/webhook_endpoints/{id}/replay", {"since": since}))["n_deliveries"])

    async def delete(self, id: str) -> None:
        await self.transport.send("DELETE", f"/v1/webhook_endpoints/{id}")


class WebhookEvents(Resource):
    def list(self, *, type: str | None = None, limit: int | None = None) -> AsyncIterator[WebhookEvent]:
        return self._pages(WebhookEvent, "/v1/webhook_events", limit=limit, type=type)

    async def feed(self, after: str | None = None) -> tuple[Sequence[WebhookEvent], str]:
        """(up to 100 events behind `after`, oldest first, and the cursor behind them). Without `after`: none, and the
        cursor from which to follow what comes."""
        page = await self._get("/v1/webhook_events/feed", after=after)
        return ([build(WebhookEvent, row) for row in page["data"]], page["next_cursor"])

    async def get(self, id: str) -> WebhookEvent:
        return build(WebhookEvent, await self._get(f"/v1/webhook_events/{id}"))


class WebhookDeliveries(Resource):
    def list(
        self, *, endpoint: str | None = None, status: str | None = None, limit: int | None = None
    ) -> AsyncIterator[WebhookDelivery]:
        path = "/v1/webhook_deliveries"
        return self._pages(WebhookDelivery, path, limit=limit, endpoint=endpoint, status=status)

    async def get(self, id: str) -> WebhookDelivery:
        return build(WebhookDelivery, await self._get(f"/v1/webhook_deliveries/{id}"))

    async def replay(self, id: str) -> WebhookDelivery:
        return build(WebhookDelivery, await self._post(f"/v1/webhook_deliveries/{id}/replay"))

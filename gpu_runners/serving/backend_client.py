"""The four addresses of the backend that a server asks, and nothing else of it (`backend.domain.serving.wire`).

Unreachable  no answer, 5xx, 429: try again later
Refused      any other 4xx
"""

from collections.abc import Mapping
from typing import Any

import httpx

from backend.domain.serving.wire import FeedbackBatch, ServerOrders, ServerRegistration, UsageBatch
from gpu_runners.http import Refused, Unreachable

_PREFIX = "/internal/runner"


class ArtifactRefused(Exception):
    """The backend does not hand this artifact out under this grant; `status` is what it answered."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Backend:
    """Used from one event loop."""

    def __init__(self, *, api_url: str, token: str) -> None:
        self._http = httpx.AsyncClient(base_url=api_url, timeout=httpx.Timeout(10.0), follow_redirects=False)
        self._token = token

    async def register(self, description: ServerRegistration) -> ServerOrders:
        response = await self._post("/servers", description.to_json())
        try:
            return ServerOrders.from_json(response.json())
        except (ValueError, TypeError) as error:
            raise Refused(f"The backend's orders cannot be read ({error}); run one version on both sides.") from error

    async def book(self, batch: UsageBatch) -> list[int]:
        """Returns once the rows are booked: the places of those that never will be."""
        response = await self._post("/usage", batch.to_json())
        try:
            refused = response.json().get("refused", [])
            places = [int(one["row"]) for one in refused]
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise Unreachable(f"the answer to a usage batch cannot be read ({error})") from error
        return [place for place in places if 0 <= place < len(batch.rows)]

    async def pack_feedback(self, batch: FeedbackBatch) -> None:
        await self._post("/pack-feedback", batch.to_json())

    async def artifact(self, sha256: str, grant: str, *, max_bytes: int) -> bytes:
        """Raises ArtifactRefused, Unreachable."""
        headers = {"Authorization": f"Bearer {grant}"}
        data = bytearray()
        try:
            async with self._http.stream(
                "GET", f"{_PREFIX}/artifacts/{sha256}", headers=headers, timeout=60.0
            ) as response:
                if response.status_code >= 500 or response.status_code == 429:
                    raise Unreachable(f"the backend answered {response.status_code} for an artifact")
                if response.status_code != 200:
                    raise ArtifactRefused(response.status_code, f"the backend answered {response.status_code}")
                async for part in response.aiter_bytes():
                    data += part
                    if len(data) > max_bytes:
                        raise ArtifactRefused(413, f"the artifact is larger than {max_bytes} bytes")
        except httpx.HTTPError as error:
            raise Unreachable(f"the backend does not answer ({type(error).__name__})") from error
        return bytes(data)

    async def close(self) -> None:
        await self._http.aclose()

    async def _post(self, path: str, body: Mapping[str, Any]) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self._token}"}
        try:
            response = await self._http.post(_PREFIX + path, json=body, headers=headers)
        except httpx.HTTPError as error:
            raise Unreachable(f"the backend does not answer ({type(error).__name__})") from error
        if response.status_code >= 500 or response.status_code == 429:
            raise Unreachable(f"{path} answered {response.status_code}")
        if response.status_code >= 300:
            raise Refused(f"{path} answered {response.status_code}: {response.text[:300]}")
        return response

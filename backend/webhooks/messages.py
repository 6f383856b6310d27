"""The message to an endpoint, and what came of one attempt: plain values, without the client that does it."""

from dataclasses import dataclass, field
from uuid import UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """The message that is sent: the same `id` and `body` at every attempt."""

    id: str
    url: str
    body: bytes
    secrets: tuple[str, ...]
    tenant_id: UUID


@dataclass(slots=True, kw_only=True)
class Outcome:
    """`error` is empty after a 2xx, else one word for what went wrong."""

    request_headers: dict[str, str]
    status_code: int | None = None
    response_headers: dict[str, str] = field(default_factory=dict)
    response_head: bytes = b""
    response_bytes: int = 0
    response_is_cut: bool = False
    error: str = ""
    detail: str = ""
    latency_ms: int = 0

    @property
    def is_ok(self) -> bool:
        return not self.error

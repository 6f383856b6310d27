"""The messages of the gateway and a serving runner, as JSON values; both sides import this module and nothing
else of each other.

Three ways:

    gateway -> server   POST {server}/v1/chat/completions | /v1/responses | /v1/completions, OpenAI's bodies, with
                        `Authorization: Bearer <grant>`: which artifact of which tenant this one request may use.
    server -> backend   POST /internal/runner/servers: ServerRegistration, answered with ServerOrders; its absence for
                        `lease_s` takes the server out of rotation.
                        GET /internal/runner/artifacts/<sha256> with the grant: the `.kolm` itself.
    server -> backend   POST /internal/runner/usage: UsageBatch. Sent until it is answered with 2xx; a row that was
                        booked before is not booked again (`UsageRow.key`).
                        POST /internal/runner/pack-feedback: FeedbackBatch, best effort: totals, of which newer ones
                        replace older ones (`FeedbackRow.log`).

A grant is signed by the backend with a key that both sides derive from KOLM_RUNNER_TOKEN. A usage row carries the grant
that opened its request, so that a server can bill nobody who did not call.
"""

import base64
import binascii
import hashlib
import hmac
import json
from dataclasses import dataclass
from typing import Any

from backend.domain.canonical import canonical_json
from backend.domain.errors import OurError
from backend.domain.jobs.runner_jobs import Wire

GRANT_S = 900.0  # how long a grant opens artifacts; a request that began goes on


class BadGrant(OurError):
    """The refusal of a grant: not signed by this installation, altered, or too old."""

    code = "bad_grant"


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant(Wire):
    """`tenant` is the tenant's UUID as hex, `artifact` its `art_...` id, `sha256` that of the `.kolm`; `deployment` and
    `api_key` are public ids or "". `request` is unique to one call. `max_concurrent` is how many requests of this
    tenant one server runs at a time; `idle_s` after how long without one the adapter may leave the fast tiers (0: as
    the server likes). `pinned` keeps it there. `cache_salt` keeps the tenant's prefix cache to itself."""

    tenant: str
    artifact: str
    sha256: str
    deployment: str
    api_key: str
    request: str
    cache_salt: str
    max_concurrent: int
    idle_s: int
    pinned: bool
    expires_at: int  # Unix seconds


def grant_key(runner_token: str) -> bytes:
    """The key of grants, derived so that a leaked grant key does not open the lease API."""
    return hmac.new(runner_token.encode(), b"kolm/serving-grant/1", hashlib.sha256).digest()


def sign_grant(grant: Grant, key: bytes) -> str:
    """`<payload>.<mac>`, both base64url without padding."""
    payload = canonical_json(grant.to_json())
    return f"{_b64(payload)}.{_b64(hmac.new(key, payload, hashlib.sha256).digest())}"


def read_grant(token: str, key: bytes, *, now: float | None) -> Grant:
    """The grant in `token`. Raises BadGrant. `now` None leaves its age alone: usage of a request is booked however
    late it is told."""
    try:
        first, _, second = token.partition(".")
        payload, mac = _unb64(first), _unb64(second)
    except (ValueError, binascii.Error) as error:
        raise BadGrant("The grant is not one of this installation's.") from error
    if not hmac.compare_digest(mac, hmac.new(key, payload, hashlib.sha256).digest()):
        raise BadGrant("The grant is not signed by this installation: both sides need the same KOLM_RUNNER_TOKEN.")
    grant = Grant.from_json(json.loads(payload))
    if now is not None and now > grant.expires_at:
        raise BadGrant("The grant is too old.")
    return grant


def _b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _unb64(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerRegistration(Wire):
    """A server says that it is there, every third of the lease. `bases` are `{"id", "sha256"}` of causal ones, of
    encoders with `"students"`: which kinds of artifact on them it loads (`deployments.StudentKind`). `engine` is what
    runs (name, version, draft source, KV dtype, adapter slots ...), texts and whole numbers. `n_running`, `n_waiting`
    and `adapters` (sha256, warmest first) are as of now. `draining`: no new requests, please."""

    name: str
    url: str
    bases: list[dict[str, Any]]
    engine: dict[str, Any]
    max_running: int
    n_running: int
    n_waiting: int
    adapters: list[str]
    draining: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOrders(Wire):
    """The answer to a registration. `revoked` (sha256 of `.kolm` files that this server named) are to be dropped at
    once, also from disk."""

    server: str  # srv_...
    lease_s: float
    revoked: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageRow(Wire):
    """Tokens of one request, or of a part of one that a server told before it died; rows of one request add up. `part`
    counts from 0. `drafted` and `accepted` are speculative tokens; `accepted` are among the completion tokens. `cached`
    prompt tokens came from the prefix cache. `finish_reason` is "" while the request went on; "rule" where a rule of
    the artifact answered in the model's place, which costs no tokens."""

    grant: str
    part: int
    model: str  # the adapter's sha256
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    drafted_tokens: int
    accepted_tokens: int
    finish_reason: str  # "" | stop | length | rule | canceled | failed
    first_token_us: int
    total_us: int

    @property
    def key(self) -> str:
        """Return what a row is booked under, once."""
        return f"{hashlib.sha256(self.grant.encode()).hexdigest()[:32]}:{self.part}"


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageBatch(Wire):
    """`rows` are UsageRow.to_json()."""

    server: str
    rows: list[dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedbackRow(Wire):
    """The counts of a server about one artifact's recipe pack since it opened `log` (32 hex digits); `feedback` is
    PackFeedback.to_json(). `grant` is one that opened the artifact there: whose pack it is stands in it."""

    grant: str
    log: str
    feedback: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedbackBatch(Wire):
    """`rows` are FeedbackRow.to_json()."""

    server: str
    rows: list[dict[str, Any]]

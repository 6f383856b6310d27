"""Rate limits: GCRA in Redis, per key and per tenant at once, decided and booked in one script.

GCRA keeps one number per key, the time at which its bucket would be full again: no windows, so no double allowance at
their edges, and Redis' own clock, so no disagreement between web processes. Without Redis, reads go through (they
cost nothing that is not bounded elsewhere) and calls that spend money are refused: a view names those methods in
`spending_methods`.
"""

import functools
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID

import redis
from django.conf import settings
from django.http import HttpRequest
from redis.backoff import NoBackoff
from redis.retry import Retry
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

from backend.domain.errors import TooManyRequests, Unavailable
from backend.valkey import PatientRedis, PausingRedis

if TYPE_CHECKING:  # DRF imports this module while it imports its views
    from rest_framework.views import APIView

logger = logging.getLogger(__name__)

WINDOW_S = 60
PATIENCE_S = 0.25  # a read goes through without an answer
SPENDING_PATIENCE_S = 2.0  # spending does not: one slow moment of Valkey, or of the machine, refuses nobody

# KEYS: one bucket each. ARGV: requests per window of each, then the window in microseconds. Gives {is_allowed, index
# of the tightest bucket, requests left in it, microseconds until it is full, microseconds to wait}.
_SCRIPT = """
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local window = tonumber(ARGV[#KEYS + 1])
local wait, tightest, left, full = 0, 1, math.huge, 0
local next = {}
for i, key in ipairs(KEYS) do
  local step = window / tonumber(ARGV[i])
  local at = math.max(tonumber(redis.call('GET', key) or '0'), now) + step
  local over = at - now - window
  next[i] = at
  if over > wait then wait = over end
  local rest = math.max(0, math.floor((window - (at - now)) / step + 0.000001))
  if rest < left then tightest, left, full = i, rest, at - now end
end
if wait > 0 then return {0, tightest, 0, math.ceil(full), math.ceil(wait)} end
for i, key in ipairs(KEYS) do
  redis.call('SET', key, string.format('%.0f', next[i]), 'PX', math.ceil((next[i] - now) / 1000) + 1)
end
return {1, tightest, left, math.ceil(full), 0}
"""


class Caller(Protocol):
    """The caller that authentication leaves in `request.auth`."""

    @property
    def tenant_id(self) -> UUID: ...

    @property
    def api_key_id(self) -> UUID: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    is_allowed: bool
    policy: str
    quota: int
    remaining: int
    full_in_s: float
    retry_after_s: float


class RateLimit(BaseThrottle):
    """DRF's hook. Raises TooManyRequests; leaves the headers for the middleware on the request."""

    def allow_request(self, request: Request, view: "APIView") -> bool:
        caller: Caller | None = request.auth
        if not isinstance(getattr(caller, "api_key_id", None), UUID):
            return (
                True  # nobody to count for: the view is public, or another scheme of authentication has its own limits
            )
        count_request(request._request, caller, is_spending=request.method in getattr(view, "spending_methods", ()))
        return True


def count_request(request: HttpRequest, caller: Caller, *, is_spending: bool = False) -> None:
    """Count a request where no DRF view does. Raises TooManyRequests, Unavailable for spending that cannot be
    counted."""
    try:
        decision = decide(caller.tenant_id, caller.api_key_id, is_spending=is_spending)
    except redis.RedisError:
        if is_spending:
            raise Unavailable(
                "Calls that spend money are refused while a part of this installation does not answer; try again soon."
            ) from None
        return
    request.rate_limit_headers = headers_of(decision)  # type: ignore[attr-defined]
    if not decision.is_allowed:
        raise TooManyRequests(
            f"More than {decision.quota} requests a minute for this {decision.policy}; wait as Retry-After says.",
            retry_after_s=decision.retry_after_s,
        )


def decide(tenant_id: UUID, api_key_id: UUID, *, is_spending: bool = False) -> Decision:
    """Book one request, or say how long to wait. Raises redis.RedisError when Redis does not answer."""
    quotas = (settings.KOLM_RATE_PER_KEY, settings.KOLM_RATE_PER_TENANT)
    # one hash tag, so that both buckets are on one node of a Redis cluster
    keys = [f"kolm:rate:{{{tenant_id}}}:{api_key_id}", f"kolm:rate:{{{tenant_id}}}"]
    try:
        answer = _script(is_patient=is_spending)(keys=keys, args=[*quotas, WINDOW_S * 1_000_000])
    except redis.RedisError as fault:
        logger.warning("rate limits are not counted: %s", type(fault).__name__)
        raise
    is_allowed, tightest, left, full_us, wait_us = (int(n) for n in answer)
    return Decision(
        is_allowed=bool(is_allowed),
        policy=("key", "tenant")[tightest - 1],
        quota=quotas[tightest - 1],
        remaining=left,
        full_in_s=full_us / 1e6,
        retry_after_s=wait_us / 1e6,
    )


def headers_of(decision: Decision) -> dict[str, str]:
    """draft-ietf-httpapi-ratelimit-headers-11: all policies, and the state of the one that is nearest to its end."""
    quotas = {"key": settings.KOLM_RATE_PER_KEY, "tenant": settings.KOLM_RATE_PER_TENANT}
    return {
        "RateLimit-Policy": ", ".join(f'"{policy}";q={quota};w={WINDOW_S}' for policy, quota in quotas.items()),
        "RateLimit": f'"{decision.policy}";r={decision.remaining};t={round(decision.full_in_s)}',
    }


@functools.cache
def _script(*, is_patient: bool) -> Any:
    client, patience_s = (PatientRedis, SPENDING_PATIENCE_S) if is_patient else (PausingRedis, PATIENCE_S)
    return client.from_url(
        settings.REDIS_URL, socket_connect_timeout=patience_s, socket_timeout=patience_s, retry=Retry(NoBackoff(), 0)
    ).register_script(_SCRIPT)

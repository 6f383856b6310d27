"""The servers' addresses: `/internal/runner/servers`, `/internal/runner/artifacts/<sha256>`, `/internal/runner/usage`,
`/internal/runner/pack-feedback`. Their JSON is `domain.serving.wire`. The runner token opens all but the second: an
artifact is given for a grant."""

import hmac
import time
from typing import Any
from uuid import UUID

from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse

from backend.artifacts.models import Artifact
from backend.artifacts.revoking import check_usable
from backend.domain.errors import NotFound
from backend.domain.ids import Prefix, decode_id
from backend.domain.serving.wire import BadGrant, FeedbackBatch, UsageBatch, grant_key, read_grant
from backend.rest.async_queries import query
from backend.rest.bodies.json_bodies import off_the_loop, parse_lenient
from backend.rest.problems import problem_response
from backend.runner_jobs.api import bearer, guarded_view, not_allowed, send_blob
from backend.serving.runners import pack_feedback, servers
from backend.serving.runners.usage_ingest import MAX_ROWS, ingest
from backend.tenants.isolation import tenant_scope

MAX_BYTES = 8_000_000


@guarded_view
async def register_server(request: HttpRequest) -> HttpResponse:
    """A server says that it is there."""
    if request.method != "POST":
        return not_allowed(request)
    if not _is_runner(request):
        return _wrong_token(request)
    registration = servers.parse_registration(await _object(request))
    orders = await query(servers.register)(registration)
    return JsonResponse(orders.to_json())


@guarded_view
async def usage(request: HttpRequest) -> HttpResponse:
    """Book what requests used. Answered 200 whatever single rows are: those that are refused are named, and no server
    sends them again."""
    if request.method != "POST":
        return not_allowed(request)
    if not _is_runner(request):
        return _wrong_token(request)
    batch = UsageBatch.from_json(await _object(request))
    if not isinstance(batch.rows, list) or len(batch.rows) > MAX_ROWS:
        raise ValueError(f"a batch has at most {MAX_ROWS} rows")
    taken = await query(ingest)(batch)
    return JsonResponse(taken.to_json())


@guarded_view
async def feedback(request: HttpRequest) -> HttpResponse:
    """Keep what servers found out about recipe packs. Answered 200 whatever single rows are; refused ones are named."""
    if request.method != "POST":
        return not_allowed(request)
    if not _is_runner(request):
        return _wrong_token(request)
    batch = FeedbackBatch.from_json(await _object(request))
    if not isinstance(batch.rows, list) or len(batch.rows) > pack_feedback.MAX_REPORTS:
        raise ValueError(f"a batch has at most {pack_feedback.MAX_REPORTS} rows")
    kept = await query(pack_feedback.keep)(batch)
    return JsonResponse(kept.to_json())


@guarded_view
async def artifact(request: HttpRequest, sha256: str) -> HttpResponseBase:
    """The `.kolm` that a grant opens, while it is not revoked."""
    if request.method != "GET":
        return not_allowed(request)
    try:
        grant = read_grant(bearer(request), grant_key(settings.KOLM_RUNNER_TOKEN), now=time.time())
        tenant_id = UUID(hex=grant.tenant)
    except (BadGrant, ValueError, TypeError):
        return problem_response(
            request, status=401, code="bad_grant", detail="The grant is not signed by this installation, or too old."
        )
    if grant.sha256 != sha256:
        raise NotFound("This grant is for another artifact.", code="blob_not_found")
    await query(_check)(tenant_id, grant.artifact, sha256)
    return await send_blob(tenant_id, sha256)


def _check(tenant_id: UUID, public_id: str, sha256: str) -> None:
    with tenant_scope(tenant_id):
        rows = Artifact.objects.of_tenant(tenant_id).filter(id=decode_id(Prefix.ARTIFACT, public_id), sha256=sha256)
        row = rows.first()
        if row is None:
            raise NotFound("There is no such artifact.", code="blob_not_found")
        check_usable(row)


def _is_runner(request: HttpRequest) -> bool:
    return hmac.compare_digest(bearer(request).encode(), settings.KOLM_RUNNER_TOKEN.encode())


def _wrong_token(request: HttpRequest) -> HttpResponse:
    return problem_response(
        request, status=401, code="unauthorized", detail="The runner token is wrong: set KOLM_RUNNER_TOKEN."
    )


async def _object(request: HttpRequest) -> dict[str, Any]:
    if len(request.body) > MAX_BYTES:
        raise ValueError("too large")
    value = await off_the_loop(parse_lenient, request.body)
    if not isinstance(value, dict):
        raise ValueError("not an object")
    return value

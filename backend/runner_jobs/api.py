"""The lease API for runners: `/internal/runner/...`. Not part of the public API; its JSON is `domain.jobs.runner_jobs`.

Two credentials: the installation's runner token may claim; the token of a claim opens that job's heartbeat, report and
blobs, and nothing else.
"""

import asyncio
import hmac
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import InterfaceError, OperationalError, transaction
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse, StreamingHttpResponse
from django.views.decorators.csrf import csrf_exempt

from backend.blobs import BlobWriter, blob_parts, blob_size, get_blob
from backend.domain.errors import KolmError, NotFound
from backend.domain.ids import Prefix, decode_id
from backend.domain.jobs.blob_transfers import Unkept
from backend.domain.jobs.runner_jobs import Progress, RunnerJobKind
from backend.rest.async_queries import query
from backend.rest.bodies.json_bodies import off_the_loop, parse_lenient
from backend.rest.problems import problem_for, problem_response
from backend.runner_jobs import leases
from backend.runner_jobs.blob_uploads import discard_uploads
from backend.runner_jobs.leases import JobGone
from backend.runner_jobs.own_absence import note_fault
from backend.runner_jobs.runners import note_runner
from backend.wakeups import RUNNERS
from backend.wakeups_async import listening_async

MAX_WAIT_S = 25.0
LOOK_AGAIN_S = 2.0  # for an offer whose announcement was lost
MAX_JSON_BYTES = 16_000_000  # the predictions for 50,000 held-out inputs
WHOLE_BLOB_BYTES = 16_000_000
_PIECE_BYTES = 1 << 20

View = Callable[..., Awaitable[HttpResponseBase]]


def guarded_view(view: View) -> View:
    """Run a view outside any transaction (the views open their own), errors as problem+json, a lost lease as 410."""

    async def wrapper(request: HttpRequest, **kwargs: Any) -> HttpResponseBase:
        try:
            return await view(request, **kwargs)
        except JobGone:
            return problem_response(
                request, status=410, code="lease_lost", detail="This job is not yours any more: stop working on it."
            )
        except KolmError as error:
            return problem_for(request, error)
        except (OperationalError, InterfaceError) as fault:
            note_fault(fault)
            raise
        except (ValueError, KeyError, TypeError) as error:
            return problem_response(
                request, status=400, code="invalid_request", detail=f"The body is not what this address takes: {error}"
            )

    wrapper.__name__ = view.__name__
    return csrf_exempt(transaction.non_atomic_requests(wrapper))


@guarded_view
async def claim(request: HttpRequest) -> HttpResponse:
    """Wait up to `wait_s` for a job of these kinds."""
    if request.method != "POST":
        return not_allowed(request)
    if not hmac.compare_digest(bearer(request).encode(), settings.KOLM_RUNNER_TOKEN.encode()):
        return problem_response(
            request, status=401, code="unauthorized", detail="The runner token is wrong: set KOLM_RUNNER_TOKEN."
        )
    body = await _json(request)
    kinds = [RunnerJobKind(kind) for kind in body["kinds"]]
    name, wait_s = _text(body["runner"], 100), _finite(body.get("wait_s", 0)) or 0.0
    if isinstance(body.get("report"), dict):  # a runner of the release before says nothing of itself
        await query(note_runner)(name, body["report"])
    until = time.monotonic() + min(wait_s, MAX_WAIT_S)
    async with listening_async(RUNNERS) as wait:
        while True:
            claimed = await query(leases.claim)(name, kinds)
            if claimed is not None:
                return JsonResponse(claimed.to_json())
            left_s = until - time.monotonic()
            if left_s <= 0:
                return HttpResponse(status=204)
            await wait(min(left_s, LOOK_AGAIN_S))


@guarded_view
async def heartbeat(request: HttpRequest, job_id: str) -> HttpResponse:
    if request.method != "POST":
        return not_allowed(request)
    key = (decode_id(Prefix.RUNNER_JOB, job_id), bearer(request))
    await query(leases.authenticate)(*key)  # before the body is looked at
    progress = _check_progress(Progress.from_json(await _json(request)))
    answer = await query(leases.heartbeat)(*key, progress)
    return JsonResponse(answer.to_json())


@guarded_view
async def report(request: HttpRequest, job_id: str) -> HttpResponse:
    if request.method != "POST":
        return not_allowed(request)
    key = (decode_id(Prefix.RUNNER_JOB, job_id), bearer(request))
    job = await query(leases.authenticate)(*key)
    body = await _json(request)
    if body["ok"] is True:
        await query(leases.report_success)(*key, dict(body["result"]))
    else:
        await query(leases.report_failure)(
            *key,
            code=_text(body["code"], 64),
            message=_text(body["message"], 2000),
            is_retryable=bool(body["retryable"]),
        )
    await asyncio.to_thread(discard_uploads, job.tenant_id, str(job.id))
    return HttpResponse(status=204)


@guarded_view
async def blob(request: HttpRequest, job_id: str, sha256: str) -> HttpResponseBase:
    """GET an input (or the checkpoint) of the job; PUT an output under the digest of its bytes. A large one comes in
    parts (`upload_api`)."""
    job = await query(leases.authenticate)(decode_id(Prefix.RUNNER_JOB, job_id), bearer(request))
    if request.method == "GET":
        if sha256 not in (*job.inputs, job.checkpoint_sha256):
            raise NotFound("This object is not an input of the job.", code="blob_not_found")
        return await send_blob(job.tenant_id, sha256)
    if request.method != "PUT":
        return not_allowed(request)
    if not await asyncio.to_thread(_is_put, job.tenant_id, pieces_of(request), sha256):
        return problem_response(
            request, status=422, code="digest_mismatch", detail="The bytes do not have the digest in the address."
        )
    return HttpResponse(status=201)


async def send_blob(tenant_id: UUID, sha256: str) -> HttpResponseBase:
    """A small one is checked and sent whole. A large one is sent as it is read, so that a runner's 400 MB never lie in
    this process; the runner compares the digest."""
    size = await asyncio.to_thread(blob_size, tenant_id, sha256)
    if size <= WHOLE_BLOB_BYTES:
        data = await asyncio.to_thread(get_blob, tenant_id, sha256)
        return HttpResponse(data, content_type="application/octet-stream")
    response = StreamingHttpResponse(_parts(tenant_id, sha256), content_type="application/octet-stream")
    response["Content-Length"] = str(size)
    return response


async def _parts(tenant_id: UUID, sha256: str) -> AsyncIterator[bytes]:
    parts = blob_parts(tenant_id, sha256)
    while part := await asyncio.to_thread(next, parts, b""):
        yield part


def pieces_of(request: HttpRequest) -> Iterator[bytes]:
    """The body, from where Django has spooled it: the whole is never in memory."""
    while piece := request.read(_PIECE_BYTES):
        yield piece


def _is_put(tenant_id: UUID, pieces: Iterator[bytes], sha256: str) -> bool:
    with BlobWriter(tenant_id) as writer:
        for piece in pieces:
            writer.write(piece)
        if writer.sha256 != sha256:
            return False
        writer.keep()
    return True


def _check_progress(progress: Progress) -> Progress:
    """Return the progress as it can be stored: a runner is half trusted, and a loss that became NaN is still
    progress."""
    for count in (progress.step, progress.n_steps, progress.checkpoint_step):
        if not isinstance(count, int) or not 0 <= count < 2**31:
            raise ValueError("step, n_steps and checkpoint_step are counts")
    if not isinstance(progress.unkept_bytes, int) or not 0 <= progress.unkept_bytes < 2**50:
        raise ValueError("unkept_bytes is a count")
    if progress.unkept not in ("", *Unkept):
        raise ValueError("unkept is none of the reasons")
    if progress.checkpoint_sha256 is not None and not isinstance(progress.checkpoint_sha256, str):
        raise ValueError("checkpoint_sha256 is no text")
    return replace(progress, loss=_finite(progress.loss), eta_s=_finite(progress.eta_s), note=_text(progress.note, 200))


def _finite(value: Any) -> float | None:
    return None if value is None or not math.isfinite(float(value)) else float(value)


def _text(value: Any, longest: int) -> str:
    """Return a text as Postgres keeps it: no NUL, no half of a surrogate pair."""
    return str(value)[:longest].replace("\x00", "\ufffd").encode("utf-8", "replace").decode()


def bearer(request: HttpRequest) -> str:
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    return token if scheme.lower() == "bearer" else ""


async def _json(request: HttpRequest) -> dict[str, Any]:
    if len(request.body) > MAX_JSON_BYTES:
        raise ValueError("too large")
    value = await off_the_loop(parse_lenient, request.body)
    if not isinstance(value, dict):
        raise ValueError("not an object")
    return value


def not_allowed(request: HttpRequest) -> HttpResponse:
    return problem_response(
        request, status=405, code="method_not_allowed", detail=f"{request.method} is not a method of this address."
    )

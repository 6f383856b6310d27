"""Adapters and checkpoints in parts: `/internal/runner/jobs/<job>/uploads/<sha256>/<bytes>`, with the job's token.

    GET                                                   {"n_kept": 3, "is_stored": false}: where to go on
    PUT .../parts/<number>, Content-Digest: sha-256=:..:   one part (`domain.jobs.blob_transfers`); 204
    POST                                                  all parts are there: the whole is checked and stored; 201

413: larger than KOLM_MAX_BLOB_BYTES; nothing is read. 409: another order than that of the parts, or another request at
work on the same upload; GET says where to go on. 422: damaged on the way. 507: no room.
"""

import asyncio
import base64
import re

from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse

from backend.domain.errors import InvalidInput
from backend.domain.ids import Prefix, decode_id
from backend.domain.jobs.blob_transfers import Upload
from backend.rest.async_queries import query
from backend.runner_jobs import leases
from backend.runner_jobs.api import bearer, guarded_view, not_allowed, pieces_of
from backend.runner_jobs.blob_uploads import finish_upload, keep_part, n_kept_parts
from backend.runner_jobs.models import RunnerJob

_DIGEST = re.compile(r"sha-256=:([A-Za-z0-9+/]{43}=):")


@guarded_view
async def upload(request: HttpRequest, job_id: str, sha256: str, n_bytes: int) -> HttpResponseBase:
    job = await _job(request, job_id)
    blob = _upload(job, sha256, n_bytes)
    if request.method == "GET":
        n_kept, is_stored = await asyncio.to_thread(n_kept_parts, job.tenant_id, blob)
        return JsonResponse({"n_kept": n_kept, "is_stored": is_stored})
    if request.method != "POST":
        return not_allowed(request)
    await asyncio.to_thread(finish_upload, job.tenant_id, blob)
    return HttpResponse(status=201)


@guarded_view
async def part(request: HttpRequest, job_id: str, sha256: str, n_bytes: int, number: int) -> HttpResponseBase:
    if request.method != "PUT":
        return not_allowed(request)
    job = await _job(request, job_id)
    blob = _upload(job, sha256, n_bytes)
    digest = _DIGEST.fullmatch(request.headers.get("Content-Digest", ""))
    if digest is None or not blob.part_bytes(number):
        raise InvalidInput(
            f"Send one of the {blob.n_parts} parts, from 0, with its digest as Content-Digest: sha-256=:...:",
            code="invalid_request",
        )
    hexadecimal = base64.b64decode(digest[1]).hex()
    await asyncio.to_thread(keep_part, job.tenant_id, blob, number, pieces_of(request), hexadecimal)
    return HttpResponse(status=204)


async def _job(request: HttpRequest, job_id: str) -> RunnerJob:
    job: RunnerJob = await query(leases.authenticate)(decode_id(Prefix.RUNNER_JOB, job_id), bearer(request))
    return job


def _upload(job: RunnerJob, sha256: str, n_bytes: int) -> Upload:
    if not re.fullmatch(r"[0-9a-f]{64}", sha256) or n_bytes < 1:
        raise InvalidInput("An upload is named by its sha256 and its number of bytes.", code="invalid_request")
    if n_bytes > settings.KOLM_MAX_BLOB_BYTES:
        raise InvalidInput(
            f"The blob has {n_bytes:,} bytes; this installation keeps at most {settings.KOLM_MAX_BLOB_BYTES:,} "
            "(KOLM_MAX_BLOB_BYTES).",
            code="payload_too_large",
        )
    return Upload(owner=str(job.id), sha256=sha256, n_bytes=n_bytes)

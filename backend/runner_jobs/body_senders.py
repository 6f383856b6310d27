"""The sender of a body to runners' addresses: who has the runner token, or the token of the job that it is about."""

import hmac
import re

from django.conf import settings

from backend.domain.errors import NotFound
from backend.domain.ids import Prefix, decode_id
from backend.runner_jobs import leases

_OF_A_JOB = re.compile(r"/internal/runner/jobs/([^/]+)/")


def sender_by_token(path: str, authorization: str) -> str | None:
    scheme, _, token = authorization.partition(" ")
    if scheme.lower() != "bearer":
        return None
    match = _OF_A_JOB.match(path)
    if match is None:
        is_runner = hmac.compare_digest(token.encode(), settings.KOLM_RUNNER_TOKEN.encode())
        return "runners" if is_runner else None
    try:
        job = leases.authenticate(decode_id(Prefix.RUNNER_JOB, match.group(1)), token)
    except (leases.JobGone, NotFound):
        return None
    return f"job {job.id}"

"""Letting a request in: whose it is, which artifact answers it, and its worst case authorized before anything runs.

One transaction a request. What can be taken away (a key, an artifact, a deployment's settings) is read in it, so that a
revocation holds for the very next request; what never changes (whose key it is, what an artifact is an adapter of) is
kept in the process.
"""

import time
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.http import HttpRequest
from django.utils import timezone
from rest_framework.exceptions import AuthenticationFailed

from backend.artifacts.models import Artifact
from backend.artifacts.revoking import check_usable
from backend.domain.errors import Conflict, NotFound
from backend.domain.ids import Prefix, decode_id, encode_id
from backend.domain.money.pricing import price_book
from backend.domain.serving.deployments import (
    Answering,
    StudentKind,
    answering,
    n_answers,
    takes_canary,
    worst_microusd,
    worst_tokens,
)
from backend.rest.rate_limits import count_request
from backend.serving.deployments import not_deployable
from backend.serving.models import Deployment
from backend.tenants.api_keys.authentication import Caller, authenticate
from backend.tenants.api_keys.key_format import hash_of
from backend.tenants.isolation import tenant_scope
from backend.tenants.models import ApiKey
from backend.tenants.permissions import lacking
from backend.usage import allowances

CALLER_S = 30.0
MOST_KEPT = 10_000
MAX_CONCURRENT = 32  # of a tenant's requests by artifact id, at one server

_callers: dict[str, tuple[float, Caller]] = {}
_artifacts: dict[UUID, Answering] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Routed:
    """The artifact that answers a request, and the deployment that says so."""

    caller: Caller
    artifact_id: UUID
    sha256: str
    what: Answering
    deployment: Deployment | None
    is_canary: bool

    @property
    def tenant_id(self) -> UUID:
        return self.caller.tenant_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    routed: Routed
    allowance_id: UUID
    worst_microusd: int
    n_answers: int


def who(request: HttpRequest) -> Caller:
    """The caller behind the request's key, which may run artifacts. Raises AuthenticationFailed, Forbidden,
    TooManyRequests. That a kept one is still good is seen by `route`."""
    header = request.headers.get("Authorization", "")
    scheme, _, presented = header.partition(" ")
    if not header:
        raise _authentication_error("Send an API key as `Authorization: Bearer sk_...`.", code="missing_api_key")
    key = hash_of(presented.strip()) if scheme.lower() == "bearer" else ""
    kept = _callers.get(key)
    if kept is None or kept[0] < time.monotonic():
        try:
            caller = authenticate(presented.strip() if key else "")
        except AuthenticationFailed as refused:
            raise _authentication_error(str(refused.detail), code=str(refused.get_codes())) from None
        if len(_callers) >= MOST_KEPT:
            _callers.clear()
        kept = _callers[key] = (time.monotonic() + CALLER_S, caller)
    caller = kept[1]
    request.api_caller = caller  # type: ignore[attr-defined]  # for `last_use`
    count_request(request, caller, is_spending=request.method == "POST")
    if "artifacts:run" not in caller.scopes:
        raise lacking("artifacts:run")
    return caller


def route(caller: Caller, model: str, sticky: str) -> Routed:
    """Return which artifact answers, in the tenant's scope. Raises NotFound, Conflict for a revoked artifact or a
    deployment that is drained."""
    check_key(caller)
    deployment, is_canary = None, False
    if model.startswith(f"{Prefix.ARTIFACT}_"):
        artifact_id = decode_id(Prefix.ARTIFACT, model)
    else:
        deployment = _deployment(caller.tenant_id, model)
        artifact_id = deployment.artifact_id
        if deployment.canary_artifact_id is not None:
            salt = f"{deployment.id}/{deployment.canary_artifact_id}"
            is_canary = takes_canary(sticky, salt, deployment.canary_share_ppm)
            artifact_id = deployment.canary_artifact_id if is_canary else artifact_id
    row = _artifact(caller.tenant_id, artifact_id)
    return Routed(
        caller=caller,
        artifact_id=artifact_id,
        sha256=row.sha256,
        what=_artifacts[artifact_id],
        deployment=deployment,
        is_canary=is_canary,
    )


def route_request(caller: Caller, model: str, sticky: str) -> Routed:
    with tenant_scope(caller.tenant_id):
        return route(caller, model, sticky)


def admit(caller: Caller, body: dict[str, Any], *, sticky: str, n_body_bytes: int) -> Admitted:
    """Route the request and authorize its worst case. Raises as `route`, and PaymentRequired."""
    with tenant_scope(caller.tenant_id):
        target = route(caller, body["model"], sticky)
        n_prompt, n_completion = worst_tokens(
            body,
            n_body_bytes=n_body_bytes,
            n_prompt_bytes=target.what.n_prompt_bytes,
            writes_tokens=target.what.student is StudentKind.CAUSAL,
        )
        worst = worst_microusd(price_book(timezone.now()), n_prompt, n_completion)
        allowance_id = allowances.authorize(caller.tenant_id, caller.api_key_id, worst)
    if allowance_id is None:
        with tenant_scope(caller.tenant_id):
            allowance_id = allowances.reserve(caller.tenant_id, caller.api_key_id, worst)
    return Admitted(routed=target, allowance_id=allowance_id, worst_microusd=worst, n_answers=n_answers(body))


def void(admitted: Admitted) -> None:
    """The request never ran."""
    tenant_id = admitted.routed.tenant_id
    with tenant_scope(tenant_id):
        allowances.void(tenant_id, admitted.allowance_id, admitted.worst_microusd)


def check_key(caller: Caller) -> None:
    """A kept caller's key may have been revoked since."""
    rows = ApiKey.objects.of_tenant(caller.tenant_id).filter(id=caller.api_key_id)
    times = rows.values_list("revoked_at", "expires_at").first()
    if times is None or times[0] is not None:
        raise _authentication_error(
            "This API key was revoked; use another, or make one under /v1/api_keys.", code="api_key_revoked"
        )
    if times[1] is not None and times[1] <= timezone.now():
        raise _authentication_error(
            "This API key has expired; use another, or make one under /v1/api_keys.", code="api_key_expired"
        )


def _deployment(tenant_id: UUID, model: str) -> Deployment:
    rows = Deployment.objects.of_tenant(tenant_id)
    try:
        is_id = model.startswith(f"{Prefix.DEPLOYMENT}_")
        row = rows.filter(id=decode_id(Prefix.DEPLOYMENT, model)).first() if is_id else rows.filter(name=model).first()
    except NotFound:
        row = None
    if row is None:
        raise no_model(model)
    if row.draining_since is not None:
        raise Conflict(
            f"The deployment {row.name!r} is drained and takes no requests; start it with "
            f"POST /v1/deployments/{encode_id(Prefix.DEPLOYMENT, row.id)}/start.",
            code="deployment_drained",
        )
    return row


def _artifact(tenant_id: UUID, artifact_id: UUID) -> Artifact:
    rows = Artifact.objects.of_tenant(tenant_id).filter(id=artifact_id)
    is_known = artifact_id in _artifacts
    row = (rows.only("sha256", "revoked_at", "revoked_reason") if is_known else rows).first()
    if row is None:
        raise no_model(encode_id(Prefix.ARTIFACT, artifact_id))
    check_usable(row)
    if not is_known:
        if len(_artifacts) >= MOST_KEPT:
            _artifacts.clear()
        _artifacts[artifact_id] = answering(row.manifest)
    if _artifacts[artifact_id].student is None:
        raise not_deployable(encode_id(Prefix.ARTIFACT, artifact_id))
    return row


def no_model(model: str) -> NotFound:
    return NotFound(
        f"There is no model {model[:80]!r} here: name a deployment or an artifact; GET /v1/models lists yours.",
        code="model_not_found",
    )


def _authentication_error(message: str, *, code: str) -> AuthenticationFailed:
    error = AuthenticationFailed(message, code=code)
    error.auth_header = 'Bearer realm="kolm"'  # type: ignore[attr-defined]
    return error

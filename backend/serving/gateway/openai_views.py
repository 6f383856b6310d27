"""POST /v1/chat/completions, /v1/responses and /v1/completions and GET /v1/models: OpenAI's addresses, for a tenant's
deployments.

Plain async views: while an answer streams the request holds no database connection, no transaction and no thread. The
body is the server's business but for `model`, and what the server sends goes on to the caller piece by piece, as it
comes. Nothing of either is logged.
"""

import asyncio
import hashlib
import hmac
import json
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse, StreamingHttpResponse
from django.views.decorators.csrf import csrf_exempt
from rest_framework.exceptions import APIException

from backend.domain.errors import InvalidInput, KolmError, Unavailable
from backend.domain.ids import Prefix, encode_id
from backend.domain.serving.deployments import MAX_CHOICES, StudentKind
from backend.domain.serving.wire import GRANT_S, Grant, grant_key, sign_grant
from backend.rest.async_queries import let_go_of_thread, query
from backend.rest.bodies.json_bodies import json_of
from backend.rest.new_ids import new_id
from backend.rest.problems import Refusal
from backend.serving.gateway import admission, shadowing, upstream
from backend.serving.gateway.admission import Admitted
from backend.serving.gateway.models import model_of, models_of
from backend.serving.gateway.openai_errors import event_of, respond, respond_to
from backend.serving.gateway.upstream import Answer, UpstreamUnavailable
from backend.serving.runners import servers
from backend.serving.runners.servers import ServerEndpoint

logger = logging.getLogger("kolm.gateway")

MAX_TRIES = 2  # servers asked before the caller is told; none once an answer has begun
_BUSY = (429, 503)

View = Callable[..., Awaitable[HttpResponseBase]]


def _openai(method: str) -> Callable[[View], View]:
    """An async view outside any transaction, whose errors OpenAI's clients can read."""

    def decorate(view: View) -> View:
        async def wrapper(request: HttpRequest, **kwargs: Any) -> HttpResponseBase:
            if request.method != method:
                detail = f'Method "{request.method}" not allowed. The header Allow names those of this address.'
                refusal = Refusal(status=405, code="method_not_allowed", detail=detail, headers={"Allow": method})
                return respond(request, refusal)
            try:
                return await view(request, **kwargs)
            except (KolmError, APIException) as error:
                return respond_to(request, error)
            except Exception as error:  # noqa: BLE001  # any fault of ours, as every other view answers it
                return respond_to(request, error)

        wrapper.__name__ = view.__name__
        return csrf_exempt(transaction.non_atomic_requests(wrapper))

    return decorate


@_openai("POST")
async def chat_completions(request: HttpRequest) -> HttpResponseBase:
    return await _serve(request, "/v1/chat/completions")


@_openai("POST")
async def responses(request: HttpRequest) -> HttpResponseBase:
    return await _serve(request, "/v1/responses")


@_openai("POST")
async def completions(request: HttpRequest) -> HttpResponseBase:
    return await _serve(request, "/v1/completions")


@_openai("GET")
async def models(request: HttpRequest) -> HttpResponseBase:
    caller = await query(admission.who)(request)
    return JsonResponse({"object": "list", "data": await query(models_of)(caller)})


@_openai("GET")
async def model(request: HttpRequest, model: str) -> HttpResponseBase:
    caller = await query(admission.who)(request)
    return JsonResponse(await query(model_of)(caller, model))


async def _serve(request: HttpRequest, path: str) -> HttpResponseBase:
    caller = await query(admission.who)(request)
    body = _body(request)
    sticky = request.headers.get("X-Kolm-Sticky") or str(body.get("user") or request.request_id)  # type: ignore[attr-defined]
    admitted = await query(admission.admit)(caller, body, sticky=sticky, n_body_bytes=len(request.body))
    try:
        answer, place = await _ask(request, path, body, admitted)
    except BaseException:
        # cancelled, too: the caller hung up before a server had begun
        await asyncio.shield(query(admission.void)(admitted))
        raise
    if answer.status >= 400:
        await query(admission.void)(admitted)
        return await _refusal(request, answer, place)
    sample = shadowing.sample(admitted, path, body)
    if "text/event-stream" in answer.content_type:
        relayed = _relay(answer, place, sample)
        response: HttpResponseBase = StreamingHttpResponse(relayed, content_type=answer.content_type)
        response["X-Accel-Buffering"] = "no"
    else:
        response = await _whole(answer, place, sample)
    return _label(response, admitted, place)


def _body(request: HttpRequest) -> dict[str, Any]:
    """Raises InvalidInput, ParseError. Only what the gateway itself needs is looked at."""
    body = json_of(request)
    if not isinstance(body, dict) or not isinstance(body.get("model"), str) or not 0 < len(body["model"]) <= 200:
        raise InvalidInput(
            "The body is an object with `model`: the name of a deployment, or an artifact's id.", code="invalid_request"
        )
    for name in ("max_tokens", "max_completion_tokens", "max_output_tokens", "n", "best_of"):
        value = body.get(name)
        if value is not None and (type(value) is not int or not 0 < value < 10**6):
            raise InvalidInput(f"`{name}` is a whole number of 1 or more.", code="invalid_request")
    if max(body.get("n") or 1, body.get("best_of") or 1) > MAX_CHOICES:
        raise InvalidInput(f"`n` is at most {MAX_CHOICES}.", code="invalid_request")
    return body


async def _ask(
    request: HttpRequest, path: str, body: dict[str, Any], admitted: Admitted
) -> tuple[Answer, ServerEndpoint]:
    """The first server that begins to answer. Raises Unavailable."""
    routed = admitted.routed
    what = routed.what
    student = what.student or StudentKind.CAUSAL
    places = await query(servers.candidates)(what.base_sha256, routed.sha256, student)
    if not places:
        raise Unavailable(
            f"No server for {student} students on the base {what.base_id} is running here. The operator of "
            "this installation starts one with `python -m gpu_runners.serving`; docs/serving.md says how.",
            code="no_server",
        )
    data = json.dumps(body | {"model": encode_id(Prefix.ARTIFACT, routed.artifact_id)}, ensure_ascii=False).encode()
    busy: tuple[Answer, ServerEndpoint] | None = None
    for place in places[:MAX_TRIES]:
        servers.begin(place)
        try:
            answer = await upstream.ask(
                f"{place.url}{path}",
                data,
                grant=_grant(admitted),
                request_id=request.request_id,  # type: ignore[attr-defined]
            )
        except UpstreamUnavailable as lost:
            servers.end(place)
            servers.mark_unhealthy(place)
            logger.warning("server %s did not answer: %s", place.name, lost)
            continue
        except BaseException:
            servers.end(place)
            raise
        if answer.status not in (502, 503):
            if busy is not None:
                await _drop(*busy)
            return answer, place
        if busy is not None:
            await _drop(*busy)
        busy = (answer, place)  # full or draining: another may have room
    if busy is not None:
        return busy
    raise Unavailable("No server answered; try again in a few seconds.", code="server_lost")


def _grant(admitted: Admitted) -> str:
    """One call's permission. `request` carries what the usage will be settled from: servers give it back unread."""
    routed, row = admitted.routed, admitted.routed.deployment
    key = grant_key(settings.KOLM_RUNNER_TOKEN)
    salt = hmac.new(key, b"prefix cache/" + routed.tenant_id.bytes, hashlib.sha256).hexdigest()[:32]
    grant = Grant(
        tenant=routed.tenant_id.hex,
        artifact=encode_id(Prefix.ARTIFACT, routed.artifact_id),
        sha256=routed.sha256,
        deployment="" if row is None else encode_id(Prefix.DEPLOYMENT, row.id),
        api_key=encode_id(Prefix.API_KEY, routed.caller.api_key_id),
        request=request_claim(
            new_id(Prefix.REQUEST), admitted.allowance_id, admitted.worst_microusd, admitted.n_answers
        ),
        cache_salt=salt,
        max_concurrent=admission.MAX_CONCURRENT if row is None else row.max_concurrent,
        idle_s=0 if row is None else row.idle_minutes * 60,
        pinned=row is not None and row.is_pinned,
        expires_at=int(time.time() + GRANT_S),
    )
    return sign_grant(grant, key)


def request_claim(request_id: str, allowance_id: UUID, worst_microusd: int, n_answers: int = 1) -> str:
    """`req_...:<allowance>:<promised micro-USD>:<answers>`, inside the grant's signature."""
    return f"{request_id}:{allowance_id.hex}:{worst_microusd}:{n_answers}"


async def _relay(answer: Answer, place: ServerEndpoint, sample: shadowing.Sample | None) -> AsyncIterator[bytes]:
    """The pieces as they come. When the caller hangs up this is closed, and with it the connection to the server."""
    let_go_of_thread()
    try:
        if sample is not None:
            sample.saw(answer.first)
        yield answer.first
        async for piece in answer.rest():
            if sample is not None:
                sample.saw(piece)
            yield piece
    except UpstreamUnavailable as lost:
        servers.mark_unhealthy(place)
        logger.warning("server %s stopped in the middle of an answer: %s", place.name, lost)
        detail = "The server stopped in the middle of the answer; ask again."
        yield event_of(Refusal(status=502, code="server_lost", detail=detail, is_retryable=True))
        return
    finally:
        servers.end(place)
        await asyncio.shield(answer.close())
    if sample is not None:
        await query(shadowing.keep_sample)(sample)


async def _whole(answer: Answer, place: ServerEndpoint, sample: shadowing.Sample | None) -> HttpResponse:
    try:
        data = await answer.whole()
    except UpstreamUnavailable as lost:
        servers.mark_unhealthy(place)
        logger.warning("server %s stopped in the middle of an answer: %s", place.name, lost)
        raise Unavailable("The server stopped in the middle of the answer; ask again.", code="server_lost") from lost
    finally:
        await _drop(answer, place)
    if sample is not None:
        sample.saw(data)
        await query(shadowing.keep_sample)(sample)
    return HttpResponse(data, content_type=answer.content_type)


async def _refusal(request: HttpRequest, answer: Answer, place: ServerEndpoint) -> HttpResponse:
    """A server's refusal, in the words of this API where it is about us, in the server's where it is about the
    request."""
    try:
        data = await answer.whole(upstream.MAX_ERROR_BYTES)
    except UpstreamUnavailable:
        data = b""
    finally:
        await _drop(answer, place)
    error = upstream.error_in(data)
    if answer.status in _BUSY:
        headers = {"Retry-After": answer.retry_after if answer.retry_after.isdigit() else "1"}
        detail = error or "The servers are busy; try again as Retry-After says."
        return respond(
            request,
            Refusal(status=answer.status, code="overloaded", detail=detail, is_retryable=True, headers=headers),
        )
    if 400 <= answer.status < 500 and answer.status not in (401, 403) and error:
        return HttpResponse(data, status=answer.status, content_type="application/json")
    logger.error("server %s answered %s", place.name, answer.status)
    detail = "The server could not answer; it is logged under the request id."
    return respond(request, Refusal(status=502, code="server_failed", detail=detail, is_retryable=True))


async def _drop(answer: Answer, place: ServerEndpoint) -> None:
    servers.end(place)
    await asyncio.shield(answer.close())


def _label(response: HttpResponseBase, admitted: Admitted, place: ServerEndpoint) -> HttpResponseBase:
    routed = admitted.routed
    response["Cache-Control"] = "no-store"
    response["X-Kolm-Artifact"] = encode_id(Prefix.ARTIFACT, routed.artifact_id)
    response["X-Kolm-Server"] = encode_id(Prefix.SERVER, place.id)
    if routed.deployment is not None:
        response["X-Kolm-Deployment"] = encode_id(Prefix.DEPLOYMENT, routed.deployment.id)
        response["X-Kolm-Canary"] = "true" if routed.is_canary else "false"
    return response

"""OpenAI's HTTP interface over any engine: /v1/chat/completions, /v1/responses, /v1/completions, /v1/models, and
/healthz.

Who may use what is the Responder's; what a parameter means is in docs/serving-openai.md. A caller that hangs up cancels
its requests, also while they wait. Nothing of a request is logged.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from gpu_runners.models.protocol import Delta
from gpu_runners.serving.openai.arrival import BodyDoor, Room, n_announced, read_body
from gpu_runners.serving.openai.bodies.chats import chat_call, completion_call, read_json
from gpu_runners.serving.openai.bodies.responses import own_names, response_call
from gpu_runners.serving.openai.body_threads import cost_of_schema, in_turn
from gpu_runners.serving.openai.calls import completion_requests, merge_deltas
from gpu_runners.serving.openai.chat_answers import Deltas, begin_chat
from gpu_runners.serving.openai.faults import Fault, fault_of
from gpu_runners.serving.openai.responder import Refusal, Responder, ServedStudent
from gpu_runners.serving.openai.response_objects import ResponseObject
from gpu_runners.serving.openai.shapes import Answer, AnswerObject
from gpu_runners.serving.openai.student_answers import no_completions

log = logging.getLogger("kolm.server")
T = TypeVar("T")
_WITH_SCHEMA = frozenset(("response_format", "tools", "text"))  # members of a body that may hold a schema
Handler = Callable[[Request], Awaitable[Response]]


def make_app(responder: Responder, *, routes: Sequence[BaseRoute] = ()) -> Starlette:
    """`routes` come beside OpenAI's, and before them."""
    room = Room()

    async def chat(request: Request) -> Response:
        async with _read(request, responder, room, chat_call) as (call, n_bytes):
            begun = await begin_chat(call, responder, _headers(request), n_bytes=n_bytes)
        return await _respond(request, begun.answer, begun.deltas, stream=call.sampling.stream)

    async def response(request: Request) -> Response:
        async with _read(request, responder, room, response_call) as (call, n_bytes):
            with own_names():
                begun = await begin_chat(call.chat, responder, _headers(request), n_bytes=n_bytes)
        answer = ResponseObject(call=call, answer=begun.answer)
        return await _respond(request, answer, begun.deltas, stream=call.chat.sampling.stream)

    async def completion(request: Request) -> Response:
        async with _read(request, responder, room, completion_call) as (call, n_bytes):
            served = await responder.resolve(call.model, _headers(request))
            if isinstance(served, ServedStudent):
                raise no_completions()
            requests = await in_turn(n_bytes, lambda: completion_requests(call, served))
        answer = Answer(
            model=served.model,
            is_chat=False,
            n_choices=len(requests),
            has_logprobs=call.sampling.top_logprobs is not None,
            reads_tools=False,
            with_usage=call.sampling.include_usage,
        )
        return await _respond(request, answer, merge_deltas(served.engine, requests), stream=call.sampling.stream)

    async def models(request: Request) -> Response:
        return JSONResponse({"object": "list", "data": await responder.models(_headers(request))})

    async def model(request: Request) -> Response:
        name = request.path_params["name"]
        for row in await responder.models(_headers(request)):
            if row["id"] == name:
                return JSONResponse(row)
        raise Refusal(404, "model_not_found", f"There is no model {name[:80]!r} here; GET /v1/models lists them.")

    async def healthz(request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    own = [
        Route("/v1/chat/completions", guard(chat), methods=["POST"]),
        Route("/v1/responses", guard(response), methods=["POST"]),
        Route("/v1/completions", guard(completion), methods=["POST"]),
        Route("/v1/models", guard(models), methods=["GET"]),
        Route("/v1/models/{name}", guard(model), methods=["GET"]),
        Route("/healthz", healthz, methods=["GET"]),
    ]
    handlers: dict[Any, Any] = {404: _no_such_route, 405: _no_such_route}
    return Starlette(routes=[*routes, *own], exception_handlers=handlers, middleware=[Middleware(BodyDoor)])


def guard(handler: Handler) -> Handler:
    """Turn every failure into an answer in OpenAI's shape."""

    async def handle(request: Request) -> Response:
        try:
            return await handler(request)
        except ClientDisconnect:
            return Response(status_code=499)  # nobody reads it
        except Exception as error:  # noqa: BLE001 - the edge: what nobody foresaw is a 500; its words are not told
            return _fault_of(error).response

    return handle


async def _respond(request: Request, answer: AnswerObject, deltas: Deltas, *, stream: bool) -> Response:
    try:
        if not stream:
            return await _unless_gone(request.receive, _whole(answer, deltas))
        first = await _unless_gone(request.receive, _next(deltas))  # what is refused is refused by status
    except BaseException:
        await deltas.aclose()
        raise
    return _EventStream(_events(answer, first, deltas), deltas)


async def _whole(answer: AnswerObject, deltas: Deltas) -> Response:
    async with contextlib.aclosing(deltas):
        async for index, delta in deltas:
            answer.add(index, delta)
    return JSONResponse(answer.whole())


async def _next(deltas: Deltas) -> tuple[int, Delta]:
    return await anext(deltas)


async def _events(answer: AnswerObject, first: tuple[int, Delta], deltas: Deltas) -> AsyncIterator[bytes]:
    try:
        yield answer.events(*first)
        async for index, delta in deltas:
            yield answer.events(index, delta)
        yield answer.last_events()
    except Exception as error:  # noqa: BLE001 - too late for a status: told in the stream, which ends here
        yield answer.fault_event(_fault_of(error))


class _EventStream(Response):
    """Each event is sent when it is there; the deltas are closed however it ends."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncIterator[bytes], deltas: Deltas) -> None:
        super().__init__()
        del self.headers["content-length"]
        self.headers["cache-control"] = "no-cache"
        self.headers["x-accel-buffering"] = "no"
        self._events, self._deltas = events, deltas

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def stream() -> None:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            async for event in self._events:
                await send({"type": "http.response.body", "body": event, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})

        try:
            await _unless_gone(receive, stream())
        except (ClientDisconnect, OSError):  # gone: nothing is left to be told
            return
        finally:
            await self._deltas.aclose()


async def _unless_gone(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """The work's outcome; cancels it and raises ClientDisconnect when the caller hangs up first."""
    task, gone = asyncio.create_task(work), asyncio.create_task(_hang_up(receive))
    try:
        await asyncio.wait([task, gone], return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientDisconnect
        return task.result()
    finally:
        for one in (task, gone):
            one.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


async def _hang_up(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


@contextlib.asynccontextmanager
async def _read(
    request: Request, responder: Responder, room: Room, read: Callable[[dict[str, Any]], T]
) -> AsyncIterator[tuple[T, int]]:
    """The call and the bytes that it came in, which are held as long. Whose they are is asked before they are read."""
    sender = await responder.admit(_headers(request))
    with room.hold(sender, n_announced(request)):
        data = await read_body(request)
        n_bytes = len(data)
        body = await in_turn(n_bytes, lambda: read_json(data))
        cost = cost_of_schema(n_bytes) if not _WITH_SCHEMA.isdisjoint(body) else n_bytes
        yield await in_turn(cost, lambda: read(body)), n_bytes


def _headers(request: Request) -> dict[str, str]:
    return {name.lower(): value for name, value in request.headers.items()}


def _fault_of(error: Exception) -> Fault:
    fault = fault_of(error)
    if fault.code == "internal_error":
        log.error("a request failed (%s)", type(error).__name__)
    return fault


async def _no_such_route(request: Request, error: Exception) -> Response:
    status = getattr(error, "status_code", 404)
    return Fault(status=status, message="There is no such route or method here.", code="not_found").response

"""OpenAI's HTTP interface over any engine: /v1/chat/completions, /v1/completions, /v1/models, and /healthz.

Who may use what is the Responder's; what a parameter means is in docs/serving-openai.md. A caller that hangs up cancels
its requests, also while they wait. Nothing of a request is logged.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from gpu_runners.models.protocol import Delta
from gpu_runners.serving.openai.arrival import BodyDoor, Room, n_announced, read_body
from gpu_runners.serving.openai.bodies import ChatCall, CompletionCall, chat_call, completion_call, read_json
from gpu_runners.serving.openai.body_threads import SHORT, cost_of_schema, in_turn
from gpu_runners.serving.openai.calls import chat_requests, completion_requests, merge_deltas
from gpu_runners.serving.openai.faults import Fault, fault_of
from gpu_runners.serving.openai.responder import Responder, Served, ServedStudent
from gpu_runners.serving.openai.rule_answers import rule_answer, rule_deltas
from gpu_runners.serving.openai.shapes import DONE, Answer, event_of
from gpu_runners.serving.openai.student_answers import no_completions, one_delta, openai_answer, student_input
from gpu_runners.serving.openai.tools import is_hermes

log = logging.getLogger("kolm.server")
T = TypeVar("T")
Deltas = AsyncGenerator[tuple[int, Delta], None]
Handler = Callable[[Request], Awaitable[Response]]


def make_app(responder: Responder, *, routes: Sequence[BaseRoute] = ()) -> Starlette:
    """`routes` come beside OpenAI's, and before them."""
    room = Room()

    async def chat(request: Request) -> Response:
        async with _read(request, responder, room, chat_call) as (call, n_bytes):
            served = await responder.resolve(call.model, _headers(request))
            if isinstance(served, ServedStudent):
                cost = n_bytes if call.sampling.schema is None else cost_of_schema(n_bytes)
                text = await in_turn(cost, lambda: student_input(call, served.student))
            else:
                ruled = await in_turn(n_bytes, lambda: rule_answer(call, served))
                # never on the loop: a chat is rendered by another process, and waited for
                requests = [] if ruled else await in_turn(max(n_bytes, SHORT + 1), lambda: chat_requests(call, served))
        if isinstance(served, ServedStudent):
            return await _student(request, call, served, text)
        if ruled is not None:
            answer = _answer_of(call, served, n=call.sampling.n, kolm=ruled.about)
            return await _respond(request, call, answer, rule_deltas(ruled, served, n=call.sampling.n))
        answer = _answer_of(call, served, n=len(requests))
        return await _respond(request, call, answer, merge_deltas(served.engine, requests))

    async def completion(request: Request) -> Response:
        async with _read(request, responder, room, completion_call) as (call, n_bytes):
            served = await responder.resolve(call.model, _headers(request))
            if isinstance(served, ServedStudent):
                raise no_completions()
            requests = await in_turn(n_bytes, lambda: completion_requests(call, served))
        answer = _answer_of(call, served, n=len(requests))
        return await _respond(request, call, answer, merge_deltas(served.engine, requests))

    async def models(request: Request) -> Response:
        return JSONResponse({"object": "list", "data": await responder.models(_headers(request))})

    async def healthz(request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    own = [
        Route("/v1/chat/completions", guard(chat), methods=["POST"]),
        Route("/v1/completions", guard(completion), methods=["POST"]),
        Route("/v1/models", guard(models), methods=["GET"]),
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


async def _student(request: Request, call: ChatCall, served: ServedStudent, text: str) -> Response:
    """A student's whole answer is there at once: a stream of it has one chunk."""
    answered = await _unless_gone(request.receive, served.answer(text))
    return await _respond(request, call, openai_answer(answered, model=served.model), one_delta(answered))


def _answer_of(
    call: ChatCall | CompletionCall, served: Served, *, n: int, kolm: Mapping[str, Any] | None = None
) -> Answer:
    has_tools = isinstance(call, ChatCall) and bool(call.tools)
    return Answer(
        model=served.model,
        is_chat=isinstance(call, ChatCall),
        n_choices=n,
        has_logprobs=call.sampling.top_logprobs is not None,
        reads_tools=has_tools and is_hermes(str(served.base.tokenizer.chat_template)),
        kolm=kolm or {},
    )


async def _respond(request: Request, call: ChatCall | CompletionCall, answer: Answer, deltas: Deltas) -> Response:
    sampling = call.sampling
    try:
        if not sampling.stream:
            return await _unless_gone(request.receive, _whole(answer, deltas))
        first = await _unless_gone(request.receive, _next(deltas))  # what is refused is refused by status
    except BaseException:
        await deltas.aclose()
        raise
    return _EventStream(_events(answer, first, deltas, with_usage=sampling.include_usage), deltas)


async def _whole(answer: Answer, deltas: Deltas) -> Response:
    async with contextlib.aclosing(deltas):
        async for index, delta in deltas:
            answer.add(index, delta)
    return JSONResponse(answer.whole())


async def _next(deltas: Deltas) -> tuple[int, Delta]:
    return await anext(deltas)


async def _events(
    answer: Answer, first: tuple[int, Delta], deltas: Deltas, *, with_usage: bool
) -> AsyncIterator[bytes]:
    try:
        yield event_of(answer.chunk(*first, with_usage=with_usage))
        async for index, delta in deltas:
            yield event_of(answer.chunk(index, delta, with_usage=with_usage))
        if with_usage:
            yield event_of(answer.usage_chunk())
        yield DONE
    except Exception as error:  # noqa: BLE001 - too late for a status: told in the stream, which ends here
        yield event_of(_fault_of(error).body)


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
        cost = cost_of_schema(n_bytes) if "response_format" in body else n_bytes
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

"""The database for views that wait: a thread and a connection for the moment of a query, none while they wait.

Django's way gives each request under ASGI one thread until its end, and that thread keeps its connection: eight open
event streams, or eight runners without work, would hold the whole pool.
"""

from collections.abc import Awaitable, Callable
from typing import Any, ParamSpec, TypeVar

from asgiref.sync import SyncToAsync, iscoroutinefunction, sync_to_async
from django.db import connection
from django.http import HttpRequest, HttpResponse
from django.utils.decorators import sync_and_async_middleware

P = ParamSpec("P")
T = TypeVar("T")


def query(function: Callable[P, T]) -> Callable[P, Awaitable[T]]:
    """`function` as a coroutine function; its connection has gone back to the pool when it answers. Not for a function
    that leaves a transaction open."""

    def brief(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        finally:
            let_go()

    return sync_to_async(brief, thread_sensitive=False)


def let_go() -> None:
    """Give this thread's connection back to the pool, unless a transaction is under way on it."""
    if not connection.in_atomic_block:
        connection.close()


def let_go_of_thread() -> None:
    """End the thread that Django keeps for this request's sync middleware: a response that streams for minutes would
    hold it, idle, with its stack (1,000 of them were measured at about 100 MB). What is sync at the request's end gets
    another."""
    context = SyncToAsync.thread_sensitive_context.get(None)
    executor = SyncToAsync.context_to_thread_executor.pop(context, None) if context is not None else None
    if executor is not None:
        executor.shutdown(wait=False)


@sync_and_async_middleware
def streams_let_go(get_response: Callable[[HttpRequest], Any]) -> Callable[[HttpRequest], Any]:
    """The innermost middleware: a view that answers with a stream has ended its transaction, and what draws the stream
    takes a connection for each draw. The thread's own one goes back first: no request holds two."""
    if not iscoroutinefunction(get_response):
        return get_response

    async def asynchronous(request: HttpRequest) -> HttpResponse:
        response = await get_response(request)
        if response.streaming:
            await sync_to_async(let_go, thread_sensitive=True)()
        return response

    return asynchronous

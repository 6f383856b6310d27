"""Many requests at once for who has no event loop: evaluation jobs, the inference worker, the command line."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from gpu_runners.models.protocol import Counts, Engine, FinishReason, GenerationRequest

AT_ONCE = 128  # requests in an engine at a time; it queues what it cannot run
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A whole answer. `logprob` is the sum over its tokens."""

    text: str
    finish_reason: FinishReason
    counts: Counts
    logprob: float


def generate_all(
    engine: Engine,
    requests: Sequence[GenerationRequest],
    *,
    on_done: Callable[[int], None] = lambda done: None,
    at_once: int = AT_ONCE,
) -> list[Finished]:
    """One answer a request, in order; `on_done` hears how many are done. Raises what the engine raises for the first
    request that fails; the others are then canceled."""
    return asyncio.run(_all(engine, requests, on_done=on_done, at_once=at_once))


async def read_to_end(engine: Engine, request: GenerationRequest) -> Finished:
    """Read one answer to its end."""
    texts = []
    async for delta in engine.generate(request):
        texts.append(delta.text)
        if delta.finish_reason is not None:
            return Finished(
                text="".join(texts), finish_reason=delta.finish_reason, counts=delta.counts, logprob=delta.logprob
            )
    raise RuntimeError("an engine ended an answer without saying so")


async def _all(
    engine: Engine, requests: Sequence[GenerationRequest], *, on_done: Callable[[int], None], at_once: int
) -> list[Finished]:
    places = asyncio.Semaphore(at_once)
    n_done = 0

    async def one(request: GenerationRequest) -> Finished:
        nonlocal n_done
        async with places:
            answer = await read_to_end(engine, request)
        n_done += 1
        on_done(n_done)
        return answer

    tasks = [asyncio.create_task(one(request)) for request in requests]
    return await _together(tasks)


async def _together(tasks: Sequence["asyncio.Task[T]"]) -> list[T]:
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

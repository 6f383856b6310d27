"""The way from a call and what serves it to the engine's requests, and back to one stream of deltas."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any
from uuid import uuid4

from gpu_runners.artifacts.pack_attachment import drafted_where_taken
from gpu_runners.models.answers import constraint_of, schema_constraint
from gpu_runners.models.chat import chat_ids
from gpu_runners.models.protocol import Constraint, Delta, Engine, GenerationRequest, Rejected
from gpu_runners.serving.openai.answer_forms import AnswerForm
from gpu_runners.serving.openai.bodies.bad_request import BadRequest
from gpu_runners.serving.openai.bodies.chats import ChatCall, CompletionCall, Sampling
from gpu_runners.serving.openai.responder import Served
from gpu_runners.serving.openai.tools import takes_tools

MAX_TOGETHER = 64  # prompts times choices of one call
COMPLETION_TOKENS = 16  # OpenAI's own default of /v1/completions


def chat_requests(call: ChatCall, served: Served, form: AnswerForm) -> list[GenerationRequest]:
    """One a choice. A chat without a system message gets the artifact's own. Tokenising takes a second a megabyte.
    Raises BadRequest, Rejected, JobFailed(bad_chat)."""
    # an artifact that answers as it was trained reads what it was trained on, and no tools
    tools = () if call.forced and form.is_own else call.tools
    messages: Sequence[Mapping[str, Any]] = call.messages
    system = served.prompt.get("system")
    if system and not any(message["role"] == "system" for message in messages):
        messages = [{"role": "system", "content": system}, *messages]
    constraint = _form_constraint(form, call.sampling, served.prompt)
    if tools:
        _check_tools(served, None if call.forced else constraint)
    prompt = chat_ids(served.base, messages, tools=tools)
    default = served.prompt.get("max_new_tokens") or served.base.context
    return _requests([tuple(prompt)], call.sampling, served, constraint, default)


def completion_requests(call: CompletionCall, served: Served) -> list[GenerationRequest]:
    """One a prompt and choice: prompts as they are, without chat template. Raises BadRequest, Rejected."""
    prompts = [one if isinstance(one, tuple) else _ids(served.base.tokenizer, one) for one in call.prompts]
    constraint = _constraint(call.sampling, served.prompt)
    default = served.prompt.get("max_new_tokens") or COMPLETION_TOKENS
    return _requests(prompts, call.sampling, served, constraint, default)


async def merge_deltas(
    engine: Engine, requests: Sequence[GenerationRequest]
) -> AsyncGenerator[tuple[int, Delta], None]:
    """(which request, its delta) as they come. Closing it cancels all that are not ready."""
    if len(requests) == 1:
        async with aclosing(drafted_where_taken(engine, requests[0])) as deltas:
            async for delta in deltas:
                yield 0, delta
        return
    queue: asyncio.Queue[tuple[int, Delta | Exception | None]] = asyncio.Queue()
    tasks = [asyncio.create_task(_pump(engine, request, i, queue)) for i, request in enumerate(requests)]
    try:
        left = len(tasks)
        while left:
            i, item = await queue.get()
            if item is None:
                left -= 1
            elif isinstance(item, Exception):
                raise item
            else:
                yield i, item
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _pump(
    engine: Engine, request: GenerationRequest, i: int, queue: "asyncio.Queue[tuple[int, Delta | Exception | None]]"
) -> None:
    try:
        async with aclosing(drafted_where_taken(engine, request)) as deltas:
            async for delta in deltas:
                queue.put_nowait((i, delta))
        queue.put_nowait((i, None))
    except Exception as error:  # noqa: BLE001 - whatever it is, the one reader of the queue raises it
        queue.put_nowait((i, error))


def _requests(
    prompts: Sequence[tuple[int, ...]],
    sampling: Sampling,
    served: Served,
    constraint: Constraint | None,
    default_tokens: int,
) -> list[GenerationRequest]:
    if len(prompts) * sampling.n > MAX_TOGETHER:
        raise BadRequest(f"One call has at most {MAX_TOGETHER} prompts times `n`.", param="n", code="invalid_value")
    for prompt in prompts:
        _check_fits(prompt, served)
    temperature = sampling.temperature
    if temperature is None:  # an artifact was measured greedily; a bare base has OpenAI's default
        temperature = 0.0 if served.prompt else 1.0
    first = GenerationRequest(
        id="",
        prompt=(),
        max_new_tokens=sampling.max_tokens or default_tokens,
        adapter=served.adapter,
        temperature=temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        stop=sampling.stop,
        top_logprobs=sampling.top_logprobs,
        constraint=constraint,
        frequency_penalty=sampling.frequency_penalty,
        presence_penalty=sampling.presence_penalty,
        tenant=served.tenant,
        cache_salt=served.cache_salt,
        drafting=served.drafting,
    )
    seeds = [None if sampling.seed is None else (sampling.seed + i) % (1 << 64) for i in range(sampling.n)]
    return [replace(first, id=uuid4().hex, prompt=prompt, seed=seed) for prompt in prompts for seed in seeds]


def _form_constraint(form: AnswerForm, sampling: Sampling, prompt: Mapping[str, Any]) -> Constraint | None:
    if form.is_own:
        return constraint_of(prompt["answer"]) if "answer" in prompt else None
    return _constraint(sampling, prompt) if form.schema is None else schema_constraint(form.schema)


def _constraint(sampling: Sampling, prompt: Mapping[str, Any]) -> Constraint | None:
    """The constraint that the call asks for; else, unless it asks for text, what the artifact's answers are held to."""
    own = constraint_of(prompt["answer"]) if "answer" in prompt else None
    if sampling.format is None or (sampling.format == "json_object" and prompt.get("answer", {}).get("type") == "json"):
        return own
    return sampling.constraint


def _check_tools(served: Served, constraint: Constraint | None) -> None:
    if constraint is not None:
        raise BadRequest(
            'This artifact answers in a form of its own: set tool_choice to "required" or to a function, or send '
            'response_format {"type": "text"} to leave the choice to the model.',
            param="tools",
            code="unsupported_parameter",
        )
    if not takes_tools(str(served.base.tokenizer.chat_template)):
        raise BadRequest("The base's chat template does not take tools.", param="tools", code="unsupported_parameter")


def _check_fits(prompt: Sequence[int], served: Served) -> None:
    """Refuse at once what no engine takes; it is not looked at again on the event loop. Raises Rejected."""
    context = served.base.context
    if len(prompt) >= context:
        raise Rejected(
            f"The prompt has {len(prompt)} tokens and at least one must follow; the context has {context}. Shorten the "
            "prompt.",
            code="context_too_long",
        )


def _ids(tokenizer: Any, text: str) -> tuple[int, ...]:
    return tuple(int(i) for i in tokenizer(text)["input_ids"])

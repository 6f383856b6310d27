"""The JSON bodies that are sent: of a chat completion, and of a text completion that scores a given text.

OpenAI's fields, and three of vLLM's where the teacher is one that knows them: `continue_final_message` with a begun
answer, `cache_salt`, and proposals for its engine in `vllm_xargs`. A field is left out rather than sent at its default:
servers refuse what they do not know.
"""

import itertools
import json
from collections.abc import Sequence
from typing import Any

from workers.teachers.protocol import CompletionRequest, ScoreRequest, TeacherCaps


def chat_body(request: CompletionRequest, model: str, caps: TeacherCaps) -> dict[str, Any]:
    """The body of `/chat/completions`. `top_logprobs` is cut to what the teacher tells; drafts and the salt go only to
    an engine that takes drafts."""
    body: dict[str, Any] = {
        "model": model,
        "messages": [{"role": m.role, "content": m.content} for m in request.messages],
        # vLLM refuses several greedy answers to one question, which would be the same; who needs more asks again
        "n": 1 if caps.engine_drafts and request.temperature == 0 else request.n,
        "temperature": request.temperature,
        "top_p": request.top_p,
        "max_tokens": request.max_tokens,
    }
    if request.seed is not None:
        body["seed"] = request.seed
    if request.top_k is not None:
        body["top_k"] = request.top_k
    if request.prefix:
        body["messages"].append({"role": "assistant", "content": request.prefix})
        body |= {"continue_final_message": True, "add_generation_prompt": False}
    if request.logprobs and caps.logprobs:
        body["logprobs"] = True
        n_top = min(request.top_logprobs, caps.max_top_logprobs)
        if n_top:
            body["top_logprobs"] = n_top
    if caps.engine_drafts:
        body |= _engine_fields(request)
    return body


def _engine_fields(request: CompletionRequest) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if request.cache_salt is not None:
        fields["cache_salt"] = request.cache_salt
    if request.drafts:
        fields["vllm_xargs"] = {"kolm_drafts": json.dumps(_fitting(request.drafts), ensure_ascii=False)}
    return fields


def _fitting(drafts: Sequence[str]) -> list[str]:
    """The first drafts, as many as the proposer reads: 64, and 65,536 characters of JSON."""
    sizes = itertools.accumulate(len(json.dumps(draft, ensure_ascii=False)) + 2 for draft in drafts[:64])
    return [draft for draft, size in zip(drafts, sizes, strict=False) if size <= 60_000]


def score_prompt(request: ScoreRequest) -> str:
    """The prompt before the text to score: the messages joined by blank lines, which is the grammar server's own chat
    template."""
    return "\n\n".join(m.content for m in request.messages) + "\n\n"


def echo_body(request: ScoreRequest, model: str, caps: TeacherCaps) -> dict[str, Any]:
    """The body of `/completions` with `echo`: one prefill, nothing generated. `logprobs` is the number of alternatives
    at each place."""
    prompt = score_prompt(request)
    body: dict[str, Any] = {
        "model": model,
        "prompt": prompt + request.text,
        "echo": True,
        "logprobs": min(request.top_logprobs, caps.max_top_logprobs),
        "max_tokens": 0,
        "temperature": request.temperature,
        "prompt_length": len(prompt),
    }
    if request.top_k is not None:
        body["top_k"] = request.top_k
    return body

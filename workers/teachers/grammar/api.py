"""The JSON of the grammar server: what a request may hold, and what is answered.

Chat completions take n, temperature, seed, max_tokens, logprobs, top_logprobs up to 1024, top_k, and an answer begun
in a last message of the assistant (`continue_final_message`, vLLM's spelling). Text completions take the same without
chat; `echo` with max_tokens 0 scores a given text, `logprobs` alternatives at each place, `prompt_logprobs` likewise in
vLLM's shape. All log-probs are of the distribution that was sampled, temperature and top-k included, and the end of an
answer is a token. `top_p` other than 1 is refused: it would make the log-probs another distribution's.
"""

import hashlib
import json
import math
import time
from collections.abc import Sequence
from typing import Any

from workers.teachers.grammar.model import MODEL, GrammarModel, Policy
from workers.teachers.grammar.pcfg import tokenize
from workers.teachers.grammar.prompt_reader import split_echo
from workers.teachers.grammar.sampling import Token, Written

MAX_N = 1024
MAX_TOP = 1024
LEAST_LOGPROB = -9999.0  # JSON has no -inf; OpenAI and vLLM write this number


class BadRequest(ValueError):
    """The request breaks the protocol, or asks for what a grammar cannot do."""


def chat_completion(model: GrammarModel, body: dict[str, Any]) -> dict[str, Any]:
    messages = _messages(body)
    prompt = "\n\n".join(m["content"] for m in messages if m["role"] == "user")
    n_top = _number(body, "top_logprobs", 0, 0, MAX_TOP, int)
    written = _write(model, prompt, body, n_top, _prefix(body, messages))
    wants = body.get("logprobs") is True
    choices = [
        {
            "index": i,
            "message": {"role": "assistant", "content": w.text},
            "finish_reason": "length" if w.is_cut else "stop",
            "logprobs": {"content": [_token_json(t) for t in w.tokens]} if wants else None,
        }
        for i, w in enumerate(written)
    ]
    n_prompt = sum(len(tokenize(m["content"])) + 4 for m in messages)
    return _envelope(model, "chat.completion", body, choices, n_prompt, sum(len(w.tokens) for w in written))


def _messages(body: dict[str, Any]) -> list[dict[str, str]]:
    messages = body.get("messages")
    if not isinstance(messages, list) or not all(
        isinstance(m, dict) and isinstance(m.get("content"), str) and isinstance(m.get("role"), str) for m in messages
    ):
        raise BadRequest("`messages` is a list of {role, content}")
    return messages


def _prefix(body: dict[str, Any], messages: list[dict[str, str]]) -> str:
    """The begun answer to go on from: the last message, where vLLM's `continue_final_message` says so."""
    if not body.get("continue_final_message"):
        return ""
    if body.get("add_generation_prompt") is not False:
        raise BadRequest("`continue_final_message` goes with `add_generation_prompt` false")
    if not messages or messages[-1]["role"] != "assistant":
        raise BadRequest("`continue_final_message` needs a last message of the assistant")
    return messages[-1]["content"]


def text_completion(model: GrammarModel, body: dict[str, Any]) -> dict[str, Any]:
    prompt = body.get("prompt")
    if not isinstance(prompt, str):
        raise BadRequest("`prompt` is a text")
    if body.get("echo") is True or body.get("prompt_logprobs") is not None:
        if _number(body, "max_tokens", 0, 0, 1, int) != 0:
            raise BadRequest("a prompt is scored with max_tokens 0: nothing is generated after it")
        return _score(model, prompt, body)
    written = _write(model, prompt, body, 0, "")
    wants = isinstance(body.get("logprobs"), int) and not isinstance(body.get("logprobs"), bool)
    choices = [
        {
            "index": i,
            "text": w.text,
            "finish_reason": "length" if w.is_cut else "stop",
            "logprobs": _columns(w.tokens, 0) if wants else None,
        }
        for i, w in enumerate(written)
    ]
    n_tokens = sum(len(w.tokens) for w in written)
    return _envelope(model, "text_completion", body, choices, len(tokenize(prompt)), n_tokens)


def _score(model: GrammarModel, prompt: str, body: dict[str, Any]) -> dict[str, Any]:
    """The grammar is a model of answers, not of prompts: the prompt's own tokens have no log-prob (null)."""
    asked, text = split_echo(prompt)
    n_top = _number(body, "logprobs", 0, 0, MAX_TOP, int)
    temperature = _number(body, "temperature", 1.0, 0.0, 100.0, float)
    tokens = model.score(asked, text, temperature=temperature, top_k=_top_k(body), n_top=n_top)
    asked_tokens = tokenize(asked)
    columns = _columns(tokens, len(asked))
    offsets = [sum(len(t) for t in asked_tokens[:i]) for i in range(len(asked_tokens))]
    blank: list[Any] = [None] * len(asked_tokens)
    choice = {
        "index": 0,
        "text": prompt,
        "finish_reason": "length",
        "logprobs": {
            "tokens": asked_tokens + columns["tokens"],
            "token_logprobs": blank + columns["token_logprobs"],
            "text_offset": offsets + columns["text_offset"],
            "top_logprobs": [*blank, *({t: _finite(p) for t, p in token.top} for token in tokens)] if n_top else None,
        },
        "prompt_logprobs": [
            *blank,
            *({t.text: {"logprob": _finite(t.logprob), "decoded_token": t.text}} for t in tokens),
        ],
    }
    return _envelope(model, "text_completion", body, [choice], len(asked_tokens) + len(tokens), 0)


def _write(model: GrammarModel, prompt: str, body: dict[str, Any], n_top: int, prefix: str) -> list[Written]:
    if body.get("stream"):
        raise BadRequest("`stream` is not supported")
    if body.get("top_p") not in (None, 1, 1.0):
        raise BadRequest("`top_p` other than 1 is not supported: the log-probs would be another distribution's")
    seed = body.get("seed")
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int)):
        raise BadRequest("`seed` is a whole number")
    policy = Policy(
        temperature=_number(body, "temperature", 1.0, 0.0, 100.0, float),
        top_k=_top_k(body),
        max_tokens=_number(body, "max_tokens", 1024, 1, 1_000_000, int),
        n_top=n_top,
        prefix=prefix,
    )
    return model.answer(prompt, n=_number(body, "n", 1, 1, MAX_N, int), seed=seed, policy=policy)


def _top_k(body: dict[str, Any]) -> int | None:
    """None for all tokens, which vLLM spells 0 or -1."""
    top_k: int = _number(body, "top_k", 0, -1, 1_000_000, int)
    return top_k if top_k > 0 else None


def _number(body: dict[str, Any], name: str, default: Any, least: Any, most: Any, kind: type) -> Any:
    value = body.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or (kind is int and not isinstance(value, int)):
        raise BadRequest(f"`{name}` is a number")
    if not least <= value <= most:
        raise BadRequest(f"`{name}` is between {least} and {most}")
    return kind(value)


def _token_json(token: Token) -> dict[str, Any]:
    top = [{"token": t, "logprob": _finite(p), "bytes": list(t.encode())} for t, p in token.top]
    logprob = _finite(token.logprob)
    return {"token": token.text, "logprob": logprob, "bytes": list(token.text.encode()), "top_logprobs": top}


def _columns(tokens: Sequence[Token], at: int) -> dict[str, list[Any]]:
    offsets = [at + sum(len(t.text) for t in tokens[:i]) for i in range(len(tokens))]
    return {
        "tokens": [t.text for t in tokens],
        "token_logprobs": [_finite(t.logprob) for t in tokens],
        "text_offset": offsets,
    }


def _finite(logprob: float) -> float:
    return logprob if math.isfinite(logprob) else LEAST_LOGPROB


def _envelope(
    model: GrammarModel, kind: str, body: dict[str, Any], choices: list[Any], n_in: int, n_out: int
) -> dict[str, Any]:
    digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    return {
        "id": f"grm-{digest[:24]}",
        "object": kind,
        "created": int(time.time()),
        "model": MODEL,
        "system_fingerprint": model.revision,
        "choices": choices,
        "usage": {"prompt_tokens": n_in, "completion_tokens": n_out, "total_tokens": n_in + n_out},
    }

"""Reads what only vLLM answers, as hostile input: token ids, the log-probs of a prompt's tokens, and text completions
of a prompt that was sent as ids. Everything raises BadAnswer with a sentence that quotes nothing of the answer."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from backend.domain.drafts.token_distributions import process_logprobs
from workers.teachers.openai_compatible.answers import Answer, as_completion, parse_json, read_chat, read_usage
from workers.teachers.openai_compatible.logprobs import (
    LEAST_LOGPROB,
    Alternatives,
    BadAnswer,
    best_first,
    logprob,
    token,
)
from workers.teachers.protocol import Choice, CompletionRequest, ScoreRequest

MAX_ID = 2**31


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptToken:
    """A token of a prompt: its text and rank, and the likeliest at its place, best first, their log-probs at
    temperature 1 whatever is sampled at."""

    token: str
    rank: int
    logprob: float
    top: Alternatives


def read_ids(body: bytes) -> tuple[int, ...]:
    """The answer of `/tokenize`."""
    ids = parse_json(body).get("tokens")
    if not isinstance(ids, list) or not all(type(i) is int and 0 <= i < MAX_ID for i in ids):
        raise BadAnswer("the answer holds no token ids")
    return tuple(ids)


def read_prompt_score(body: bytes, request: ScoreRequest, ids: Sequence[int], starts_at: int) -> Answer:
    """log P(text | messages), from the `prompt_logprobs` of `/completions`: the places of `ids` from `starts_at` on, as
    they are sampled from at the request's temperature and top-k."""
    data = parse_json(body)
    choices = data.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise BadAnswer("the answer holds no choices")
    rows = choices[0].get("prompt_logprobs")
    if not isinstance(rows, list) or len(rows) != len(ids):
        raise BadAnswer("the answer does not tell the log-probabilities of its prompt")
    places = [_place(row, str(i)) for row, i in zip(rows[starts_at:], ids[starts_at:], strict=True)]
    sampled = [_as_sampled(place, request) for place in places]
    logprobs = tuple(p for p, _ in sampled)
    choice = Choice(
        text=request.text,
        logprob=math.fsum(logprobs),
        token_logprobs=logprobs,
        tokens=tuple(place.token for place in places),
        top_logprobs=tuple(top[: request.top_logprobs] for _, top in sampled) if request.top_logprobs else None,
        n_tokens=len(places),
    )
    usage = read_usage(data.get("usage"), as_completion(request), ())
    return Answer(choices=(choice,), usage=usage, model="", system_fingerprint=_fingerprint(data))


def _place(row: object, own: str) -> PromptToken:
    """`row` is {id: {"logprob", "rank", "decoded_token"}} for the likeliest and for the token `own` itself."""
    if not isinstance(row, dict) or not all(isinstance(entry, dict) for entry in row.values()) or own not in row:
        raise BadAnswer("a place of the prompt does not tell its token")
    rank = row[own].get("rank")
    if type(rank) is not int or rank < 1:
        raise BadAnswer("a place of the prompt does not rank its token")
    likeliest = [entry for name, entry in row.items() if name != own or rank <= len(row)]
    pairs = [(token(entry.get("decoded_token")), logprob(entry.get("logprob"))) for entry in likeliest]
    return PromptToken(
        token=token(row[own].get("decoded_token")),
        rank=rank,
        logprob=logprob(row[own].get("logprob")),
        top=best_first(pairs),
    )


def _as_sampled(place: PromptToken, request: ScoreRequest) -> tuple[float, Alternatives]:
    """(log-prob of the place's own token, the likeliest) at the request's temperature and top-k."""
    if request.temperature == 1.0 and request.top_k is None:
        return place.logprob, place.top
    top = process_logprobs(place.top, temperature=request.temperature, top_k=request.top_k)
    return (top[place.rank - 1][1] if place.rank <= len(top) else LEAST_LOGPROB), top


def read_text_completion(body: bytes, request: CompletionRequest) -> Answer:
    """The choices of `/completions`, read as those of a chat."""
    data = parse_json(body)
    rows = data.get("choices")
    if not isinstance(rows, list):
        raise BadAnswer("the answer holds no choices")
    return read_chat(json.dumps(data | {"choices": [_as_chat(row) for row in rows]}).encode(), request)


def _as_chat(row: object) -> dict[str, Any]:
    if not isinstance(row, dict):
        raise BadAnswer("a choice is not an object")
    logprobs = row.get("logprobs")
    return {
        "message": {"content": row.get("text")},
        "finish_reason": row.get("finish_reason"),
        "logprobs": None if logprobs is None else {"content": _chat_rows(logprobs)},
    }


def _chat_rows(value: object) -> list[dict[str, Any]]:
    if not isinstance(value, dict):
        raise BadAnswer("the log-probabilities are not an object")
    tokens, logprobs = _column(value, "tokens"), _column(value, "token_logprobs")
    tops = _column(value, "top_logprobs") if value.get("top_logprobs") is not None else [{}] * len(tokens)
    if not len(tokens) == len(logprobs) == len(tops) or not all(isinstance(top, dict) for top in tops):
        raise BadAnswer("the columns of the log-probabilities do not fit together")
    return [
        {"token": name, "logprob": p, "top_logprobs": [{"token": n, "logprob": q} for n, q in top.items()]}
        for name, p, top in zip(tokens, logprobs, tops, strict=True)
    ]


def _column(value: dict[str, Any], name: str) -> list[Any]:
    column = value.get(name)
    if not isinstance(column, list):
        raise BadAnswer("a column of the log-probabilities is not a list")
    return column


def _fingerprint(data: dict[str, object]) -> str:
    value = data.get("system_fingerprint")
    return value[:200] if isinstance(value, str) and value.isprintable() else ""

"""Reads log-probs out of an answer as hostile input: finite numbers at or below zero, lists of equal lengths, tokens
that are text. Everything raises BadAnswer with a sentence that quotes nothing of the answer."""

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from backend.domain.labeling.label_scores import DIGITS, MOST_MASS, compact_scores, label_logprobs
from workers.teachers.protocol import CompletionRequest

LEAST_LOGPROB = -10_000.0  # some servers say -9999 for "never"; below, sums and float16 overflow
MAX_TOKEN_CHARS = 1024
MAX_ALTERNATIVES = 4096

Alternatives = tuple[tuple[str, float], ...]


class BadAnswer(Exception):
    """The body is not what the protocol promises."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRows:
    """The columns that a teacher reports, a row for each token. `tokens` and `top` are None where they are missing;
    `labels` are the log-probs of the request's labels, where it names some and the answer tells."""

    logprobs: tuple[float, ...] = ()
    tokens: tuple[str, ...] | None = None
    top: tuple[Alternatives, ...] | None = None
    labels: dict[str, float] | None = None


def read_answer_rows(value: object, text: str, request: CompletionRequest) -> TokenRows:
    """The `logprobs` of a chat choice whose text is `text`. Where the request names labels, their log-probs come in the
    place of tokens and alternatives; alternatives that cannot be read spoil no answer then."""
    if not request.labels:
        return _compact(read_chat_rows(value, request.top_logprobs), request.least_probability)
    try:
        rows = read_chat_rows(value, request.top_logprobs)
    except BadAnswer:
        rows = read_chat_rows(value, 0)
    return TokenRows(logprobs=rows.logprobs, labels=_label_rows(rows, text, request.labels))


def _compact(rows: TokenRows, least: float) -> TokenRows:
    """The rows without alternatives below `least`, rounded; all of them where it is 0."""
    if not least or rows.top is None:
        return rows
    lowest = math.log(least)
    top = tuple(tuple((name, round(p, DIGITS)) for name, p in place if p >= lowest) for place in rows.top)
    return replace(rows, top=top, logprobs=tuple(round(p, DIGITS) for p in rows.logprobs))


def _label_rows(rows: TokenRows, text: str, labels: Sequence[str]) -> dict[str, float] | None:
    """The log-probs of the labels, those of next to none left out; None where the tokens are not the text, or where a
    place has more probability than there is."""
    if not rows.tokens or not rows.top or not "".join(rows.tokens).strip().startswith(text.strip()):
        return None
    top = [dict(row) | {own: p} for own, p, row in zip(rows.tokens, rows.logprobs, rows.top, strict=True)]
    if any(math.fsum(map(math.exp, place.values())) > MOST_MASS for place in top):
        return None
    scores = label_logprobs(rows.tokens, top, labels)
    return None if scores is None else compact_scores(scores)


def read_chat_rows(value: object, n_top: int) -> TokenRows:
    """The `logprobs` of a chat choice; nothing where the teacher gives none. At most `n_top` + 1 alternatives a place
    are kept (vLLM adds the drawn token to the likeliest)."""
    rows = value.get("content") if isinstance(value, dict) else None
    if rows is None:
        return TokenRows()
    if not isinstance(rows, list):
        raise BadAnswer("the log-probabilities are not a list")
    logprobs = tuple(logprob(row.get("logprob") if isinstance(row, dict) else None) for row in rows)
    tokens = tuple(token(row["token"]) for row in rows) if all("token" in row for row in rows) else None
    has_top = n_top > 0 and all("top_logprobs" in row for row in rows)
    top = tuple(_chat_alternatives(row["top_logprobs"], n_top) for row in rows) if has_top else None
    return TokenRows(logprobs=logprobs, tokens=tokens, top=top)


def _chat_alternatives(value: object, n_top: int) -> Alternatives:
    if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
        raise BadAnswer("the likeliest tokens of a place are not a list")
    pairs = [(token(entry.get("token")), logprob(entry.get("logprob"))) for entry in value[: n_top + 1]]
    return best_first(pairs)


def read_echo_rows(value: object, starts_at: int, n_top: int) -> TokenRows:
    """The `logprobs` of an echoed text completion: the rows of the tokens that start at or after `starts_at`, in
    characters."""
    if not isinstance(value, dict):
        raise BadAnswer("the answer holds no log-probabilities of the prompt")
    offsets, logprobs, tokens = (_column(value, name) for name in ("text_offset", "token_logprobs", "tokens"))
    if not len(offsets) == len(logprobs) == len(tokens):
        raise BadAnswer("the columns of the log-probabilities are not equally long")
    if not all(isinstance(at, int) for at in offsets) or starts_at not in offsets:
        raise BadAnswer("no token starts where the text starts")
    places = [i for i, at in enumerate(offsets) if at >= starts_at]
    top: tuple[Alternatives, ...] | None = None
    if n_top > 0 and value.get("top_logprobs") is not None:
        rows = _column(value, "top_logprobs")
        if len(rows) != len(offsets):
            raise BadAnswer("the columns of the log-probabilities are not equally long")
        top = tuple(_echo_alternatives(rows[i], n_top) for i in places)
    return TokenRows(
        logprobs=tuple(logprob(logprobs[i]) for i in places), tokens=tuple(token(tokens[i]) for i in places), top=top
    )


def _column(value: dict[str, Any], name: str) -> list[Any]:
    column = value.get(name)
    if not isinstance(column, list):
        raise BadAnswer("a column of the log-probabilities is not a list")
    return column


def _echo_alternatives(value: object, n_top: int) -> Alternatives:
    if not isinstance(value, dict):
        raise BadAnswer("the likeliest tokens of a place are not an object")
    pairs = [(token(name), logprob(p)) for name, p in list(value.items())[: n_top + 1]]
    return best_first(pairs)


def best_first(pairs: list[tuple[str, float]]) -> Alternatives:
    if len(pairs) > MAX_ALTERNATIVES:
        raise BadAnswer("a place has more alternatives than any teacher tells")
    return tuple(sorted(pairs, key=lambda pair: (-pair[1], pair[0])))


def token(value: object) -> str:
    """One token's text, strict Unicode. No database takes a NUL in a text, and a token may be one."""
    if not isinstance(value, str) or len(value) > MAX_TOKEN_CHARS:
        raise BadAnswer("a token is not a short text")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as wrong:
        raise BadAnswer("a token holds half a character (a lone surrogate)") from wrong
    return value.replace("\x00", "\ufffd")


def logprob(value: object) -> float:
    """A finite number, and not above zero but for rounding; clipped to [LEAST_LOGPROB, 0]."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    # by comparison, which takes an integer of any size: math.isfinite does not
    if not is_number or not -sys.float_info.max <= value <= 1e-3:  # type: ignore[operator]
        raise BadAnswer("a log-probability is not a finite number at or below zero")
    return max(LEAST_LOGPROB, min(0.0, float(value)))  # type: ignore[arg-type]

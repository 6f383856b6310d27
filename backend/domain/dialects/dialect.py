"""The dialect of an endpoint and model: which of OpenAI's request options it takes, under which names and up to which
values. Rows with their sources are in `table`; what an endpoint itself says by refusing a request is a `Lesson`, which
makes another dialect of the one that was assumed.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import reduce
from typing import Any

from backend.domain.dialects.batches import BatchTerms

DEFAULT_THOUGHT_TOKENS = 4096  # of a model that thinks, where nobody says how long
# what is left for thoughts, by effort; an endpoint's own default is about "medium"
THOUGHT_TOKENS = {"none": 0, "minimal": 512, "low": 2048, "medium": 4096, "high": 16_384, "xhigh": 32_768}
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")  # from the least; "none" is no thinking at all
MAX_VALUE = 10_000_000  # of a number that an endpoint names in a refusal
ONE_REQUEST = "request"  # the scope of a lesson that a request's own length, or its answer, taught
_GUESS = "guess"  # in the stored name of a lesson, in the place of its day
GREEDY = "greedy"  # the scope of one about requests at temperature 0


class Option(StrEnum):
    """The options of a request that an endpoint may refuse. `model` and `messages` are no options. `do_sample` makes
    transformers draw tokens at all: without it a temperature does nothing where the model's own settings do not.
    `breakpoints` are the marks in messages of what to cache."""

    TOKEN_LIMIT = "token_limit"
    TEMPERATURE = "temperature"
    TOP_P = "top_p"
    TOP_K = "top_k"
    DO_SAMPLE = "do_sample"
    N = "n"
    SEED = "seed"
    LOGPROBS = "logprobs"
    TOP_LOGPROBS = "top_logprobs"
    RESPONSE_FORMAT = "response_format"
    EFFORT = "effort"
    CACHE_KEY = "prompt_cache_key"
    BREAKPOINTS = "breakpoints"
    SYSTEM_ROLE = "system_role"
    THOUGHTS = "thoughts"


class ResponseFormat(StrEnum):
    """The form that an endpoint can be held to: a JSON schema, a JSON object of any shape, the arguments of a tool
    where it ignores both, or none. A lesson goes down this list, never up."""

    SCHEMA = "json_schema"
    OBJECT = "json_object"
    TOOL = "tool"
    FREE = "text"


SAMPLING = frozenset({Option.TEMPERATURE, Option.TOP_P, Option.N, Option.SEED})
LOGPROBS = frozenset({Option.LOGPROBS, Option.TOP_LOGPROBS})
WEAKER = {
    ResponseFormat.SCHEMA: ResponseFormat.OBJECT,
    ResponseFormat.OBJECT: ResponseFormat.FREE,
    ResponseFormat.TOOL: ResponseFormat.FREE,  # a tool is for endpoints that ignore a JSON object
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One row. It holds for an address whose host ends with one of `hosts` (and whose path holds `path`), and for
    models that `models` matches; in the table the first that fits counts.

    `takes` names the options that may be sent; those that it lacks are left out of every request. `seed` and
    `token_limit` are the names of these two; `max_n`, `max_temperature` and `max_top_logprobs` the largest values.
    `effort` is the path of the option that says how long to think, `efforts` its values from the least; `off` the path
    of what switches thoughts off where that is no effort, and its value. `thinks`: the model writes thoughts before its
    answer unless it is told not to. `has_breakpoints`: the end of what to cache is marked in the message. `batch` are
    the terms of its batch endpoint, where kolm speaks that. `asked` names the release that was held to the row, and the
    day; "" where the row rests on documents alone.
    """

    name: str
    source: str
    written_on: str  # year-month-day
    asked: str = ""
    hosts: tuple[str, ...] = ()
    path: str = ""
    models: str = ""
    takes: frozenset[Option] = SAMPLING | LOGPROBS | {Option.SYSTEM_ROLE, Option.RESPONSE_FORMAT}
    token_limit: str = "max_tokens"
    max_tokens: int | None = None
    seed: str = "seed"
    max_n: int = 10_000
    max_temperature: float = 2.0
    max_top_logprobs: int = 20
    response_format: ResponseFormat = ResponseFormat.SCHEMA
    effort: tuple[str, ...] = ("reasoning_effort",)
    efforts: tuple[str, ...] = ()
    off: tuple[tuple[str, ...], str | bool] | None = None
    thinks: bool = False
    has_breakpoints: bool = False
    batch: BatchTerms | None = None

    @property
    def has_tool(self) -> bool:
        """An answer with a schema is asked for as the arguments of a tool."""
        return self.response_format is ResponseFormat.TOOL and Option.RESPONSE_FORMAT in self.takes

    def fits(self, host: str, path: str, model: str) -> bool:
        """Tell whether this row is about a model at an address."""
        at_home = any(host == own or host.endswith(f".{own}") for own in self.hosts)
        return at_home and self.path in path and re.search(self.models, model.lower()) is not None

    def effort_for(self, asked: str) -> str | None:
        """The effort to send where one is asked for: itself, else the nearest that the dialect has, the lower of two as
        near. Thinking is turned off only where that is asked; None where nothing else is to be had.

        >>> Dialect(name="x", source="", written_on="", efforts=("none", "low", "high")).effort_for("medium")
        'low'
        """
        if not self.efforts or asked in self.efforts:
            return asked
        place = EFFORTS.index(asked)
        thinking = [EFFORTS.index(effort) for effort in self.efforts if effort != "none"]
        return EFFORTS[min(thinking, key=lambda at: (abs(at - place), at))] if thinking else None


def thought_room(dialect: Dialect, effort: str | None, declared: int | None) -> int:
    """The tokens that one answer needs for thoughts: as declared, else by the effort, else of a model that thinks the
    usual.

    >>> thought_room(Dialect(name="x", source="", written_on="", thinks=True), None, None)
    4096
    """
    if declared is not None:
        return declared
    if effort is not None:
        return THOUGHT_TOKENS[effort]
    return DEFAULT_THOUGHT_TOKENS if dialect.thinks else 0


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Lesson:
    """A lesson of one refusal: `option` is not taken (`value` is None), or only as `value`: a name for the token
    limit, a largest value for a number, one of its values for the effort or the response's format. `scope` says which
    requests it holds for: "" for all, the digest of a schema for those that ask for it, GREEDY for those at
    temperature 0, ONE_REQUEST for the refused one alone, so that no other learns from it.

    `is_guess`: the refusal named no option. `learnt_on` is the day (year-month-day) from which on it is kept.
    """

    option: Option
    value: str | int | None = None
    scope: str = ""
    is_guess: bool = field(default=False, compare=False)
    learnt_on: str = field(default="", compare=False)

    def holds_for(self, schema: str, *, is_greedy: bool = False) -> bool:
        """Tell whether a request with an answer schema of this digest, or at temperature 0, heeds it."""
        return self.scope in ("", ONE_REQUEST, schema) or (is_greedy and self.scope == GREEDY)

    def to_json(self) -> list[str | int | None]:
        """The lesson as it is stored. A release that knows no third part of the name takes it for a schema's, and asks
        again."""
        mark = _GUESS if self.is_guess else self.learnt_on
        parts = (self.option, self.scope, mark) if mark else (self.option, self.scope) if self.scope else (self.option,)
        return ["/".join(parts), self.value]

    @property
    def sentence(self) -> str:
        """The lesson in words, for a receipt and a log."""
        words = f"without {self.option}" if self.value is None else f"{self.option}: {self.value}"
        if self.scope == GREEDY:
            return f"{words} at temperature 0"
        return f"{words} for the schema {self.scope}" if self.scope else words


def schema_digest(schema: Any) -> str:
    """The name of a JSON Schema in a lesson's scope."""
    return hashlib.sha256(json.dumps(schema, sort_keys=True).encode()).hexdigest()[:16]


def lessons_from_json(rows: Sequence[Sequence[str | int | None]]) -> tuple[Lesson, ...]:
    """The lessons that were stored; those of an option that this release does not know are left out."""
    known = set(Option)
    named = [((*str(name).split("/"), "", "")[:3], value) for name, value in rows]
    return tuple(
        Lesson(
            option=Option(option),
            value=value,
            scope=scope,
            is_guess=mark == _GUESS,
            learnt_on="" if mark == _GUESS else mark,
        )
        for (option, scope, mark), value in named
        if option in known
    )


def with_lessons(dialect: Dialect, lessons: Iterable[Lesson]) -> Dialect:
    """The dialect after these lessons, in their order. None gives back what another took: calls in flight at the same
    time learn side by side.

    >>> plain = Dialect(name="x", source="", written_on="")
    >>> with_lessons(plain, [Lesson(option=Option.N, value=1), Lesson(option=Option.SEED)]).max_n
    1
    """
    return reduce(_learn, lessons, dialect)


def _learn(dialect: Dialect, lesson: Lesson) -> Dialect:
    match lesson.option, lesson.value:
        case Option.TOKEN_LIMIT, str(name):
            return replace(dialect, token_limit=name if dialect.token_limit else "")
        case Option.TOKEN_LIMIT, int(most):
            return replace(dialect, max_tokens=most if dialect.max_tokens is None else min(most, dialect.max_tokens))
        case Option.N, int(most):
            return replace(dialect, max_n=min(most, dialect.max_n))
        case Option.TOP_LOGPROBS, int(most):
            return replace(dialect, max_top_logprobs=min(most, dialect.max_top_logprobs))
        case Option.TEMPERATURE, int(most):
            return replace(dialect, max_temperature=min(float(most), dialect.max_temperature))
        case Option.EFFORT, str(least):
            return replace(dialect, efforts=(least,))
        case Option.RESPONSE_FORMAT, str(weaker):
            weakest = max(ResponseFormat(weaker), dialect.response_format, key=list(ResponseFormat).index)
            return replace(dialect, response_format=weakest)
        case Option.THOUGHTS, _:
            return replace(dialect, thinks=True)
        case Option.BREAKPOINTS, _:
            return replace(dialect, has_breakpoints=False)
        case Option.TOKEN_LIMIT, None:
            return replace(dialect, token_limit="")
        case option, _:
            return replace(dialect, takes=dialect.takes - {option})

"""Reads what a refusal (400, 422 and their like) says about the request: which option the endpoint does not take, or up
to which value.

A refusal is hostile input. Nothing of its text leaves this module: a lesson names an option out of a closed set, a
whole number within bounds, or a word out of a closed set, so that the worst a false refusal does is that less is sent.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from backend.domain.dialects.dialect import (
    EFFORTS,
    MAX_VALUE,
    ONE_REQUEST,
    WEAKER,
    Dialect,
    Lesson,
    Option,
    schema_digest,
)
from backend.domain.dialects.faults import TeacherFault
from workers.teachers.openai_compatible.bodies import GENERATION_CONFIG
from workers.teachers.openai_compatible.endpoint_faults import fault_of
from workers.teachers.openai_compatible.statements import Statement, read_statement

LEARNT_FROM = frozenset({400, 404, 405, 422, 500, 501})
VAGUE = frozenset({400, 422})  # of these alone one that names nothing is taken for one about an option
TOKEN_LIMITS = ("max_tokens", "max_completion_tokens")
_EFFORT_NAMES = ("reasoning_effort", "reasoning", "effort", "thinking", "think")
_ALSO_CALLED = {"chat_template_kwargs": ("chat_template",)}  # vLLM with a tokenizer of Mistral's

# without a name: what is left out first is what an answer needs least
_GUESSES = (
    Option.CACHE_KEY,
    Option.BREAKPOINTS,
    Option.TOP_LOGPROBS,
    Option.LOGPROBS,
    Option.RESPONSE_FORMAT,
    Option.SEED,
    Option.TOP_K,
    Option.EFFORT,
    Option.TOP_P,
    Option.N,
    Option.DO_SAMPLE,
    Option.TEMPERATURE,
    Option.TOKEN_LIMIT,
    Option.SYSTEM_ROLE,
)
_NOT_AN_OPTION = re.compile(
    r"api[ _-]?key|\bkey\b|credential|unauthori[sz]ed|permission|billing|quota|credit|balance|content (?:policy|filter)"
    r"|moderation|safety|model\b[^.]{0,80}\b(?:not (?:exist|found|available)|does not exist|unknown)|unknown model"
    r"|no such model|server is pinned to|context (?:length|window|size)|prompt is too long|too many (?:input )?tokens"
    r"|not a chat model|does not support the \S{1,60} api",
    re.IGNORECASE,
)
_SOME_OPTION = re.compile(r"requested parameters", re.IGNORECASE)  # OpenRouter's 404
_CONTEXT = re.compile(r"maximum context length is (\d{1,8}) tokens", re.IGNORECASE)
_INPUT = re.compile(r"(\d{1,8}) (?:input tokens|tokens? (?:from|in) the (?:input|messages|prompt))", re.IGNORECASE)
_MOST = re.compile(
    r"(?:at most|less than or equal to|no (?:more|greater|larger) than|<=|≤|maximum (?:value )?(?:of|is|allowed is)"
    r"|max allowed|must be between -?\d+(?:\.\d+)? and|range (?:of \S+ )?(?:is )?\[?-?\d+(?:\.\d+)?(?:,| to| and)"
    r"|from -?\d+(?:\.\d+)? to|up to)\s*:?\s*[`'\"]?(\d{1,8})(?:\.\d+)?",
    re.IGNORECASE,
)
_ONE = re.compile(r"(?:only|must be|more than|greater than|>|other than|except)\s*(?:=\s*)?(?:1|one)\b", re.IGNORECASE)
# said without the option's name
_MEANT = {
    Option.N: re.compile(r"multiple candidates|only one (?:candidate|completion choice)", re.IGNORECASE),
    Option.EFFORT: re.compile(
        r"budget 0 is invalid|only works in thinking mode|reasoning is mandatory|does not support thinking"
        r"|(?:think|reasoning) value|effort parameter",
        re.IGNORECASE,
    ),
}
_SYSTEM_PLACE = re.compile(r"(?:body\.)?messages(?:\[\d+\]|\.\d+)?\.role")
_SYSTEM = re.compile(
    r"(?:system|developer) (?:role|message|prompt|instruction)s?|role\W{1,4}(?:system|developer)"
    r"|conversation roles must alternate|unsupported role|only user and assistant roles",
    re.IGNORECASE,
)
_SCHEMA = re.compile(r"invalid (?:json )?schema", re.IGNORECASE)  # of this answer: another one may be taken
_UNKNOWN = re.compile(
    r"unsupported|not supported|unrecogni[sz]ed|unknown|unexpected|extra|not permitted|not allowed|not available"
    r"|cannot find field|deprecated|does not (?:support|accept)",
    re.IGNORECASE,
)


def lesson_of(
    status: int, raw: bytes, body: Mapping[str, Any], dialect: Dialect, known: Sequence[Lesson] = ()
) -> Lesson | None:
    """Find what a refusal of `body`, which was made by `dialect`, teaches; None where it is about something else (the
    key, the model, the content, a prompt too long), or where nothing is left to do without. `known` was learnt before:
    no lesson is given twice.

    >>> refused = b'{"error": {"param": "max_tokens", "message": "Use max_completion_tokens instead."}}'
    >>> openai = Dialect(name="x", source="", written_on="")
    >>> lesson_of(400, refused, {"max_tokens": 9}, openai).value
    'max_completion_tokens'
    """
    if status not in LEARNT_FROM:
        return None
    statement = read_statement(raw)
    if statement.is_broken_json or statement.refuses_content(status):
        return None
    sent = _options_of(body, dialect)
    option = _option_meant(statement, sent)
    if status == 500 and option not in _MEANT:
        return None  # any failure may name an option; old llama.cpp's 500 for n alone is a refusal
    if option is None:
        is_vague = status in VAGUE and not _NOT_AN_OPTION.search(statement.text)
        is_vague = is_vague and fault_of(status, raw) is TeacherFault.OTHER_REFUSAL
        if not (is_vague or _SOME_OPTION.search(statement.text)):
            return None
        option = next((guess for guess in _GUESSES if guess in sent), None)
    if option is None:
        return None
    if option is Option.LOGPROBS and Option.TOP_LOGPROBS in sent and _most(statement.text, below=body["top_logprobs"]):
        option = Option.TOP_LOGPROBS  # vLLM calls it by the other's name
    lesson = _lesson(option, statement.text, body, dialect, known)
    return None if lesson in known else lesson


def _options_of(body: Mapping[str, Any], dialect: Dialect) -> dict[Option, tuple[str, ...]]:
    """The options that a body holds, by the names under which a refusal may speak of each."""
    names = {
        Option.TOKEN_LIMIT: tuple(name for name in TOKEN_LIMITS if name in body),
        Option.TEMPERATURE: ("temperature",),
        Option.TOP_P: ("top_p",),
        Option.TOP_K: ("top_k",),
        Option.DO_SAMPLE: (GENERATION_CONFIG,),
        Option.N: ("n", "candidate_count"),
        Option.SEED: (dialect.seed,),
        Option.TOP_LOGPROBS: ("top_logprobs",),
        Option.LOGPROBS: ("logprobs", "response_logprobs"),
        Option.RESPONSE_FORMAT: ("response_format", "json_schema", "response_schema"),
        Option.CACHE_KEY: ("prompt_cache_key",),
    }
    paths = (dialect.effort, () if dialect.off is None else dialect.off[0])
    sent = [path for path in paths if path and path[0] in body]
    if sent:
        spellings = [name for path in sent for name in (path[0], ".".join(path), *_ALSO_CALLED.get(path[0], ()))]
        names[Option.EFFORT] = (*spellings, *_EFFORT_NAMES)
    options = {
        option: tuple(dict.fromkeys(spelling for name in own for spelling in (name, _camel(name))))
        for option, own in names.items()
        if own and any(name in body for name in own)
    }
    if any(isinstance(message.get("content"), list) for message in body.get("messages", ())):
        options[Option.BREAKPOINTS] = ("cache_control", "cacheControl")
    if any(message.get("role") in ("system", "developer") for message in body.get("messages", ())):
        options[Option.SYSTEM_ROLE] = ()
    return options


def _camel(name: str) -> str:
    """A name as gateways in other languages spell it: `reasoningEffort`."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _option_meant(statement: Statement, sent: Mapping[Option, tuple[str, ...]]) -> Option | None:
    """The option that a refusal is about: by its place where it gives one, else the one named first in its words."""
    meant = next((option for option, words in _MEANT.items() if option in sent and words.search(statement.text)), None)
    if meant is not None:
        return meant
    for place in statement.names:
        if _SYSTEM_PLACE.fullmatch(place) and Option.SYSTEM_ROLE in sent:
            return Option.SYSTEM_ROLE
        for option, names in sent.items():
            if any(re.fullmatch(rf"(?:body\.)?{re.escape(name)}(?:[.\[].*)?", place) for name in names):
                return option
    places: list[tuple[int, int, Option]] = []
    for option, names in sent.items():
        for name in names:
            mark = _word(name).search(statement.text)
            if mark is not None:
                places.append((mark.start(), -len(name), option))
    if places:
        return min(places)[2]
    return Option.SYSTEM_ROLE if Option.SYSTEM_ROLE in sent and _SYSTEM.search(statement.text) else None


def _word(name: str) -> re.Pattern[str]:
    """A name in a sentence. One letter is a name in quotes or before what is said of a number only."""
    if len(name) > 1:
        return re.compile(rf"(?<![\w]){re.escape(name)}(?![\w])")
    return re.compile(rf"(?:['\"`]|parameter |property |field |\b(?=\w (?:must|>|=|should|is not|cannot))){name}(?!\w)")


def _lesson(
    option: Option, text: str, body: Mapping[str, Any], dialect: Dialect, known: Sequence[Lesson]
) -> Lesson | None:
    match option:
        case Option.TOKEN_LIMIT:
            return _limit(text, body, known)
        case Option.N | Option.TOP_LOGPROBS:
            most = _most(text, below=int(body[option]))
            if most is None and option is Option.N and _ONE.search(text):
                most = 1
            return Lesson(option=option, value=most)
        case Option.TEMPERATURE:
            if "default" in text.lower():  # "only the default (1) value is supported"
                return Lesson(option=option)
            return Lesson(option=option, value=_most(text, below=float(body["temperature"])))
        case Option.EFFORT:
            return Lesson(option=option, value=_effort(text, _at(body, dialect.effort)))
        case Option.RESPONSE_FORMAT:
            scope = _schema_of(body) if _SCHEMA.search(text) else ""
            return Lesson(option=option, value=WEAKER.get(dialect.response_format), scope=scope)
        case _:
            return Lesson(option=option)


def _limit(text: str, body: Mapping[str, Any], known: Sequence[Lesson]) -> Lesson | None:
    """The token limit goes under its other name, or is lowered to what fits, or where neither name is taken left
    out. What fits beside a prompt of this length says nothing of the next one."""
    (name,) = (limit for limit in TOKEN_LIMITS if limit in body)
    asked = int(body[name])
    context, used = _CONTEXT.search(text), _INPUT.search(text)
    if context is not None:
        fits = int(context[1]) - (int(used[1]) if used else 0)
        is_less = used is not None and 0 < fits < asked
        return Lesson(option=Option.TOKEN_LIMIT, value=fits, scope=ONE_REQUEST) if is_less else None
    most = _most(text, below=asked)
    if most is not None and not _UNKNOWN.search(text):
        return Lesson(option=Option.TOKEN_LIMIT, value=most)
    (other,) = (limit for limit in TOKEN_LIMITS if limit != name)
    renamed = Lesson(option=Option.TOKEN_LIMIT, value=other)
    return Lesson(option=Option.TOKEN_LIMIT) if renamed in known else renamed


def _schema_of(body: Mapping[str, Any]) -> str:
    """The digest of the schema that a body holds its answer to, "" without one."""
    schema = _at(body, ("response_format", "json_schema", "schema"))
    return "" if schema is None else schema_digest(schema)


def _most(text: str, *, below: float) -> int | None:
    """The largest value that the words allow, where it is less than what was sent."""
    values = [int(match[1]) for match in _MOST.finditer(text)]
    fitting = [value for value in values if 0 < value < below and value <= MAX_VALUE]
    return max(fitting, default=None)


def _effort(text: str, asked: object) -> str | None:
    """The value nearest to the one that was asked for among those that the words offer, the larger of two as near; no
    thinking only where nothing else is offered."""
    offered = [word for word in EFFORTS if word != asked and re.search(rf"['\"`]{word}['\"`]", text)]
    if asked not in EFFORTS or not offered:
        return None
    place = EFFORTS.index(str(asked))
    return min(offered, key=lambda word: (word == "none", abs(EFFORTS.index(word) - place), -EFFORTS.index(word)))


def _at(body: Mapping[str, Any], path: Sequence[str]) -> object:
    value: object = body
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value

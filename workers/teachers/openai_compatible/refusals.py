"""Reads what a refusal (400, 422 and their like) says about the request: which option the endpoint does not take, or up
to which value.

A refusal is hostile input. Nothing of its text leaves this module: a lesson names an option out of a closed set, a
whole number within bounds, or a word out of a closed set, so that the worst a false refusal does is that less is sent.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from backend.domain.dialects.dialect import (
    EFFORTS,
    GREEDY,
    MAX_VALUE,
    WEAKER,
    Dialect,
    Lesson,
    Option,
    schema_digest,
)
from backend.domain.dialects.faults import TeacherFault
from backend.domain.dialects.tools import schema_of_tool
from workers.teachers.openai_compatible.bodies import GENERATION_CONFIG
from workers.teachers.openai_compatible.endpoint_faults import fault_of
from workers.teachers.openai_compatible.statements import Statement, read_statement
from workers.teachers.openai_compatible.token_limits import (
    LIMIT_NAMES,
    TOKEN_LIMITS,
    fitting_limit,
    is_overflow,
    lower_limit,
    names_context,
)

LEARNT_FROM = frozenset({400, 404, 405, 422, 500, 501})
VAGUE = frozenset({400, 422})  # of these alone one that names nothing is taken for one about an option
_EFFORT_NAMES = ("reasoning_effort", "reasoning", "effort", "thinking", "think")
_FORM_NAMES = ("response_format", "json_schema", "response_schema")
_TOOL_NAMES = ("tools", "tool_choice", "tool", "Tool", "Tools", "function", "functions", "Function", "function_call")
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
    Option.SYSTEM_ROLE,
    Option.TOKEN_LIMIT,  # the last resort: an answer without a limit could cost anything
)
_NOT_AN_OPTION = re.compile(
    r"api[ _-]?key|\bkey\b|credential|unauthori[sz]ed|permission|billing|quota|credit|balance|content (?:policy|filter)"
    r"|moderation|safety|model\b[^.]{0,80}\b(?:not (?:exist|found|available)|does not exist|unknown)|unknown model"
    r"|no such model|server is pinned to|context (?:length|window|size)|prompt is too long|too many (?:input )?tokens"
    r"|not a chat model|does not support the \S{1,60} api",
    re.IGNORECASE,
)
_SOME_OPTION = re.compile(r"requested parameters", re.IGNORECASE)  # OpenRouter's 404
_MOST = re.compile(
    r"(?:at most|less than or equal to|no (?:more|greater|larger) than|<=|≤|maximum (?:value )?(?:of|is|allowed is)"
    r"|max allowed|must be between -?\d+(?:\.\d+)? and"
    r"|range (?:of \S+ )?(?:is |should be )?\[?-?\d+(?:\.\d+)?(?:,| to| and)|from -?\d+(?:\.\d+)? to|up to"
    r"|(?:cannot|can't|must not|should not|may not) (?:exceed|be (?:greater|larger|more|higher) than)|lower than"
    r"|exceeds? the (?:model |maximum |output )?(?:limit|maximum) of|maximum allowed(?: value)?)"
    r"\s*:?\s*[`'\"]?(\d{1,8})(?:\.\d+)?",
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
# two options that are taken alone: of those that it names, what an answer needs least is left out
_CONFLICT = re.compile(
    r"\bboth\b|\btogether\b|simultaneous|at the same time|mutually exclusive|only one of|in combination"
    r"|incompatible with|(?:combined|conflicts?) with|one or the other",
    re.IGNORECASE,
)
# what is taken at other temperatures than 0
_GREEDY = re.compile(
    r"greedy|temperature\W{1,3}(?:(?:must|should|has to|needs to) be |to be )?(?:a )?(?:strictly )?"
    r"(?:>(?!=)|greater than(?! or)|above|larger than|positive|non-?zero|not (?:be )?(?:0|zero)"
    r"|(?:of |is |= ?)?(?:0(?:\.0+)?|zero)\b(?! (?:and|to|-)))",
    re.IGNORECASE,
)
# what is said without an option's name, where no other is named
_CALLED = {
    Option.TOKEN_LIMIT: re.compile(r"max(?:imum)? (?:(?:output|completion|new) )?tokens", re.IGNORECASE),
    Option.RESPONSE_FORMAT: re.compile(
        r"structured[ _-]?(?:outputs?|generation)|(?:guided|constrained)[ _-]?(?:decoding|generation|json)"
        r"|json[ _-]?(?:mode|object|schema)|output (?:format|schema)|response ?format",
        re.IGNORECASE,
    ),
    Option.LOGPROBS: re.compile(r"log[ _-]?prob(?:abilit(?:y|ie)s?|s)?\b", re.IGNORECASE),
    Option.CACHE_KEY: re.compile(r"prompt[ _-]?cach(?:e|ing)", re.IGNORECASE),
}
_SYSTEM_PLACE = re.compile(r"(?:body\.)?messages(?:\[\d+\]|\.\d+)?\.role")
_SYSTEM = re.compile(
    r"(?:system|developer) (?:role|message|prompt|instruction)s?|role\W{1,4}(?:system|developer)"
    r"|conversation roles must alternate|unsupported role|only user and assistant roles",
    re.IGNORECASE,
)
# of this answer: another one may be taken
_SCHEMA = re.compile(r"invalid (?:json )?schema|input_schema|function\.parameters", re.IGNORECASE)


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
    is_greedy = body.get("temperature") == 0 and _GREEDY.search(statement.text) is not None
    option = _option_in_conflict(statement.text, sent, is_greedy=is_greedy) or _option_meant(statement, sent)
    if status in VAGUE and is_overflow(statement.text) and not _is_cap(option, statement.text, body):
        limit = _limit_of(body)
        return None if limit is None else fitting_limit(statement.text, limit[1])
    if status == 500 and option not in _MEANT:
        return None  # any failure may name an option; old llama.cpp's 500 for n alone is a refusal
    is_guess = option is None
    if option is None:
        if fault_of(status, raw) is TeacherFault.SERVER_ERROR:
            return None
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
    if lesson is not None:
        scope = GREEDY if is_greedy and not lesson.scope else lesson.scope
        lesson = replace(lesson, scope=scope, is_guess=is_guess)
    return None if lesson in known else lesson


def options_in(body: Mapping[str, Any], dialect: Dialect) -> frozenset[Option]:
    """The options that a body, which was made by `dialect`, holds."""
    return frozenset(_options_of(body, dialect))


def _options_of(body: Mapping[str, Any], dialect: Dialect) -> dict[Option, tuple[str, ...]]:
    """The options that a body holds, by the names under which a refusal may speak of each."""
    names = {
        Option.TOKEN_LIMIT: () if _limit_of(body) is None else LIMIT_NAMES,
        Option.TEMPERATURE: ("temperature",),
        Option.TOP_P: ("top_p",),
        Option.TOP_K: ("top_k",),
        Option.DO_SAMPLE: (GENERATION_CONFIG,),
        Option.N: ("n", "candidate_count"),
        Option.SEED: (dialect.seed,),
        Option.TOP_LOGPROBS: ("top_logprobs",),
        Option.LOGPROBS: ("logprobs", "response_logprobs"),
        Option.RESPONSE_FORMAT: _TOOL_NAMES if "tools" in body else _FORM_NAMES,
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
    places = _places(statement.text, sent)
    if places:
        return min(places)[2]
    called = next(
        (option for option, words in _CALLED.items() if option in sent and words.search(statement.text)), None
    )
    if called is not None:
        return called
    return Option.SYSTEM_ROLE if Option.SYSTEM_ROLE in sent and _SYSTEM.search(statement.text) else None


def _option_in_conflict(text: str, sent: Mapping[Option, tuple[str, ...]], *, is_greedy: bool) -> Option | None:
    """The option to leave out of those that a refusal takes one at a time, or not at temperature 0."""
    named = {option for _, _, option in _places(text, sent)} & set(_GUESSES)
    if is_greedy:
        return min(named or {Option.TEMPERATURE}, key=_GUESSES.index)
    return min(named, key=_GUESSES.index) if len(named) > 1 and _CONFLICT.search(text) else None


def _places(text: str, sent: Mapping[Option, tuple[str, ...]]) -> list[tuple[int, int, Option]]:
    """The places where a text names options that were sent: the place, minus the length of the name, the option."""
    marks = ((_word(name).search(text), name, option) for option, names in sent.items() for name in names)
    return [(mark.start(), -len(name), option) for mark, name, option in marks if mark is not None]


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
            name, asked = _limit_of(body) or ("", 0)
            return lower_limit(text, name, asked, _most(text, below=asked), known)
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


def _limit_of(body: Mapping[str, Any]) -> tuple[str, int] | None:
    """The name and the value of a body's token limit."""
    return next(((name, int(body[name])) for name in TOKEN_LIMITS if name in body), None)


def _is_cap(option: Option | None, text: str, body: Mapping[str, Any]) -> bool:
    """Tell whether a refusal that speaks of the context says how high a limit may be, whatever the prompt."""
    limit = _limit_of(body)
    if option is not Option.TOKEN_LIMIT or limit is None:
        return False
    return _most(text, below=limit[1]) is not None and not names_context(text)


def _schema_of(body: Mapping[str, Any]) -> str:
    """The digest of the schema that a body holds its answer to, "" without one."""
    schema = schema_of_tool(body) or _at(body, ("response_format", "json_schema", "schema"))
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

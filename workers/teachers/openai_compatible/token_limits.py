"""Reads what a refusal says of the token limit: that the answer does not fit beside its prompt, that the limit is
higher than what the endpoint gives, or that it has another name.

A request without a limit could cost anything. So the limit is lowered, and tried under its other name, before it is
left out; that is the last resort, for servers that know neither name and have a limit of their own.
"""

import re
from collections.abc import Sequence

from backend.domain.dialects.dialect import MAX_VALUE, ONE_REQUEST, Lesson, Option

TOKEN_LIMITS = ("max_tokens", "max_completion_tokens")  # under which it is sent
# by which a refusal may call it, whichever was sent: gateways translate it
LIMIT_NAMES = (*TOKEN_LIMITS, "max_new_tokens", "max_output_tokens")
LEAST_LIMIT = 16  # tokens; an answer with less room says nothing

_N = r"(\d{1,3}(?:,\d{3})+|\d{1,8})(?!\w)"
_SUM = re.compile(rf"{_N}\s*\+\s*{_N}\s*>\s*{_N}")
_PROMPT_AND_ANSWER = re.compile(r"tokens?`? \+ `?max_", re.IGNORECASE)
_OVERFLOW = re.compile(
    r"context[ _-]?(?:length|window|size|limit)|token count exceeds|too many tokens|max_model_len"
    r"|\bn_ctx\b|exceed[^.]{0,30}token limit|(?:sequence|total) length|total (?:number of )?tokens\b[^.]{0,40}exceed",
    re.IGNORECASE,
)
# the prompt by itself: no limit would make room
_INPUT_ALONE = re.compile(
    r"(?:prompt|inputs?|messages) (?:is|are|was|were) (?:too (?:long|large)|longer)|too many input tokens"
    r"|(?:prompt|input)\b(?:(?! and| \+| plus|\.|max_).){0,40}exceed|inputs?`? must have (?:less|fewer)"
    r"|max(?:imum)? (?:prompt|input) length|range of input length|shorter (?:input|prompt)|exceed_context_size_error"
    r"|reduce the length of (?:the |your )?(?:messages|prompt|input(?: messages)?)(?!\s*(?:or|and|,|;|\w))",
    re.IGNORECASE,
)
_CONTEXTS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"(?:context|sequence|total)[ _-]?(?:length|window|size|limit|len)(?: limit| of| is| only|[:=(\s])*{_N}",
        rf"{_N}(?: tokens?)? (?:maximum |max )?context (?:length|window|size)",
        rf"max_model_len\W{{1,3}}{_N}",
        rf"(?:limit is|<=|≤|at most|up to)\s*{_N}",
    )
)
_INPUTS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"{_N}(?: tokens?)? (?:`?inputs?`?|prompt)",
        rf"{_N}(?: tokens?)? (?:of|from|in|for) (?:the |your )?(?:text )?(?:input|messages?|prompt)",
        rf"(?:messages|prompt|input(?: length| token count)?|request)\b[^.\d]{{0,40}}?{_N} (?:draft )?tokens",
    )
)
_TOTAL = re.compile(
    rf"(?:requested (?:a total of |about )?|requested tokens \(|current length is ){_N}(?! (?:output|completion))",
    re.IGNORECASE,
)
_CEILINGS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (rf"to\s+{_N} \(exclusive\)", rf"(?:less than|smaller than|below)\s+[`'\"]?{_N}")
)
_TOO_HIGH = re.compile(
    r"too (?:large|high|big|long|many)|exceed|greater|larger|higher|lower|range|maximum|at most|up to|<|>|limit of",
    re.IGNORECASE,
)
_UNKNOWN = re.compile(
    r"unsupported|not supported|unrecogni[sz]ed|unknown|unexpected|extra|not permitted|not allowed|not available"
    r"|cannot find field|deprecated|does not (?:support|accept)",
    re.IGNORECASE,
)


def is_overflow(text: str) -> bool:
    """Tell whether a refusal is about the length of a prompt, alone or with its answer."""
    return any(words.search(text) for words in (_SUM, _PROMPT_AND_ANSWER, _OVERFLOW, _INPUT_ALONE))


def names_context(text: str) -> bool:
    """Tell whether a refusal says how much fits into the context, prompt and answer together."""
    return any(words.search(text) for words in (_SUM, _PROMPT_AND_ANSWER, *_CONTEXTS[:3]))


def fitting_limit(text: str, asked: int) -> Lesson | None:
    """The lesson of an answer that does not fit beside its prompt: what the numbers leave, half of what was asked
    where there are none; None where the prompt is too long by itself. It says nothing of the next prompt."""
    room = _room(text, asked)
    if _INPUT_ALONE.search(text) if room is None else room < 1:
        return None
    return _of_one_request(room if room is not None and room < asked else _half(asked))


def lower_limit(text: str, name: str, asked: int, most: int | None, known: Sequence[Lesson]) -> Lesson:
    """The lesson of a limit that is refused under `name`: `most` or what else the words allow, where they do; else its
    other name, or half of it, whichever is likelier, then the other of the two; no limit where nothing is left."""
    (other,) = (limit for limit in TOKEN_LIMITS if limit != name)
    is_high = _TOO_HIGH.search(text) is not None
    most = _cap(text, asked) or most
    if most is not None and (not _UNKNOWN.search(text) or (is_high and other not in text)):
        return Lesson(option=Option.TOKEN_LIMIT, value=most)
    renamed = Lesson(option=Option.TOKEN_LIMIT, value=other)
    lowered = _of_one_request(_half(asked))
    was_lowered = any(lesson.option is Option.TOKEN_LIMIT and lesson.scope == ONE_REQUEST for lesson in known)
    choices = [renamed, None if was_lowered and not is_high else lowered]
    if is_high and not _UNKNOWN.search(text):
        choices.reverse()
    left = [lesson for lesson in choices if lesson is not None and lesson not in known]
    return left[0] if left else Lesson(option=Option.TOKEN_LIMIT)


def _cap(text: str, asked: int) -> int | None:
    """The largest limit that the words allow where they set it beside the one that was sent, or exclude the first that
    is too large."""
    beside = re.search(rf"(?<![\d,.]){asked}\s*(?:>|exceeds)\s*{_N}", text)
    ceiling = _first(_CEILINGS, text)
    value = _int(beside[1]) if beside else ceiling - 1 if ceiling else 0
    return value if 0 < value < min(asked, MAX_VALUE) else None


def _room(text: str, asked: int) -> int | None:
    """The tokens that a context has left beside the prompt, less than 1 where that is too long; None where the words
    do not say."""
    sums = _SUM.search(text)
    if sums is not None:
        return _int(sums[3]) - _int(sums[1])
    context = _first(_CONTEXTS, text)
    used, total = _first(_INPUTS, text), _first((_TOTAL,), text)
    if total is not None and total > asked:
        used = max(used or 0, total - asked)
    return None if context is None or used is None else context - used


def _half(asked: int) -> int | None:
    return asked // 2 if asked // 2 >= LEAST_LIMIT else None


def _of_one_request(value: int | None) -> Lesson | None:
    return None if value is None else Lesson(option=Option.TOKEN_LIMIT, value=value, scope=ONE_REQUEST)


def _first(patterns: Sequence[re.Pattern[str]], text: str) -> int | None:
    match = next((match for pattern in patterns if (match := pattern.search(text)) is not None), None)
    return None if match is None else _int(match[1])


def _int(digits: str) -> int:
    return int(digits.replace(",", ""))

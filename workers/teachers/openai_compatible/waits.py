"""Reads how long an endpoint wants to be left alone, out of the headers of an answer and of what a refusal states.

The readers are general and no data of a dialect: what they look for has one meaning at every vendor, and gateways pass
on what others say. Written on 2026-11-26 from:

- `retry-after-ms`, OpenAI's and Azure's: https://github.com/openai/openai-python/issues/957
- `x-ratelimit-reset-requests` and its like beside `x-ratelimit-remaining-requests`, a duration or seconds:
  https://platform.openai.com/docs/guides/rate-limits; Cerebras' by the day and the minute, as public code quotes them
- `x-ratelimit-reset`, an epoch in seconds or ms or seconds from now, of an answer or in the error's `metadata.headers`:
  https://openrouter.ai/docs/api_reference/limits
- `retryDelay`, of google.rpc.RetryInfo, and "Please retry in 45.578569677s.":
  https://github.com/continuedev/continue/issues/9570
- "Please try again in 7.66s" (OpenAI, Groq), "Please retry after 45 seconds" (Azure):
  https://github.com/icereed/paperless-gpt/issues/814

What an endpoint says is hostile input: what is no time from now counts for nothing, and `retry.delay_s` bounds the
rest.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import datetime

from workers.teachers.openai_compatible import retry
from workers.teachers.openai_compatible.statements import read_statement

_LIMIT = "x-ratelimit-"
_NUMBER = r"\d{1,12}(?:\.\d{1,12})?"
_UNIT = r"milliseconds?|ms|seconds?|secs?|s|minutes?|mins?|m|hours?|hrs?|h|days?|d"
_PART = re.compile(rf"({_NUMBER})\s?({_UNIT})(?![a-z])\s?", re.IGNORECASE | re.ASCII)
_DURATION = re.compile(rf"(?:{_NUMBER}\s?(?:{_UNIT})(?![a-z])\s?){{1,5}}", re.IGNORECASE | re.ASCII)
_SECONDS = re.compile(_NUMBER, re.ASCII)
_ASKED = re.compile(rf"\b(?:try again|retry)(?: your request)? (?:in|after) ({_DURATION.pattern})", re.I | re.ASCII)
_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_LEAST_EPOCH_S = 1e8  # below, a number is seconds from now
_LEAST_EPOCH_MS = 1e11


def wait_s(headers: Mapping[str, str], raw: bytes, now: datetime) -> float | None:
    """Seconds to wait before the next call: what is asked for, by a header or in the refusal; else until a limit that
    is used up begins anew; None where nothing is said."""
    statement = read_statement(raw)
    asked = (
        _milliseconds(headers.get("retry-after-ms", "")),
        retry.parse_retry_after(headers.get("retry-after"), now),
        duration_s(statement.waits.get("retrydelay", "")),
        retry.parse_retry_after(statement.waits.get("retry-after"), now),
        _asked_in_words(statement.text),
        max(_resets(headers, now), default=None),
        max(_resets(statement.waits, now), default=None),
    )
    return next((seconds for seconds in asked if seconds is not None), None)


def duration_s(text: str) -> float | None:
    """The seconds of a duration; a number alone is seconds.

    >>> duration_s("6m0s"), duration_s("500ms"), duration_s("34s"), duration_s("12.5"), duration_s("-1s")
    (360.0, 0.5, 34.0, 12.5, None)
    """
    text = text.strip()
    if _SECONDS.fullmatch(text):
        return _time(float(text))
    if not _DURATION.fullmatch(text):
        return None
    units = (
        (float(number), "ms" if unit[:3].lower() in ("ms", "mil") else unit[0].lower())
        for number, unit in _PART.findall(text)
    )
    return _time(sum(number * _UNITS_S[unit] for number, unit in units))


def _time(seconds: float) -> float | None:
    return seconds if seconds > 0 else None


def _milliseconds(text: str) -> float | None:
    text = text.strip()
    return _time(float(text) / 1_000) if _SECONDS.fullmatch(text) else None


def _asked_in_words(text: str) -> float | None:
    asked = _ASKED.search(text)
    return None if asked is None else duration_s(asked[1])


def _resets(headers: Mapping[str, str], now: datetime) -> Iterator[float]:
    """Seconds until each limit begins anew of which nothing remains."""
    for name, value in headers.items():
        limit = name.lower().removeprefix(_LIMIT + "reset")
        if limit == name.lower():
            continue
        remaining = headers.get(f"{_LIMIT}remaining{limit}")
        if not limit and (remaining is None or _is_none(remaining)):
            seconds = _until(value, now)
        elif limit and remaining is not None and _is_none(remaining):
            seconds = duration_s(value)
        else:
            seconds = None
        if seconds is not None:
            yield seconds


def _is_none(remaining: str) -> bool:
    return re.fullmatch(r"0+(?:\.0+)?", remaining.strip(), re.ASCII) is not None


def _until(text: str, now: datetime) -> float | None:
    """Seconds until a moment: an epoch in seconds or milliseconds, or the seconds themselves."""
    text = text.strip()
    if not re.fullmatch(r"\d{1,16}(?:\.\d{1,9})?", text, re.ASCII):
        return None
    value = float(text)
    if value < _LEAST_EPOCH_S:
        return _time(value)
    return _time((value / 1_000 if value >= _LEAST_EPOCH_MS else value) - now.timestamp())

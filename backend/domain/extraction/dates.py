"""Dates and times of day as people write them, read into the forms that schemas ask for."""

import calendar
import re
from collections.abc import Iterator

Span = tuple[int, int]

_MONTHS = {
    name: number
    for number, names in enumerate(
        (
            "january jan januar jänner janvier enero gennaio janeiro januari",
            "february feb februar février fevrier febrero febbraio fevereiro februari",
            "march mar märz maerz mars marzo março maart",
            "april apr avril abril aprile",
            "may mai mayo maggio maio mei",
            "june jun juni juin junio giugno junho",
            "july jul juli juillet julio luglio julho",
            "august aug août aout agosto augustus",
            "september sep sept septembre septiembre settembre setembro",
            "october oct oktober okt octobre octubre ottobre outubro",
            "november nov novembre noviembre novembro",
            "december dec dezember dez décembre decembre diciembre dicembre dezembro",
        ),
        start=1,
    )
    for name in names.split()
}
_NUMERIC = re.compile(r"(?<!\d)(\d{1,4})([./-])(\d{1,2})(?:\2(\d{4}|\d{2}))?(?!\d)")
_TOKEN = re.compile(r"\d{1,4}|[^\W\d_]+")
_SKIPPED = frozenset(["of", "the", "st", "nd", "rd", "th", "de", "der", "den"])
_TIME = re.compile(
    r"(?<![\d:])(\d{1,2})(?:[:.h](\d{2}))?(?::(\d{2}))?[ \u00a0]?(a\.?m\b\.?|p\.?m\b\.?|uhr\b|o'clock|h\b)?", re.I
)
_NAMED_TIMES = {"noon": (12, 0), "midday": (12, 0), "midnight": (0, 0), "mittag": (12, 0), "mitternacht": (0, 0)}
_NAMED = re.compile("|".join(_NAMED_TIMES), re.I)


def date_spans(text: str) -> Iterator[Span]:
    """The places of what may be a date, numeric ones and those that name a month."""
    for match in _NUMERIC.finditer(text):
        yield match.span()
    tokens = [(match[0].casefold(), match.start(), match.end()) for match in _TOKEN.finditer(text)]
    for i, (token, _, _) in enumerate(tokens):
        if token in _MONTHS:
            for first in range(max(0, i - 4), i + 1):
                for last in range(i, min(len(tokens), i + 4)):
                    yield tokens[first][1], tokens[last][2]


def read_date(surface: str, *, is_day_first: bool, year: int = 0) -> str | None:
    """The date as YYYY-MM-DD; `year` is that of a date without one (0: such a date is None).

    >>> read_date("3/4/2026", is_day_first=True), read_date("May 14th, 2026", is_day_first=True)
    ('2026-04-03', '2026-05-14')
    >>> read_date("14 May", is_day_first=True), read_date("14 May", is_day_first=True, year=2026)
    (None, '2026-05-14')
    """
    numeric = _NUMERIC.fullmatch(surface.strip())
    if numeric:
        first, _, second, third = numeric.groups()
        if len(first) == 4:
            return _iso(int(first), int(second), int(third)) if third else None
        day, month = (int(first), int(second)) if is_day_first else (int(second), int(first))
        if month > 12:
            day, month = month, day
        return _iso(_full_year(third) if third else year, month, day)
    return _read_named(surface, year)


def _read_named(surface: str, year: int) -> str | None:
    month, numbers = 0, []
    for match in _TOKEN.finditer(surface):
        token = match[0].casefold()
        if token in _MONTHS and not month:
            month = _MONTHS[token]
        elif token.isdecimal():
            numbers.append(token)
        elif token not in _SKIPPED:
            return None
    days = [int(token) for token in numbers if len(token) <= 2]
    years = [int(token) for token in numbers if len(token) == 4]
    if not month or len(days) != 1 or len(years) > 1 or len(days) + len(years) != len(numbers):
        return None
    return _iso(years[0] if years else year, month, days[0])


def _full_year(digits: str) -> int:
    return int(digits) if len(digits) == 4 else 2000 + int(digits)


def _iso(year: int, month: int, day: int) -> str | None:
    if not 1000 <= year <= 9999 or not 1 <= month <= 12 or not 1 <= day <= calendar.monthrange(year, month)[1]:
        return None
    return f"{year:04}-{month:02}-{day:02}"


def time_spans(text: str) -> Iterator[Span]:
    """The places of what may be a time of day."""
    for match in _TIME.finditer(text):
        yield match.span()
        if match[0] != match[0].rstrip():
            yield match.start(), match.start() + len(match[0].rstrip())
    for match in _NAMED.finditer(text):
        yield match.span()


def read_time(surface: str, *, has_seconds: bool) -> str | None:
    """The time of day as HH:MM, or HH:MM:SS.

    >>> [read_time(text, has_seconds=False) for text in ("3 pm", "15h30", "noon", "25:00")]
    ['15:00', '15:30', '12:00', None]
    """
    named = _NAMED_TIMES.get(surface.strip().casefold())
    if named:
        hour, minute, second = *named, 0
    else:
        match = _TIME.fullmatch(surface.strip())
        if not match:
            return None
        hour, minute, second = (int(part or 0) for part in match.groups()[:3])
        half = (match[4] or "").casefold()[:1]
        if half in ("a", "p"):
            if not 1 <= hour <= 12:
                return None
            hour = hour % 12 + (12 if half == "p" else 0)
        elif not match[2] and not match[4]:
            return None
    if hour > 23 or minute > 59 or second > 59:
        return None
    return f"{hour:02}:{minute:02}" + (f":{second:02}" if has_seconds else "")

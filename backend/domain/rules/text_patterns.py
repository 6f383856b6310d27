"""The patterns that a rule may name. They are written here, never in an artifact: each is linear in the text (a match
that begins at a character is decided within a bounded number of steps, or reads on to where the next search begins),
and means the same to Python's `re` and to JavaScript, because it names ASCII characters alone.
"""

import re

_ALONE = r"(?<![0-9A-Za-z])"
_END = r"(?![0-9A-Za-z])"
_SOURCES = (
    ("number", rf"{_ALONE}[0-9]{{1,15}}(?:[.][0-9]{{1,9}})?(?![0-9A-Za-z]|[.,][0-9])"),
    ("integer", rf"{_ALONE}(?<![0-9][.,:/-])(?<![A-Za-z][=-])[0-9]{{1,15}}(?![0-9A-Za-z]|[.,:/-][0-9])"),
    ("code", rf"{_ALONE}(?<![A-Za-z0-9]-)(?:[A-Za-z]{{1,6}}-?[0-9]{{2,15}}|[0-9]{{3,15}})(?![0-9A-Za-z]|[.,:/-][0-9])"),
    ("money", rf"(?:[$\u20ac\u00a3] ?)[0-9]{{1,12}}(?:[.][0-9]{{1,2}})?{_END}"),
    ("date", rf"{_ALONE}[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}{_END}"),
    ("time", rf"{_ALONE}[0-9]{{1,2}}:[0-9]{{2}}(?: ?[AaPp][.]?[Mm])?{_END}"),
    (
        "email",
        r"(?<![0-9A-Za-z._%+-])[0-9A-Za-z][0-9A-Za-z._%+-]{0,63}@[0-9A-Za-z-]{1,63}(?:[.][0-9A-Za-z-]{1,63}){1,4}",
    ),
    ("url", r"https?://[0-9A-Za-z._~:/?#@!$&()*+,;=%-]{1,500}"),
    ("quoted", r'"[^"\n]+"'),
)
SOURCES = dict(_SOURCES)
COMPILED = {name: re.compile(source) for name, source in SOURCES.items()}


def spans_of(name: str, text: str) -> list[tuple[int, int]]:
    """Return where the pattern stands in the text; of what is quoted, what is between the marks."""
    spans = [match.span() for match in COMPILED[name].finditer(text)]
    return [(start + 1, end - 1) for start, end in spans] if name == "quoted" else spans

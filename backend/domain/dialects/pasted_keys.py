"""The look at a teacher's key as somebody pasted it, when it is stored and not when a compile calls with it.
No sentence repeats any of it."""

import re

_RULES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"\s*\{"), "is a file of credentials; store an API key or an access token of that account instead"),
    (re.compile(r"bearer\s", re.IGNORECASE), "begins with Bearer; store what comes after it"),
    (
        re.compile(r"(?:export\s+)?[A-Z]+(?:_[A-Z0-9]+)+=[^=]"),
        "begins with a variable's name; store what comes after =",
    ),
    (re.compile(r"https?://", re.IGNORECASE), "is an address; that goes into teacher.base_url, and the key here"),
    (re.compile(r"tk_[0-9a-hjkmnp-tv-z]{26}\Z"), "is the id of a key that is stored already; put it in the spec"),
    (re.compile(r".*(?:[\u2022\u2026]|\*\*\*|\.\.\.|x{6})", re.DOTALL), "is masked; make a new key at your vendor"),
    (re.compile(r"<|your[-_ ]|(?:my[-_ ])?api[-_ ]?key\Z", re.IGNORECASE), "is a placeholder; copy your vendor's key"),
    (re.compile(r".*[\"'`\u2018-\u201f]", re.DOTALL), "holds quotation marks; store it without them"),
    (re.compile(r".*\s", re.DOTALL), "holds a space or a line break; copy it again, whole and alone"),
    (re.compile(r".*[^\x21-\x7e]", re.DOTALL), "holds a character that no key has; copy it again at your vendor"),
)


def key_problem(key: str) -> str | None:
    """Say what is wrong with a key, and what to do; None where it may be one.

    >>> key_problem("Bearer sk-1234")
    'begins with Bearer; store what comes after it'
    >>> key_problem("sk-proj-1234_A.b=") is None
    True
    """
    return next((problem for pattern, problem in _RULES if pattern.match(key)), None)

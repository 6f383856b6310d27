"""Reads what a refusal states: its own words, apart from what it quotes of the request or of an answer.

A refusal is hostile input. What was asked (`input`) and what the model wrote (`failed_generation`) are a customer's or
a model's words: nothing is judged by them.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

REFUSAL_CAP = 65_536  # bytes of a refusal that are read
MAX_LEAVES = 1_000  # texts in it
_QUOTES = frozenset({"input", "flagged_input", "failed_generation", "url", "user_id", "request_id"})
_CONTENT_STATUSES = frozenset({400, 403, 422})
_CONTENT = re.compile(
    r"content[\s_-]?(?:policy|filter|management)|\bflagged\b|usage (?:polic|guideline)|exists risk"
    r"|data_?inspection|\binvalid_prompt\b|inappropriate",
    re.IGNORECASE,
)
# a vendor that shuts an account out says so in the same words, of every text
_ACCOUNT = re.compile(
    r"\b(?:account|organi[sz]ation|subscription)\b|\byour (?:resource|access|deployment)\b"
    r"|\b(?:suspended|terminated|deactivated|banned)\b",
    re.IGNORECASE,
)
# the names in a refused schema are a customer's: "flagged" may be one
_FORM = re.compile(r"response[_ ]?(?:format|schema)|(?:json|input)[_ ]?schema|invalid schema", re.IGNORECASE)
_WAIT = re.compile(r"retryDelay|retry-after|x-ratelimit-[\w-]{1,40}", re.IGNORECASE)
_BROKEN_JSON = "json_validate_failed"  # Groq's, https://console.groq.com/docs/structured-outputs


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """The parts of a refusal: names of fields in their places (`param`, `loc`), its `codes`, its sentences, and under
    their names in lower case the texts that may say how long to wait (`waits`)."""

    names: tuple[str, ...] = ()
    waits: Mapping[str, str] = field(default_factory=dict)
    codes: tuple[str, ...] = ()
    text: str

    def refuses_content(self, status: int) -> bool:
        """Tell whether a filter refused what the request says: another text would be answered."""
        is_filter = status in _CONTENT_STATUSES and _CONTENT.search(self.text) is not None
        is_about_form = any(_FORM.search(text) for text in (self.text, *self.names))
        return is_filter and not is_about_form and _ACCOUNT.search(self.text) is None

    @property
    def is_broken_json(self) -> bool:
        """Tell whether the model wrote an answer, and the endpoint withheld it because it is not the JSON asked for."""
        return _BROKEN_JSON in self.codes


def read_statement(raw: bytes) -> Statement:
    """The statement of a refusal's body, which may be JSON, or text, or anything."""
    text = raw[:REFUSAL_CAP].decode("utf-8", errors="replace")
    value = _json(text)
    if value is None:
        return Statement(text=text)
    leaves = list(_leaves(value, 0))[:MAX_LEAVES]
    return Statement(
        names=tuple(item for key, item in leaves if key in ("param", "loc", "field", "property")),
        codes=tuple(item for key, item in leaves if key in ("code", "type")),
        waits={key.lower(): item for key, item in leaves if _WAIT.fullmatch(key)},
        text=" ".join(item for _, item in leaves),
    )


def _leaves(value: object, depth: int, key: str = "") -> Iterator[tuple[str, str]]:
    """The texts in a refusal with the names they stand under, without those that are quoted. A text may be JSON again:
    gateways pass a vendor's refusal on as one."""
    if depth > 8:
        return
    if isinstance(value, dict):
        for name, item in value.items():
            if name not in _QUOTES:
                yield from _leaves(item, depth + 1, name)
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item, depth + 1, key)
    elif isinstance(value, str):
        inner = _json(value) if value.lstrip().startswith(("{", "[")) else None
        if inner is None:
            yield key, value
        else:
            yield from _leaves(inner, depth + 1, key)


def _json(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None

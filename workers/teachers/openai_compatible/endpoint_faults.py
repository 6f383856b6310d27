"""Reads of a refusal which fault of the endpoint it means (`backend.domain.dialects.faults`): whose key, credit, model
or address is wrong.

A refusal is hostile input: a fault is one of a closed set, and none of its words go further. By status first; words
decide where vendors give one status for several things (OpenAI: 429 for no quota and for too many requests; Google and
xAI: 400 for a wrong key; 404 for a model and for a path).
"""

import json
import re
import socket
import ssl
from typing import Any

from backend.domain.dialects.faults import TeacherFault
from workers.teachers.openai_compatible.statements import REFUSAL_CAP, read_statement
from workers.teachers.openai_compatible.token_limits import is_overflow

JUDGED = frozenset({400, 401, 402, 403, 404, 405, 422, 429, 501})
_PAGE = re.compile(rb"\A\s*(?:\xef\xbb\xbf)?<(?:!doctype|!--|html|head|body|script|\?xml)", re.IGNORECASE)
_STREAM = re.compile(rb"\A\s*(?:data|event|id|retry)?:[ \r\n{\[]")
_WANTS_TLS = re.compile(rb"plain HTTP request was sent to HTTPS port|HTTP request to an HTTPS server", re.IGNORECASE)
_KEY = re.compile(
    r"(?:incorrect|invalid|wrong|malformed|expired|revoked)[\s_]api[\s_-]?key"
    r"|api[\s_-]?key (?:is )?(?:not valid|invalid|expired|not found)"
    r"|api_key_invalid|invalid[\s_]authentication|authentication_error",
    re.IGNORECASE,
)
# not "exceeded your current quota" alone: Google says so of a limit by the minute
_QUOTA = re.compile(
    r"insufficient[\s_](?:quota|balance|credits?|funds)|credit balance is too low|billing_(?:hard_limit|not_active)"
    r"|out of credits|requires more credits|account is not active|payment required",
    re.IGNORECASE,
)
_MODEL = re.compile(
    r"model_not_found|server is pinned to|(?:no such|unknown|unsupported|invalid) model|not a valid model"
    r"|not find (?:the )?model"
    r"|model\b[^.]{0,120}?\b(?:does not exist|not found|not exist|is not available|is unavailable)",
    re.IGNORECASE,
)
_ACCESS = re.compile(
    r"(?:does not|do not|don't) have access to (?:the )?(?:requested )?model|model_access"
    r"|not (?:allowed|authorized|permitted) to (?:use|access)[^.]{0,40}model|access to (?:the )?model[^.]{0,120}denied",
    re.IGNORECASE,
)
# what a gateway says of the server behind it, with whatever status; as reported:
# github.com/cloudflare/ai/issues/436, github.com/skye-harris/hass_local_openai_llm/issues/89,
# github.com/elizaOS/eliza/issues/20331, the others from memory
_PASSING = re.compile(
    r"provider returned (?:an )?error|upstream\b[^.]{0,30}\b(?:fail|error|unavailable|timeout|timed out|rate.limited)"
    r"|failed to get response from provider|(?:error|failure) (?:from|in) upstream|no models provided|overloaded"
    r"|temporarily (?:unavailable|rate.limited)|try (?:your request )?again (?:later|shortly|in)"
    r"|please retry (?:shortly|later|in)|internal (?:server )?error|bad gateway|service unavailable|gateway time-?out",
    re.IGNORECASE,
)


def fault_of(status: int, raw: bytes, *, content_type: str = "", has_key: bool = True) -> TeacherFault | None:
    """The fault that a status other than 200 means; None for what may pass by its status (5xx, too many requests) and
    for what is nobody's fault that is told apart here.

    >>> fault_of(429, b'{"error": {"code": "insufficient_quota"}}')
    <TeacherFault.NO_QUOTA: 'no_quota'>
    >>> fault_of(429, b'{"error": {"message": "Rate limit reached"}}') is None
    True
    """
    statement = read_statement(raw)
    text = statement.text
    if 200 < status < 300:
        return TeacherFault.NOT_OPENAI
    if 300 <= status < 400:
        return TeacherFault.REDIRECT
    if status == 429:
        return TeacherFault.NO_QUOTA if _QUOTA.search(text) else None
    if status not in JUDGED:
        return None
    if status == 401:  # a page that asks for a log-in is a wrong address; one beside a key's refusal is still a refusal
        wrong = TeacherFault.WRONG_KEY if has_key else TeacherFault.NO_KEY
        return TeacherFault.HTML if is_page(raw, content_type) and not _KEY.search(text) else wrong
    if _WANTS_TLS.search(raw[:REFUSAL_CAP]):
        return TeacherFault.WANTS_TLS
    if is_page(raw, content_type):
        return TeacherFault.HTML
    if status == 402 or (status in (400, 403) and _QUOTA.search(text)):
        return TeacherFault.NO_QUOTA
    if _KEY.search(text):
        return TeacherFault.WRONG_KEY if has_key else TeacherFault.NO_KEY
    if statement.refuses_content(status):
        return TeacherFault.CONTENT
    if status == 403:
        return TeacherFault.NO_ACCESS
    if status in (400, 404, 422) and _ACCESS.search(text):
        return TeacherFault.NO_ACCESS
    if status in (400, 404, 422) and _MODEL.search(text):
        return TeacherFault.NO_SUCH_MODEL
    if status == 404:
        return TeacherFault.NO_SUCH_PATH
    if status in (405, 501):
        return TeacherFault.NOT_OPENAI
    return TeacherFault.SERVER_ERROR if _PASSING.search(text) and not is_overflow(text) else TeacherFault.OTHER_REFUSAL


def fault_of_answer(raw: bytes, content_type: str = "") -> TeacherFault:
    """The fault of a 200 that is no chat completion and no refusal in one (`status_within`)."""
    if is_page(raw, content_type):
        return TeacherFault.HTML
    return TeacherFault.STREAM if _STREAM.match(raw) else TeacherFault.NOT_OPENAI


def status_within(raw: bytes) -> int | None:
    """The status that a 200 holds in its JSON, which some gateways answer with: 400 where an error has none; None where
    there is no error.

    >>> status_within(b'{"error": {"code": 402, "message": "Insufficient credits"}}')
    402
    """
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    error = value.get("error") if isinstance(value, dict) else None
    if not error:
        return None
    places = [error, value] if isinstance(error, dict) else [value]
    named = [place.get(name) for place in places for name in ("code", "status", "status_code", "statusCode")]
    return next((status for status in map(_status, named) if status is not None), 400)


def _status(value: Any) -> int | None:
    is_text = isinstance(value, str) and value.isascii() and value.isdigit() and len(value) == 3
    status = int(value) if is_text else value
    return status if isinstance(status, int) and not isinstance(status, bool) and 400 <= status < 600 else None


def fault_of_connection(error: BaseException) -> TeacherFault | None:
    """The fault of an address to which no connection came about, by what the operating system and TLS say; None where
    it may come about in a moment."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, socket.gaierror):
            return TeacherFault.UNKNOWN_HOST if cause.errno in (socket.EAI_NONAME, socket.EAI_NODATA) else None
        if isinstance(cause, ssl.SSLCertVerificationError):
            return TeacherFault.BAD_CERTIFICATE
        if isinstance(cause, ssl.SSLError):
            is_cut = isinstance(cause, (ssl.SSLEOFError, ssl.SSLZeroReturnError))
            return None if is_cut else TeacherFault.NO_TLS
        cause = cause.__cause__ or cause.__context__
    return None


def is_page(raw: bytes, content_type: str = "") -> bool:
    """Tell whether this is a web page, by what it begins with, or where nothing was read by what it is called."""
    return bool(_PAGE.match(raw)) or (not raw.strip() and "text/html" in content_type.lower())

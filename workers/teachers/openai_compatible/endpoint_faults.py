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
from workers.teachers.openai_compatible.statements import REFUSAL_CAP, Statement, read_statement
from workers.teachers.openai_compatible.token_limits import is_overflow

JUDGED = frozenset({400, 401, 402, 403, 404, 405, 410, 412, 422, 429, 501})
_GONE = frozenset({404, 410})
_JUDGED_CHARS = 8_000  # of a refusal's text: vendors come to the point
_PAGE = re.compile(rb"\A\s*(?:\xef\xbb\xbf)?<(?:!doctype|!--|html|head|body|script|\?xml)", re.IGNORECASE)
_STREAM = re.compile(rb"\A\s*(?:data|event|id|retry)?:[ \r\n{\[]")
_WANTS_TLS = re.compile(rb"plain HTTP request was sent to HTTPS port|HTTP request to an HTTPS server", re.IGNORECASE)
_KEY = re.compile(
    r"(?:incorrect|invalid|wrong|bad|unknown|malformed|expired|revoked|missing)[\s_](?:api|subscription)[\s_-]?key"
    r"|api[\s_-]?key\b[^.]{0,60}?\b(?:not (?:valid|found)|invalid|incorrect|expired|revoked|disabled|deactivated"
    r"|deleted|leaked)|not authenticated|invalid credentials|not validate credentials|no auth credentials"
    r"|(?:no|without|provide (?:an|your)) api[\s_-]?key|unregistered callers"
    r"|api_key_invalid|invalid[\s_]authentication|authentication[\s_](?:error|failed)"
    r"|(?:bearer|access|security|auth|api)[\s_-]token\b[^.]{0,60}?\b(?:invalid|expired|revoked|not valid)"
    r"|(?:invalid|expired|revoked)[\s_](?:bearer|access|auth|api)[\s_-]token|(?:missing|invalid) authorization header",
    re.IGNORECASE,
)
# not "exceeded your current quota" alone: Google says so of a limit by the minute, unless that limit is 0
_QUOTA = re.compile(
    r"insufficient[\s_](?:quota|balance|credits?|funds)|credit balance is too low|billing_(?:hard_limit|not_active)"
    r"|(?:run )?out of credits|requires more credits|account is not active|payment required|exceeded_current_quota"
    r"|(?:n.t|not) have any credits|used all (?:of )?(?:your |its )?available credits|credit limit exceeded"
    r"|(?:spend|spending|monthly usage)[\s_]limit|fail(?:ure|ed) to pay|overdue balance|arrearage"
    r"|budget (?:has been )?exceeded|budget_exceeded|billing_disabled|requires billing"
    r"|(?:not enough|\bno) (?:credits?|balance|funds)\b"
    r"|credits?(?: balance)? (?:is |are |has been )?(?:exhausted|depleted)"
    r"|balance (?:is )?(?:too low|insufficient|exhausted|negative)|negative balance|key limit exceeded"
    r"|free tier of the model has been exhausted"
    r"|quota exceeded for metric: \S{1,200}, limit: 0\b|余额不足",
    re.IGNORECASE,
)
_SENTENCE = r"(?:[^.]|\.(?=\w))"  # the dot in a name, as in Qwen2.5, ends no sentence
# threads and pages of the wordings: tests/workers/teachers/openai_compatible/vendors_words.py
_MODEL = re.compile(
    r"model_(?:not_(?:found|available|supported)|decommissioned)|DeploymentNotFound|dedicated_endpoint_not_running"
    r"|server is pinned to|deployment for this resource does not exist|no endpoints found for|no models? loaded"
    r"|(?:no such|unknown|unsupported|unavailable|invalid)[\s_]model(?![\s_](?:param|option|kwargs|setting))"
    r"|not an? (?:valid|known|recogni[sz]ed|supported|available) model|no model (?:named|called|with)"
    r"|model (?:id |identifier |name )?is (?:invalid|not valid)"
    r"|(?:not|n.t|unable to|failed to) find (?:the |a |any )?model"
    r"|not found the model|not resolve the (?:foundation )?model|unable to access (?:the )?(?:[\w-]{1,20} )?model"
    r"|requested model is not supported|on-demand throughput isn|function '[^']{1,80}': not found for account"
    r"|模型不存在"
    rf"|\bmodels?\b{_SENTENCE}{{0,300}}?\b(?:(?:does not|doesn.t|not) exist|not found|not be found"
    r"|(?:is not|isn.t) (?:available|loaded|deployed|served)|is unavailable|is unknown"
    r"|is not supported by|no longer available|been decommissioned|end of (?:its )?life)",
    re.IGNORECASE,
)
_MODEL_ALONE = re.compile(r"(?<![\w.-])model: \S", re.IGNORECASE)  # all that Anthropic's 404 says
_NOT_CHAT = re.compile(
    r"not a chat model|only supported in v1/responses|n.t supported on this route"
    r"|(?:does not|doesn.t) support (?:the )?(?:\S{1,60} api\b|chat(?:[ /]completions?)?(?! ?[_-]?templat)(?![\w-]))"
    r"|operation does not work with the specified model",
    re.IGNORECASE,
)
_PATH = re.compile(
    r"\b(?:unknown|unrecogni[sz]ed|invalid|requested?) (?:request )?url\b|\bno (?:handler|route|static resource)\b"
    r"|\broute\b[^.]{0,120}\bnot found|cannot (?:get|post) /|page not found",
    re.IGNORECASE,
)
_ACCESS = re.compile(
    r"(?:does not|do not|don't) have access to (?:the )?(?:requested )?model|model_access|no allowed providers"
    r"|no endpoints found matching your"
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
    text = statement.text[:_JUDGED_CHARS]
    if 200 < status < 300:
        return TeacherFault.NOT_OPENAI
    if 300 <= status < 400:
        return TeacherFault.REDIRECT
    if status == 402:
        return TeacherFault.NO_QUOTA
    if status in (412, 429):  # 412: Fireworks' word for an account
        return TeacherFault.NO_QUOTA if _QUOTA.search(text) else None
    if status not in JUDGED:
        return None
    if _WANTS_TLS.search(raw[:REFUSAL_CAP]):
        return TeacherFault.WANTS_TLS
    # a page that asks for a log-in is a wrong address; one beside a key's refusal is still a refusal
    if is_page(raw, content_type) and not (status == 401 and _KEY.search(text)):
        return TeacherFault.HTML
    of_account = _fault_of_account(status, text)
    if of_account is TeacherFault.WRONG_KEY and not has_key:
        return TeacherFault.NO_KEY
    if of_account is not None:
        return of_account
    if statement.refuses_content(status):
        return TeacherFault.CONTENT
    if status == 403:
        return TeacherFault.NO_ACCESS
    if status in (405, 501):
        return TeacherFault.NOT_OPENAI
    if of_model := _fault_of_model(status, statement, text):
        return of_model
    if status in _GONE:
        return TeacherFault.NO_SUCH_PATH
    return TeacherFault.SERVER_ERROR if _PASSING.search(text) and not is_overflow(text) else TeacherFault.OTHER_REFUSAL


def _fault_of_account(status: int, text: str) -> TeacherFault | None:
    """The fault of a refusal that is about the key or the account's credit; None where it is not said to be."""
    if status in (400, 401, 403) and _QUOTA.search(text):
        return TeacherFault.NO_QUOTA
    if _KEY.search(text):
        return TeacherFault.WRONG_KEY
    if status == 401:
        return TeacherFault.NO_ACCESS if _ACCESS.search(text) else TeacherFault.WRONG_KEY
    return None


def _fault_of_model(status: int, statement: Statement, text: str) -> TeacherFault | None:
    """The fault of a refusal that is about the model; None where a wrong path or something else is."""
    if _ACCESS.search(text):
        return TeacherFault.NO_ACCESS
    if _NOT_CHAT.search(text):
        return TeacherFault.NOT_A_CHAT_MODEL
    is_named = "model" in statement.names and {"model", "body"}.issuperset(statement.names)
    if status in _GONE and not is_named:
        is_model = any(words.search(text) for words in (_MODEL, _MODEL_ALONE)) and not _PATH.search(text)
    else:
        is_model = is_named or _MODEL.search(text) is not None
    return TeacherFault.NO_SUCH_MODEL if is_model else None


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

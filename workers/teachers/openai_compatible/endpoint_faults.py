"""Reads of a refusal which fault of the endpoint it means (`backend.domain.dialects.faults`): whose key, credit, model
or address is wrong.

A refusal is hostile input: a fault is one of a closed set, and none of its words go further. By status first; words
decide where vendors give one status for several things (OpenAI: 429 for no quota and for too many requests; Google and
xAI: 400 for a wrong key; 404 for a model and for a path).
"""

import re

from backend.domain.dialects.faults import TeacherFault

CAP = 65_536  # bytes of a refusal that are read
JUDGED = frozenset({400, 401, 402, 403, 404, 405, 422, 429, 501})
_PAGE = re.compile(rb"\A\s*(?:\xef\xbb\xbf)?<(?:!doctype|html|head|body|\?xml)", re.IGNORECASE)
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


def fault_of(status: int, raw: bytes, *, content_type: str = "", has_key: bool = True) -> TeacherFault | None:
    """The fault that a status other than 200 means; None for what may pass (5xx, too many requests) and for what is
    nobody's fault that is told apart here.

    >>> fault_of(429, b'{"error": {"code": "insufficient_quota"}}')
    <TeacherFault.NO_QUOTA: 'no_quota'>
    >>> fault_of(429, b'{"error": {"message": "Rate limit reached"}}') is None
    True
    """
    text = raw[:CAP].decode("utf-8", errors="replace")
    if 300 <= status < 400:
        return TeacherFault.REDIRECT
    if status == 429:
        return TeacherFault.NO_QUOTA if _QUOTA.search(text) else None
    if status not in JUDGED:
        return None
    if status == 401:  # a page that asks for a log-in is a wrong address; one beside a key's refusal is still a refusal
        wrong = TeacherFault.WRONG_KEY if has_key else TeacherFault.NO_KEY
        return TeacherFault.HTML if is_page(raw, content_type) and not _KEY.search(text) else wrong
    if is_page(raw, content_type):
        return TeacherFault.HTML
    if status == 402 or (status in (400, 403) and _QUOTA.search(text)):
        return TeacherFault.NO_QUOTA
    if _KEY.search(text):
        return TeacherFault.WRONG_KEY if has_key else TeacherFault.NO_KEY
    if status == 403:
        return TeacherFault.NO_ACCESS
    if status in (400, 404, 422) and _ACCESS.search(text):
        return TeacherFault.NO_ACCESS
    if status in (400, 404, 422) and _MODEL.search(text):
        return TeacherFault.NO_SUCH_MODEL
    if status == 404:
        return TeacherFault.NO_SUCH_PATH
    return TeacherFault.NOT_OPENAI if status in (405, 501) else TeacherFault.OTHER_REFUSAL


def fault_of_answer(raw: bytes, content_type: str = "") -> TeacherFault:
    """The fault of a 200 that is no chat completion."""
    return TeacherFault.HTML if is_page(raw, content_type) else TeacherFault.NOT_OPENAI


def is_page(raw: bytes, content_type: str = "") -> bool:
    """Tell whether this is a web page, by what it begins with, or where nothing was read by what it is called."""
    return bool(_PAGE.match(raw)) or (not raw.strip() and "text/html" in content_type.lower())

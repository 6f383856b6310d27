"""The formats of money, shares, times, ids and states. Filters return text, or markup made by `format_html`:
whatever comes from a customer or a teacher is escaped."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from django import template
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from backend.console.api_examples import SMALL_SPEC, curl_line
from backend.domain import number_words

register = template.Library()

NOTHING = "–"
_OF_SPECS = ("/v1/compiles", "/v1/compiles/estimate")

STATE_OF = {
    "good": "succeeded done active delivered paid published passed enabled verified available accepted ok kept",
    "live": "running started working delivering sending claimed leased in_progress live awaiting_batch",
    "warn": "gate_failed past_due retrying degraded warning cluster_gap partial expiring",
    "bad": "failed revoked disabled error rejected uncollectible broken refused",
}
_STATE = {word: state for state, words in STATE_OF.items() for word in words.split()}


# --- numbers --------------------------------------------------------------------------------------------------


@register.filter
def usd(microusd: int | Decimal | None) -> SafeString | str:
    """Dollars to three significant digits; the exact amount shows on hover and is what a script reads."""
    return NOTHING if microusd is None or microusd == "" else _amount(microusd, money(microusd))


def _amount(microusd: int | Decimal, shown: str) -> SafeString:
    exact = number_words.usd_exact(microusd)
    value = exact.replace("$", "").replace(",", "")
    return format_html('<data class="usd" value="{}" title="{}">{}</data>', value, exact, _minus(shown))


@register.filter
def usd_exact(microusd: int | Decimal | None) -> str:
    """Dollars with every place, where the rows of a table must add up as they are shown."""
    return NOTHING if microusd is None or microusd == "" else _minus(number_words.usd_exact(microusd))


@register.filter
def signed_usd(microusd: int | None) -> SafeString | str:
    """A difference of two amounts, with its sign in front."""
    return _amount(microusd, f"+{money(microusd)}") if microusd and microusd > 0 else usd(microusd)


def money(microusd: int | Decimal | None) -> str:
    """The text of an amount, for charts and attributes."""
    return NOTHING if microusd is None else number_words.usd(microusd)


@register.filter
def ppm(value: int | None) -> str:
    """Parts per million as a score of one: 897000 is `0.897`."""
    return NOTHING if value is None or value == "" else _minus(number_words.score(value))


@register.filter
def ppm_pct(value: int | None) -> str:
    return NOTHING if value is None or value == "" else _minus(number_words.percent(round(value)))


@register.filter
def ppm_interval(low: int | None, high: int | None) -> str:
    """The interval around a share, in per cent: `[91.5, 98.9]`."""
    return NOTHING if low is None or high is None else number_words.interval(low, high)


@register.filter
def ppm_points(value: int | None) -> str:
    """A difference of two shares in percentage points, with its sign: -72,345 ppm is `-7.2`."""
    return NOTHING if value is None or value == "" else _minus(number_words.points(value))


@register.filter
def pct(share: float | Decimal | None) -> str:
    """A share of one in per cent: 0.897 is `89.7 %`."""
    return NOTHING if share is None or share == "" else ppm_pct(round(float(share) * 1_000_000))


@register.filter
def ms(microseconds: float | None) -> str:
    """A time that is kept in microseconds: 83,399 is `83.4 ms`."""
    return NOTHING if microseconds is None or microseconds == "" else number_words.milliseconds(microseconds)


def _minus(text: str) -> str:
    return text.replace("-", "−", 1)


@register.filter
def count(value: int | None) -> str:
    """A whole number with its thousands set apart."""
    return NOTHING if value is None or value == "" else f"{int(value):,}"


@register.filter(name="bytes")
def bytes_(value: int | None) -> str:
    if value is None or value == "":
        return NOTHING
    size = float(value)
    for unit in ("B", "kB", "MB", "GB"):
        if abs(size) < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


@register.filter
def duration_s(value: float | timedelta | None) -> str:
    """`0.34 s`, `12 s`, `3 m 05 s`, `2 h 07 m`, `4 d 3 h`."""
    if value is None or value == "":
        return NOTHING
    return number_words.duration(value.total_seconds() if isinstance(value, timedelta) else float(value))


# --- times ----------------------------------------------------------------------------------------------------


@register.filter
def when(moment: datetime | str | None) -> str:
    """Write a time in UTC; our script writes it in the reader's zone."""
    at = _moment(moment)
    if at is None:
        return NOTHING
    return format_html('<time datetime="{}" data-local>{}</time>', at.isoformat(), f"{at.day} {at:%b %Y %H:%M} UTC")


@register.filter
def ago(moment: datetime | str | None) -> str:
    at = _moment(moment)
    if at is None:
        return NOTHING
    words = _ago((datetime.now(UTC) - at).total_seconds())
    return format_html('<time datetime="{}" data-ago>{}</time>', at.isoformat(), words)


def _moment(moment: datetime | str | None) -> datetime | None:
    if not moment:
        return None
    at = datetime.fromisoformat(moment) if isinstance(moment, str) else moment
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)


def _ago(seconds: float) -> str:
    is_past, seconds = seconds >= 0, abs(seconds)
    if seconds < 45:
        return "just now" if is_past else "in a moment"
    for size, word in ((86_400 * 365, "year"), (86_400 * 30, "month"), (86_400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= size or word == "minute":
            n = max(1, round(seconds / size))
            text = f"{n} {word}{'' if n == 1 else 's'}"
            break
    return f"{text} ago" if is_past else f"in {text}"


# --- text -----------------------------------------------------------------------------------------------------


@register.filter
def json_pretty(value: Any) -> str:
    """Write JSON for `<pre>`; the template escapes it."""
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


@register.filter
def words(name: str | None) -> str:
    """`gate_failed` as `gate failed`."""
    return (name or NOTHING).replace("_", " ").replace(".", " · ")


@register.filter
def keys(sequence: str) -> str:
    """`g c` as two keys."""
    return format_html_join(" ", '<span class="kbd">{}</span>', ((key,) for key in sequence.split()))


@register.filter
def at(mapping: Mapping[str, Any] | None, key: str) -> Any:
    """`{{ row|at:name }}`: the value under a key that is a variable."""
    return None if mapping is None else mapping.get(key)


# --- components -----------------------------------------------------------------------------------------------


@register.simple_tag
def copyable(value: str | None, href: str = "", label: str = "") -> str:
    """An id in mono, whole, with a button that copies it; a link where `href` is given."""
    if not value:
        return NOTHING
    shown = (
        format_html('<a class="mono" href="{}">{}</a>', href, label or value)
        if href
        else format_html('<span class="mono">{}</span>', label or value)
    )
    return format_html('<span class="copyable">{}{}</span>', shown, copy_button(value))


@register.simple_tag
def copy_button(value: str, what: str = "") -> str:
    return format_html(
        '<button type="button" class="copy" data-copy="{}" aria-label="Copy {}"></button>', value, what or value[:40]
    )


@register.simple_tag(name="status")
def status_dot(word: str | None) -> str:
    """A dot and a word: the colour is never the only sign."""
    text = str(word or "unknown")
    state = _STATE.get(text, "idle")
    return format_html(
        '<span class="status"><span class="dot {}" aria-hidden="true"></span>{}</span>', state, words(text)
    )


@register.inclusion_tag("console/parts/api_request.html")
def api_request(method: str, path: str, body: Any = None, summary: str = "Show as API request") -> dict[str, Any]:
    return {"curl": curl_line(method, path, body), "summary": summary}


@register.inclusion_tag("console/parts/empty.html")
def empty(text: str, method: str = "", path: str = "", body: Any = None) -> dict[str, Any]:
    """Render what an empty list says, with the exact line that changes that: it runs as it is pasted. A line that wants
    a spec has a small one."""
    if method == "POST" and path in _OF_SPECS and body is None:
        body = SMALL_SPEC
    return {"text": text, "curl": curl_line(method, path, body) if method else ""}


@register.simple_tag
def help_tip(text: str) -> str:
    return format_html(
        '<details class="tip" data-menu><summary aria-label="What is this?">?</summary><span>{}</span></details>', text
    )


@register.simple_tag
def chart(svg: SafeString) -> SafeString:
    """Place what a function of `backend.console.charts` made; anything that is not marked safe is escaped as ever."""
    return svg


@register.inclusion_tag("console/parts/pager.html", takes_context=True)
def pager(context: template.Context, page: Any) -> dict[str, Any]:
    """Links to the pages before and after: of Django's paginator, or `{"previous": cursor, "next": cursor}`."""
    if isinstance(page, Mapping):
        before, after, name, note = page.get("previous"), page.get("next"), "cursor", page.get("note", "")
    else:
        before = page.previous_page_number() if page.has_previous() else None
        after = page.next_page_number() if page.has_next() else None
        name, note = "page", f"{page.start_index():,}–{page.end_index():,} of {page.paginator.count:,}"
    query = context["request"].GET.copy()
    query.pop(name, None)

    def address(value: Any) -> str:
        if not value:
            return ""
        turned = query.copy()
        turned[name] = value
        return "?" + turned.urlencode()

    return {"before": address(before), "after": address(after), "note": note}

"""Filters of the resource and money pages: differences with their sign, and the width of a bar as a class."""

from django import template

from backend.console.templatetags.kolm import bytes_
from backend.domain import number_words

register = template.Library()

NOTHING = "–"
MINUS = "−"


@register.filter
def signed_ppm(value: int | None) -> str:
    """
    >>> signed_ppm(12_345), signed_ppm(-500_000), signed_ppm(None)
    ('+0.012', '−0.500', '–')
    """
    return NOTHING if value is None else _sign(value) + number_words.score(abs(value))


@register.filter
def signed_bytes(value: int | None) -> str:
    return NOTHING if value is None else _sign(value) + bytes_(abs(value))


@register.filter
def percent_of(part: int | None, whole: int | None) -> int:
    """0 to 100, for <progress>, and 1 for the smallest part; 0 where there is nothing to divide."""
    return 0 if not part or part < 0 or not whole else max(1, min(100, part * 100 // whole))


@register.filter
def cents(value: int | None) -> str:
    """
    >>> cents(4_900), cents(123_456)
    ('$49.00', '$1,234.56')
    """
    return NOTHING if value is None else f"${value // 100:,}.{value % 100:02d}"


@register.filter
def credit_side(value: int) -> str:
    """A negative amount as it stands on the credit side."""
    return f"{-value:,}"


def _sign(value: int) -> str:
    return "+" if value > 0 else MINUS if value < 0 else "±"


@register.filter
def percent_number(value: int | None) -> str:
    """A share in ppm as what a field takes: 5 for 50,000."""
    return f"{(value or 0) / 10_000:g}"


@register.filter
def usd_number(value: int | None) -> str:
    """Micro-USD as what a field takes: 2.5 for 2,500,000."""
    return f"{(value or 0) / 1_000_000:g}"

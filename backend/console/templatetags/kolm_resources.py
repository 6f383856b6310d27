"""Filters of the resource and money pages: differences with their sign, and the width of a bar as a class."""

from django import template

from backend.console.templatetags.kolm import bytes_

register = template.Library()

NOTHING = "–"
MINUS = "−"


@register.filter
def signed_ppm(value: int | None) -> str:
    """
    >>> signed_ppm(12_345), signed_ppm(-500_000), signed_ppm(None)
    ('+0.012', '−0.500', '–')
    """
    return NOTHING if value is None else _sign(value) + f"{abs(value) / 1e6:.3f}"


@register.filter
def signed_usd(value: int | None) -> str:
    """
    >>> signed_usd(1_250_000), signed_usd(-1)
    ('+$1.25', '−$0.000001')
    """
    return NOTHING if value is None else _sign(value) + usd_exact(abs(value))


@register.filter
def signed_bytes(value: int | None) -> str:
    return NOTHING if value is None else _sign(value) + bytes_(abs(value))


@register.filter
def usd_exact(value: int | None) -> str:
    """Format to the micro-dollar, at least in cents: what a bill is checked with.

    >>> usd_exact(1_230_000), usd_exact(42), usd_exact(-1_000_001)
    ('$1.23', '$0.000042', '−$1.000001')
    """
    if value is None:
        return NOTHING
    whole, micro = divmod(abs(value), 1_000_000)
    digits = f"{micro:06d}"
    while len(digits) > 2 and digits.endswith("0"):
        digits = digits[:-1]
    return f"{MINUS if value < 0 else ''}${whole:,}.{digits}"


@register.filter
def percent_of(part: int | None, whole: int | None) -> int:
    """0 to 100, for <progress>; 0 where there is nothing to divide."""
    return 0 if not part or not whole else max(0, min(100, part * 100 // whole))


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

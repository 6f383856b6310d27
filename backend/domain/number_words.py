"""The one form of every number that people read: console, command line, quality card, gate and warnings call these.

Shares are rounded down, towards zero, to a tenth of a per cent (a score of one to a thousandth): what is written never
passes a floor that was failed, a share and a score of the same value have the same digits, and gate sentences that an
artifact has signed agree with the page beside them. Money is rounded half to even, as an invoice is: to three
significant digits below a dollar, to the cent from a dollar on.
"""

from decimal import ROUND_HALF_EVEN, Decimal

MICRO = Decimal(1_000_000)
MOST_PLACES = 6  # a micro-dollar
DIGITS = 3


def percent(ppm: int) -> str:
    """A share in parts per million, down to a tenth.

    >>> percent(799_999), percent(1_000_000), percent(-32_290)
    ('79.9 %', '100.0 %', '-3.2 %')
    """
    size = abs(ppm)
    return f"{'-' if ppm < 0 else ''}{size // 10_000}.{size // 1_000 % 10} %"


def interval(low_ppm: int, high_ppm: int) -> str:
    """
    >>> interval(490_162, 943_318)
    '[49.0, 94.3]'
    """
    return f"[{percent(low_ppm).removesuffix(' %')}, {percent(high_ppm).removesuffix(' %')}]"


def points(ppm: int) -> str:
    """A difference in percentage points, with its sign.

    >>> points(-72_345), points(0), points(31_000)
    ('-7.2', '+0.0', '+3.1')
    """
    return f"{'-' if ppm < 0 else '+'}{percent(abs(ppm)).removesuffix(' %')}"


def score(ppm: int) -> str:
    """A score of one, such as the K-score, down to a thousandth.

    >>> score(871_512), score(1_000_000)
    ('0.871', '1.000')
    """
    return f"{'-' if ppm < 0 else ''}{abs(ppm) // 1_000_000}.{abs(ppm) // 1_000 % 1_000:03d}"


def usd(microusd: int | Decimal) -> str:
    """Dollars to three significant digits, at least in cents; from a dollar on to the cent.

    >>> usd(18_912), usd(1_050), usd(42), usd(0), usd(500_000), usd(1_234_567), usd(-700)
    ('$0.0189', '$0.00105', '$0.000042', '$0', '$0.50', '$1.23', '-$0.0007')
    """
    size = abs(Decimal(microusd)) / MICRO
    places = 2 if size >= 1 else min(MOST_PLACES, DIGITS - 1 - size.adjusted()) if size else 0
    return _dollars(microusd, size.quantize(Decimal(1).scaleb(-places), rounding=ROUND_HALF_EVEN))


def usd_exact(microusd: int | Decimal) -> str:
    """Dollars to the micro-dollar, at least in cents: what stands behind a rounded amount, and what a limit asks for.

    >>> usd_exact(1_230_000), usd_exact(18_912), usd_exact(-1_000_001)
    ('$1.23', '$0.018912', '-$1.000001')
    """
    size = abs(Decimal(microusd)) / MICRO
    return _dollars(microusd, size.quantize(Decimal(1).scaleb(-MOST_PLACES), rounding=ROUND_HALF_EVEN))


def milliseconds(microseconds: int | float) -> str:
    """A time to three significant digits, in milliseconds however short or long it is.

    >>> milliseconds(18), milliseconds(5_020), milliseconds(83_399), milliseconds(420_000), milliseconds(201_768_000)
    ('0.018 ms', '5.02 ms', '83.4 ms', '420 ms', '201,768 ms')
    """
    ms = microseconds / 1000
    return f"{ms:,.0f} ms" if ms >= 999.5 else f"{ms:.3g} ms"


def duration(seconds: float) -> str:
    """A time that people wait or save, in the largest two units that it has.

    >>> duration(0.344), duration(12.3), duration(185), duration(7_620), duration(-0.2)
    ('0.34 s', '12 s', '3 m 05 s', '2 h 07 m', '-0.20 s')
    """
    if seconds < 0:
        return f"-{duration(-seconds)}"
    if seconds < 9.995:
        return f"{seconds:.2f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} m {whole % 60:02d} s"
    if whole < 86_400:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} m"
    return f"{whole // 86_400} d {whole % 86_400 // 3600} h"


def _dollars(microusd: int | Decimal, rounded: Decimal) -> str:
    whole, _, fraction = f"{rounded:,f}".partition(".")
    fraction = fraction.rstrip("0").ljust(2, "0") if rounded else ""
    return f"{'-' if microusd < 0 and rounded else ''}${whole}{'.' if fraction else ''}{fraction}"

"""The number of answers to ask a call about a row for. Where a teacher gives as many as it is asked for, the prompt is
paid once, and a further answer costs little beside the first."""

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from math import comb

NOISE_POWER = 3  # of 1 less the error over chance: what a row is worth to a student
MOST_AT_FIRST = 3  # votes on a new row: those that stay unsure are asked again


@dataclass(frozen=True, slots=True, kw_only=True)
class CallPrice:
    """US dollars of a call with one answer, and of each further answer of it, of which it gives `per_call` at most."""

    first_usd: Decimal
    further_usd: Decimal
    per_call: int = 10_000

    def of(self, n: int) -> Decimal:
        """Return what n answers about a row cost.

        >>> CallPrice(first_usd=Decimal(10), further_usd=Decimal(2)).of(3)
        Decimal('14')
        >>> CallPrice(first_usd=Decimal(10), further_usd=Decimal(2), per_call=2).of(3)
        Decimal('22')
        """
        n_calls = -(-n // self.per_call)
        return n_calls * self.first_usd + (n - n_calls) * self.further_usd


def size_again(price: CallPrice, *, repeat: float, most: int) -> int:
    """Return how many more votes on an unsure row to ask a call for: as many as are worth most for a dollar, up to
    `most`. n answers whose correlation is `repeat` count as n / (1 + (n - 1) repeat) (Kish 1965); they are worth the
    root of that, since the first of them settles most rows.

    >>> size_again(CallPrice(first_usd=Decimal(40), further_usd=Decimal(3)), repeat=0.1, most=4)
    4
    >>> size_again(CallPrice(first_usd=Decimal(40), further_usd=Decimal(40)), repeat=0.0, most=4)
    1
    """
    return _best(most, lambda n: Decimal(repr((n / (1 + (n - 1) * repeat)) ** 0.5)), price.of)


def size_at_first(price: CallPrice, pair_usd: Decimal, *, error: float, repeat: float, n_labels: int, most: int) -> int:
    """Return how many votes on a new row to ask a call for, an odd number up to `most` and MOST_AT_FIRST: as many as
    make rows worth most for a dollar, training on them included. A row whose label is wrong with probability e is taken
    to be worth (1 - e L / (L - 1))^NOISE_POWER of a right one. `error` is that of one answer, `repeat` the correlation
    of two.

    >>> price = CallPrice(first_usd=Decimal(40), further_usd=Decimal(3))
    >>> size_at_first(price, Decimal(0), error=0.2, repeat=0.0, n_labels=2, most=5)
    3
    >>> size_at_first(price, Decimal(0), error=0.01, repeat=0.5, n_labels=2, most=5)
    1
    """

    def worth(n: int) -> Decimal:
        wrong = repeat * error + (1 - repeat) * _error_of_most(error, n)
        return Decimal(repr(max(1 - wrong * n_labels / max(n_labels - 1, 1), 0.0) ** NOISE_POWER))

    return _best(min(most, MOST_AT_FIRST), worth, lambda n: price.of(n) + pair_usd, step=2)


def _error_of_most(error: float, n: int) -> float:
    """The chance that most of an odd number of answers that err each by itself are wrong."""
    return sum(comb(n, k) * error**k * (1 - error) ** (n - k) for k in range(n // 2 + 1, n + 1))


def _best(most: int, worth: Callable[[int], Decimal], cost: Callable[[int], Decimal], *, step: int = 1) -> int:
    """The least n of the most worth for a dollar; `most` where answers are free."""
    sizes = range(1, max(most, 1) + 1, step)
    if any(cost(n) <= 0 for n in sizes):
        return sizes[-1]
    return max(sizes, key=lambda n: (worth(n) / cost(n), -n))

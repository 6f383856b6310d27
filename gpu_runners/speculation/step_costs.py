"""The cost of a forward pass on this machine, without drafted tokens and with them.

A machine has other work too: a step may take three times what the one before took, for no reason of its own. So every
time here is a low quantile of the last few steps of its kind, and what is compared are such quantiles. What drafted
tokens add is a line through those of a few lengths, `fixed + slope * (drafted tokens a row)` in shares of the step
without: two numbers are soon known, and hold for lengths that were not tried. The line begins at a guess, and returns
to it while nothing is drafted, so that what was once measured wrongly is measured again.
"""

from collections import deque
from collections.abc import Sequence

_GUESS_FIXED = 0.03
_GUESS_SLOPE = 0.4
_GUESS_X = 2  # tokens a row at which the guess stands in
_LEAST_SLOPE = 0.003
_LAST = 9  # steps of a kind
_QUANTILE = 0.3
_FIRST_TOKENS = 4  # drafted in the first step of few rows, half a token a row of many; then twice what was measured
_PATIENCE = 64  # steps without drafts until what is known of drafts is forgotten; twice as many each time ...
_MOST_PATIENCE = 512
_SETTLED = 24  # ... until so many steps were drafted for
_PLAIN_EVERY = 96  # steps with drafts until one without is asked for, at most 1 % of the gain


class _Kind:
    """The last steps of one kind."""

    __slots__ = ("_last", "low")

    def __init__(self) -> None:
        self._last: deque[float] = deque(maxlen=_LAST)
        self.low = 0.0

    def __len__(self) -> int:
        return len(self._last)

    def note(self, value: float) -> None:
        self._last.append(value)
        self.low = sorted(self._last)[int(_QUANTILE * len(self._last))]


class _Line:
    """Shares of the step without, over drafted tokens a row; by the length's power of two."""

    def __init__(self) -> None:
        self.guess = (_GUESS_FIXED, _GUESS_SLOPE)
        self.fixed, self.slope = self.guess
        self.reach = 0  # tokens that were drafted in one step
        self._kinds: dict[int, tuple[_Kind, _Kind]] = {}
        self._n_idle = self._n_noted = 0
        self._patience = _PATIENCE

    @property
    def is_known(self) -> bool:
        return sum(len(shares) for _, shares in self._kinds.values()) > 1

    def note(self, n_rows: int, n_drafted: int, share: float) -> None:
        self._n_idle, self._n_noted = 0, self._n_noted + 1
        if self._n_noted == _SETTLED:
            self._patience = _PATIENCE
        self.reach = max(self.reach, n_drafted)
        x = n_drafted / n_rows
        lengths, shares = self._kinds.setdefault(_size(x), (_Kind(), _Kind()))
        lengths.note(x)
        shares.note(share)
        self._fit()

    def rest(self) -> None:
        """A step without drafts."""
        self._n_idle += 1
        if self._n_idle < self._patience or not self._kinds:
            return
        self._kinds.clear()
        self.reach = self._n_idle = self._n_noted = 0
        self._patience = min(2 * self._patience, _MOST_PATIENCE)
        self._fit()

    def begin_at(self, fixed: float, slope: float) -> None:
        if self.guess != (fixed, slope):
            self.guess = (fixed, slope)
            self._fit()

    def _fit(self) -> None:
        """Least squares; the guess stands in as half a step without drafts and half a step with `_GUESS_X` a row."""
        fixed, slope = self.guess
        points = [(0.25, 0.0, fixed), (0.25, float(_GUESS_X), fixed + slope * _GUESS_X)]
        points += [(float(len(shares)), lengths.low, shares.low) for lengths, shares in self._kinds.values()]
        self.fixed, self.slope = _fit_line(points)


def _fit_line(points: Sequence[tuple[float, float, float]]) -> tuple[float, float]:
    """(fixed, slope) of (weight, x, y), neither of them below nothing."""
    w = sum(weight for weight, _, _ in points)
    x = sum(weight * x for weight, x, _ in points)
    y = sum(weight * y for weight, _, y in points)
    xx = sum(weight * x * x for weight, x, _ in points)
    xy = sum(weight * x * y for weight, x, y in points)
    slope = (w * xy - x * y) / (w * xx - x * x)
    fixed = (y - slope * x) / w
    if fixed < 0:
        slope, fixed = xy / xx, 0.0
    elif slope < 0:
        slope, fixed = 0.0, y / w
    return max(fixed, 0.0), max(slope, _LEAST_SLOPE)


def _size(x: float) -> int:
    """0 up to half a token a row, 1 up to one, 2 up to two, 3 up to four ..."""
    return max(0, int(4 * x - 1e-9)).bit_length() - 1 if x > 0.5 else 0


class StepCosts:
    """Seconds of a forward pass by rows and by drafted tokens, as this machine takes them."""

    def __init__(self) -> None:
        self._plain: dict[int, _Kind] = {}
        self._lines: dict[int, _Line] = {}
        self._since_plain = 0
        self._plain_seconds = self._seconds = 0.0

    def note(self, n_rows: int, n_drafted: int, seconds: float) -> None:
        if n_rows < 1 or seconds <= 0:
            return
        line = self._line(n_rows)
        if not n_drafted:
            self._since_plain = 0
            self._plain.setdefault(n_rows, _Kind()).note(seconds)
            line.rest()
            return
        self._since_plain += 1
        plain = self.plain(n_rows)
        if plain:
            line.note(n_rows, n_drafted, seconds / plain - 1)

    def note_gain(self, n_rows: int, n_tokens: int, n_drafted: int, making_s: float) -> None:
        """Note how many tokens came of a step, and what the making of its drafts took."""
        plain = self.plain(n_rows)
        self._plain_seconds = 0.98 * self._plain_seconds + n_tokens * plain / max(n_rows, 1)
        self._seconds = 0.98 * self._seconds + plain * (1 + self.extra(n_rows, n_drafted)) + making_s

    def plain(self, n_rows: int) -> float:
        """Seconds of a step without drafts; of the nearest number of rows where this one was not seen, 0.0 before the
        first."""
        known = self._plain.get(n_rows)
        if known is None:
            if not self._plain:
                return 0.0
            known = self._plain[min(self._plain, key=lambda n: abs(n - n_rows))]
        return known.low

    def wants_plain(self) -> bool:
        """Say whether a step without drafts is due, so that both are known of the same time."""
        return self._since_plain >= _PLAIN_EVERY

    def most(self, n_rows: int) -> int:
        """Count the tokens that may be drafted in one step of `n_rows` rows, so that what is not known cannot cost
        much."""
        return max(_FIRST_TOKENS, n_rows // 2, 2 * self._line(n_rows).reach)

    def extra(self, n_rows: int, n_drafted: int) -> float:
        """Seconds that so many drafted tokens add to a step of `n_rows` rows, as a share of the step without."""
        if not n_drafted:
            return 0.0
        line = self._line(n_rows)
        return line.fixed + line.slope * n_drafted / max(n_rows, 1)

    def token_cost(self, n_rows: int) -> float:
        """Seconds that one more drafted token adds."""
        return self._line(n_rows).slope * self.plain(n_rows) / max(n_rows, 1)

    def draft_cost(self, n_rows: int) -> float:
        """Seconds that a step takes longer because it has drafts at all."""
        return self._line(n_rows).fixed * self.plain(n_rows)

    def token_worth(self, n_rows: int) -> float:
        """Seconds that one more token of a step is worth: what a token takes without drafts, or less where drafts
        already made tokens cheaper."""
        speedup = self._plain_seconds / self._seconds if self._seconds else 1.0
        return self.plain(n_rows) / max(n_rows, 1) / max(speedup, 1.0)

    def _line(self, n_rows: int) -> _Line:
        """The line of so many rows, by powers of two. What is not known is guessed from the nearest that is."""
        size = max(n_rows - 1, 0).bit_length()
        line = self._lines.setdefault(size, _Line())
        if not line.is_known:
            known = [other for other, one in self._lines.items() if one.is_known]
            if known:
                nearest = self._lines[min(known, key=lambda other: abs(other - size))]
                line.begin_at(nearest.fixed, nearest.slope)
        return line

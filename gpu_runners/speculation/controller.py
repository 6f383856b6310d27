"""The decision how far to draft: measured acceptance against measured cost, source by source. Shared by all requests of
one pack.

A drafted token pays while the probability that it is accepted, times what a token is worth, is more than what it adds
to the step. Nobody has to draft to learn the first of these (`acceptance`); steps tell the other two (`step_costs`).
Whatever those two get wrong, a regret budget bounds: what drafts lose, their making and their verification, is paid out
of three quarters of a per cent of the time that was spent, and less of it the longer nothing is gained.
"""

from dataclasses import dataclass, field

from gpu_runners.models.protocol import DraftKind
from gpu_runners.speculation.acceptance import Acceptance
from gpu_runners.speculation.feedback_log import PackLog
from gpu_runners.speculation.step_costs import StepCosts

ALLOWED = 0.0075  # of the time of steps, for drafts that lose
MARGIN = 1.25  # by which a draft must seem to pay, for what is measured is not what will be
LEAST_ALLOWED = ALLOWED / 6
_MOST_SAVED_S = 0.1  # of the budget, so that a good hour does not pay for a bad minute; or what was granted
# steps that are granted for exploration, once: a part of one to asking, and where that had so many tokens to compare,
# one to drafting, since among many rows a slow step is worth many tokens
_ASKING_CREDIT, _GRANTED_FROM, _CREDIT = 0.25, 32, 1.0
_HYSTERESIS_STEPS = 1.5  # steps that must be affordable where asking begins; it goes on while one is
_LOST_S = 0.015  # without a gain; then half as much is allowed

_ASKED_ANYWAY = 32  # a source that is not worth its asking is asked every so many times
_JUDGED_FROM = 64  # askings, some of which had time to come true
_COUNTED = 256.0  # askings; then the counts halve


class RegretBudget:
    """Seconds that may still be lost. A step is paid for before the next one is asked, so that one step's askings
    and drafts are the most that can be owed."""

    def __init__(self) -> None:
        self.saved_s, self.most_s = 0.0, _MOST_SAVED_S
        self._share = ALLOWED
        self._lost_s = 0.0

    def accrue(self, seconds: float) -> None:
        """Steps took `seconds`."""
        self.saved_s = min(self.saved_s + self._share * seconds, self.most_s)

    def grant_exploration(self, seconds: float) -> None:
        """Grant what may be owed at once beside what was saved."""
        self.most_s = max(self.most_s, seconds)
        self.saved_s += seconds

    def record(self, gained: float, spent: float) -> None:
        self.saved_s = min(self.saved_s + gained - spent, self.most_s)
        if gained > spent:
            self._share, self._lost_s = ALLOWED, 0.0
            return
        self._lost_s += spent - gained
        if self._lost_s > _LOST_S:
            self._share, self._lost_s = max(self._share / 2, LEAST_ALLOWED), 0.0


class _Asking:
    """The cost and the gain of asking a source."""

    __slots__ = ("gained", "n", "seconds", "skipped")

    def __init__(self) -> None:
        self.n = self.seconds = self.gained = 0.0
        self.skipped = 0

    def note(self, seconds: float) -> None:
        if self.n >= _JUDGED_FROM:  # a pause of the whole machine is no property of a source
            seconds = min(seconds, 8 * self.seconds / self.n)
        self.n += 1
        self.seconds += seconds
        if self.n > _COUNTED:
            self.n, self.seconds, self.gained = self.n / 2, self.seconds / 2, self.gained / 2


class Controller:
    """The controller of what one pack's requests may draft, by what came of it."""

    def __init__(self, costs: StepCosts, *, is_gated: bool = True, log: PackLog | None = None) -> None:
        self.costs, self.log = costs, log
        self.is_gated = is_gated
        self.acceptance = Acceptance()
        self.regret_budget = RegretBudget()
        self._asking = {(kind, onward): _Asking() for kind in DraftKind for onward in (False, True)}
        self._granted = 0.0  # steps
        self._is_drafting = False
        self._worth = 0.0
        self._floor = 0.0

    def can_afford(self, n_rows: int, seconds: float) -> bool:
        """Say whether one's rows are asked in a step of `n_rows`, which takes `seconds`. Some steps in a row they are,
        or none: what one remembers the next compares, and a row that was not asked for long has to catch up first."""
        if not self.is_gated:
            return True
        if self._granted < _ASKING_CREDIT + _CREDIT:
            self._grant_exploration(n_rows)
        least = seconds if self._is_drafting else min(_HYSTERESIS_STEPS * seconds, self.regret_budget.most_s / 2)
        self._is_drafting = self.regret_budget.saved_s >= least
        return self._is_drafting

    @property
    def token_worth(self) -> float:
        """Seconds that an accepted token saves in the step of the last `begin`."""
        return self._worth

    def begin(self, n_rows: int) -> None:
        """A step of `n_rows` rows is to be drafted for."""
        self._worth = self.costs.token_worth(n_rows)
        self._floor = MARGIN * self.costs.token_cost(n_rows) / self._worth if self._worth else 2.0

    def _grant_exploration(self, n_rows: int) -> None:
        due = _ASKING_CREDIT + (_CREDIT if self.acceptance.n_known >= _GRANTED_FROM else 0.0)
        plain_s = self.costs.plain(n_rows)
        if due > self._granted and plain_s:
            self.regret_budget.grant_exploration((due - self._granted) * plain_s)
            self._granted = due

    def length(self, kind: DraftKind, most: int, *, key: int = 0, survival: float = 1.0, made_s: float = 0.0) -> int:
        """Count the tokens of a source that may be drafted now; 0: not now. `key` is the recipe's place or the length
        of a match, `survival` the probability that what was drafted before them is accepted, `made_s` what it takes to
        make one of them."""
        if not self.is_gated:
            return most
        if kind is DraftKind.PACK and self.acceptance.is_muted(key):
            return 0
        rate = self.acceptance.rate(kind, key)
        floor = self._floor + (made_s / self._worth if self._worth else 0.0)
        n, survival = 0, survival * rate
        while n < most and survival > floor:
            n, survival = n + 1, survival * rate
        return n

    def rate(self, kind: DraftKind, key: int = 0) -> float:
        return self.acceptance.rate(kind, key)

    def may_ask(self, kind: DraftKind, onward: bool) -> bool:
        """Say whether asking a source brings more than it takes, so far. `onward`: behind other drafted tokens."""
        asking = self._asking[kind, onward]
        if not self.is_gated or asking.n < _JUDGED_FROM or asking.gained * self._worth >= asking.seconds:
            return True
        asking.skipped = (asking.skipped + 1) % _ASKED_ANYWAY
        return asking.skipped == 0

    def note_asked(self, kind: DraftKind, onward: bool, seconds: float) -> None:
        self._asking[kind, onward].note(seconds)

    def note(self, kind: DraftKind, drafted: int, accepted: int, *, key: int = 0, onward: bool = False) -> None:
        """Note that of `drafted` tokens, fed to the model or only remembered, the first `accepted` came."""
        self.acceptance.note(kind, key, drafted, accepted)
        self._asking[kind, onward].gained += accepted
        if kind is DraftKind.PACK and self.log is not None:
            self.log.count_run(key, drafted, accepted)


@dataclass(slots=True)
class Share:
    """One controller's part of a step."""

    n_rows: int = 0
    is_asked: bool = False
    n_asked: int = 0
    n_fed: int = 0
    n_accepted: int = 0
    asked_s: float = 0.0
    model_s: float = 0.0

    def add(self, n_fed: int, n_accepted: int) -> None:
        self.n_fed += n_fed
        self.n_accepted += n_accepted


@dataclass(slots=True)
class StepAccount:
    """One step's account. `noted` is (rows, drafted tokens, seconds) where it was timed."""

    n_rows: int = 0
    n_asked: int = 0
    n_kept: int = 0
    making_s: float = 0.0
    noted: tuple[int, int, float] | None = None
    shares: dict[Controller, Share] = field(default_factory=dict)

    def of(self, controller: Controller) -> Share:
        share = self.shares.get(controller)
        if share is None:
            share = self.shares[controller] = Share()
        return share

"""The trust in a judge: planted controls, what they say of its errors, and how many accepted drafts are bad.

A judge is asked whether the teacher would have written a draft for a slice. Planted among the drafts are negative
controls (drafts of far slices: accepting one is an error) and positive ones (candidates that the teacher just wrote for
this slice: refusing one is an error). They estimate specificity and sensitivity, hence the acceptance rate behind the
apparent one.

A bad draft is an accepted one that the teacher would not have written. Two things tell of them. Of a label task the
votes on the picks (`label_votes`). And audits: accepted drafts, one of a slice, are asked about again in requests of
their own; one refused there is asked about once more. What audits cannot see: a bad draft that the judge accepts every
time, and the gap between a far negative control and a near miss. Both make the true rate higher than the estimate,
never the trigger false.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from backend.domain.beta import betaincinv
from backend.domain.confidence_sequences import anytime_high, anytime_low
from backend.domain.drafts.label_votes import LabelVotes, OtherLabel, other_label
from backend.domain.drafts.vocabulary import DraftVerdict, VerdictKind
from backend.domain.errors import InvalidInput

AUDIT_ASKS = 2  # an audit ends when the draft is accepted, or refused so often


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlCounts:
    """Planted controls that were answered, void batches included: leaving those out would flatter the judge."""

    n_negative: int = 0
    n_negative_accepted: int = 0
    n_positive: int = 0
    n_positive_accepted: int = 0

    def __post_init__(self) -> None:
        if not (0 <= self.n_negative_accepted <= self.n_negative and 0 <= self.n_positive_accepted <= self.n_positive):
            raise InvalidInput("No more controls can be accepted than were planted.")

    def __add__(self, other: "ControlCounts") -> "ControlCounts":
        return ControlCounts(
            n_negative=self.n_negative + other.n_negative,
            n_negative_accepted=self.n_negative_accepted + other.n_negative_accepted,
            n_positive=self.n_positive + other.n_positive,
            n_positive_accepted=self.n_positive_accepted + other.n_positive_accepted,
        )

    @property
    def sensitivity(self) -> float | None:
        """The share of what the teacher writes that the judge accepts; None without a positive control."""
        return self.n_positive_accepted / self.n_positive if self.n_positive else None

    @property
    def specificity(self) -> float | None:
        """The share of far drafts that the judge refuses; None without a negative control."""
        return 1 - self.n_negative_accepted / self.n_negative if self.n_negative else None


def exact_interval(k: int, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """Clopper-Pearson interval of `k` of `n` (Clopper and Pearson 1934); (0, 1) for n = 0. For an n that was fixed
    beforehand; whoever may act at any time takes `anytime_low` and `anytime_high`.

    >>> [round(bound, 3) for bound in exact_interval(294, 300)]
    [0.957, 0.993]
    """
    if not 0 <= k <= n:
        raise InvalidInput(f"{k} of {n} are not a proportion.")
    if not 0 < confidence < 1:
        raise InvalidInput(f"A confidence lies between 0 and 1, not at {confidence!r}.")
    tail = (1 - confidence) / 2
    low = 0.0 if k == 0 else betaincinv(k, n - k + 1, tail)
    return low, 1.0 if k == n else betaincinv(k + 1, n - k, 1 - tail)


def corrected_rate(apparent: float, sensitivity: float, specificity: float) -> float:
    """The rate behind an apparent one, clipped to [0, 1] (Rogan and Gladen 1978, Am. J. Epidemiol. 107:71). Raises
    InvalidInput for a judge no better than chance.

    >>> [round(corrected_rate(apparent, 0.95, 0.97), 3) for apparent in (0.30, 0.60)]
    [0.293, 0.62]
    """
    informed = sensitivity + specificity - 1
    if informed <= 0:
        raise InvalidInput("A judge that accepts drafts no better than chance corrects nothing.")
    return min(1.0, max(0.0, (apparent + specificity - 1) / informed))


@dataclass(frozen=True, slots=True, kw_only=True)
class Audits:
    """Accepted drafts that were asked about again, each of another slice: how many the first ask refused, and how many
    the second ask too."""

    n: int = 0
    n_refused: int = 0
    n_refused_twice: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.n_refused_twice <= self.n_refused <= self.n:
            raise InvalidInput("No more audits can be refused than were made.")

    def __add__(self, other: "Audits") -> "Audits":
        return Audits(
            n=self.n + other.n,
            n_refused=self.n_refused + other.n_refused,
            n_refused_twice=self.n_refused_twice + other.n_refused_twice,
        )


def audits_of(verdicts: Iterable[DraftVerdict]) -> Audits:
    """Return what one audit said of its draft, one AUDIT verdict an ask: accepted, refused and then accepted, or
    refused twice. Nothing where it was not settled."""
    asks = [verdict.is_accepted for verdict in verdicts if verdict.kind is VerdictKind.AUDIT]
    n_refused = asks.count(False)
    if True not in asks and n_refused < AUDIT_ASKS:
        return Audits()
    return Audits(n=1, n_refused=min(1, n_refused), n_refused_twice=int(n_refused == AUDIT_ASKS))


def controls_of(verdicts: Iterable[DraftVerdict]) -> ControlCounts:
    """The planted ones among some verdicts, counted."""
    counts = Counter((verdict.kind, verdict.is_accepted) for verdict in verdicts)
    negative, positive = VerdictKind.NEGATIVE, VerdictKind.POSITIVE
    return ControlCounts(
        n_negative=counts[negative, True] + counts[negative, False],
        n_negative_accepted=counts[negative, True],
        n_positive=counts[positive, True] + counts[positive, False],
        n_positive_accepted=counts[positive, True],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BadRate:
    """The share of accepted drafts that are bad. `estimate` is the greatest that anything measured, None before that;
    `low` holds at all times at once, so it may be read, and acted on, after every slice. `high` is 1: nothing that is
    asked of the judge rules out that it errs alike each time. For drafts of another label `other_label` has an upper
    bound too."""

    audits: Audits
    other_label: OtherLabel
    estimate: float | None
    low: float
    high: float = 1.0

    def is_above(self, bound: float) -> bool:
        """Return whether the rate is above `bound` beyond doubt: then the family generates afresh."""
        return self.low > bound


def bad_rate(
    audits: Audits, controls: ControlCounts, votes: LabelVotes | None = None, confidence: float = 0.95
) -> BadRate:
    """The share of bad drafts by all the evidence: `low` is the greatest bound of audits and label votes, each with
    half of the error.

    Of audits it asks nothing of how the judge errs: of good drafts the first ask refuses at most `1 - sensitivity`,
    both asks at most `most_refused_good`, whatever texts they are; the greater of the two bounds counts. Half of their
    error is spent on the refusals, half on the controls; without positive controls they bound nothing. An audit proves
    a draft bad, never good: at temperature 0 the same text beside the same slice is answered as before, and in other
    words nobody knows how often. The estimate of audits takes the judge's errors on one text as independent, so it is
    too low by what the judge accepts every time.

    >>> controls = ControlCounts(n_positive=300, n_positive_accepted=285)
    >>> found = bad_rate(Audits(n=400, n_refused=80, n_refused_twice=60), controls)
    >>> [round(rate, 3) for rate in (found.estimate, found.low, found.high)], found.is_above(0.02)
    ([0.148, 0.06, 1.0], True)
    """
    alpha = (1 - confidence) / 2
    by_label = other_label(votes or LabelVotes(), alpha)
    sensitivity = anytime_low(controls.n_positive_accepted, controls.n_positive, alpha / 2)
    once = _beyond(audits.n_refused, audits.n, 1 - sensitivity, alpha / 4)
    twice = _beyond(audits.n_refused_twice, audits.n, most_refused_good(sensitivity), alpha / 4)
    estimates = [each for each in (_estimate(audits, controls), by_label.estimate) if each is not None]
    return BadRate(
        audits=audits,
        other_label=by_label,
        estimate=max(estimates, default=None),
        low=max(once, twice, by_label.low),
    )


def _beyond(n_refused: int, n: int, good: float, alpha: float) -> float:
    """The least share of bad drafts that explains the refusals, where of good ones at most a share `good` is
    refused."""
    return max(0.0, (anytime_low(n_refused, n, alpha) - good) / (1 - good)) if good < 1 else 0.0


def _estimate(audits: Audits, controls: ControlCounts) -> float | None:
    """Rogan and Gladen for a test that is positive when both asks refuse; an unknown error rate counts as none."""
    if audits.n == 0:
        return None
    sensitivity = 1.0 if controls.sensitivity is None else controls.sensitivity
    specificity = 1.0 if controls.specificity is None else controls.specificity
    if sensitivity + specificity <= 1:
        return None
    good, bad = (1 - sensitivity) ** AUDIT_ASKS, specificity**AUDIT_ASKS
    return corrected_rate(audits.n_refused_twice / audits.n, bad, 1 - good)


def most_refused_good(sensitivity: float) -> float:
    """The greatest share of good accepted drafts that two more asks can both refuse. A good draft, like a fresh
    candidate, is accepted with a chance p of its own whose mean is `sensitivity`; the share is E[p (1 - p)^2] / E[p].
    The worst spread is p = 1/2 for some texts and p = 1 for the rest (the line from there touches p (1 - p)^2 at 1/2),
    below 1/2 no spread at all.

    >>> most_refused_good(1.0), round(most_refused_good(0.95), 4), most_refused_good(0.0)
    (0.0, 0.0132, 1.0)
    """
    if sensitivity >= 0.5:
        return (1 - sensitivity) / (4 * sensitivity)
    return (1 - sensitivity) ** AUDIT_ASKS


@dataclass(frozen=True, slots=True, kw_only=True)
class GateAudit:
    """A draft's score by the task's verifier on the new slice, and what the judge said of it."""

    score: float
    is_refused: bool


THRESHOLDS = (0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 1.0)


def certified_threshold(
    audits: Sequence[GateAudit], controls: ControlCounts, *, contamination: float, alpha: float = 0.05
) -> float | None:
    """The least of THRESHOLDS above which at most a share `contamination` of drafts is bad, or None while no threshold
    is certified. With probability at least 1 - alpha none is ever certified wrongly, however often one asks: each
    threshold spends its share of alpha, half on refusals and half on the negative controls. A good draft that the judge
    refused counts as bad."""
    share = alpha / 2 / len(THRESHOLDS)
    specificity = anytime_low(controls.n_negative - controls.n_negative_accepted, controls.n_negative, share)
    for threshold in THRESHOLDS:
        passed = [audit.is_refused for audit in audits if audit.score >= threshold]
        if specificity > 0 and anytime_high(sum(passed), len(passed), share) <= contamination * specificity:
            return threshold
    return None

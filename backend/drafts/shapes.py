"""Answers about the draft cache: figures, drafts and the verdicts on them, deletions. A preview has its own."""

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

from rest_framework import serializers as s

from backend.domain.drafts.calibration import GRID_VERSION, predict
from backend.domain.drafts.judge_controls import exact_interval
from backend.domain.drafts.label_votes import OtherLabel
from backend.domain.drafts.vocabulary import Arm, Certificate, DraftState, Strategy, VerdictKind
from backend.domain.ids import Prefix
from backend.drafts.calibrations import curves_of, judge_refusal
from backend.drafts.models import Draft, Verdict
from backend.drafts.tallies import Band, FamilyStats, ScopeStats, Side, StrategyStats, Tally
from backend.rest.shapes import Constant, PublicId, Shape, TextOrNull, Time

LEVEL = 0.95  # of every interval
CURVE_POINTS_PPM = range(0, 1_000_001, 50_000)


class Ppm(s.IntegerField):
    """A share in parts per million; null where it is not finite."""

    def to_representation(self, value: float) -> int | None:  # type: ignore[override]
        return ppm(value) if math.isfinite(value) else None


class Whole(s.IntegerField):
    def to_representation(self, value: float) -> int:  # type: ignore[override]
        return round(value)


class Rounded(s.FloatField):
    def __init__(self, n_digits: int, **options: Any) -> None:
        super().__init__(**options)
        self._n_digits = n_digits

    def to_representation(self, value: float) -> float:
        return round(value, self._n_digits)


def ppm(share: float) -> int:
    return round(share * 1_000_000)


class Rate(NamedTuple):
    """`k` of `n` with its exact 95 % interval; None where there is nothing to divide."""

    k: int
    n: int
    rate_ppm: int | None = None
    low_ppm: int | None = None
    high_ppm: int | None = None


def rate(k: int, n: int) -> Rate:
    if n == 0:
        return Rate(k, n)
    low, high = exact_interval(k, n, LEVEL)
    return Rate(k, n, ppm(k / n), ppm(low), ppm(high))


def acceptance(bands: Iterable[Band]) -> Rate:
    verified = list(bands)
    return rate(sum(band.n_accepted for band in verified), sum(band.n_shown for band in verified))


class RateShape(Shape[Any]):
    k = s.IntegerField()
    n = s.IntegerField()
    rate_ppm = s.IntegerField(allow_null=True)
    low_ppm = s.IntegerField(allow_null=True, help_text="Exact (Clopper-Pearson) 95 % interval.")
    high_ppm = s.IntegerField(allow_null=True)


Stats = FamilyStats | ScopeStats | StrategyStats


class LookupsShape(Shape[Stats]):
    first = ("n_lookups", "arms", "n_shown", "n_accepted", "n_reused", "acceptance", "kept_tokens")

    avoided_microusd = s.IntegerField(
        source="tally.saving.avoided", help_text="What the candidates that drafts stand in for would have cost fresh."
    )
    verification_microusd = s.IntegerField(source="tally.saving.verification")
    embedding_microusd = s.IntegerField(source="tally.saving.embedding")
    audit_microusd = s.IntegerField(source="tally.saving.audits")
    exploration_microusd = s.IntegerField(source="tally.saving.exploration")
    net_microusd = s.IntegerField(
        source="tally.saving.net", help_text="Avoided less all the others. Below zero where the cache cost money."
    )
    n_lookups = s.IntegerField(source="tally.n_lookups", help_text="Slices that looked for drafts.")
    arms = s.DictField(child=s.IntegerField(), help_text=f"Of these, by what happened: {', '.join(Arm)}.")
    n_shown = s.IntegerField(
        source="tally.n_shown", help_text="Drafts that were offered, written for the very same prompt or not."
    )
    n_accepted = s.IntegerField(source="tally.n_accepted")
    n_reused = s.IntegerField(source="tally.n_reused", help_text="Accepted ones that entered a pool.")
    acceptance = RateShape(help_text="Of the drafts that a verifier was asked about.")
    kept_tokens = s.DictField(child=s.IntegerField(), help_text=f"By certificate: {', '.join(Certificate)}.")

    def get_arms(self, row: Stats) -> dict[str, int]:
        return dict(sorted(row.tally.arms.items()))

    def get_acceptance(self, row: Stats) -> Rate:
        return acceptance(row.verified)

    def get_kept_tokens(self, row: Stats) -> dict[str, int]:
        return dict(sorted(row.tally.kept_tokens.items()))


class OtherLabelShape(Shape[OtherLabel]):
    n = s.IntegerField(source="votes.total.n_drafts", help_text="Draft picks whose label the teacher voted on.")
    n_other = s.IntegerField(
        source="votes.total.n_drafts_other", help_text="Of these, with another label than their slice's."
    )
    n_fresh = s.IntegerField(source="votes.total.n_fresh", help_text="Fresh picks, for comparison.")
    n_fresh_other = s.IntegerField(source="votes.total.n_fresh_other")
    estimate_ppm = Ppm(
        source="estimate",
        allow_null=True,
        help_text="The share of draft picks beyond that of the fresh picks of their slices; null before both.",
    )
    low_ppm = Ppm(source="low", help_text="95 % interval that holds at all times at once.")
    high_ppm = Ppm(source="high")


class BadDraftsShape(Shape[StrategyStats]):
    n_audited = s.IntegerField(
        source="calibration.n_audited", help_text="Accepted drafts that the teacher was asked about again."
    )
    n_refused = s.IntegerField(source="calibration.n_audited_bad")
    rate_ppm = Ppm(
        source="bad_rate.estimate",
        allow_null=True,
        help_text="The greater of what audits, corrected for the judge's errors, and label votes measured; null before "
        "either. What the judge accepts each time it is asked, and has its slice's label, is not in it.",
    )
    low_ppm = Ppm(source="bad_rate.low", help_text="95 % bound that holds at all times at once.")
    high_ppm = Ppm(source="bad_rate.high", help_text="1,000,000: nothing rules out a judge that errs alike each time.")
    bound_ppm = Ppm(
        source="calibration.max_bad_rate",
        allow_null=True,
        help_text="The spec's draft_cache.max_bad_rate when the rate was last measured.",
    )
    other_label = OtherLabelShape(source="bad_rate.other_label", help_text="Of label tasks: the votes on the picks.")


class BandShape(RateShape):
    first = ("distance_ppm",)

    distance_ppm = Ppm(source="distance", help_text="Where the band begins; it is 50,000 wide.")


class CurvePoint(Shape[Any]):
    distance_ppm = s.IntegerField()
    acceptance_ppm = Ppm(source="acceptance")


class StrategyShape(Shape[StrategyStats]):
    strategy = s.ChoiceField([strategy.value for strategy in Strategy])
    judge = s.CharField(source="calibration.judge", help_text='The model of draft_cache.judge; "" for the others.')
    judge_refusal = s.CharField(help_text='Why the teacher judges in its place; "" while it is asked itself.')
    lookups = LookupsShape(source="*")
    is_suspended = s.BooleanField(help_text="Too many bad drafts: this scope generates afresh.")
    suspended_at = Time(source="calibration.suspended_at", allow_null=True)
    bad_drafts = BadDraftsShape(source="*")
    negative_controls = RateShape(help_text="Planted drafts of far slices, and how many the judge accepted.")
    positive_controls = RateShape(help_text="Planted fresh candidates, and how many the judge accepted.")
    n_observations = s.IntegerField(source="calibration.n_observations")
    by_distance = BandShape(many=True, help_text="Accepted of shown, by cosine distance.")
    curve = CurvePoint(many=True, allow_null=True, help_text="Expected acceptance by cosine distance.")

    def get_judge_refusal(self, row: StrategyStats) -> str:
        return judge_refusal(row.calibration) if row.calibration.judge else ""

    def get_is_suspended(self, row: StrategyStats) -> bool:
        return row.calibration.suspended_at is not None

    def get_negative_controls(self, row: StrategyStats) -> Rate:
        return rate(row.calibration.n_negative_accepted, row.calibration.n_negative_controls)

    def get_positive_controls(self, row: StrategyStats) -> Rate:
        return rate(row.calibration.n_positive_accepted, row.calibration.n_positive_controls)

    def get_by_distance(self, row: StrategyStats) -> list[dict[str, Any]]:
        return [{"distance": band.distance} | acceptance([band])._asdict() for band in row.verified]

    def get_curve(self, row: StrategyStats) -> list[dict[str, Any]] | None:
        """The acceptance that the next look-up expects of a slice that is no kin; None before the first verdict."""
        known = row.calibration
        if known.n_observations == 0 or known.grid_version != GRID_VERSION:
            return None
        expected = predict(curves_of(known).other, [point / 1_000_000 for point in CURVE_POINTS_PPM])
        return [
            {"distance_ppm": point, "acceptance": float(value)}
            for point, value in zip(CURVE_POINTS_PPM, expected, strict=True)
        ]


class HoldingsShape(Shape[Any]):
    n_drafts = s.IntegerField(
        source="holdings.n_drafts", help_text="Live candidates that no selection kept: the product's drafts."
    )
    n_kept = s.IntegerField(
        source="holdings.n_kept", help_text="Picked ones, there because an exact rule needs an unbiased sample."
    )
    n_quarantined = s.IntegerField(source="holdings.n_quarantined")
    n_sources = s.IntegerField(source="holdings.n_sources", help_text="Slices that they were written for.")
    n_bytes = s.IntegerField(source="holdings.n_bytes", help_text="Of all rows.")
    n_tokens = s.IntegerField(source="holdings.n_tokens", help_text="Of the product's drafts.")
    cost_microusd = s.IntegerField(
        source="holdings.cost_microusd", help_text="What the teacher was paid for the product's drafts."
    )
    newest_at = Time(source="holdings.newest_at", allow_null=True)


class ScopeShape(HoldingsShape):  # of ScopeStats
    first = ("teacher", "embedder")

    teacher = s.CharField(source="scope.teacher")
    embedder = s.CharField(source="scope.embedder")
    lookups = LookupsShape(source="*")
    strategies = StrategyShape(many=True)


class SideShape(Shape[Side]):
    n_slices = s.IntegerField()
    n_candidates = s.IntegerField()
    cost_per_candidate_microusd = Rounded(3, allow_null=True)
    mean_score = Rounded(6, allow_null=True)


class HoldbackShape(Shape[FamilyStats]):
    """Slices that had drafts near, parted at random: some got none, the others were treated as usual."""

    held_back = SideShape()
    not_held_back = SideShape()


class LabelsShape(Shape[Tally]):
    n_reused = s.IntegerField(help_text="Label prompts that the teacher had answered before, word for word.")
    avoided_microusd = s.IntegerField(source="saving.avoided")


class FamilyStatsShape(HoldingsShape):  # of FamilyStats
    first = ("object", "family")

    object = Constant("draft_stats")
    family = s.CharField()
    lookups = LookupsShape(source="*")
    labels = LabelsShape()
    net_microusd = s.IntegerField(help_text="Of look-ups and labels together.")
    holdback = HoldbackShape(allow_null=True, help_text="Null until both sides have slices.")
    scopes = ScopeShape(many=True)

    def get_net_microusd(self, row: FamilyStats) -> int:
        return (row.tally.saving + row.labels.saving).net

    def get_holdback(self, row: FamilyStats) -> FamilyStats | None:
        return None if row.held_back is None or row.not_held_back is None else row


class DraftShape(Shape[Draft]):  # of a row that `reading.Reader` opened
    id = PublicId(Prefix.DRAFT)
    object = Constant("draft")
    family = s.CharField(source="scope.family")
    teacher = s.CharField(source="scope.teacher")
    embedder = s.CharField(source="scope.embedder")
    text = s.CharField(allow_null=True, help_text="Null when the family's key is gone.")
    state = s.ChoiceField([state.value for state in DraftState])
    is_kept = s.BooleanField(help_text="Its own compile picked it.")
    score = s.FloatField(allow_null=True)
    signal = TextOrNull()
    logprob = s.FloatField(allow_null=True)
    n_tokens = s.IntegerField()
    n_bytes = s.IntegerField()
    n_shown = s.IntegerField()
    n_accepted = s.IntegerField()
    root = PublicId(Prefix.DRAFT, source="root_id", allow_null=True, help_text="The draft that this text began as.")
    compile = PublicId(Prefix.COMPILE, source="compile_id", help_text="The compile that paid for it.")
    cost_microusd = s.IntegerField()
    created_at = Time()
    expires_at = Time()


class VerdictShape(Shape[Verdict]):
    compile = PublicId(Prefix.COMPILE, source="compile_id", help_text="The compile that it was offered to.")
    strategy = s.ChoiceField([strategy.value for strategy in Strategy])
    kind = s.ChoiceField([kind.value for kind in VerdictKind])
    certificate = s.ChoiceField([name.value for name in Certificate], allow_null=True)
    is_accepted = s.BooleanField()
    distance_ppm = Ppm(source="distance")
    predicted_ppm = Ppm(source="predicted", help_text="The acceptance that was expected.")
    n_tokens_kept = s.IntegerField()
    cost_microusd = s.IntegerField()
    created_at = Time()

    def get_certificate(self, row: Verdict) -> str | None:
        return row.certificate or None


class DraftDetailShape(DraftShape):  # DraftShape.of(row) | the rest
    slice_text = s.CharField(allow_null=True, help_text="The slice that it was written for, as it was embedded.")
    verdicts = VerdictShape(many=True, help_text="The newest 100.")


class DraftListShape(s.Serializer[object]):
    object = s.ChoiceField(["list"])
    data = DraftShape(many=True)
    has_more = s.BooleanField()
    next_cursor = s.CharField(allow_null=True)
    truncated = s.BooleanField(
        help_text="With `q`: the search stopped before the page was full; go on with `next_cursor`."
    )


class DeletionShape(Shape[Any]):
    object = Constant("draft_deletion")
    n_drafts = s.IntegerField(help_text="The draft itself and those that began as its text.")


class PurgeShape(Shape[Any]):
    """The counts of what was deleted; all zeros where nothing of the family was stored."""

    object = Constant("draft_purge")
    family = s.CharField()
    n_drafts = s.IntegerField()
    n_sources = s.IntegerField()
    n_label_drafts = s.IntegerField()
    n_calibrations = s.IntegerField()
    n_keys = s.IntegerField(help_text="1 where the family's key was destroyed.")

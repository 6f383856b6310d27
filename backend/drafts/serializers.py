"""The shapes of the draft cache's answers, for OpenAPI, and of its queries."""

from rest_framework import serializers as s

from backend.domain.drafts.vocabulary import Arm, Certificate, DraftState, Strategy, VerdictKind
from backend.rest.strict import StrictSerializer

MAX_Q = 200


class StatsQuery(StrictSerializer):
    family = s.CharField(required=False, max_length=100)
    since = s.DateTimeField(required=False, help_text="RFC 3339; look-ups and the comparison from then on.")


class ListQuery(StrictSerializer):
    family = s.CharField(required=False, max_length=100)
    state = s.ChoiceField([state.value for state in DraftState], required=False)
    q = s.CharField(required=False, max_length=MAX_Q, trim_whitespace=False, help_text="Part of the text.")


class PurgeQuery(StrictSerializer):
    family = s.CharField(max_length=100, help_text="The family whose drafts are deleted.")


class RateShape(s.Serializer[object]):
    k = s.IntegerField()
    n = s.IntegerField()
    rate_ppm = s.IntegerField(allow_null=True)
    low_ppm = s.IntegerField(allow_null=True, help_text="Exact (Clopper-Pearson) 95 % interval.")
    high_ppm = s.IntegerField(allow_null=True)


class SavingShape(s.Serializer[object]):
    avoided_microusd = s.IntegerField(help_text="What the candidates that drafts stand in for would have cost fresh.")
    verification_microusd = s.IntegerField()
    embedding_microusd = s.IntegerField()
    audit_microusd = s.IntegerField()
    exploration_microusd = s.IntegerField()
    net_microusd = s.IntegerField(help_text="Avoided less all the others. Below zero where the cache cost money.")


class LookupsShape(SavingShape):
    n_lookups = s.IntegerField(help_text="Slices that looked for drafts.")
    arms = s.DictField(child=s.IntegerField(), help_text=f"Of these, by what happened: {', '.join(Arm)}.")
    n_shown = s.IntegerField(help_text="Drafts that were offered, written for the very same prompt or not.")
    n_accepted = s.IntegerField()
    n_reused = s.IntegerField(help_text="Accepted ones that entered a pool.")
    acceptance = RateShape(help_text="Of the drafts that a verifier was asked about.")
    kept_tokens = s.DictField(child=s.IntegerField(), help_text=f"By certificate: {', '.join(Certificate)}.")


class BadDraftsShape(s.Serializer[object]):
    n_audited = s.IntegerField(help_text="Accepted drafts that the teacher was asked about again.")
    n_refused = s.IntegerField()
    rate_ppm = s.IntegerField(allow_null=True, help_text="Corrected for the judge's errors; null before an audit.")
    low_ppm = s.IntegerField(help_text="95 % interval that holds at all times at once.")
    high_ppm = s.IntegerField()
    bound_ppm = s.IntegerField(allow_null=True, help_text="The spec's draft_cache.max_bad_rate at the last audit.")


class BandShape(RateShape):
    distance_ppm = s.IntegerField(help_text="Where the band begins; it is 50,000 wide.")


class CurvePoint(s.Serializer[object]):
    distance_ppm = s.IntegerField()
    acceptance_ppm = s.IntegerField()


class StrategyShape(s.Serializer[object]):
    strategy = s.ChoiceField([strategy.value for strategy in Strategy])
    lookups = LookupsShape()
    is_suspended = s.BooleanField(help_text="Too many bad drafts: this scope generates afresh.")
    suspended_at = s.DateTimeField(allow_null=True)
    bad_drafts = BadDraftsShape()
    negative_controls = RateShape(help_text="Planted drafts of far slices, and how many the judge accepted.")
    positive_controls = RateShape(help_text="Planted fresh candidates, and how many the judge accepted.")
    n_observations = s.IntegerField()
    by_distance = BandShape(many=True, help_text="Accepted of shown, by cosine distance.")
    curve = CurvePoint(many=True, allow_null=True, help_text="Expected acceptance by cosine distance.")


class HoldingsShape(s.Serializer[object]):
    n_drafts = s.IntegerField(help_text="Live candidates that no selection kept: the product's drafts.")
    n_kept = s.IntegerField(help_text="Picked ones, there because an exact rule needs an unbiased sample.")
    n_quarantined = s.IntegerField()
    n_sources = s.IntegerField(help_text="Slices that they were written for.")
    n_bytes = s.IntegerField(help_text="Of all rows.")
    n_tokens = s.IntegerField(help_text="Of the product's drafts.")
    cost_microusd = s.IntegerField(help_text="What the teacher was paid for the product's drafts.")
    newest_at = s.DateTimeField(allow_null=True)


class ScopeShape(HoldingsShape):
    teacher = s.CharField()
    embedder = s.CharField()
    lookups = LookupsShape()
    strategies = StrategyShape(many=True)


class SideShape(s.Serializer[object]):
    n_slices = s.IntegerField()
    n_candidates = s.IntegerField()
    cost_per_candidate_microusd = s.FloatField(allow_null=True)
    mean_score = s.FloatField(allow_null=True)


class HoldbackShape(s.Serializer[object]):
    """Slices that had drafts near, parted at random: some got none, the others were treated as usual."""

    held_back = SideShape()
    not_held_back = SideShape()


class LabelsShape(s.Serializer[object]):
    n_reused = s.IntegerField(help_text="Label prompts that the teacher had answered before, word for word.")
    avoided_microusd = s.IntegerField()


class DraftStatsShape(HoldingsShape):
    object = s.ChoiceField(["draft_stats"])
    family = s.CharField()
    lookups = LookupsShape()
    labels = LabelsShape()
    net_microusd = s.IntegerField(help_text="Of look-ups and labels together.")
    holdback = HoldbackShape(allow_null=True, help_text="Null until both sides have slices.")
    scopes = ScopeShape(many=True)


class DraftShape(s.Serializer[object]):
    id = s.CharField()
    object = s.ChoiceField(["draft"])
    family = s.CharField()
    teacher = s.CharField()
    embedder = s.CharField()
    text = s.CharField(allow_null=True, help_text="Null when the family's key is gone.")
    state = s.ChoiceField([state.value for state in DraftState])
    is_kept = s.BooleanField(help_text="Its own compile picked it.")
    score = s.FloatField(allow_null=True)
    signal = s.CharField(allow_null=True)
    logprob = s.FloatField(allow_null=True)
    n_tokens = s.IntegerField()
    n_bytes = s.IntegerField()
    n_shown = s.IntegerField()
    n_accepted = s.IntegerField()
    root = s.CharField(allow_null=True, help_text="The draft that this text began as.")
    compile = s.CharField(help_text="The compile that paid for it.")
    cost_microusd = s.IntegerField()
    created_at = s.DateTimeField()
    expires_at = s.DateTimeField()


class VerdictShape(s.Serializer[object]):
    compile = s.CharField(help_text="The compile that it was offered to.")
    strategy = s.ChoiceField([strategy.value for strategy in Strategy])
    kind = s.ChoiceField([kind.value for kind in VerdictKind])
    certificate = s.ChoiceField([name.value for name in Certificate], allow_null=True)
    is_accepted = s.BooleanField()
    distance_ppm = s.IntegerField()
    predicted_ppm = s.IntegerField(help_text="The acceptance that was expected.")
    n_tokens_kept = s.IntegerField()
    cost_microusd = s.IntegerField()
    created_at = s.DateTimeField()


class DraftDetailShape(DraftShape):
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


class DeletionShape(s.Serializer[object]):
    object = s.ChoiceField(["draft_deletion"])
    n_drafts = s.IntegerField(help_text="The draft itself and those that began as its text.")


class PurgeShape(s.Serializer[object]):
    """What was deleted; all zeros where nothing was kept of the family."""

    object = s.ChoiceField(["draft_purge"])
    family = s.CharField()
    n_drafts = s.IntegerField()
    n_sources = s.IntegerField()
    n_label_drafts = s.IntegerField()
    n_calibrations = s.IntegerField()
    n_keys = s.IntegerField(help_text="1 where the family's key was destroyed.")


class PreviewSliceShape(s.Serializer[object]):
    slice = s.CharField()
    strategy = s.ChoiceField([strategy.value for strategy in Strategy], allow_null=True)
    arm = s.ChoiceField([arm.value for arm in Arm], help_text="What would happen to the slice.")
    n_sources = s.IntegerField(help_text="Slices of earlier compiles that are near.")
    nearest_distance_ppm = s.IntegerField(allow_null=True)
    n_drafts = s.IntegerField(help_text="Their live drafts.")
    n_shown = s.IntegerField(help_text="How many would be offered to the teacher.")
    expected_accepted = s.FloatField()
    acceptance_low_ppm = s.IntegerField(allow_null=True, help_text="95 % credible interval of the acceptance.")
    acceptance_high_ppm = s.IntegerField(allow_null=True)
    fresh_microusd = s.FloatField(allow_null=True, help_text="What one fresh candidate costs.")
    expected_avoided_microusd = s.IntegerField()
    expected_verification_microusd = s.IntegerField()
    expected_net_microusd = s.IntegerField()
    break_even_ppm = s.IntegerField(allow_null=True, help_text="The acceptance above which a draft pays.")
    reason = s.CharField()


class PreviewTotalShape(s.Serializer[object]):
    n_slices = s.IntegerField()
    n_slices_offered = s.IntegerField()
    n_drafts = s.IntegerField()
    n_shown = s.IntegerField()
    expected_accepted = s.FloatField()
    expected_avoided_microusd = s.IntegerField()
    expected_verification_microusd = s.IntegerField()
    expected_net_microusd = s.IntegerField()


class PreviewShape(s.Serializer[object]):
    object = s.ChoiceField(["draft_preview"])
    family = s.CharField()
    slices = PreviewSliceShape(many=True)
    total = PreviewTotalShape()

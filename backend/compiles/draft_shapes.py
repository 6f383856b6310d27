"""Answers about the drafts of compiles: the saving, and the drafts that the teacher kept and refused."""

from typing import Any

from rest_framework import serializers as s

from backend.compiles.draft_savings import DraftSavings, Part
from backend.compiles.draft_verdicts import AskedDraft, Opinion, SliceDrafts
from backend.compiles.draft_words import acceptance_words, engine_words, summary, teacher_time
from backend.domain.drafts.vocabulary import EngineTokens, Strategy
from backend.domain.ids import Prefix
from backend.drafts.shapes import FamilyStatsShape, Ppm, RateShape
from backend.rest.shapes import Constant, PublicId, Shape, TextOrNull, Time


class SavingsPartShape(Shape[Part]):
    n_reused = s.IntegerField(help_text="Candidates that are drafts; of labels, prompts that were answered before.")
    net_microusd = s.IntegerField(source="saving.net", help_text="Avoided less costs; below zero for a loss.")
    net_share_ppm = s.IntegerField(allow_null=True, help_text="Net as a share of `without_drafts_microusd`.")
    avoided_microusd = s.IntegerField(source="saving.avoided")
    costs_microusd = s.IntegerField(help_text="Verification, embedding, audits and exploration.")
    paid_microusd = s.IntegerField(help_text="What the teacher was paid for writing anew.")
    without_drafts_microusd = s.IntegerField(help_text="What it would have been paid: `paid` and `avoided`.")


class EngineTokensShape(Shape[EngineTokens]):
    """An engine's own counts of the drafts that it was proposed."""

    written = s.IntegerField(help_text="Tokens of answers that it wrote while drafts were proposed to it.")
    proposed = s.IntegerField(help_text="Tokens of drafts that it checked.")
    kept = s.IntegerField(help_text="Those that it kept; they are among the written ones.")
    per_pass = s.FloatField(allow_null=True, help_text="Tokens of an answer a pass; 1 without drafts.")


class DraftSavingsShape(Shape[DraftSavings]):
    """The saving of drafts: the figure that pages, command line and demo show."""

    summary = s.CharField(help_text="The saving in a sentence.")
    net_microusd = s.IntegerField(help_text="Of candidates and labels together.")
    net_share_ppm = s.IntegerField(
        allow_null=True,
        help_text="Net as a share of what synthesis would have cost without drafts; where labels were reused, of what "
        "synthesis and labelling would have cost.",
    )
    without_drafts_microusd = s.IntegerField(help_text="What the share is of.")
    slices = SavingsPartShape()
    labels = SavingsPartShape()
    accepted = s.CharField(help_text="The acceptance in words, with its exact 95 % interval.")
    acceptance = RateShape(help_text="Of the drafts that the teacher was asked about.")
    n_repeated = s.IntegerField(help_text="Drafts of the very same prompt, taken without asking.")
    teacher_ms_saved = s.IntegerField(
        source="saved_ms",
        allow_null=True,
        help_text="The teacher's time for what was not written, at the mean of the calls that were made, less its time "
        "for questions about drafts. Null where no call was timed.",
    )
    time_saved = s.CharField(help_text="The same in words; empty where it is null.")
    engine = EngineTokensShape(help_text="Of slices whose drafts went to an engine along with the requests.")
    engine_summary = s.CharField(help_text="The same in words; empty where no engine counted.")
    n_compiles = s.IntegerField(help_text="Compiles that looked for drafts.")

    def get_accepted(self, row: DraftSavings) -> str:
        return acceptance_words(row)

    def get_time_saved(self, row: DraftSavings) -> str:
        return teacher_time(row.saved_ms)

    def get_engine_summary(self, row: DraftSavings) -> str:
        return engine_words(row)

    def get_summary(self, row: DraftSavings) -> str:
        return summary(row)


class DraftStatsShape(FamilyStatsShape):  # FamilyStatsShape.of(family) | the rest
    saving = DraftSavingsShape(help_text="What drafts saved, labels included.")


class DraftStatsListShape(s.Serializer[Any]):
    object = s.ChoiceField(["list"])
    data = DraftStatsShape(many=True)
    total = DraftSavingsShape(help_text="Of all these families together.")
    has_more = s.BooleanField()
    next_cursor = s.CharField(allow_null=True)


class AskedDraftShape(Shape[AskedDraft]):
    id = PublicId(Prefix.DRAFT, source="draft_id")
    verdict = s.ChoiceField(
        [opinion.value for opinion in Opinion],
        source="opinion",
        help_text="`void` counts for nothing: a planted draft beside it was judged wrongly, or the revision changed.",
    )
    text = s.CharField(allow_null=True, help_text="Null where the draft was deleted since.")
    strategy = s.ChoiceField([strategy.value for strategy in Strategy])
    certificate = TextOrNull()
    predicted_ppm = Ppm(source="predicted", help_text="The acceptance that was expected.")
    distance_ppm = Ppm(source="distance", help_text="Cosine, of its slice to this one.")
    kinship = s.CharField(help_text="Of its slice to this one: slice (the same), label (of the same label), other.")
    created_at = Time(source="at")


class SliceDraftsShape(Shape[SliceDrafts]):
    object = Constant("slice_drafts")
    id = PublicId(Prefix.SLICE, source="slice.id", help_text="The slice.")
    slice = s.CharField(source="slice.name")
    n_accepted = s.IntegerField(source="n_kept")
    n_refused = s.IntegerField()
    n_void = s.IntegerField()
    net_microusd = s.IntegerField(
        source="saving.net", allow_null=True, help_text="What the slice's drafts saved; null before it is written."
    )
    drafts = AskedDraftShape(
        many=True, help_text="Of each verdict the newest, `limit` at most: those accepted, then refused, then void."
    )

    def get_net_microusd(self, row: SliceDrafts) -> int | None:
        return None if row.saving is None else row.saving.net

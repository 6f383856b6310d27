"""The drafts that a compile's teacher kept and refused, slice by slice, with their texts.

Drafts of the very same prompt are not here: nobody was asked about them.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from backend.compiles.models import Compile, Slice
from backend.domain.drafts.vocabulary import Saving, Strategy, VerdictKind
from backend.drafts.models import Draft, Offer, Verdict
from backend.drafts.vault import open_vault

NO_KINSHIP = "other"


class Opinion(StrEnum):
    ACCEPTED = "accepted"
    REFUSED = "refused"
    VOID = "void"  # said beside a failed control: counts for nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedDraft:
    """A draft and its verdict. `text` is None where the draft, or the key of its family, was deleted since."""

    draft_id: UUID
    opinion: Opinion
    text: str | None
    strategy: str
    certificate: str
    predicted: float
    distance: float
    kinship: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceDrafts:
    """One slice's counts, its saving (None before it is written), and the newest drafts of each opinion."""

    slice: Slice
    counts: Counter[Opinion]
    saving: Saving | None
    drafts: tuple[AskedDraft, ...]

    @property
    def n_kept(self) -> int:
        return self.counts[Opinion.ACCEPTED]

    @property
    def n_refused(self) -> int:
        return self.counts[Opinion.REFUSED]

    @property
    def n_void(self) -> int:
        return self.counts[Opinion.VOID]

    @property
    def n_not_kept(self) -> int:
        return self.n_refused + self.n_void

    @property
    def kept(self) -> list[AskedDraft]:
        return [one for one in self.drafts if one.opinion is Opinion.ACCEPTED]

    @property
    def refused(self) -> list[AskedDraft]:
        """Return those that count for nothing among them: they did not enter either."""
        return [one for one in self.drafts if one.opinion is not Opinion.ACCEPTED]


@dataclass(slots=True)
class AskedDrafts:
    """A compile's verdicts in memory, without texts: `of_slices` opens those."""

    row: Compile
    _verdicts: dict[int, list[Verdict]] = field(default_factory=dict)  # by the slice's position, the newest first
    _offers: dict[int, Offer] = field(default_factory=dict)

    @property
    def positions(self) -> list[int]:
        """The slices that have a verdict."""
        return sorted(self._verdicts)

    def counts_of(self, position: int) -> Counter[Opinion]:
        return Counter(map(_opinion, self._verdicts.get(position, ())))

    def has_both(self, position: int) -> bool:
        """Say whether the teacher kept some of the slice's drafts and refused others."""
        counts = self.counts_of(position)
        return bool(counts[Opinion.ACCEPTED] and counts[Opinion.REFUSED])

    def offer_of(self, position: int) -> Offer | None:
        """None before the slice is written."""
        return self._offers.get(position)

    def saving_of(self, position: int) -> Saving | None:
        offer = self.offer_of(position)
        return None if offer is None else _saving(offer)

    def of_slices(self, rows: Sequence[Slice], *, most: int) -> list[SliceDrafts]:
        """Count the slices' verdicts and open up to `most` texts of each opinion, the kept ones first."""
        chosen = {row.position: self._newest(row.position, most) for row in rows}
        texts = self._texts({one.draft_id for verdicts in chosen.values() for one in verdicts})
        return [
            SliceDrafts(
                slice=row,
                counts=self.counts_of(row.position),
                saving=self.saving_of(row.position),
                drafts=tuple(_with_text(one, texts.get(one.draft_id)) for one in chosen[row.position]),
            )
            for row in rows
        ]

    def _newest(self, position: int, most: int) -> list[Verdict]:
        verdicts = self._verdicts.get(position, [])
        return [one for opinion in Opinion for one in [v for v in verdicts if _opinion(v) is opinion][:most]]

    def _texts(self, ids: set[UUID]) -> dict[UUID, str]:
        """A compile is offered drafts of its own family alone: one key opens all."""
        vault = open_vault(self.row.tenant_id, self.row.family) if ids else None
        if vault is None:
            return {}
        rows = Draft.objects.of_tenant(self.row.tenant_id).filter(id__in=ids).values_list("id", "text_sealed")
        return {id: vault.unseal(bytes(sealed)) for id, sealed in rows}


def asked_drafts(row: Compile, slices: Iterable[Slice]) -> AskedDrafts:
    """Read the verdicts of a compile with these slices, in two queries. Of a draft with several, the newest that is not
    void is kept."""
    mine = {"tenant_id": row.tenant_id, "compile_id": row.id}
    offers = {offer.slice_position: offer for offer in Offer.objects.filter(**mine, slice_position__gte=0)}
    position_of = {offer.id: position for position, offer in offers.items()}
    scope_ids = {offer.scope_id for offer in offers.values()}
    for part in slices:
        plan = part.offer_plan
        if plan is not None:  # a slice that is not written yet has verdicts before it has an Offer
            position_of.setdefault(plan.offer_id, part.position)
            scope_ids.add(plan.scope_id)
    if not scope_ids - {None}:
        return AskedDrafts(row, {}, offers)
    verdicts = (
        Verdict.objects.filter(
            **mine,
            scope_id__in=scope_ids - {None},
            offer_id__in=list(position_of),
            kind__in=(VerdictKind.VERDICT, VerdictKind.VOID),
        )
        .exclude(strategy=Strategy.REPEAT)
        .order_by("-id")
    )
    by_position: dict[int, dict[UUID, Verdict]] = defaultdict(dict)
    for verdict in verdicts:
        of_slice = by_position[position_of[verdict.offer_id]]
        before = of_slice.get(verdict.draft_id)
        if before is None or (before.kind == VerdictKind.VOID and verdict.kind == VerdictKind.VERDICT):
            of_slice[verdict.draft_id] = verdict
    return AskedDrafts(row, {position: list(rows.values()) for position, rows in by_position.items()}, offers)


def _opinion(verdict: Verdict) -> Opinion:
    if verdict.kind == VerdictKind.VOID:
        return Opinion.VOID
    return Opinion.ACCEPTED if verdict.is_accepted else Opinion.REFUSED


def _with_text(verdict: Verdict, text: str | None) -> AskedDraft:
    return AskedDraft(
        draft_id=verdict.draft_id,
        opinion=_opinion(verdict),
        text=text,
        strategy=verdict.strategy,
        certificate=verdict.certificate,
        predicted=verdict.predicted,
        distance=verdict.distance,
        kinship=getattr(verdict, "kinship", NO_KINSHIP),
        at=verdict.created_at,
    )


def _saving(offer: Offer) -> Saving:
    return Saving(
        avoided=offer.avoided_microusd,
        verification=offer.verification_microusd,
        embedding=offer.embedding_microusd,
        audits=offer.audit_microusd,
        exploration=offer.exploration_microusd,
    )

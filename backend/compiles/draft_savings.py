"""The saving of drafts: one figure for a compile, a family or a tenant, which every page, the API, the command line and
the demo show (`draft_words` has how).

Money is booked when a slice is written (its `Offer`), a verdict counts when it is saved. In a compile that still runs,
what the teacher is paid for slices that are not written yet is in the cost already.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Case, Count, Func, Q, QuerySet, Sum, Value, When

from backend.compiles.models import TeacherCall
from backend.compiles.states import ANSWERED_STATES, CANDIDATE_CALLS, DELEGATE_CALLS, LABEL_CALLS
from backend.domain.drafts.vocabulary import EngineTokens, Saving, Strategy, VerdictKind
from backend.drafts.models import Offer, Scope, Verdict
from backend.drafts.shapes import Rate, rate

DRAFT_CALLS = ("drafts:", "audit:", DELEGATE_CALLS)  # how the journal's keys of the calls begin that ask about drafts
_ENGINE = tuple(field.name for field in fields(EngineTokens))
_MONEY = ("avoided", "verification", "embedding", "audit", "exploration")


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The account of candidates, or of labels. `n_reused` drafts entered, and `n_not_written` times the teacher wrote
    nothing because of drafts. `paid_microusd` is what it was paid for writing anew.

    >>> part = Part(n_reused=3, saving=Saving(avoided=60, verification=20), paid_microusd=140)
    >>> part.without_drafts_microusd, part.net_share_ppm
    (200, 200000)
    """

    n_reused: int = 0
    n_not_written: int = 0
    saving: Saving = field(default_factory=Saving)
    paid_microusd: int = 0

    @property
    def costs_microusd(self) -> int:
        """The sum of verification, embedding, audits and exploration."""
        return self.saving.avoided - self.saving.net

    @property
    def without_drafts_microusd(self) -> int:
        return self.paid_microusd + self.saving.avoided

    @property
    def net_share_ppm(self) -> int | None:
        return _share_ppm(self.saving.net, self.without_drafts_microusd)

    def __add__(self, other: "Part") -> "Part":
        return Part(
            n_reused=self.n_reused + other.n_reused,
            n_not_written=self.n_not_written + other.n_not_written,
            saving=self.saving + other.saving,
            paid_microusd=self.paid_microusd + other.paid_microusd,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftSavings:
    """`n_asked` drafts had a verdict of the teacher, `n_accepted` of them were accepted; `n_repeated` answer the very
    same prompt and were taken without asking. `saved_ms` is the teacher's time for what was not written, less its time
    for questions about drafts; None where no call that wrote was timed. `engine` is what the engine that serves the
    teacher made of drafts while it wrote: it saves passes, no money."""

    n_compiles: int = 0
    slices: Part = field(default_factory=Part)
    labels: Part = field(default_factory=Part)
    n_asked: int = 0
    n_accepted: int = 0
    n_repeated: int = 0
    saved_ms: int | None = None
    engine: EngineTokens = field(default_factory=EngineTokens)

    @property
    def saving(self) -> Saving:
        return self.slices.saving + self.labels.saving

    @property
    def net_microusd(self) -> int:
        return self.saving.net

    @property
    def includes_labels(self) -> bool:
        """Say whether labels were reused: what labelling costs is then a part of what the saving is a share of."""
        return self.labels.n_reused > 0

    @property
    def without_drafts_microusd(self) -> int:
        labels = self.labels.without_drafts_microusd if self.includes_labels else 0
        return self.slices.without_drafts_microusd + labels

    @property
    def net_share_ppm(self) -> int | None:
        return _share_ppm(self.net_microusd, self.without_drafts_microusd)

    @property
    def acceptance(self) -> Rate:
        return rate(self.n_accepted, self.n_asked)

    def __add__(self, other: "DraftSavings") -> "DraftSavings":
        timed = [ms for ms in (self.saved_ms, other.saved_ms) if ms is not None]
        return DraftSavings(
            n_compiles=self.n_compiles + other.n_compiles,
            slices=self.slices + other.slices,
            labels=self.labels + other.labels,
            n_asked=self.n_asked + other.n_asked,
            n_accepted=self.n_accepted + other.n_accepted,
            n_repeated=self.n_repeated + other.n_repeated,
            saved_ms=sum(timed) if timed else None,
            engine=self.engine + other.engine,
        )


def savings_of_compile(tenant_id: UUID, compile_id: UUID) -> DraftSavings | None:
    """None for a compile none of whose slices has looked for drafts."""
    mine = {"tenant_id": tenant_id, "compile_id": compile_id}
    savings = _savings(tenant_id, Offer.objects.filter(**mine), Verdict.objects.filter(**mine), {})
    return sum(savings.values(), DraftSavings()) if savings else None


def savings_by_family(
    tenant_id: UUID, *, family: str | None = None, since: datetime | None = None
) -> dict[str, DraftSavings]:
    """Return the figure of each family that a compile looked in. `since` bounds look-ups and verdicts; what was paid
    is of every compile that looked since then, from its beginning."""
    recent = Q(tenant_id=tenant_id) & (Q() if since is None else Q(created_at__gte=since))
    offers = Offer.objects.filter(recent)
    if family is not None:
        offers = offers.filter(family=family)
    scopes = Scope.objects.filter(Q(tenant_id=tenant_id) & (Q() if family is None else Q(family=family)))
    family_of = dict(scopes.values_list("id", "family"))
    return _savings(tenant_id, offers, Verdict.objects.filter(recent), family_of)


def _savings(
    tenant_id: UUID, offers: QuerySet[Offer], verdicts: QuerySet[Verdict], family_of: Mapping[UUID, str]
) -> dict[str, DraftSavings]:
    """Three grouped queries, whatever the number of drafts. `family_of` are the scopes that are there; those of a
    family that was purged since are known by its look-ups alone."""
    sums = {f"sum_{name}": Sum(f"{name}_microusd") for name in _MONEY} | {"reused": Sum("n_reused")}
    sums |= {f"sum_engine_{name}": Sum(f"engine_{name}") for name in _ENGINE}
    sums["not_written"] = Sum(Case(When(n_pooled__gt=0, then="n_avoided"), default="n_reused"))
    groups = offers.annotate(is_label=Q(slice_position__lt=0)).values("family", "compile_id", "scope_id", "is_label")
    rows = list(groups.annotate(**sums).order_by())
    if not rows:
        return {}
    parts: dict[tuple[str, UUID], dict[bool, Part]] = defaultdict(lambda: {False: Part(), True: Part()})
    for row in rows:
        parts[row["family"], row["compile_id"]][row["is_label"]] += _part(row)
    calls = _calls(tenant_id, offers)
    savings: dict[str, DraftSavings] = defaultdict(DraftSavings)
    for (family, compile_id), of_compile in parts.items():
        savings[family] += _of_compile(of_compile[False], of_compile[True], calls.get(compile_id, {}))
    for row in rows:
        engine = EngineTokens(**{name: row[f"sum_engine_{name}"] for name in _ENGINE})
        savings[row["family"]] += DraftSavings(engine=engine)
    known = {row["scope_id"]: row["family"] for row in rows if row["scope_id"] is not None}
    for family, counted in _verdicts(verdicts, {**family_of, **known}).items():
        if family in savings:
            savings[family] += counted
    return dict(sorted(savings.items()))


def _of_compile(slices: Part, labels: Part, calls: Mapping[str, Any]) -> DraftSavings:
    return DraftSavings(
        n_compiles=1,
        slices=replace(slices, paid_microusd=calls.get("written_cost") or 0),
        labels=replace(labels, paid_microusd=calls.get("label_cost") or 0),
        saved_ms=_saved_ms(slices.n_not_written, labels.n_not_written, calls),
    )


def _part(row: Mapping[str, Any]) -> Part:
    avoided, verification, embedding, audits, exploration = (row[f"sum_{name}"] for name in _MONEY)
    saving = Saving(
        avoided=avoided, verification=verification, embedding=embedding, audits=audits, exploration=exploration
    )
    return Part(n_reused=row["reused"], n_not_written=row["not_written"], saving=saving)


def _saved_ms(n_candidates: int, n_labels: int, calls: Mapping[str, Any]) -> int | None:
    """Value each candidate that was not written at the mean time of one that was (a call's time over its choices), and
    a label prompt at the mean of those that were asked."""
    saved, is_timed = -(calls.get("asked_ms") or 0), False
    for n_not_written, name in ((n_candidates, "written"), (n_labels, "label")):
        n, ms = calls.get(f"{name}_n") or 0, calls.get(f"{name}_ms") or 0
        if n and ms:
            saved, is_timed = saved + round(n_not_written * ms / n), True
    return saved if is_timed else None


def _calls(tenant_id: UUID, offers: QuerySet[Offer]) -> dict[UUID, Mapping[str, Any]]:
    """Sum the calls of the offers' compiles: what writing cost and how long it took. A call without a time of its own,
    as in a vendor's batch, is in no mean."""
    written, label = Q(key__startswith=CANDIDATE_CALLS), Q(key__startswith=LABEL_CALLS)
    asked = Q(*(("key__startswith", prefix) for prefix in DRAFT_CALLS), _connector=Q.OR)
    timed = Q(latency_ms__gt=0)
    prompt = Func("key", Value(":"), Value(2), function="split_part")
    rows = (
        TeacherCall.objects.filter(
            tenant_id=tenant_id, compile_id__in=offers.values("compile_id"), state__in=ANSWERED_STATES
        )
        .filter(written | label | asked)
        .values("compile_id")
        .annotate(
            written_cost=Sum("cost_microusd", filter=written),
            written_n=Sum("n", filter=written & timed),
            written_ms=Sum("latency_ms", filter=written & timed),
            label_cost=Sum("cost_microusd", filter=label),
            label_n=Count(prompt, filter=label & timed, distinct=True),
            label_ms=Sum("latency_ms", filter=label & timed),
            asked_ms=Sum("latency_ms", filter=asked),
        )
        .order_by()
    )
    return {row["compile_id"]: row for row in rows}


def _verdicts(verdicts: QuerySet[Verdict], family_of: Mapping[UUID, str]) -> dict[str, DraftSavings]:
    """Count the verdicts by family."""
    if not family_of:
        return {}
    is_repeat = Q(strategy=Strategy.REPEAT)
    rows = (
        verdicts.filter(kind=VerdictKind.VERDICT, scope_id__in=list(family_of))
        .values("scope_id")
        .annotate(
            asked=Count("id", filter=~is_repeat),
            accepted=Count("id", filter=~is_repeat & Q(is_accepted=True)),
            repeated=Count("id", filter=is_repeat),
        )
        .order_by()
    )
    counted: dict[str, DraftSavings] = defaultdict(DraftSavings)
    for row in rows:
        counted[family_of[row["scope_id"]]] += DraftSavings(
            n_asked=row["asked"], n_accepted=row["accepted"], n_repeated=row["repeated"]
        )
    return counted


def _share_ppm(part: int, whole: int) -> int | None:
    return round(part / whole * 1_000_000) if whole else None

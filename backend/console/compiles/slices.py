"""The fate of the candidates, slice by slice: the funnel from N to K, what the pool allowed, what the pipeline did
about it by itself."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Count

from backend.compiles.models import Candidate, Compile, Slice
from backend.compiles.reactions import own, split_from, split_into
from backend.compiles.states import LABELED_STATES, CandidateState
from backend.domain.answers.candidates import Origin

PICKED = LABELED_STATES | {CandidateState.PICKED}
MAX_SLICES = 24  # shown on the compile page; the data page has all

_DID = {
    "exemplars": "Many rejects: the teacher was shown two good texts.",
    "hotter": "Too many duplicates: asked again at a higher temperature.",
    "fallback_model": "Still too poor: the fallback model was asked.",
    "collapsed": "The teacher writes nothing new; the slice continues with the candidates it has.",
    "resynthesize": "Too few distinct candidates: another round at a higher temperature.",
    "more_candidates": "The labels were worth more of them: the plan had further candidates written.",
    "refused": "The teacher refused a round; the slice continues with the candidates it has.",
    "split_slice": "The slice was split in two.",
    "split_off": "Created as one half of a split slice.",
}
_WHY_NOT = {
    "captured": "captures are not generated",
    "rounds_used": "all rounds of resynthesis are used",
    "stopped_growing": "the last round added under 5 % new groups",
    "refused": "the teacher refused the last round",
    "budget": "the budget does not cover it and the rest of the compile",
    "already_split": "the slice is already one half of a split slice",
    "one_group": "the candidates form one group, which cannot be split",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Funnel:
    """The counts of those that were written, are valid, differ from each other, were kept, were agreed on, trained.
    `n_groups` is None before selection."""

    written: int
    verified: int
    clustered: int | None
    kept: int
    agreed: int
    trained: int
    from_drafts: int = 0
    rejected: int = 0
    duplicates: int = 0

    @property
    def stages(self) -> list[tuple[str, int]]:
        stages = [("written", self.written), ("verified", self.verified)]
        if self.clustered is not None:
            stages.append(("distinct groups", self.clustered))
        return [*stages, ("kept (K)", self.kept), ("label agreed", self.agreed), ("trained", self.trained)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reaction:
    text: str
    round: int
    temperature: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """One slice as the page shows it. `forced` is the report on the split at the K that was asked for."""

    row: Slice
    funnel: Funnel
    report: dict[str, Any]
    forced: dict[str, Any]
    reactions: list[Reaction]
    split_from: str | None
    split_into: list[str]

    @property
    def severity(self) -> str:
        return str(self.forced.get("severity") or "")

    @property
    def has_gap(self) -> bool:
        return bool(self.forced.get("gap_detected"))

    @property
    def log(self) -> str:
        return str(self.report.get("log") or "")


def pools_of(row: Compile) -> list[Pool]:
    """All slices in order, in two queries."""
    counted: dict[Any, Counter[str]] = {}
    rows = Candidate.objects.of_tenant(row.tenant_id).filter(compile=row)
    for slice_id, state, origin, n in (
        rows.values_list("slice_id", "state", "origin").annotate(n=Count("id")).order_by()
    ):
        counts = counted.setdefault(slice_id, Counter())
        counts[state] += n
        counts[f"origin:{origin}"] += n
    slices = Slice.objects.of_tenant(row.tenant_id).filter(compile=row).defer("embedding", "exemplars")
    return [_pool(one, counted.get(one.id, Counter())) for one in slices.order_by("position")]


def _pool(row: Slice, counts: Counter[str]) -> Pool:
    report = row.selection or {}
    forced = report.get("at_k_requested", report)
    n = sum(count for name, count in counts.items() if not name.startswith("origin:"))
    funnel = Funnel(
        written=n + row.n_duplicates,
        verified=n - counts[CandidateState.REJECTED],
        clustered=forced.get("n_groups"),
        kept=sum(counts[state] for state in PICKED),
        agreed=sum(counts[state] for state in LABELED_STATES - {CandidateState.UNVERIFIED}),
        trained=counts[CandidateState.TRAINED],
        from_drafts=counts[f"origin:{Origin.DRAFT}"],
        rejected=counts[CandidateState.REJECTED],
        duplicates=row.n_duplicates,
    )
    return Pool(
        row=row,
        funnel=funnel,
        report=report,
        forced=forced,
        reactions=[_reaction(entry) for entry in own(row)],
        split_from=split_from(row),
        split_into=split_into(row),
    )


def in_all(pools: Sequence[Pool]) -> Funnel:
    """The sum; of a slice that was split only its halves know how many groups there are."""
    groups = [pool.funnel.clustered for pool in pools if not pool.split_into]
    names = ("written", "verified", "kept", "agreed", "trained", "from_drafts", "rejected", "duplicates")
    known = [n for n in groups if n is not None]
    sums = {name: sum(getattr(pool.funnel, name) for pool in pools) for name in names}
    return Funnel(clustered=sum(known) if known else None, **sums)


def shown_slices(pools: Sequence[Pool]) -> list[Pool]:
    """The first of them, those with a gap before the others, when there are more than a page takes."""
    if len(pools) <= MAX_SLICES:
        return list(pools)
    order = {"degenerate": 0, "warning": 1}
    worst = sorted(pools, key=lambda pool: (order.get(pool.severity, 2), pool.row.position))[:MAX_SLICES]
    return sorted(worst, key=lambda pool: pool.row.position)


def _reaction(entry: dict[str, Any]) -> Reaction:
    name = entry["reaction"]
    text = _DID.get(name, name)
    if name == "passed_over":
        why = _WHY_NOT.get(str(entry.get("reason")), str(entry.get("reason")))
        text = f"{entry.get('mitigation')} was skipped: {why}."
    elif name == "resynthesize" and "n_groups" in entry:
        text = f"{entry['n_groups']} distinct groups were too few: another round at a higher temperature."
    elif name == "split_slice":
        text = f"The slice was split in two: {', '.join(map(str, entry.get('into', [])))}."
    elif name == "split_off":
        text = f"Created as one half of {entry.get('from')}."
    return Reaction(text=text, round=entry["round"], temperature=entry["temperature_ppm"] / 1_000_000)

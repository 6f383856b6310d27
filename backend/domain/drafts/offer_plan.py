"""The plan of a slice's offer: which drafts its teacher is shown, decided before anything is asked, and then what came
of it. A slice's row keeps it as JSON (`to_json`), without any text: a process that takes over carries out the same
plan.

The words of the JSON are those of the first deployments: rows that were written before this module load as they are.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any
from uuid import UUID

from backend.domain.drafts.vocabulary import Arm, Certificate, EngineTokens, Kinship, Repeatability, Saving, Strategy


class OfferState(StrEnum):
    PLANNED = "asked"  # drafts are to be shown to the teacher; its verdicts are not saved yet
    POOLED = "pooled"  # drafts compete for the slice's picks; those that are picked are still to be asked about
    VERIFIED = "told"  # nothing is left to ask
    CLOSED = "closed"  # the slice is written, and its savings are booked


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedDraft:
    """A draft and the cosine distance of its source."""

    draft_id: UUID
    distance: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownDraft:
    """A draft that is to be shown, with its expected acceptance and the probability with which it was chosen."""

    draft_id: UUID
    distance: float
    predicted: float
    propensity: float
    kinship: Kinship = Kinship.OTHER


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferPlan:
    """`pooled` are the drafts that compete unverified, in whose place `n_counted` candidates are not written (`n_free`
    entered without a question); once asked about, in one of `n_turns` questions of which this slice's part has cost
    `judged_microusd`, they are no longer among them. `shown` stands in the order of showing, the `n_first` of the
    adaptive probe before the others; `far` are the drafts of far slices that serve as negative controls, `controls`
    those that did; `n_avoided` candidates were not written in the end. `proposed` go along with the requests for fresh
    candidates, `engine` is what came of them; `repeatability` is of the scores of an exact rule. `missing_ppm` is the
    share of each source's sample that is not kept."""

    offer_id: UUID
    arm: Arm
    n_wanted: int
    state: OfferState = OfferState.VERIFIED
    strategy: Strategy | None = None
    scope_id: UUID | None = None
    n_sources: int = 0
    nearest_distance: float | None = None
    missing_ppm: Mapping[UUID, int] = field(default_factory=lambda: MappingProxyType({}))
    proposed: tuple[PlannedDraft, ...] = ()
    engine: EngineTokens = field(default_factory=EngineTokens)
    repeatability: Repeatability = field(default_factory=Repeatability)
    pooled: tuple[ShownDraft, ...] = ()
    n_pooled: int = 0
    n_free: int = 0
    n_counted: int = 0
    n_turns: int = 0
    judged_microusd: int = 0
    n_avoided: int = 0
    shown: tuple[ShownDraft, ...] = ()
    n_first: int = 0
    far: tuple[PlannedDraft, ...] = ()
    revision: str = ""
    gate_threshold: float | None = None
    break_even: float | None = None
    threshold_distance: float | None = None
    fresh_microusd: float | None = None
    price_version: str | None = None
    n_shown: int = 0
    n_accepted: int = 0
    n_entered: int = 0
    n_void: int = 0
    kept_tokens: Mapping[Certificate, int] = field(default_factory=lambda: MappingProxyType({}))
    controls: tuple[PlannedDraft, ...] = ()
    is_audited: bool = False
    saving: Saving | None = None

    def to_json(self) -> dict[str, Any]:
        """The plan as a slice's row keeps it; what a plan of this kind does not have is left out."""
        always: dict[str, Any] = {
            "state": self.state.value,
            "offer": str(self.offer_id),
            "arm": self.arm.value,
            "strategy": "" if self.strategy is None else self.strategy.value,
            "scope": None if self.scope_id is None else str(self.scope_id),
            "n_wanted": self.n_wanted,
            "n_sources": self.n_sources,
            "nearest_distance": self.nearest_distance,
            "n_shown": self.n_shown,
            "n_accepted": self.n_accepted,
            "n_entered": self.n_entered,
            "n_void": self.n_void,
            "kept_tokens": {certificate.value: n for certificate, n in self.kept_tokens.items()},
        }
        return always | self._planned_json() | self._outcome_json()

    def _planned_json(self) -> dict[str, Any]:
        some: dict[str, Any] = {
            "missing_ppm": {str(id): ppm for id, ppm in self.missing_ppm.items()},
            "gate_threshold": self.gate_threshold,
            "break_even": self.break_even,
            "threshold_distance": self.threshold_distance,
            "fresh_microusd": self.fresh_microusd,
            "price_version": self.price_version,
        }
        some = {name: value for name, value in some.items() if value not in (None, {})}
        if self.strategy is Strategy.ENGINE:
            some |= {"n_proposed": len(self.proposed), "engine": _pairs(self.proposed)}
            some["engine_tokens"] = asdict(self.engine)
        if self.n_pooled:
            some |= {
                "n_free": self.n_free,
                "n_pooled": self.n_pooled,
                "n_counted": self.n_counted,
                "turns": self.n_turns,
                "judged_microusd": self.judged_microusd,
            }
        if self.n_avoided:
            some["n_avoided"] = self.n_avoided
        if self.pooled or self.state is OfferState.POOLED:
            some |= {"pooled": _rows(self.pooled), "far": _pairs(self.far), "revision": self.revision}
        if self.state is OfferState.PLANNED:
            some |= {"shown": _rows(self.shown), "first": self.n_first}
            some |= {"far": _pairs(self.far), "revision": self.revision}
        return some

    def _outcome_json(self) -> dict[str, Any]:
        some: dict[str, Any] = {}
        if self.controls:
            some["controls"] = _pairs(self.controls)
        if self.repeatability.n_tokens:
            some["repeatability"] = asdict(self.repeatability)
        if self.is_audited:
            some["audited"] = True
        if self.saving is not None:
            some["saving"] = saving_to_json(self.saving)
        return some

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "OfferPlan":
        return cls(
            offer_id=UUID(value["offer"]),
            arm=Arm(value["arm"]),
            n_wanted=value["n_wanted"],
            state=OfferState(value["state"]),
            strategy=Strategy(value["strategy"]) if value["strategy"] else None,
            scope_id=UUID(value["scope"]) if value["scope"] else None,
            n_sources=value["n_sources"],
            nearest_distance=value["nearest_distance"],
            missing_ppm={UUID(id): ppm for id, ppm in value.get("missing_ppm", {}).items()},
            proposed=_plan(value.get("engine", ())),
            engine=EngineTokens(**value.get("engine_tokens", {})),
            repeatability=Repeatability(**value.get("repeatability", {})),
            pooled=_read_shown(value.get("pooled", ())),
            n_pooled=value.get("n_pooled", 0),
            n_free=value.get("n_free", 0),
            n_counted=value.get("n_counted", 0),
            n_turns=value.get("turns", 0),
            judged_microusd=value.get("judged_microusd", 0),
            n_avoided=value.get("n_avoided", 0),
            shown=_read_shown(value.get("shown", ())),
            n_first=value.get("first", 0),
            far=_plan(value.get("far", ())),
            revision=value.get("revision", ""),
            gate_threshold=value.get("gate_threshold"),
            break_even=value.get("break_even"),
            threshold_distance=value.get("threshold_distance"),
            fresh_microusd=value.get("fresh_microusd"),
            price_version=value.get("price_version"),
            n_shown=value["n_shown"],
            n_accepted=value["n_accepted"],
            n_entered=value.get("n_entered", 0),
            n_void=value.get("n_void", 0),
            kept_tokens={Certificate(name): n for name, n in value.get("kept_tokens", {}).items()},
            controls=_plan(value.get("controls", ())),
            is_audited=value.get("audited", False),
            saving=saving_from_json(value["saving"]) if value.get("saving") else None,
        )


def saving_to_json(saving: Saving) -> dict[str, int]:
    """A saving in whole micro-USD, with its net, in the order in which Postgres keeps it."""
    return {
        "net_microusd": saving.net,
        "audit_microusd": saving.audits,
        "avoided_microusd": saving.avoided,
        "embedding_microusd": saving.embedding,
        "exploration_microusd": saving.exploration,
        "verification_microusd": saving.verification,
    }


def saving_from_json(value: Mapping[str, int]) -> Saving:
    """The saving that `saving_to_json` wrote."""
    return Saving(
        avoided=value.get("avoided_microusd", 0),
        verification=value.get("verification_microusd", 0),
        embedding=value.get("embedding_microusd", 0),
        audits=value.get("audit_microusd", 0),
        exploration=value.get("exploration_microusd", 0),
    )


def _pairs(drafts: Iterable[PlannedDraft]) -> list[list[Any]]:
    return [[str(draft.draft_id), draft.distance] for draft in drafts]


def _plan(pairs: Iterable[tuple[str, float]]) -> tuple[PlannedDraft, ...]:
    return tuple(PlannedDraft(draft_id=UUID(id), distance=float(distance)) for id, distance in pairs)


def _rows(drafts: Iterable[ShownDraft]) -> list[list[Any]]:
    rows: list[list[Any]] = []
    for draft in drafts:
        kinship = [] if draft.kinship is Kinship.OTHER else [draft.kinship.value]
        rows.append([str(draft.draft_id), draft.distance, draft.predicted, draft.propensity, *kinship])
    return rows


def _read_shown(rows: Iterable[Sequence[Any]]) -> tuple[ShownDraft, ...]:
    """Rows of kinship OTHER, and those of the releases before, do not say it."""
    return tuple(
        ShownDraft(
            draft_id=UUID(row[0]),
            distance=row[1],
            predicted=row[2],
            propensity=row[3],
            kinship=Kinship(row[4]) if len(row) > 4 else Kinship.OTHER,
        )
        for row in rows
    )

"""The plan of a slice's offer: which drafts its teacher is shown, decided before anything is asked, and then what came
of it. A slice's row keeps it as JSON (`to_json`), without any text: a process that takes over carries out the same
plan.

The words of the JSON are those of the first deployments: rows that were written before this module load as they are.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any
from uuid import UUID

from backend.domain.drafts.vocabulary import Arm, Certificate, Saving, Strategy


class OfferState(StrEnum):
    PLANNED = "asked"  # drafts are to be shown to the teacher; its verdicts are not saved yet
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


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferPlan:
    """`shown` stands in the order of showing, the `n_first` of the adaptive probe before the others; `far` are the
    drafts of far slices that serve as negative controls, `controls` those that did. `proposed` go along with the
    requests for fresh candidates. `missing_ppm` is the share of each source's sample that is not kept."""

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
        if self.state is OfferState.PLANNED:
            shown = [[str(one.draft_id), one.distance, one.predicted, one.propensity] for one in self.shown]
            some |= {"shown": shown, "first": self.n_first, "far": _pairs(self.far), "revision": self.revision}
        return some

    def _outcome_json(self) -> dict[str, Any]:
        some: dict[str, Any] = {}
        if self.controls:
            some["controls"] = _pairs(self.controls)
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
            shown=tuple(
                ShownDraft(draft_id=UUID(id), distance=distance, predicted=predicted, propensity=propensity)
                for id, distance, predicted, propensity in value.get("shown", ())
            ),
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

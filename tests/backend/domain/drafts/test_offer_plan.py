"""The plan of an offer as a slice's row keeps it: it comes back as it was, and rows of before are read."""

import json
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.domain.drafts.offer_plan import (
    OfferPlan,
    OfferState,
    PlannedDraft,
    ShownDraft,
    saving_from_json,
    saving_to_json,
)
from backend.domain.drafts.vocabulary import Arm, Certificate, EngineTokens, Repeatability, Saving, Strategy

IDS = [UUID(int=n) for n in range(1, 6)]
shares = st.floats(0, 1, allow_nan=False)
counts = st.integers(0, 1000)
planned = st.lists(st.builds(PlannedDraft, draft_id=st.sampled_from(IDS), distance=shares), max_size=3).map(tuple)
shown = st.lists(
    st.builds(ShownDraft, draft_id=st.sampled_from(IDS), distance=shares, predicted=shares, propensity=shares),
    max_size=3,
).map(tuple)
engines = st.builds(EngineTokens, written=counts, proposed=counts, kept=counts)
savings = st.builds(Saving, avoided=counts, verification=counts, embedding=counts, audits=counts, exploration=counts)


@st.composite
def plans(draw: st.DrawFn) -> OfferPlan:
    """Plans of the three states; what only a planned or an engine's plan has is nowhere else."""
    state, strategy = draw(st.sampled_from(OfferState)), draw(st.none() | st.sampled_from(Strategy))
    is_planned = state is OfferState.PLANNED
    return OfferPlan(
        offer_id=draw(st.sampled_from(IDS)),
        arm=draw(st.sampled_from(Arm)),
        n_wanted=draw(counts),
        state=state,
        strategy=strategy,
        scope_id=draw(st.none() | st.sampled_from(IDS)),
        n_sources=draw(counts),
        nearest_distance=draw(st.none() | shares),
        missing_ppm=draw(st.dictionaries(st.sampled_from(IDS), counts, max_size=2)),
        proposed=draw(planned) if strategy is Strategy.ENGINE else (),
        engine=draw(engines) if strategy is Strategy.ENGINE else EngineTokens(),
        repeatability=Repeatability(n_tokens=draw(counts.filter(bool)), tv_sum=draw(shares)),
        shown=draw(shown) if is_planned else (),
        n_first=draw(counts) if is_planned else 0,
        far=draw(planned) if is_planned else (),
        revision=draw(st.sampled_from(["", "2026-08"])) if is_planned else "",
        gate_threshold=draw(st.none() | shares),
        break_even=draw(st.none() | shares),
        threshold_distance=draw(st.none() | shares),
        fresh_microusd=draw(st.none() | shares),
        price_version=draw(st.none() | st.just("2026-01")),
        n_shown=draw(counts),
        n_accepted=draw(counts),
        n_entered=draw(counts),
        n_void=draw(counts),
        kept_tokens=draw(st.dictionaries(st.sampled_from(Certificate), counts, max_size=2)),
        controls=draw(planned),
        is_audited=draw(st.booleans()),
        saving=draw(st.none() | savings),
    )


@given(plans())
def test_a_plan_comes_back_from_its_json_as_it_was(plan: OfferPlan) -> None:
    stored = json.loads(json.dumps(plan.to_json()))
    assert OfferPlan.from_json(stored) == plan


@given(savings)
def test_a_saving_comes_back_from_its_json_and_tells_its_net(saving: Saving) -> None:
    assert saving_from_json(saving_to_json(saving)) == saving
    assert saving_to_json(saving)["net_microusd"] == saving.net


BASE = {
    "offer": str(IDS[0]),
    "n_wanted": 12,
    "n_sources": 2,
    "nearest_distance": 0.1,
    "strategy": "",
    "scope": str(IDS[1]),
    "n_shown": 0,
    "n_accepted": 0,
}
# as the first deployments wrote them
OLD_ROWS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (
        BASE | {"state": "told", "arm": "no_drafts", "scope": None, "n_sources": 0, "nearest_distance": None},
        {"state": OfferState.VERIFIED, "arm": Arm.NO_DRAFTS, "scope_id": None, "strategy": None},
    ),
    (BASE | {"state": "told", "arm": "held_back"}, {"arm": Arm.HELD_BACK, "scope_id": IDS[1], "kept_tokens": {}}),
    (
        BASE
        | {
            "state": "told", "arm": "offered", "strategy": "engine", "n_proposed": 1, "engine": [[str(IDS[2]), 0.2]],
            "missing_ppm": {str(IDS[3]): 7},
        },
        {
            "strategy": Strategy.ENGINE,
            "proposed": (PlannedDraft(draft_id=IDS[2], distance=0.2),),
            "missing_ppm": {IDS[3]: 7},
        },
    ),
    (
        BASE
        | {
            "state": "asked", "arm": "probed", "strategy": "judge", "break_even": None, "threshold_distance": 0.3,
            "fresh_microusd": 1.5, "price_version": "v1", "gate_threshold": None, "revision": "r1", "first": 1,
            "shown": [[str(IDS[2]), 0.2, 0.6, 1.0], [str(IDS[3]), 0.3, 0.5, 0.25]], "far": [[str(IDS[4]), 0.9]],
            "missing_ppm": {},
        },
        {
            "state": OfferState.PLANNED,
            "arm": Arm.PROBED,
            "break_even": None,
            "n_first": 1,
            "revision": "r1",
            "shown": (
                ShownDraft(draft_id=IDS[2], distance=0.2, predicted=0.6, propensity=1.0),
                ShownDraft(draft_id=IDS[3], distance=0.3, predicted=0.5, propensity=0.25),
            ),
            "far": (PlannedDraft(draft_id=IDS[4], distance=0.9),),
        },
    ),
    (
        BASE
        | {
            "state": "closed", "arm": "offered", "strategy": "judge", "n_shown": 4, "n_accepted": 3, "n_entered": 3,
            "n_void": 1, "kept_tokens": {"judged": 90}, "controls": [[str(IDS[4]), 0.9]], "audited": True,
            "saving": {"avoided_microusd": 9, "verification_microusd": 2, "net_microusd": 7},
        },
        {
            "state": OfferState.CLOSED,
            "n_void": 1,
            "kept_tokens": {Certificate.JUDGED: 90},
            "controls": (PlannedDraft(draft_id=IDS[4], distance=0.9),),
            "is_audited": True,
            "saving": Saving(avoided=9, verification=2),
        },
    ),
]  # fmt: skip


@pytest.mark.parametrize(("stored", "fields"), OLD_ROWS)
def test_a_row_of_before_is_read_and_nothing_of_it_is_lost(stored: dict[str, Any], fields: dict[str, Any]) -> None:
    plan = OfferPlan.from_json(stored)
    assert {name: getattr(plan, name) for name in fields} == fields
    again = plan.to_json()
    kept = {name: value for name, value in stored.items() if value not in (None, {}) and name != "saving"}
    assert {name: again[name] for name in kept} == kept

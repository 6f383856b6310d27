"""A compile whose drafts are known to the last micro-dollar: one slice asked a judge, one had drafts of the very same
prompt, and labels were reused."""

from typing import Any

from backend.compiles.models import Compile, Slice, TeacherCall
from backend.compiles.states import CallState
from backend.domain.drafts.offer_plan import OfferPlan
from backend.domain.drafts.vocabulary import Arm, Certificate, Strategy, VerdictKind
from backend.drafts.models import Draft
from backend.rest.new_ids import new_uuid7
from backend.tenants.isolation import tenant_scope
from backend.tenants.models import Tenant
from tests.backend.drafts.rows import make_drafts, make_offer, make_verdict
from tests.compile_factories import make_compile, make_slice

# 490 of the judged slice, 310 of the repeated one, 200 of labels; 490 was paid for candidates and 600 for labels
SUMMARY = (
    "Net saving $0.001, 45.4 % of what synthesis and labelling would have cost: slices $0.0008 (57.1 % of synthesis), "
    "labels $0.0002 (25.0 % of labelling)"
)
ACCEPTED = "2 of 3, 66.6 % [9.4, 99.1]; 5 more answer the very same prompt and were not asked about"
CALLS = (  # key, cost, choices, milliseconds
    ("synthesis:0:0:0", 400, 8, 800),
    ("synthesis:1:0:0", 90, 2, 200),
    ("drafts:0:0:0:aa", 100, 1, 300),
    ("audit:0:0:aa", 9, 1, 0),
    ("labeling:one", 150, 3, 60),
    ("labeling:one:1", 150, 3, 40),
    ("labeling:two", 300, 3, 100),
    ("preflight:0", 77, 1, 500),
)


def make_call(row: Compile, key: str, cost: int = 0, n: int = 1, ms: int = 0, **changes: Any) -> TeacherCall:
    """An answered call."""
    fields = {"step": "synthesis", "fence": 1, "state": CallState.APPLIED, "model": "m", "request_sha256": "0"}
    with tenant_scope(row.tenant_id):
        return TeacherCall.objects.create(
            tenant_id=row.tenant_id,
            compile=row,
            key=key,
            n=n,
            reserved_microusd=cost,
            cost_microusd=cost,
            latency_ms=ms,
            **fields | changes,
        )


def planned_slice(row: Compile, name: str, position: int, draft: Draft, **changes: Any) -> tuple[Slice, OfferPlan]:
    """A slice that looked for drafts, in the scope of this one."""
    plan = OfferPlan(
        offer_id=new_uuid7(), arm=Arm.OFFERED, n_wanted=12, strategy=Strategy.JUDGE, scope_id=draft.scope_id, **changes
    )
    return make_slice(row, name=name, position=position, drafts=plan.to_json()), plan


def draft_world(tenant: Tenant, **changes: Any) -> Compile:
    """The compile, with everything booked; `changes` are of its spec."""
    row = make_compile(tenant, **changes)
    drafts = make_drafts(tenant, "money back please", "I want a refund", "where is my parcel", "a void one")
    _, judged = planned_slice(row, "refund", 0, drafts[0], nearest_distance=0.125)
    _, repeated = planned_slice(row, "other", 1, drafts[0])
    mine = {"compile_id": row.id, "scope_id": drafts[0].scope_id, "family": row.family}
    make_offer(tenant, **mine, id=judged.offer_id, n_shown=3, n_accepted=2, n_reused=2, avoided_microusd=600,
               verification_microusd=100, embedding_microusd=1, audit_microusd=9)  # fmt: skip
    make_offer(tenant, **mine, id=repeated.offer_id, slice_position=1, strategy=Strategy.REPEAT, n_shown=5,
               n_accepted=5, n_reused=5, avoided_microusd=310)  # fmt: skip
    make_offer(tenant, **mine | {"scope_id": None}, slice_position=-1, strategy=Strategy.REPEAT, n_shown=4,
               n_accepted=4, n_reused=4, avoided_microusd=200)  # fmt: skip
    of = {"compile_id": row.id, "offer_id": judged.offer_id}
    for draft in drafts[:2]:
        make_verdict(draft, **of)
    make_verdict(drafts[2], **of, is_accepted=False, certificate="")
    make_verdict(drafts[3], **of, is_accepted=False, certificate="", kind=VerdictKind.VOID)
    make_verdict(drafts[0], **of, kind=VerdictKind.AUDIT)
    for _ in range(5):
        again = {"offer_id": repeated.offer_id, "strategy": Strategy.REPEAT, "certificate": Certificate.EXACT}
        make_verdict(drafts[0], **of | again)
    for key, cost, n, ms in CALLS:
        make_call(row, key, cost, n, ms)
    make_call(row, "synthesis:0:0:1", 1_000_000, 8, 9_000, state=CallState.WASTED)
    return row

"""The label votes of a compile's picks: which count, for which calibration, and what they bring about."""

from typing import Any
from uuid import UUID

import pytest

from backend.compiles.models import Candidate, Compile, CompileEvent, Slice
from backend.domain.answers.candidates import text_key
from backend.domain.drafts.label_votes import LabelVotes, SliceVotes
from backend.domain.drafts.offer_plan import OfferPlan
from backend.domain.drafts.vocabulary import Arm, Strategy
from backend.domain.labeling.rounds import Why
from backend.domain.lifecycle import StepName
from backend.drafts.models import Calibration, Draft
from backend.rest.new_ids import new_uuid7
from backend.tenants.isolation import tenant_scope
from backend.tenants.models import Tenant
from tests.backend.drafts.rows import make_drafts, make_verdict
from tests.compile_factories import change, make_compile, make_slice
from tests.factories import make_tenant
from tests.workers.drafts.test_offering import TO_SELECTION, compile_once, teacher, warm
from tests.workers.pipeline_helpers import candidates, slices, start
from workers.drafts.evidence.label_votes import count_label_votes

pytestmark = pytest.mark.usefixtures("committed_db")
OTHER = {"other": 3}
SAME = {"refund": 2, "other": 1}


class Labelled:
    """A compile whose slices are labelled, picks by picks."""

    def __init__(self, tenant: Tenant, **spec: Any) -> None:
        self.tenant = tenant
        self.compile: Compile = make_compile(tenant, **spec)
        self.run = start(self.compile)
        self.scope_id: UUID | None = None
        self._n = 0

    def add(
        self,
        drafts: list[dict[str, int]],
        fresh: list[dict[str, int]],
        *,
        scope: UUID | None = None,
        certificate: str = "judged",
        **changes: Any,
    ) -> list[Draft]:
        """One slice with such votes on its picks."""
        part = make_slice(self.compile, name=f"part {self._n}", position=self._n, **changes)
        stored = make_drafts(self.tenant, *(f"draft {self._n} {i}" for i in range(len(drafts)))) if drafts else []
        self.scope_id = stored[0].scope_id if stored else self.scope_id
        with tenant_scope(self.tenant.id):
            if drafts or scope:
                plan = OfferPlan(offer_id=new_uuid7(), arm=Arm.OFFERED, n_wanted=12, strategy=Strategy.JUDGE,
                                 scope_id=scope or self.scope_id)  # fmt: skip
                part.offer_plan = plan
                part.save()
        rows = [self.row(part, f"draft {self._n} {i}", votes, origin="draft", certificate=certificate,
                         draft_id=draft.id)
                for i, (votes, draft) in enumerate(zip(drafts, stored, strict=True))]  # fmt: skip
        rows += [self.row(part, f"fresh {self._n} {i}", votes) for i, votes in enumerate(fresh)]
        with tenant_scope(self.tenant.id):
            Candidate.objects.bulk_create(rows)
        self._n += 1
        return stored

    def row(self, part: Slice, text: str, votes: dict[str, int], **changes: Any) -> Candidate:
        fields = {"origin": "fresh", "state": "trained"} | changes
        return Candidate(tenant_id=self.tenant.id, compile_id=self.compile.id, slice=part, text=text,
                         text_key=text_key(text), votes=votes, **fields)  # fmt: skip

    def pick(self, part: Slice, text: str, votes: dict[str, int], **changes: Any) -> None:
        with tenant_scope(self.tenant.id):
            self.row(part, text, votes, **changes).save()

    def count(self) -> None:
        with self.run.transaction() as fenced:
            count_label_votes(self.run, fenced.compile)


def calibrations(tenant: Tenant) -> list[Calibration]:
    with tenant_scope(tenant.id):
        return list(Calibration.objects.filter(tenant_id=tenant.id))


def votes_of(tenant: Tenant) -> list[SliceVotes]:
    (row,) = calibrations(tenant)
    return sorted(votes for votes, n in LabelVotes.from_json(row.label_votes).slices.items() for _ in range(n))


def n_warnings(row: Compile) -> int:
    with tenant_scope(row.tenant_id):
        events = CompileEvent.objects.filter(compile=row, type="warning")
        return [event.data["code"] for event in events].count("drafts_suspended")


@pytest.fixture
def tenant() -> Tenant:
    return make_tenant()


def test_picks_are_counted_by_slice_and_a_slice_without_drafts_is_compared_with(tenant):
    made = Labelled(tenant)
    made.add([SAME, OTHER, OTHER], [SAME, {"refund": 1, "other": 1}, OTHER])
    made.add([], [SAME, SAME])
    made.count()
    assert votes_of(tenant) == [SliceVotes(0, 0, 2, 0), SliceVotes(3, 2, 3, 1)]
    (row,) = calibrations(tenant)
    assert (row.scope_id, row.strategy) == (made.scope_id, Strategy.JUDGE)
    assert row.suspended_at is None
    again = Labelled(tenant)
    again.add([], [OTHER], scope=made.scope_id)
    again.count()
    assert votes_of(tenant) == [SliceVotes(0, 0, 1, 1), SliceVotes(0, 0, 2, 0), SliceVotes(3, 2, 3, 1)]


def test_what_says_nothing_of_accepted_drafts_is_not_counted(tenant):
    """A draft that an earlier compile used, rows that a round chose, other certificates, captures, picks without a
    vote."""
    made = Labelled(tenant)
    used, new = made.add([OTHER, SAME], [SAME])
    make_verdict(used)  # of another compile
    make_verdict(used, compile_id=made.compile.id)
    make_verdict(new, compile_id=made.compile.id)
    make_verdict(new, is_accepted=False)
    (part,) = slices(made.compile)
    made.pick(part, "chosen", OTHER, bought_in=2, bought_for=Why.UNCERTAIN)
    made.pick(part, "drawn", SAME, bought_in=2, bought_for=Why.RANDOM)
    made.pick(part, "repeated", OTHER, origin="draft", certificate="exact", draft_id=used.id)
    made.pick(part, "unanswered", {}, state="unverified")
    made.pick(part, "not picked", OTHER, state="dropped")
    made.add([OTHER], [], label="")
    made.add([], [OTHER], is_captured=True)
    made.count()
    assert votes_of(tenant) == [SliceVotes(1, 0, 2, 0)]


@pytest.mark.parametrize(
    "changes",
    [{"draft_cache": {"enabled": False}}, {"output": {"type": "text"}}, {"arm": "all"}],
    ids=["switched off", "no label task", "an ablation"],
)
def test_nothing_is_counted_where_it_would_be_no_evidence(tenant, changes):
    arm = changes.pop("arm", None)
    made = Labelled(tenant, **changes)
    if arm:
        change(made.compile, arm=arm, ablation_of=new_uuid7())
    made.add([OTHER], [SAME])
    made.count()
    assert calibrations(tenant) == []


def test_drafts_of_another_label_suspend_the_family_with_one_warning(tenant):
    made = Labelled(tenant)
    for _ in range(9):
        made.add([OTHER] * 8, [SAME] * 4)
    made.count()
    (row,) = calibrations(tenant)
    assert row.suspended_at is not None
    assert row.max_bad_rate == made.run.spec.draft_cache.max_bad_rate
    assert n_warnings(made.compile) == 1
    again = Labelled(tenant)
    again.add([OTHER] * 8, [SAME] * 4)
    again.count()
    assert n_warnings(again.compile) == 0


def test_as_many_fresh_picks_of_another_label_suspend_nobody(tenant):
    made = Labelled(tenant)
    for _ in range(9):
        made.add([OTHER] * 4 + [SAME] * 4, [OTHER] * 2 + [SAME] * 2)
    made.count()
    assert calibrations(tenant)[0].suspended_at is None


def test_labelling_counts_the_votes_of_its_picks(tenant, monkeypatch):
    compile_once(monkeypatch, tenant, teacher())
    row = warm(monkeypatch, tenant, steps=(*TO_SELECTION, StepName.LABELING))
    drafts = candidates(row, origin="draft", certificate="judged", state__in=["trained", "left_out", "unverified"])
    (known,) = [each for each in calibrations(tenant) if each.strategy == Strategy.JUDGE]
    counted = LabelVotes.from_json(known.label_votes)
    assert counted.total.n_drafts == len(drafts) > 0
    assert sum(counted.slices.values()) == len(slices(row))


JUDGE = {
    "teacher": {"provider": "grammar", "model": "kolm-grammar-1"},
    "draft_cache": {"judge": {"model": "cheap", "base_url": "https://judge.example.com/v1", "price": {
        "input_usd_per_mtok": 1, "output_usd_per_mtok": 2}}},
}  # fmt: skip


def test_drafts_by_another_models_word_are_evidence_of_it(tenant):
    made = Labelled(tenant, **JUDGE)
    made.add([SAME, OTHER], [SAME, SAME], certificate="delegated")
    made.count()
    (row,) = calibrations(tenant)
    assert (row.strategy, row.judge) == (Strategy.DELEGATE, "cheap@https://judge.example.com/v1")
    assert votes_of(tenant) == [SliceVotes(2, 1, 2, 0)]
    without = Labelled(tenant)  # its fresh picks are compared with no judge that it does not name
    without.add([], [OTHER], scope=made.scope_id)
    without.count()
    assert votes_of(tenant) == [SliceVotes(2, 1, 2, 0)]
    (row,) = calibrations(tenant)
    assert row.judge

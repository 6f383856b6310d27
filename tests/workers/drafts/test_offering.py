"""Drafts offered before anything is written: what enters, what is asked, what it costs, and what it teaches."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from backend.compiles.draft_savings import savings_of_compile
from backend.compiles.models import CompileEvent, TeacherCall
from backend.domain.drafts.calibration import curves_to_bytes
from backend.domain.drafts.vocabulary import Arm, Certificate, Strategy, VerdictKind
from backend.domain.lifecycle import StepName
from backend.drafts import purging
from backend.drafts.calibrations import replay
from backend.drafts.models import Calibration, Draft, LabelDraft, Offer, Outcome, Source, Verdict
from backend.tenants.isolation import tenant_scope
from backend.tenants.models import Tenant
from tests.compile_factories import LABELS, make_compile
from tests.factories import make_tenant
from tests.workers.pipeline_helpers import (
    BROKEN_OFF,
    FILTERED,
    ScriptedTeacher,
    anything,
    calls,
    candidates,
    check_money,
    drafts_shown,
    is_about_drafts,
    messages,
    slice_asked_for,
    slices,
    start,
    step,
    take_over,
    taught_by,
    told_apart,
    walk_through,
)
from workers.drafts import picks, pool_turns, records
from workers.drafts.picks import LEAST_POOL
from workers.teachers.protocol import TeacherFailed

pytestmark = pytest.mark.usefixtures("committed_db")
TO_SELECTION = (StepName.SLICING, StepName.SYNTHESIS, StepName.VERIFICATION, StepName.SELECTION)
FAR = "the weather"
N = 12


def long_messages() -> Iterator[str]:
    """Texts of some length: a judge pays where a draft is long beside its verdict."""
    return (
        f"{first} {second} I have told you so before, and I would like to hear from a person this time."
        for first, second in itertools.permutations(messages(), 2)
    )


def spec(**changes: Any) -> dict[str, Any]:
    """Two slices told apart by words of their own; every slice offers, none is audited."""
    cache = {"holdback": 0.0, "audit_share": 0.0} | changes.pop("draft_cache", {})
    return {
        "examples": {"inline": told_apart(24), "holdout": 0.5},
        "sampling": {"n_candidates": N, "k_select": 4} | changes.pop("sampling", {}),
        "teacher": {
            "provider": "openai_compatible",
            "base_url": "https://llm.example.com/v1",
            "model": "m",
            "price": {"input_usd_per_mtok": 0.05, "output_usd_per_mtok": 4.0},
        }
        | changes.pop("teacher", {}),
        "draft_cache": cache,
    } | changes


def teacher(judge: Callable[[str], bool] = lambda text: True, **changes: Any) -> ScriptedTeacher:
    """Writes texts that name the slice they are for, and none that another teacher of the tests has written."""
    texts = long_messages()
    serial = next(SERIAL)

    def write(request: Any) -> list[str]:
        desk = slice_asked_for(request)
        return [f"{text} Ticket {serial} for the desk of {desk}." for text in itertools.islice(texts, request.n)]

    made = ScriptedTeacher(write=write, judge=judge, counts_tokens=True, **changes)
    made.serial = serial
    return made


SERIAL = itertools.count()


def compile_once(
    monkeypatch: Any, tenant: Tenant, asked: ScriptedTeacher, *, steps: Any = TO_SELECTION, **changes: Any
) -> Any:
    taught_by(monkeypatch, asked)
    row = make_compile(tenant, **spec(**changes))
    walk_through(start(row), *steps)
    return row


def warm(monkeypatch: Any, tenant: Tenant, asked: ScriptedTeacher | None = None, **changes: Any) -> Any:
    """A sibling: other words for the same task, so that no prompt is the same."""
    task = changes.pop("task", "Does the customer of this shop ask for money back?")
    return compile_once(monkeypatch, tenant, asked or teacher(off_topic_refused), task=task, **changes)


def off_topic_refused(text: str) -> bool:
    return "person this time" in text


def verified(row: Any) -> list[Any]:
    """The drafts that entered a pool for good."""
    return [c for c in candidates(row, origin="draft") if c.certificate]


def rows_of(model: Any, tenant: Tenant, **where: Any) -> list[Any]:
    with tenant_scope(tenant.id):
        return list(model.objects.filter(tenant_id=tenant.id, **where).order_by("id"))


@pytest.fixture
def tenant() -> Tenant:
    return make_tenant()


@pytest.fixture
def known(tenant, monkeypatch):
    """The tenant after a first compile."""
    compile_once(monkeypatch, tenant, teacher())
    return tenant


# --- what is kept -----------------------------------------------------------------------------------------------


def test_what_a_selection_did_not_keep_is_a_draft_and_nothing_else_is(tenant, monkeypatch):
    row = compile_once(monkeypatch, tenant, teacher())
    dropped = {c.id for c in candidates(row, state="dropped")}
    drafts = rows_of(Draft, tenant)
    assert {draft.candidate_id for draft in drafts} == dropped
    assert not any(draft.is_kept for draft in drafts)
    assert step(row, StepName.SELECTION).output["facts"]["n_drafts"] == len(dropped)


def test_all_are_kept_where_an_exact_rule_may_use_them_and_the_picked_ones_are_marked(tenant, monkeypatch):
    row = compile_once(monkeypatch, tenant, teacher(), teacher={"revision": "2026-08"})
    drafts = rows_of(Draft, tenant)
    picked = {c.id for c in candidates(row, state="picked")}
    assert {d.candidate_id for d in drafts if d.is_kept} == picked
    assert len(drafts) == len(picked) + len(candidates(row, state="dropped"))
    assert {s.missing_ppm for s in rows_of(Source, tenant)} == {0}
    assert step(row, StepName.SELECTION).output["facts"]["n_drafts"] == len(drafts) - len(picked)


def test_what_a_gate_refused_never_enters(tenant, monkeypatch):
    gate = [{"kind": "excludes", "any_of": ["crashes"], "gate": True}]
    row = compile_once(monkeypatch, tenant, teacher(), verifiers=gate)
    assert candidates(row, state="rejected")
    kept = {d.candidate_id for d in rows_of(Draft, tenant)}
    assert not kept & {c.id for c in candidates(row, state="rejected")}


# --- what is offered --------------------------------------------------------------------------------------------


def test_a_warm_compile_pays_only_for_what_the_teacher_would_not_have_written(known, monkeypatch):
    asked = teacher(off_topic_refused)
    row = warm(monkeypatch, known, asked, sampling={"on_gap": ["drop_k"]})  # a gap asks for no more texts
    reused = verified(row)
    assert reused
    assert {c.certificate for c in reused} == {Certificate.JUDGED}
    n_fresh = sum(r.n for r in asked.asked if not is_about_drafts(r))
    assert n_fresh + sum(part.drafts["n_avoided"] for part in slices(row)) == N * len(slices(row))
    for part in slices(row):
        saving = part.drafts["saving"]
        spent = sum(saving[name] for name in saving if name not in ("avoided_microusd", "net_microusd"))
        assert saving["net_microusd"] == saving["avoided_microusd"] - spent
    assert sum(part.drafts["saving"]["net_microusd"] for part in slices(row)) > 0
    check_money(row)


def test_the_account_is_what_was_billed(known, monkeypatch):
    row = warm(monkeypatch, known)
    judged = [call for call in calls(row) if call.key.startswith("drafts:")]
    offers = rows_of(Offer, known, compile_id=row.id)
    assert sum(offer.verification_microusd for offer in offers) == sum(call.cost_microusd for call in judged) > 0
    reused = verified(row)
    n_tokens = sum(c.n_tokens for c in reused)
    assert sum(offer.avoided_microusd for offer in offers) >= 4 * n_tokens  # $4 a million tokens of output, and prompts
    receipt = step(row, StepName.SELECTION).output["facts"]["drafts"]
    assert receipt["offered"] == sum(offer.n_shown for offer in offers)
    assert receipt["accepted"] == sum(offer.n_accepted for offer in offers)
    assert receipt["family"]["offered"] == receipt["offered"]
    low, rate, high = (receipt["acceptance"][name] for name in ("low_ppm", "rate_ppm", "high_ppm"))
    assert low <= rate <= high
    with tenant_scope(row.tenant_id):
        shown = savings_of_compile(row.tenant_id, row.id)
    assert shown is not None
    assert shown.slices.saving.net == receipt["saving"]["net_microusd"]
    assert shown.acceptance.rate_ppm == rate
    without_calls = receipt["saving"]["embedding_microusd"]
    billed = sum(call.cost_microusd for call in calls(row) if not call.key.startswith("labeling:"))
    assert shown.slices.paid_microusd + shown.slices.costs_microusd - without_calls == billed


@pytest.mark.nightly
def test_a_teacher_that_would_have_written_none_of_them_costs_and_the_loss_is_written_down(known, monkeypatch):
    row = warm(monkeypatch, known, teacher(lambda text: False), sampling={"method": "all", "k_select": N})
    assert verified(row) == []
    assert all(part.n_generated == N for part in slices(row))  # written after all
    offers = rows_of(Offer, known, compile_id=row.id)
    assert sum(offer.verification_microusd for offer in offers) > 0
    receipt = step(row, StepName.SELECTION).output["facts"]["drafts"]
    assert receipt["saving"]["net_microusd"] < 0
    assert receipt["acceptance"]["rate_ppm"] == 0


@pytest.mark.nightly
def test_nothing_is_asked_where_asking_costs_more_than_writing(known, monkeypatch):
    asked = teacher()
    row = warm(monkeypatch, known, asked, teacher={"price": {"input_usd_per_mtok": 9.0, "output_usd_per_mtok": 1.0}})
    assert not any(map(is_about_drafts, asked.asked))
    assert {part.drafts["arm"] for part in slices(row)} == {Arm.NOT_WORTH}


@pytest.mark.nightly
def test_a_draft_that_could_not_become_a_candidate_is_not_asked_about(known, monkeypatch):
    asked = teacher(off_topic_refused)
    warm(monkeypatch, known, asked, verifiers=[{"kind": "excludes", "any_of": ["charged twice"], "gate": True}])
    shown = [text for request in filter(is_about_drafts, asked.asked) for _, text in drafts_shown(request).values()]
    assert shown
    assert not any("charged twice" in text for text in shown if "person this time" in text)


def test_the_same_prompt_again_asks_nothing_and_its_drafts_are_exact(tenant, monkeypatch):
    pinned = {"teacher": {"revision": "2026-08"}}
    compile_once(monkeypatch, tenant, teacher(), **pinned)
    asked = teacher()
    row = compile_once(monkeypatch, tenant, asked, **pinned)
    assert asked.asked == []
    reused = verified(row)
    assert len(reused) == N * len(slices(row))
    assert {c.certificate for c in reused} == {Certificate.EXACT}
    assert {part.drafts["strategy"] for part in slices(row)} == {Strategy.REPEAT}
    assert all(part.drafts["saving"]["verification_microusd"] == 0 for part in slices(row))
    receipt = step(row, StepName.SYNTHESIS).output["facts"]["drafts"]
    assert (receipt["offered"], receipt["acceptance"]["rate_ppm"]) == (0, None)
    assert receipt["repeated"] == sum(part.drafts["n_shown"] for part in slices(row)) > 0


@pytest.mark.nightly
def test_the_same_prompt_to_a_teacher_of_unknown_revision_is_asked_about(known, monkeypatch):
    asked = teacher(off_topic_refused)
    row = compile_once(monkeypatch, known, asked)
    assert {c.certificate for c in verified(row)} == {Certificate.JUDGED}


def test_another_revision_is_a_cold_start(tenant, monkeypatch):
    compile_once(monkeypatch, tenant, teacher(), teacher={"revision": "2026-08"})
    row = compile_once(monkeypatch, tenant, teacher(), teacher={"revision": "2026-09"})
    assert {part.drafts["arm"] for part in slices(row)} == {Arm.NO_DRAFTS}


@pytest.mark.parametrize("change", [{"family": "elsewhere"}, {"sampling": {"temperature_inputs": 0.8}}])
def test_another_family_or_temperature_sees_nothing(known, monkeypatch, change):
    row = warm(monkeypatch, known, **change)
    assert {part.drafts["arm"] for part in slices(row)} == {Arm.NO_DRAFTS}


def test_another_tenant_sees_nothing(known, monkeypatch):
    row = warm(monkeypatch, make_tenant())
    assert {part.drafts["arm"] for part in slices(row)} == {Arm.NO_DRAFTS}


@pytest.mark.parametrize("cache", [{"enabled": False}, {"verify": "off"}])
def test_a_cache_that_is_off_is_not_looked_into(known, monkeypatch, cache):
    asked = teacher()
    row = warm(monkeypatch, known, asked, draft_cache=cache)
    assert not any(map(is_about_drafts, asked.asked))
    assert {part.drafts for part in slices(row)} == {None}


def test_held_back_slices_are_generated_afresh_and_compared(known, monkeypatch):
    row = warm(monkeypatch, known, draft_cache={"holdback": 1.0})
    assert {part.drafts["arm"] for part in slices(row)} == {Arm.HELD_BACK}
    outcomes = rows_of(Outcome, known, compile_id=row.id)
    assert [(o.arm, o.n_from_drafts, o.n_candidates) for o in outcomes] == [(Arm.HELD_BACK, 0, N)] * len(slices(row))


def test_drafts_go_along_with_the_requests_where_the_engine_verifies_them(known, monkeypatch):
    vllm = {"teacher": {"engine": "vllm"}, "family": "engines"}
    compile_once(monkeypatch, known, teacher(), **vllm)
    asked, by_engine = teacher(), {"verify": "engine"}
    row = compile_once(monkeypatch, known, asked, task="Is money asked back here?", draft_cache=by_engine, **vllm)
    fresh = [request for request in asked.asked if request.item is None]
    assert all(request.drafts and request.cache_salt for request in fresh)
    assert len({request.cache_salt for request in fresh}) == 1
    assert {part.drafts["strategy"] for part in slices(row)} == {Strategy.ENGINE}
    assert all(part.drafts["n_proposed"] > 0 for part in slices(row))
    receipt = step(row, StepName.SELECTION).output["facts"]["drafts"]
    assert (receipt["offered"], receipt["acceptance"]["rate_ppm"]) == (0, None)  # proposals are no verdicts
    assert verified(row) == []


@pytest.mark.nightly
def test_a_gate_lets_drafts_in_only_after_the_judge_has_certified_it(tenant, monkeypatch):
    """Opted into, with a bound that some dozen verdicts can certify; then asking is made too dear to pay."""
    opted = {
        "slices": [{"name": "messages", "share": 1.0}],
        "draft_cache": {"gate": True, "max_bad_rate": 0.5},
        "verifiers": [{"kind": "length", "min_chars": 8, "max_chars": 300}],
        "sampling": {"n_candidates": 30, "k_select": 8},
    }
    dear = {"price": {"input_usd_per_mtok": 9.0, "output_usd_per_mtok": 1.0}}
    compile_once(monkeypatch, tenant, teacher(), **opted)
    before = warm(monkeypatch, tenant, task="Money back, or not?", teacher=dear, **opted)
    assert verified(before) == []
    for turn in range(6):
        warm(monkeypatch, tenant, task=f"Money back, or not? {turn}", **opted)
    judged = rows_of(Verdict, tenant, strategy=Strategy.JUDGE, kind=VerdictKind.VERDICT)
    assert {verdict.gate_score for verdict in judged} == {1.0}
    asked = teacher(off_topic_refused)
    row = warm(monkeypatch, tenant, asked, task="Money back, or not, at last?", teacher=dear, **opted)
    assert not any(map(is_about_drafts, asked.asked))
    assert {c.certificate for c in verified(row)} == {Certificate.GATED}


# --- what it teaches --------------------------------------------------------------------------------------------


@pytest.mark.nightly
def test_the_calibration_can_be_computed_again_from_the_verdicts(known, monkeypatch):
    for turn in range(2):
        warm(monkeypatch, known, task=f"Does the customer want money back? {turn}")
    (learnt,) = rows_of(Calibration, known)
    assert learnt.n_observations > 0
    with tenant_scope(known.id):
        again = replay(known.id, learnt.scope_id, Strategy(learnt.strategy))
    assert curves_to_bytes(again) == bytes(learnt.log_posterior)
    assert learnt.n_negative_controls > 0
    assert learnt.n_negative_accepted == 0


def test_a_judge_that_says_yes_to_everything_is_believed_nothing(known, monkeypatch):
    """The planted drafts of far slices are accepted too: the batches are void."""
    row = warm(monkeypatch, known, teacher(anything))
    assert verified(row) == []
    kinds = {verdict.kind for verdict in rows_of(Verdict, known)}
    assert VerdictKind.VOID in kinds
    assert VerdictKind.VERDICT not in kinds
    assert {draft.state for draft in rows_of(Draft, known)} >= {"quarantined"}


@pytest.mark.nightly
@pytest.mark.timeout(400)
def test_too_many_bad_drafts_and_the_family_generates_afresh(known, monkeypatch):
    """A judge that accepts, and in the audits refuses, until the bound is broken beyond doubt."""

    audits = {
        "draft_cache": {"audit_share": 1.0, "max_bad_rate": 0.02},
        "sampling": {"n_candidates": 24, "k_select": 8},
    }
    for turn in range(24):
        mine = f"Ticket {(two_faced := teacher(off_topic_refused)).serial} "
        two_faced._audit = lambda text, mine=mine: mine in text  # what it has just written is in place, no draft is
        warm(monkeypatch, known, two_faced, task=f"Is money asked back? {turn}", **audits)
        if any(row.suspended_at for row in rows_of(Calibration, known)):
            break
    else:
        pytest.fail(str([(r.n_audited, r.n_audited_bad, r.n_audit_positives) for r in rows_of(Calibration, known)]))
    row = warm(monkeypatch, known, task="Is money asked back at last?", **audits)
    assert {part.drafts["arm"] for part in slices(row)} == {Arm.SUSPENDED}


# --- what may go wrong ------------------------------------------------------------------------------------------


@pytest.mark.nightly
def test_a_worker_that_dies_after_the_question_asks_it_no_second_time(known, monkeypatch):
    asked = teacher(off_topic_refused)
    taught_by(monkeypatch, asked)
    row = make_compile(known, **spec(task="Does the customer of this shop ask for money back?"))
    run = start(row)
    saves = iter([RuntimeError("killed")])

    def dies(*arguments: Any) -> None:
        for error in saves:
            raise error
        records.save_verdicts(*arguments)

    monkeypatch.setattr(pool_turns, "save_verdicts", dies)
    with pytest.raises(RuntimeError, match="killed"):
        walk_through(run, *TO_SELECTION)
    assert any(map(is_about_drafts, asked.asked))
    walk_through(take_over(run, row), StepName.SELECTION)
    questions = [request.messages for request in asked.asked if is_about_drafts(request)]
    assert len(questions) == len(set(questions))  # what the first worker asked was answered from the journal
    assert verified(row)
    check_money(row)


@pytest.mark.nightly
def test_drafts_deleted_during_an_offer_are_let_go(known, monkeypatch):
    asked = teacher(off_topic_refused)
    whole = picks.verify_picks

    def purged(run: Any, pooling: Any) -> Any:
        with tenant_scope(known.id):
            purging.purge_family(known.id, run.spec.family)
        return whole(run, pooling)

    monkeypatch.setattr("workers.steps.selection.verify_picks", purged)
    row = warm(monkeypatch, known, asked)
    assert verified(row) == []
    assert all(part.n_generated >= LEAST_POOL * N for part in slices(row))


@pytest.mark.nightly
def test_a_teacher_that_refuses_the_question_does_not_end_the_compile(known, monkeypatch):
    def refuse(text: str) -> bool:
        raise TeacherFailed("no", code="teacher_rejected")

    row = warm(monkeypatch, known, teacher(refuse))
    assert all(part.n_generated == N for part in slices(row))
    with tenant_scope(known.id):
        codes = {e.data["code"] for e in CompileEvent.objects.filter(compile=row, type="warning")}
    assert "drafts_not_verified" in codes


@pytest.mark.nightly
def test_a_price_that_changes_between_offer_and_verdict_is_the_one_that_is_booked(known, monkeypatch):
    """The plan is made at one price and carried out, by the next worker, at another."""
    asked = teacher(off_topic_refused)
    taught_by(monkeypatch, asked)
    row = make_compile(known, **spec(task="Does the customer of this shop ask for money back?"))
    run = start(row)

    def dies(*_: Any, **__: Any) -> Any:
        raise RuntimeError("killed")

    with monkeypatch.context() as patched:
        patched.setattr(pool_turns, "judge_drafts", dies)
        with pytest.raises(RuntimeError, match="killed"):
            walk_through(run, *TO_SELECTION)
    dearer = spec()["teacher"]["price"] | {"output_usd_per_mtok": 4.0}
    with tenant_scope(known.id):
        row.spec["teacher"]["price"] = dearer
        row.save(update_fields=["spec"])
    walk_through(take_over(run, row), StepName.SELECTION)
    versions = {call.price_version for call in calls(row)}
    assert len(versions) == 1
    judged = rows_of(Verdict, known, compile_id=row.id)
    assert {verdict.price_version for verdict in judged} == versions


# --- labels -----------------------------------------------------------------------------------------------------


TO_LABELS = (*TO_SELECTION, StepName.LABELING)


def labelled(monkeypatch: Any, tenant: Tenant, asked: ScriptedTeacher, **changes: Any) -> Any:
    return compile_once(
        monkeypatch,
        tenant,
        asked,
        steps=TO_LABELS,
        captures={"inline": list(itertools.islice(messages(), 30))},
        **changes,
    )


def n_label_calls(asked: ScriptedTeacher) -> int:
    return sum(request.item is not None for request in asked.asked)


@pytest.mark.parametrize(
    ("changes", "is_reused"),
    [
        ({"teacher": {"revision": "a"}}, True),
        ({"teacher": {"revision": "b"}}, False),
        ({"teacher": {"revision": "a"}, "task": "Another question."}, False),
        ({"teacher": {"revision": "a"}, "sampling": {"temperature_labels": 0.5}}, False),
        ({"teacher": {"revision": "a"}, "draft_cache": {"enabled": False}}, False),
    ],
)
def test_labels_are_reused_for_the_same_prompt_of_the_same_revision_alone(tenant, monkeypatch, changes, is_reused):
    cold = teacher()
    first = labelled(monkeypatch, tenant, cold, teacher={"revision": "a"})
    assert n_label_calls(cold) > 0
    asked = teacher()
    again = labelled(monkeypatch, tenant, asked, **changes)
    n_before = step(again, StepName.LABELING).output["facts"]["n_labeled_before"]
    assert n_label_calls(asked) + n_before == n_label_calls(cold)
    assert (n_before > 0) == is_reused
    if is_reused:
        assert n_label_calls(asked) == 0
        votes = {c.text_key: c.votes for c in candidates(first) if c.votes}
        assert {c.text_key: c.votes for c in candidates(again) if c.votes} == votes
        (offer,) = rows_of(Offer, tenant, compile_id=again.id, slice_position=-1)
        assert offer.avoided_microusd > 0
    check_money(again)


@pytest.mark.parametrize("reply", [FILTERED, BROKEN_OFF], ids=["filtered", "broken"])
def test_an_input_without_an_answer_is_asked_about_again(tenant, monkeypatch, reply):
    refused, asked = teacher(), teacher()
    nth = itertools.count()
    monkeypatch.setattr(refused, "_label", lambda text: [LABELS[1] if next(nth) % 2 else reply] * 5)
    labelled(monkeypatch, tenant, refused, teacher={"revision": "a"})
    labelled(monkeypatch, tenant, asked, teacher={"revision": "a"})
    assert n_label_calls(asked) == -(-n_label_calls(refused) // 2)


def test_labels_of_a_teacher_of_unknown_revision_are_not_kept(tenant, monkeypatch):
    labelled(monkeypatch, tenant, teacher())
    assert rows_of(LabelDraft, tenant) == []


def test_the_journal_names_every_question(known, monkeypatch):
    row = warm(monkeypatch, known)
    with tenant_scope(known.id):
        assert not TeacherCall.objects.filter(compile=row, state="started").exists()
    assert len(LABELS) == len(slices(row))
